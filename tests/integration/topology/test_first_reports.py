"""New nodes wait for node-agent's first report: what topology-collector publishes of them."""

from pathlib import Path

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged, NodeStateChanged, NodeZonesChanged
from hbox_common.model import DeviceIds, KubeletRules, NodeDevices, NodeName, NodeNuma, NodeState, NumaZone
from hbox_topology.app import run
from hbox_topology.settings import TopologySettings

from ...waiting import until
from ..jobs.edge_world import Kube, listening, running

RULES = KubeletRules(topology_manager="restricted", cpu_manager="static")


async def report(bus: Bus, name: str) -> None:
    """As its node-agent does."""
    node = NodeName(name)
    numa = NodeNuma(node, 1.0, (NumaZone(0, "0-3", 1024), NumaZone(1, "4-7", 1024)), rules=RULES)
    await bus.publish(NodeNumaChanged(numa=numa), name)
    devices = NodeDevices(node, 1.0, (DeviceIds("nvidia.com/gpu", ("g0",), (0,)),), cpus="0-7")
    await bus.publish(NodeDevicesChanged(devices=devices), name)


async def published(bus: Bus, name: str) -> NodeState | None:
    events = [one.event for one in await bus.last(NodeStateChanged, [(name,)])]
    return next((event.node for event in events if isinstance(event, NodeStateChanged)), None)


async def waits(bus: Bus, name: str) -> None:
    async def so() -> bool:
        state = await published(bus, name)
        return state is not None and state.report_due > 0.0

    await until(so, f"{name} waits for its first report")


async def test_first_report_ends_the_wait_after_the_zones_are_published(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    settings = TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url, agent_wait_s=600.0)
    async with (
        Bus.connect(nats.url, name="node-agent", instance="node-agent-0") as agent,
        running(run, settings),
        listening(bus, NodeStateChanged, NodeZonesChanged) as heard,
    ):
        await kube.node("n1")
        await waits(bus, "n1")
        await report(agent, "n1")

        async def usable() -> bool:
            return any(isinstance(one, NodeStateChanged) and one.node.ready and not one.node.report_due for one in heard)

        await until(usable, "n1 is usable")
        after = [*heard]
    zones = next(place for place, one in enumerate(after) if isinstance(one, NodeZonesChanged))
    assert isinstance(after[-1], NodeStateChanged)
    assert zones < len(after) - 1

    async with running(run, settings):  # the stream has the report
        await kube.node("n2")
        await waits(bus, "n2")
        state = await published(bus, "n1")
        assert state is not None
        assert (state.report_due, state.report_missing) == (0.0, False)


async def test_node_without_a_report_is_usable_after_the_wait(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    await kube.node("n1")

    async def missing() -> bool:
        state = await published(bus, "n1")
        return state is not None and state.report_missing and state.report_due == 0.0

    async with running(run, TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url, agent_wait_s=1.0)):
        await until(missing, "n1 is usable without a report")
