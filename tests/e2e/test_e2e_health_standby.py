"""The leader of two health-monitors is killed during an incident: its standby continues it under its id."""

import os
import signal
from pathlib import Path

import pytest

from hbox_common.kube import NODES, KubeClient
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from .platform_world import Up, until, up
from .test_e2e_sick_hardware import FAST, bad_cards, inject
from .test_standby import leaders

pytestmark = pytest.mark.e2e

SERVICE, NODE, KILLS = "health-monitor", "n0", 3


def found(platform: Up) -> dict[str, str]:
    """State of each incident of the node by id."""
    listed = platform.json("health", "incidents", "--all")["items"]
    return {one["id"]: one["state"] for one in listed if one["node"] == NODE}


def replaced(platform: Up) -> None:
    led = until(lambda: leaders(platform).get(SERVICE), timeout_s=30, what="a leader")
    os.kill(led, signal.SIGKILL)
    until(lambda: leaders(platform).get(SERVICE, led) != led, timeout_s=30, what="another leader")


async def test_a_standby_continues_the_incidents_of_a_killed_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBOX_LEASE_DURATION_S", "3")
    with up(tmp_path / "state", "--standby", env=FAST) as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
            box = TraceNode(NODE, cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
            await client.json("POST", NODES.path(), body=node_manifest(box, now="2026-01-01T00:00:00Z"))
        until(lambda: NODE in {one["name"] for one in platform.json("nodes")["items"]}, timeout_s=30, what="the node")
        inject(platform, "contained", NODE, "--card", "0")
        replaced(platform)
        until(lambda: bool(bad_cards(platform, NODE)), timeout_s=60, what="a card out of use")
        before = found(platform)
        for _ in range(KILLS - 1):
            replaced(platform)
        assert found(platform).keys() == before.keys()
        assert bad_cards(platform, NODE)
        inject(platform, "repaired", NODE)
        until(lambda: not bad_cards(platform, NODE), timeout_s=90, what="the card back in use")
        until(lambda: set(found(platform).values()) == {"closed"}, timeout_s=30, what="closed incidents")
        assert found(platform).keys() == before.keys()
