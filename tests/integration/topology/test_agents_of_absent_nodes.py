"""node-agents that outlive their nodes, and whoever speaks for nodes that never were: what they say is taken back."""

import asyncio
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged
from hbox_common.model import NodeDevices, NodeName, NodeNuma, NumaZone
from hbox_topology.app import run
from hbox_topology.settings import TopologySettings

from ...waiting import until
from ..jobs.edge_world import Kube, running


async def speak(bus: Bus, name: str, *, at: float) -> None:
    """As its node-agent does."""
    node = NodeName(name)
    await bus.publish(NodeDevicesChanged(devices=NodeDevices(node, at, cpus="0-3")), name)
    await bus.publish(NodeNumaChanged(numa=NodeNuma(node, at, (NumaZone(0, "0-3", 1024),))), name)


async def stands(bus: Bus, name: str) -> bool:
    """Whether the state has what was said of the node."""
    devices = [one.event for one in await bus.last(NodeDevicesChanged, [(name,)])]
    numa = [one.event for one in await bus.last(NodeNumaChanged, [(name,)])]
    there = [not e.devices.gone for e in devices if isinstance(e, NodeDevicesChanged)]
    return any([*there, *(not e.numa.gone for e in numa if isinstance(e, NodeNumaChanged))])


async def test_what_agents_of_absent_nodes_say_is_taken_back_for_as_long_as_they_speak(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_topology.app.ABSENT_S", 1.0)
    monkeypatch.setattr("hbox_topology.app.LOOK_FOR_ABSENT_S", 0.1)

    async def gone() -> bool:
        return not await stands(bus, "n1")

    await kube.node("n0")
    async with (
        running(run, TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url)),
        Bus.connect(nats.url, name="node-agent", instance="node-agent-0") as agent,
    ):
        await speak(agent, "n0", at=1.0)
        await speak(agent, "n1", at=1.0)
        await asyncio.sleep(0.5)
        assert await stands(bus, "n1"), "an agent may speak before its node is seen"
        await until(gone, "it is taken back")
        for at in (2.0, 3.0):
            await speak(agent, "n1", at=at)
            async with asyncio.timeout(0.8):
                await until(gone, "at once, when it is said again")
        await kube.node("n1")
        await asyncio.sleep(0.5)
        await speak(agent, "n1", at=4.0)
        await asyncio.sleep(1.5)
        assert (await stands(bus, "n0"), await stands(bus, "n1")) == (True, True)
        await kube.delete_node("n1")
        await until(gone, "with its node")
        await speak(agent, "n1", at=5.0)
        async with asyncio.timeout(0.8):
            await until(gone, "its agent has outlived it")
