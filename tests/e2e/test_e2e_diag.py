"""`hbox diag` on a running platform: planted secrets are nowhere in its archive, and half a platform is enough for it."""

from __future__ import annotations

import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .platform_world import Up, up

pytestmark = pytest.mark.e2e

PLANTED = {
    "OTEL_EXPORTER_OTLP_HEADERS": "x-team=planted-in-headers",
    "HBOX_TEST_PASSWORD": "planted-in-a-variable",
    "HBOX_TEST_URL": "https://somebody:planted-in-an-address@example.com/?token=planted-in-a-query",
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("diag")
    conf = folder / "volcano-scheduler.conf"
    conf.write_text(
        'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n# api_key: planted-in-a-file\n'
    )
    with up(folder / "state", env=PLANTED | {"HBOX_SCHEDULER_CONF": str(conf)}) as running:
        yield running


def archive(platform: Up, path: Path) -> dict[str, str]:
    done = platform.hbox("diag", "-f", str(path))
    assert done.returncode == 0, done.stderr
    with tarfile.open(path) as tar:
        found = {m.name.partition("/")[2]: tar.extractfile(m).read().decode() for m in tar.getmembers()}  # type: ignore[union-attr]
    return found | {"said": done.stdout + done.stderr}


def test_everything_is_there_and_no_secret(platform: Up, tmp_path: Path) -> None:
    with (platform.state / "logs" / "binder.log").open("a") as log:
        log.write('{"level": "error", "message": "user planted-in-headers; password: planted-in-a-log"}\n')
        log.write("planted-in-a-variable stands alone\n")
    found = archive(platform, tmp_path / "d.tar.gz")
    seeds = [path.read_text().strip() for path in (platform.state / "nats-users").glob("*.nk")]
    assert len(seeds) == 12
    everything = "".join(found.values())
    assert "planted" not in everything
    assert not [seed for seed in seeds if seed in everything]
    index = json.loads(found["index.json"])
    assert (index["missing"], index["cut"]) == ({}, [])
    health = json.loads((platform.state / "platform.json").read_text())["health"]
    for name in health:
        assert {f"settings/{name}.json", f"logs/{name}.log", f"ready/{name}.json", f"metrics/{name}.txt"} <= found.keys()
    assert json.loads(found["settings/binder.json"])["HBOX_LOG_FORMAT"] == "json"
    assert set(json.loads(found["bus/streams.json"])) >= {"HBOX_STATE", "HBOX_DECISIONS", "HBOX_DLQ"}
    consumers = json.loads(found["bus/consumers.json"])
    assert consumers["binder-binds"]["num_pending"] == 0, (
        "asked as the broker's admin: operators may not look at consumers of others"
    )
    assert json.loads(found["audit.json"])["faults"] == []
    assert {queue["queue"]["name"] for queue in json.loads(found["queues.json"])} >= {"root", "default"}


def test_half_a_platform_is_enough(platform: Up, tmp_path: Path) -> None:
    pids = platform.pids()
    stopped = [pids[name] for name in ("binder", "quota-ledger", "job-controller")]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        found = archive(platform, tmp_path / "d.tar.gz")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    missing = json.loads(found["index.json"])["missing"]
    assert {"binder", "quota-ledger", "job-controller"} <= missing.keys()
    assert missing.keys() <= {"binder", "quota-ledger", "job-controller", "jobs", "ledger", "audit"}
    assert "missing: binder: " in found["said"]
    assert {"logs/binder.log", "metrics/scheduler-core.txt", "bus/streams.json", "queues.json"} <= found.keys()


def test_of_a_platform_that_is_dead_the_logs_are_left(platform: Up, tmp_path: Path) -> None:
    platform.stop()
    found = archive(platform, tmp_path / "d.tar.gz")
    assert "logs/quota-ledger.log" in found
    assert set(json.loads(found["index.json"])["missing"]) == {"platform"}
    everything = "".join(found.values())
    assert "planted-in-a-log" not in everything, (
        "what a dead process was started with nobody knows any more; what says what it is goes"
    )
    assert not [path for path in (platform.state / "nats-users").glob("*.nk") if path.read_text().strip() in everything]
