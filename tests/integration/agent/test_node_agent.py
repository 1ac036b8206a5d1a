"""node-agent on a real broker, beside a kubelet's socket that the test answers at."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hbox_agent.app import run
from hbox_agent.settings import AgentSettings
from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged
from hbox_common.kubelet import (
    ALLOCATABLE,
    LIST,
    AllocatableResources,
    Call,
    ContainerDevices,
    ContainerResources,
    PodResources,
    encode_allocatable,
    encode_list,
    listening,
)
from hbox_common.model import NodeDevices, NodeName, NodeNuma
from hbox_common.runtime import Health

from ...waiting import until

GPU = "nvidia.com/gpu"


@dataclass
class AgentWorld:
    nats: EmbeddedServer
    bus: Bus
    root: Path
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    asked: int = 0

    async def list_pods(self, _: bytes) -> bytes:
        self.asked += 1
        return encode_list(
            [PodResources("team", n, (ContainerResources("main", (ContainerDevices(GPU, ids, (0,)),)),)) for n, ids in self.held.items()]
        )  # fmt: skip

    async def allocatable(self, _: bytes) -> bytes:
        return encode_allocatable(AllocatableResources((ContainerDevices(GPU, ("g0", "g1"), (0,)),)))

    @asynccontextmanager
    async def kubelet(self, *methods: str) -> AsyncIterator[None]:
        known: dict[str, Call] = {LIST: self.list_pods, ALLOCATABLE: self.allocatable}
        async with listening(self.root / "pod-resources" / "kubelet.sock", {m: known[m] for m in methods or known}):
            yield

    def give(self, pod: str, *ids: str) -> None:
        """As a kubelet does: the checkpoint is written."""
        self.held[pod] = ids
        path = self.root / "device-plugins" / "kubelet_internal_checkpoint"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text(f"{self.held}")
        path.with_suffix(".new").replace(path)

    @asynccontextmanager
    async def agent(self, **settings: Any) -> AsyncIterator[Health]:
        health = Health("node-agent")
        given: dict[str, Any] = {"node_name": "n1", "kubelet_root": self.root, "poll_s": 0.05, "resync_s": 3600.0} | settings
        service = asyncio.create_task(run(AgentSettings(nats_url=self.nats.url, **given), health))
        try:
            yield health
        finally:
            service.cancel()
            with suppress(asyncio.CancelledError):
                await service

    async def said(self, node: str = "n1") -> NodeDevices | None:
        try:
            found = await self.bus.last(NodeDevicesChanged, [(node,)])
        except Unavailable:  # the stream is not made yet
            return None
        events = [one.event for one in found]
        return next((e.devices for e in events if isinstance(e, NodeDevicesChanged)), None)

    async def hears(self, *pods: str, node: str = "n1", problem: str = "") -> NodeDevices:
        async with asyncio.timeout(15):
            while True:
                said = await self.said(node)
                if said is not None and {one.pod for one in said.holds} == set(pods) and bool(problem) == bool(said.problem):
                    assert problem in said.problem
                    return said
                await asyncio.sleep(0.05)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with (
        EmbeddedServer(tmp_path / "nats") as nats,
        Bus.connect(nats.url, name="test", instance="test") as bus,
    ):
        yield AgentWorld(nats, bus, tmp_path / "kubelet")


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
    monkeypatch.setattr("hbox_agent.core.telling.PATIENCE_S", 0.2)
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


async def test_without_a_nodes_name_it_does_not_start(world: AgentWorld) -> None:
    with pytest.raises(InvalidRequest, match="HBOX_NODE_NAME"):
        await run(AgentSettings(nats_url=world.nats.url), Health("node-agent"))
