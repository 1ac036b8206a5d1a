"""health-monitor on a real broker, with the topology-collector and the binder played by the test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.events import Event, HealthChanged, HealthVerdict, NodeAction, NodeDecided, NodeStateChanged
from hbox_common.model import Card, Generation, NodeName, NodeState, Verdict
from hbox_common.runtime import Health
from hbox_health.app import run
from hbox_health.core import OWNER
from hbox_health.settings import HealthSettings

from ...waiting import until

SICK = {"XidError": "True"}


@dataclass
class HealthWorld:
    nats: EmbeddedServer
    bus: Bus
    verdicts: list[Verdict] = field(default_factory=list)
    decisions: list[NodeDecided] = field(default_factory=list)
    events: list[HealthChanged] = field(default_factory=list)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["HealthWorld"]:
        async def hear(deliveries: Sequence[Delivery]) -> None:
            for delivery in deliveries:
                match delivery.event:
                    case HealthVerdict(verdict=verdict):
                        self.verdicts.append(verdict)
                    case NodeDecided():
                        self.decisions.append(delivery.event)
                    case HealthChanged():
                        self.events.append(delivery.event)

        types: list[type[Event]] = [HealthVerdict, NodeDecided, HealthChanged]
        ears = [asyncio.create_task(self.bus.follow([t], hear, start=Start.ALL)) for t in types]
        yield self
        for ear in ears:
            ear.cancel()
        await asyncio.gather(*ears, return_exceptions=True)

    @asynccontextmanager
    async def monitor(self, **settings: Any) -> AsyncIterator[Health]:
        health = Health("health-monitor")
        config = HealthSettings(nats_url=self.nats.url, **({"recover_after_s": 0.5} | settings))
        service = asyncio.create_task(run(config, health))
        await until(lambda: health.ready or service.done())
        yield health
        service.cancel()
        with suppress(asyncio.CancelledError):
            await service

    async def show(self, name: str = "n1", **facts: Any) -> None:
        base: dict[str, Any] = {"uid": name, "generation": Generation(1), "ready": True}
        await self.bus.publish(NodeStateChanged(node=NodeState(name=NodeName(name), **(base | facts))), name)

    def health(self, name: str = "n1") -> Verdict | None:
        return next((v for v in reversed(self.verdicts) if v.node == name), None)

    async def called(self, healthy: bool, name: str = "n1") -> Verdict:
        def now() -> bool:
            verdict = self.health(name)
            return verdict is not None and verdict.healthy is healthy

        await until(now)
        verdict = self.health(name)
        assert verdict is not None
        return verdict


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HealthWorld]:
    async with (
        EmbeddedServer(tmp_path / "nats") as nats,
        Bus.connect(nats.url, name="test", instance="test") as bus,
        HealthWorld(nats, bus).listening() as world,
    ):
        yield world


async def test_a_sick_node_is_called_so_closed_and_opened_when_it_is_well(world: HealthWorld) -> None:
    async with world.monitor():
        await world.show(conditions=SICK)
        assert (await world.called(healthy=False)).reason == "XidError"
        await until(
            lambda: [(d.action, d.owner, d.reason) for d in world.decisions] == [(NodeAction.CORDON, OWNER, "XidError")]
        )
        await world.show(conditions=SICK, unschedulable=True, cordoned_by=OWNER)
        await world.show(unschedulable=True, cordoned_by=OWNER)
        await world.called(healthy=True)
        await until(lambda: [d.action for d in world.decisions] == [NodeAction.CORDON, NodeAction.UNCORDON])
    await until(lambda: [(e.node, e.healthy) for e in world.events] == [("n1", False), ("n1", True)])


async def test_bad_cards_alone_leave_the_node_open(world: HealthWorld) -> None:
    good = Card(index=0, uuid="a", model="A100", memory_mib=40_000)
    async with world.monitor():
        await world.show(cards=(good, replace(good, index=1, uuid="b", healthy=False)))
        assert (await world.called(healthy=True)).bad_cards == (1,)
    assert world.decisions == []


async def test_a_restart_says_only_what_is_different(world: HealthWorld) -> None:
    async with world.monitor(recover_after_s=300.0):
        await world.show("sick", ready=False)
        await world.show("well", ready=False)
        await world.called(healthy=False, name="sick")
        before = await world.called(healthy=False, name="well")
    await world.show("well")
    async with world.monitor():
        after = await world.called(healthy=True, name="well")
    assert after.generation > before.generation
    assert [v.node for v in world.verdicts] == ["sick", "well", "well"]


async def test_verdicts_survive_a_broker_that_lost_its_streams(world: HealthWorld, tmp_path: Path) -> None:
    async with world.monitor():
        await world.show(ready=False)
        await world.called(healthy=False)
        await world.nats.kill()
        (tmp_path / "nats" / "store").rename(tmp_path / "lost")
        world.verdicts.clear()
        await world.nats.start()
        await world.called(healthy=False)


async def test_what_is_found_while_the_broker_is_away_is_said_when_it_is_back(world: HealthWorld) -> None:
    async with world.monitor(recover_after_s=1.0):
        await world.show(ready=False)
        await world.called(healthy=False)
        await world.show()
        await world.nats.kill()
        await world.nats.start()
        await world.called(healthy=True)
