"""What a script sees of `hbox audit` and `hbox replay`: 1 where a fault was found, 130 where they were interrupted."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import AnyStr

import pytest

from hbox_common.kube import KubeClient

from .platform_world import HBOX, STOP_S, Up, hbox, processes_of, until, up
from .policy_scenarios import group, pods

pytestmark = pytest.mark.e2e

FAULT = "gang default/half started in part: 1 pods of at least 2"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A platform in whose cluster somebody else has started half a gang."""
    with up(tmp_path_factory.mktemp("broken") / "state", "--nodes", "2x4") as running:
        node = until(lambda: running.json("nodes")["items"], timeout_s=10, what="a node")[0]["name"]
        asyncio.run(_half_a_gang(running, node))
        yield running


async def _half_a_gang(running: Up, node: str) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        await group(client, "half", members=2)
        await pods(client, "half", 1, scheduler="another", nodeName=node)


def test_an_audit_that_finds_a_fault_has_status_1(broken: Up) -> None:
    done = hbox("--state", str(broken.state), "audit", "--patience", "0")
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, f"fault: {FAULT}"), done.stderr
    told = hbox("--state", str(broken.state), "audit", "--patience", "0", "-o", "json")
    assert (told.returncode, json.loads(told.stdout)["faults"]) == (1, [FAULT])


def test_a_replay_whose_audit_finds_a_fault_has_status_1(broken: Up, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = hbox(
        "--state", str(broken.state), "replay", "--limit-nodes", "3", "--limit", "5", "--report", str(report), timeout_s=120
    )
    assert done.returncode == 1, done.stderr
    assert FAULT in json.loads(report.read_text())["audit"]["faults_found"]
    assert "the audit found" in done.stderr


def test_an_audit_that_is_interrupted_has_status_130(broken: Up) -> None:
    """While there is a fault it looks again, for as long as it is told to."""
    audit = _begun("--state", str(broken.state), "audit", "--patience", "300")
    until(lambda: _sockets(audit.pid) > 1, timeout_s=30, what="an audit that asks")
    _, said = _interrupted(audit)
    assert audit.returncode == 130
    assert "Traceback" not in said


def test_a_replay_that_is_interrupted_has_status_130_and_stops_its_platform(tmp_path: Path) -> None:
    state, log = tmp_path / "state", tmp_path / "log"
    with log.open("wb") as err:
        words = [*HBOX, "replay", "--state", str(state), "--limit-nodes", "40", "--limit", "300", "--rate", "1"]
        replay = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=err)
    until(lambda: "platform ready" in log.read_text(), timeout_s=60, what="a platform of its own")
    _interrupted(replay)
    assert replay.returncode == 130, log.read_text()
    assert processes_of(state) == []
    assert "Traceback" not in log.read_text()


def _begun(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*HBOX, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _interrupted(process: subprocess.Popen[AnyStr]) -> tuple[AnyStr, AnyStr]:
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=STOP_S)
    finally:
        process.kill()


def _sockets(pid: int) -> int:
    """Connections of a process."""
    found = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(fd.readlink()).startswith("socket:")
        except OSError:
            continue
    return found
