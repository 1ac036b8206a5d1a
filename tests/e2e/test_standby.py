"""Leader and standby of a whole platform: a leader that hangs is replaced, wakes as a zombie, and does no harm."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from .platform_world import Up, hbox, until, up

pytestmark = pytest.mark.e2e

LEASE_S = 3
LONG_LEASE_S = 300
PAIRED = ("job-controller", "scheduler-core", "quota-ledger", "binder", "health-monitor")


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


def leaders(platform: Up) -> dict[str, int]:
    """Service -> process that holds its lease."""
    running = json.loads((platform.state / "platform.json").read_text())
    server = yaml.safe_load(Path(running["kubeconfig"]).read_text())["clusters"][0]["cluster"]["server"]
    with urlopen(f"{server}/apis/coordination.k8s.io/v1/namespaces/hbox-system/leases", timeout=10) as answer:
        held = {lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in json.load(answer)["items"]}
    return {name: int(holder.removeprefix(f"{socket.gethostname()}-")) for name, holder in held.items() if holder}


def test_killed_leaders_are_followed_long_before_their_leases_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBOX_LEASE_DURATION_S", str(LONG_LEASE_S))
    with up(tmp_path / "state", "--standby") as platform:
        led = until(lambda: len(found := leaders(platform)) == len(PAIRED) and found, timeout_s=60, what="leaders")
        assert set(led) == set(PAIRED)
        for pid in led.values():
            os.kill(pid, signal.SIGKILL)
        report = replayed(platform)
        assert report["pods"]["bound"] == 60
        assert report["audit"]["faults"] == 0
        assert not set(leaders(platform).values()) & set(led.values())
