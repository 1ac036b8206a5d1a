"""The commands on a running platform, and the platform's own start and stop."""

import csv
import json
import os
import re
import signal
from pathlib import Path

import pytest
import yaml

from .platform_world import Up, hbox, processes_of, until, up

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def used(platform: Up) -> Up:
    """With more pods than its nodes can hold."""
    done = hbox("replay", "--state", str(platform.state), "--limit-nodes", "6", "--limit", "120", timeout_s=100)
    assert done.returncode == 0, done.stderr
    return platform


def test_jobs_and_why_tell_the_reasons_of_what_waits(used: Up) -> None:
    jobs = used.json("jobs")["items"]
    waiting = [job for job in jobs if job["state"] == "WAITING"]
    assert len(jobs) > 60
    assert waiting
    assert all("nodes are available" in job["reason"] for job in waiting), waiting[0]
    assert used.json("why", waiting[0]["name"])["reason"] == waiting[0]["reason"]
    shown = used.hbox("jobs", "--state-is", "waiting")
    assert len(shown.stdout.splitlines()) == len(waiting) + 1


FORMS = [("jobs",), ("nodes",), ("nodes", "--devices"), ("nodes", "--kinds"), ("nodes", "--pools"), ("queue", "ls")]
FORMS += [("queue", "tree"), ("queue", "show", "default"), ("share", "default"), ("quota", "ls"), ("usage",), ("events",)]
FORMS += [
    ("check",),
    ("audit",),
    ("audit", "--ledger"),
    ("evictions", "show"),
    ("defrag",),
    ("node", "show", "JOB'S NODE"),
    ("why", "JOB"),
]


@pytest.mark.parametrize("arguments", FORMS, ids=" ".join)
def test_every_command_prints_each_form(used: Up, arguments: tuple[str, ...]) -> None:
    job = next(job for job in used.json("jobs")["items"] if job["placed"])
    arguments = tuple(
        {"JOB": job["name"], "JOB'S NODE": next(iter(job["placed"].values()))}.get(word, word) for word in arguments
    )
    shown = {}
    for form in ("table", "wide", "json", "yaml", "csv", "name"):
        done = used.hbox(*arguments, "-o", form)
        assert done.returncode == 0, done.stderr
        shown[form] = done.stdout
    assert all(isinstance(one, dict) for one in yaml.safe_load_all(shown["yaml"]))
    assert not any(line.startswith("{") for line in shown["yaml"].splitlines())
    head, *rows = csv.reader(shown["csv"].splitlines())
    assert all(title == title.upper() for title in head)
    assert all(len(row) == len(head) for row in rows)
    assert not any(bar in shown["csv"] for bar in "█▒│")
    assert all(re.fullmatch(r"[a-z]+/\S+", line) for line in shown["name"].splitlines())


def test_an_unknown_job_is_told_with_the_nearest_name(used: Up) -> None:
    name = used.json("jobs")["items"][0]["name"].partition("/")[2]
    done = used.hbox("why", name[:-1] + "x")
    assert done.returncode == 3
    assert "did you mean" in done.stderr


def test_nodes_and_queues_add_up_to_the_claims(used: Up) -> None:
    nodes = used.json("nodes")["items"]
    assert len(nodes) == 6
    assert all(node["state"] == "READY" and node["healthy"] for node in nodes)
    (queue,) = [q for q in used.json("queue", "ls")["items"] if q["name"] == "default"]
    assert queue["used"]["pods"] == sum(node["pods"] for node in nodes)
    assert queue["pendingJobs"] > 0


def test_a_queue_is_created_and_seen(used: Up) -> None:
    done = used.hbox("queue", "create", "research", "--capability", "nvidia.com/gpu=8")
    assert done.returncode == 0, done.stderr

    def seen() -> bool:
        return any(
            q["name"] == "research" and q["capability"] == {"nvidia.com/gpu": 8} for q in used.json("queue", "ls")["items"]
        )

    until(seen, timeout_s=15, what="the queue")


