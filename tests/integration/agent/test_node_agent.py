"""What node-agent tells of a node, and when."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from hbox_agent import metrics
from hbox_agent.adapters.host import read_ports
from hbox_agent.app import run
from hbox_agent.settings import AgentSettings
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged
from hbox_common.kubelet import LIST
from hbox_common.model import NodeDevices, NodeName, NodeNuma
from hbox_common.runtime import Health

from ...waiting import until
from .agent_world import GPU, AgentWorld


async def test_what_the_kubelet_gives_is_told_when_its_checkpoint_changes(world: AgentWorld) -> None:
    async with world.kubelet(), world.agent() as health:
        said = await world.hears()
        assert [(part.resource, part.ids) for part in said.allocatable] == [(GPU, ("g0", "g1"))]
        await until(lambda: health.ready)
        world.give("train-0", "g1")
        said = await world.hears("train-0")
        assert said.holds[0].devices[0].ids == ("g1",)
        asked = world.asked
        await asyncio.sleep(0.5)
        assert world.asked == asked, "nothing was written, nobody is asked"


async def test_a_restart_says_nothing_again_and_a_broker_that_lost_it_hears_it(world: AgentWorld) -> None:
    world.give("train-0", "g0")
    async with world.kubelet():
        async with world.agent():
            first = await world.hears("train-0")
        async with world.agent() as health:
            await until(lambda: health.ready)
            await asyncio.sleep(0.3)
            assert await world.said() == first
            await world.nats.stop()
            shutil.rmtree(world.nats.store)
            await world.nats.start()
            await world.bus.ensure_streams()  # as services do; an agent may not
            await world.hears("train-0")


async def test_a_node_that_is_made_again_while_its_agent_runs_is_told_of_again(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_agent.app.READ_BACK_S", 0.3)
    world.give("train-0", "g0")

    async def numa() -> bool:
        found = [one.event for one in await world.bus.last(NodeNumaChanged, [("n1",)])]
        return any(isinstance(e, NodeNumaChanged) and not e.numa.gone for e in found)

    async with world.kubelet(), world.agent():
        await world.hears("train-0")
        await until(numa)
        # As topology-collector does when the node object is deleted.
        await world.bus.publish(NodeDevicesChanged(devices=NodeDevices(NodeName("n1"), 1.0, gone=True)), "n1")
        await world.bus.publish(NodeNumaChanged(numa=NodeNuma(NodeName("n1"), 1.0, gone=True)), "n1")
        await world.hears("train-0")
        await until(numa)


async def test_a_kubelet_that_is_gone_is_told_with_its_last_words(world: AgentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbox_agent.core.publication.PATIENCE_S", 0.2)
    world.give("train-0", "g0")
    async with world.agent() as health:
        async with world.kubelet():
            await world.hears("train-0")
            await until(lambda: health.ready)
        await world.hears("train-0", problem="kubelet.sock")
        await until(lambda: not health.ready)
        async with world.kubelet():
            await world.hears("train-0")
            await until(lambda: health.ready)


async def test_an_old_kubelet_tells_of_containers_alone(world: AgentWorld) -> None:
    world.give("train-0", "g0")
    async with world.kubelet(LIST), world.agent():
        assert (await world.hears("train-0")).allocatable == ()


async def test_one_process_speaks_for_all_nodes_of_an_emulated_cluster(world: AgentWorld, tmp_path: Path) -> None:
    folder = tmp_path / "kubelets"
    world.root = folder / "n1"
    world.root.mkdir(parents=True)
    world.give("train-0", "g0")
    async with world.kubelet(), world.agent(kubelets=folder, node_name=""):
        await world.hears("train-0")
        world.root = folder / "n2"
        world.root.mkdir()
        async with world.kubelet():
            await world.hears("train-0", node="n2")


async def test_a_device_that_hangs_its_readers_keeps_nobody_from_hearing_of_pods(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file that a test can make does so: pipes are not waited for."""
    answers = threading.Event()
    unread = metrics.UNREAD
    world.write("config.yaml", "kind: KubeletConfiguration\n")

    def hangs(host: Path) -> dict[str, str]:
        answers.wait(30)
        return read_ports(host)

    monkeypatch.setattr("hbox_agent.app.read_ports", hangs)
    monkeypatch.setattr("hbox_agent.app.HANGS_S", 0.1)
    try:
        async with world.kubelet(), world.agent():
            world.give("train-0", "g1")
            await world.hears("train-0")
            await until(lambda: unread._value.get() == 1.0, "that it is said so")
            answers.set()
            await until(lambda: unread._value.get() == 0.0, "that it is over")
    finally:
        answers.set()


async def test_failed_machine_reading_is_repeated_at_the_next_poll(world: AgentWorld) -> None:
    async with world.kubelet(), world.agent():
        await until(lambda: _rules(world, known=False), "a reading without the kubelet's configuration")
        world.write("config.yaml", "kind: KubeletConfiguration\ntopologyManagerPolicy: single-numa-node\n")
        await until(lambda: _rules(world, known=True), "a reading with it, before the next regular one is due")


async def _rules(world: AgentWorld, *, known: bool) -> bool:
    """Whether the node's last reading exists and has (`known`) or lacks the kubelet's rules."""
    try:
        found = await world.bus.last(NodeNumaChanged, [("n1",)])
    except Unavailable:  # the stream does not exist yet
        return False
    return any(isinstance(one.event, NodeNumaChanged) and (one.event.numa.rules is not None) is known for one in found)


async def test_without_a_nodes_name_it_does_not_start(world: AgentWorld) -> None:
    with pytest.raises(InvalidRequest, match="HBOX_NODE_NAME"):
        await run(AgentSettings(nats_url=world.nats.url), Health("node-agent"))
