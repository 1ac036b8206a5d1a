"""Faults of an emulated node's hardware, as node-agent reports them."""

from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.health.report import Fact
from hbox_common.telemetry.metrics import REGISTRY
from hbox_sandbox.kubelet.hardware import FABRIC_MANAGER, MODULES, NodeHardware

from ...waiting import until
from .agent_world import AgentWorld
from .test_health_reports import XID_48, Seen

CARD = "GPU-6a1f0c9e-3a5d-4a51-8c3e-1f2b3c4d5e6f"


async def test_injected_faults_are_reported_as_those_of_a_node(world: AgentWorld, tmp_path: Path) -> None:
    root = tmp_path / "kubelets" / "n1"
    root.mkdir(parents=True)
    hardware, seen = NodeHardware(root), Seen(world)
    first = hardware.boot()
    hardware.cards({CARD: "0000:01:00.0", "GPU-2": "0000:02:00.0"})
    async with world.agent(kubelets=tmp_path / "kubelets", nvml_poll_s=0.1, readers={"kernel-log": {"every_s": 0.05}}):
        await seen.until("nvml", lambda facts: len(facts) == 3)
        hardware.kernel(XID_48, "NVRM: The NVIDIA GPU 0000:02:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
                        "NVRM: fallen off the bus and is not responding to commands.")  # fmt: skip
        hardware.kernel(XID_48, facility=1)
        facts = await seen.until("kernel-log", lambda facts: len(facts) >= 2)
        assert [(fact.entity, fact.code) for fact in facts] == [(f"gpu:{CARD}", "48"), ("gpu:GPU-2", "gpu-lost")]
        hardware.card(CARD, recovery_action=1, links_down=(4,))
        hardware.card("GPU-2", lost=True)
        facts = await seen.until("nvml", lambda facts: len(facts) >= 6)
        by_card = {fact.entity: fact.value for fact in facts if fact.code == "card"}
        assert (by_card[f"gpu:{CARD}"]["recovery_action"], by_card[f"gpu:{CARD}"]["nvlinks_inactive"]) == (1, (4,))
        assert by_card["gpu:GPU-2"]["every_call"] == 15
        second = hardware.boot()
        hardware.kernel(XID_48)
        await seen.until("kernel-log", lambda facts: len(facts) >= 3)
    reports = await seen.reports()
    assert [report.boot_id for report in reports] == sorted((report.boot_id for report in reports), key=[first, second].index)


async def test_units_of_an_emulated_node_and_its_agent_that_is_gone_for_a_while(world: AgentWorld, tmp_path: Path) -> None:
    root = tmp_path / "kubelets" / "n1"
    (root / "host/proc").mkdir(parents=True)
    (root / MODULES).write_text("nvidia 1 0 - Live 0x0\n")
    hardware, seen = NodeHardware(root), Seen(world)
    hardware.unit(FABRIC_MANAGER, active=True)

    def states(facts: list[Fact]) -> list[object]:
        units = [fact.value["units"] for fact in facts]
        return [one[FABRIC_MANAGER] for one in units if isinstance(one, dict)]

    async with world.agent(kubelets=tmp_path / "kubelets", readers={"units": {"every_s": 0.05}}):
        await seen.until("units", lambda facts: states(facts)[-1:] == ["active"])
        hardware.unit(FABRIC_MANAGER, active=False)
        await seen.until("units", lambda facts: states(facts) == ["active", "inactive"])
        hardware.agent(False)
        await until(lambda: REGISTRY.get_sample_value("hbox_agent_nodes") == 0, "the agent leaves the node")
        hardware.agent(True)
        await seen.until("agent", lambda facts: [fact.code for fact in facts].count("started") == 2)


def test_faults_of_what_the_node_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no emulated kubelet"):
        NodeHardware(tmp_path / "n2")
    hardware = NodeHardware(tmp_path)
    hardware.cards({CARD: "0000:01:00.0"})
    with pytest.raises(InvalidRequest, match="lists no card GPU-9"):
        hardware.card("GPU-9")
    with pytest.raises(InvalidRequest, match="unknown NVML values: colour"):
        hardware.card(CARD, colour=1)
    with pytest.raises(InvalidRequest, match="no adapter mlx5_0"):
        hardware.port("mlx5_0", state="1: DOWN")