def test_usage_is_what_the_claims_hold_by_time(used: Up) -> None:
    def told() -> bool:
        usage = used.json("usage", "--by", "queue,model", "--price", "*=2")
        held = [item for item in usage["items"] if item["queue"] == "default"]
        return bool(held) and usage["total"]["cardHours"] > 0 and float(usage["total"]["cost"]) > 0

    until(told, timeout_s=30, what="usage")
    table = used.hbox("usage", "--by", "user", "-o", "csv").stdout.splitlines()
    assert table[0] == "USER,CARD-HOURS,OWN,BORROWED"
    shown = used.hbox("usage").stdout
    assert "▒" in shown
    assert shown.splitlines()[-1].startswith("total")


def test_the_ledgers_history_is_proven_while_it_runs(used: Up) -> None:
    proof = used.json("audit", "--ledger")
    assert proof["faults"] == []
    assert proof["records"] > 60


def test_events_tell_of_bound_jobs(used: Up) -> None:
    def bound() -> bool:
        done = used.hbox("-o", "json", "events")
        assert done.returncode == 0, done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return any(event["type"] == "io.hbox.job.placed.v1" and event["data"]["node_count"] for event in found)

    until(bound, timeout_s=30, what="an event")


def test_check_finds_all_well_and_says_what_is_not(used: Up) -> None:
    check = used.json("check")
    assert check["good"]
    assert {"broker", "kubernetes", "database", "binder", "scheduler-core"} <= {c["name"] for c in check["checks"]}
    # Stopped, so that the supervisor does not start it again meanwhile.
    os.kill(used.pids()["health-monitor"], signal.SIGSTOP)
    try:
        done = used.hbox("check")
    finally:
        os.kill(used.pids()["health-monitor"], signal.SIGCONT)
    assert done.returncode == 6
    assert "BAD  health-monitor" in done.stdout
    assert "fix:" in done.stdout


def test_the_audit_is_clean(used: Up) -> None:
    audit = used.json("audit")
    assert audit["faults"] == []
    assert audit["checks"] > 100


def test_a_second_platform_in_the_folder_is_refused(used: Up) -> None:
    done = hbox("up", "--state", str(used.state))
    assert done.returncode == 5
    assert f"process {used.process.pid}" in done.stderr
    assert used.pids(), "the first one's files are left alone"


def test_ctrl_c_stops_in_order_and_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--nodes", "3x8", "--nodes", "1x4:NVIDIA-H200", anew=True) as running:
        until(lambda: len(running.json("nodes")["items"]) == 4, timeout_s=10, what="the nodes that were asked for")
        assert [node["cards"]["total"] for node in running.json("nodes")["items"]] == [8, 8, 8, 4]
        assert set(running.pids()) == {
            "topology-collector", "job-controller", "quota-ledger", "scheduler-core", "binder", "health-monitor",
            "node-agent", "console", "nats-server", "kube-api",
        }  # fmt: skip
        assert running.stop(signal.SIGINT) == 0
        assert processes_of(running.state) == []
        assert not (running.state / "pids.json").exists()
        assert "Traceback" not in running.err.read_text()


def test_a_killed_supervisor_takes_its_children_along_and_the_folder_can_be_used_again(tmp_path: Path) -> None:
    with up(tmp_path / "state", anew=True) as running:
        _all_services_die(running)
        running.kill()
        until(lambda: not processes_of(running.state), timeout_s=10, what="the children's end")
    with up(tmp_path / "state", anew=True) as again:
        assert again.stop(signal.SIGTERM) == 0


def _all_services_die(running: Up) -> None:
    """The process that forked them dies, and they with it; a new one is not a fork of the supervisor, as the first is."""
    before = running.pids()
    services = before.keys() - {"nats-server", "kube-api"}
    os.kill(int(Path(f"/proc/{before['binder']}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    until(lambda: all(running.pids()[name] != before[name] for name in services), timeout_s=30, what="new processes")
    until(lambda: running.hbox("check").returncode == 0, timeout_s=30, what="a platform that is well")
    assert {name: running.pids()[name] for name in before.keys() - services} == {
        name: before[name] for name in before.keys() - services
    }


def test_an_emulated_cluster_that_dies_ends_its_platform_which_says_why(used: Up) -> None:
    """The last of this module: the others need it."""
    os.kill(used.pids()["kube-api"], signal.SIGKILL)
    until(lambda: used.process.poll() is not None, timeout_s=30, what="the platform's end")
    assert used.process.returncode == 1
    assert "kube-api, the emulated cluster, ended (killed by SIGKILL)" in used.err.read_text()
    assert processes_of(used.state) == []
