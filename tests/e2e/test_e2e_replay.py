"""A replay through the whole platform, undisturbed and with every process killed once."""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from .platform_world import HBOX, Up, hbox, processes_of

pytestmark = pytest.mark.e2e


def sound(report: dict[str, Any]) -> None:
    pods = report["pods"]
    assert (report["audit"]["faults_found"], report["audit"]["notes"]) == ([], [])
    assert report["audit"]["checks"] > pods["bound"]
    assert pods["bound"] + pods["waiting"] == pods["submitted"]
    assert pods["without_verdict"] == 0


def test_a_replay_brings_up_its_own_platform_and_leaves_nothing_behind(tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = hbox("replay", "--state", str(state), "--limit-nodes", "40", "--limit", "300", timeout_s=150)
    assert done.returncode == 0, done.stderr
    report = json.loads((state / "report.json").read_text())
    sound(report)
    assert report["pods"]["submitted"] >= 297  # no gang is cut in two
    assert report["pods"]["bound"] > 150
    taken = report["departments"]
    assert taken["asked"] == taken["bound"] > 0
    shares = taken["shares"]
    assert (shares["platform"]["before"], shares["platform"]["after"]) == (0, taken["bound"])
    assert all(share["after"] >= min(share["before"], share["deserved"]) for share in shares.values()), (
        "nobody loses what is its own"
    )
    for said in ("submit-to-bound p50", "allocation", "fragmentation", "departments", "0 faults"):
        assert said in done.stdout
    assert "Traceback" not in done.stderr
    assert processes_of(state) == []


def test_every_process_killed_once_in_the_middle_loses_and_doubles_nothing(platform: Up, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    words = [
        "replay",
        "--state",
        str(platform.state),
        "--report",
        str(target),
        "--limit-nodes",
        "100",
        "--limit",
        "500",
        "--rate",
        "25",  # for longer than the kills take
    ]
    with (tmp_path / "log").open("wb") as log:
        replay = subprocess.Popen([*HBOX, *words], stdout=log, stderr=log)
    before = platform.pids()
    victims = [name for name in before if name != "kube-api"]
    assert len(victims) == 9
    step = threading.Event()
    time.sleep(3.0)  # not synchronisation: the kills are meant to fall into the stream of pods
    for name in victims:
        os.kill(platform.pids()[name], signal.SIGKILL)
        step.wait(2.0)
    assert replay.wait(150) == 0, (tmp_path / "log").read_text()
    report = json.loads(target.read_text())
    sound(report)
    assert report["pods"]["submitted"] >= 497
    assert report["evictions"] == 0
    after = platform.pids()
    assert all(after[name] != before[name] for name in victims), "each was started again"
    assert hbox("--state", str(platform.state), "audit").returncode == 0
