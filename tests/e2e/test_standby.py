"""Leader and standby of a whole platform: a leader that hangs is replaced, wakes as a zombie, and does no harm."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from .platform_world import Up, hbox, up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LEASE_S = 3
PAIRED = ("job-controller", "scheduler-core", "quota-ledger", "binder")


def replayed(platform: Up) -> dict[str, Any]:
    """60 more pods through the platform, and its report."""
    done = hbox("--state", str(platform.state), "replay", "--limit", "60", "--limit-nodes", "40", timeout_s=90)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads((platform.state / "report.json").read_text())
    return report


def test_hung_leaders_are_replaced_and_do_no_harm_when_they_wake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBOX_LEASE_DURATION_S", str(LEASE_S))
    with up(tmp_path / "state", "--standby") as platform:
        assert {f"{name}-standby" for name in PAIRED} < set(platform.pids())
        assert replayed(platform)["audit"]["faults"] == 0
        hung = [platform.pids()[name] for name in PAIRED]
        for pid in hung:
            os.kill(pid, signal.SIGSTOP)
        try:
            report = replayed(platform)
            assert report["pods"]["bound"] == report["pods"]["submitted"] == 60
        finally:
            for pid in hung:
                os.kill(pid, signal.SIGCONT)
        report = replayed(platform)
        assert report["pods"]["bound"] == 60
        assert report["audit"]["faults"] == 0
