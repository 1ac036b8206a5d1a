"""A card that is taken out while its node is off: no log names it, and NVML of the new boot never listed it. It is found by what the node had before, although
agent and health-monitor started anew, and an operator accepts the node without it.
"""

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from hbox_cli.platform.layout import Layout
from hbox_common.clock import monotonic_s
from hbox_common.kube import NODES, KubeClient
from hbox_sandbox.kubelet.hardware import NodeHardware
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from .platform_world import Up, until, up

pytestmark = pytest.mark.e2e

NODE = "n0"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(
        tmp_path_factory.mktemp("inventory") / "state", env={"HBOX_NVML_POLL_S": "0.5", "HBOX_VALIDATED_S": "1"}
    ) as running:
        yield running


def incidents(platform: Up) -> list[dict[str, Any]]:
    return list(platform.json("health", "incidents", NODE)["items"])


def remembered(platform: Up) -> int:
    """How many cards of the node health-monitor has stored."""
    with closing(sqlite3.connect(f"file:{platform.state / 'health.db'}?mode=ro", uri=True)) as database:
        rows = database.execute("select body from memories where node = ?", (NODE,)).fetchall()
    return max((len(json.loads(body)["parts"]["cards"]) for (body,) in rows), default=0)


async def test_a_card_that_is_missing_after_a_boot_is_found_and_accepted(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        box = TraceNode(NODE, cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
        await client.json("POST", NODES.path(), body=node_manifest(box, now="2026-01-01T00:00:00Z"))
    root = Layout(platform.state).kubelets / NODE
    until((root / "host/nvml.jsonl").exists, timeout_s=60, what="an emulated kubelet")
    hardware = NodeHardware(root)
    until(lambda: len(hardware.listed()) == 8, timeout_s=60, what="emulated cards")
    until(lambda: remembered(platform) == 8, timeout_s=60, what="a report on all cards")
    taken = list(hardware.listed())[3]
    hardware.agent(False)
    await asyncio.sleep(3)  # it is looked for every second
    hardware.remove_card(taken)
    hardware.boot()
    before = platform.pids()["health-monitor"]
    os.kill(before, signal.SIGKILL)
    until(lambda: platform.pids()["health-monitor"] != before, timeout_s=30, what="another health-monitor")
    assert incidents(platform) == []
    hardware.agent(True)
    began = monotonic_s()
    until(lambda: incidents(platform) != [], timeout_s=60, what="an incident")
    print(f"found after {monotonic_s() - began:.1f} s")
    [incident] = incidents(platform)
    assert (incident["entity"], incident["kind"]) == ("node", "node-fault")
    assert f"7 cards of 8; missing: {taken} at " in incident["why"]
    until(lambda: NODE in {one["node"] for one in platform.json("health", "ls")["items"]}, timeout_s=60, what="a verdict")
    accepted = platform.json("health", "accept", NODE, "--reason", "card is with its vendor", "--operator", "ann")
    assert "7 cards, without 1 that it had" in accepted["effect"]
    until(lambda: incidents(platform) == [], timeout_s=60, what="no incident")
    hardware.boot()
    until(
        lambda: NODE not in {one["node"] for one in platform.json("health", "ls")["items"]},
        timeout_s=60,
        what="the node in service",
    )
    assert incidents(platform) == []
