"""Reports of agents become incidents, verdicts and requests of evictions, on a real broker and database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.events import Event, HealthEvictionAsked, HealthReport, HealthVerdict, IncidentChanged
from hbox_common.health.report import Check, Fact
from hbox_common.model import Card, Incident, IncidentState, NodeName, Verdict
from hbox_common.model.devices import card_id
from hbox_common.model.sickhardware import SickPolicy
from hbox_health import metrics

from ...waiting import until
from .conftest import HealthWorld

NODE = NodeName("n1")
SICK, OTHER = card_id("GPU-0"), card_id("GPU-1")


def card(index: int) -> Card:
    return Card(index, f"GPU-{index}", "H100", 81_920)


@dataclass
class Heard:
    incidents: dict[str, list[Incident]] = field(default_factory=dict)
    asked: list[HealthEvictionAsked] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            match delivery.event:
                case IncidentChanged(incident=incident):
                    self.incidents.setdefault(incident.id, []).append(incident)
                case HealthEvictionAsked():
                    self.asked.append(delivery.event)
                case HealthVerdict(verdict=verdict):
                    self.verdicts.append(verdict)

    @property
    def standing(self) -> dict[str, HealthEvictionAsked]:
        return {one.incident: one for one in {one.incident: one for one in self.asked}.values() if not one.ended}


@asynccontextmanager
async def listening(bus: Bus) -> AsyncIterator[Heard]:
    heard = Heard()
    kinds: tuple[list[type[Event]], ...] = ([IncidentChanged], [HealthEvictionAsked, HealthVerdict])
    tasks = [asyncio.create_task(bus.follow(types, heard.take, start=Start.ALL)) for types in kinds]
    try:
        yield heard
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Agent:
    """What node-agent publishes, of a node's agent on the test's connection."""

    def __init__(self, broker: EmbeddedServer) -> None:
        self.broker, self.seq = broker, 0

    async def report(self, *values: tuple[str, int], node: NodeName = NODE, on: str = "", boot: str = "b1") -> None:
        facts = []
        for entity, action in values:
            self.seq += 1
            facts.append(Fact(self.seq, 5.0, Check.NVML, entity, "card", {"recovery_action": action}))
        async with Bus.connect(self.broker.url, name="node-agent", instance="a") as bus:
            await bus.publish(HealthReport(node=node, boot_id=boot, agent="a", facts=tuple(facts)), on or node)


async def test_a_sick_card_is_judged_stored_and_excluded_and_its_jobs_are_asked_to_leave(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as heard, world.monitor(on_sick_hardware="shrink"):
        await agent.report((SICK, 1), (OTHER, 0))
        await until(lambda: bool(heard.standing) and bool(heard.incidents))
        [asked] = heard.standing.values()
        assert (asked.node, asked.cards, asked.policy, asked.boot_id) == (NODE, (SICK,), SickPolicy.SHRINK, "b1")
        verdict = heard.verdicts[-1]
        assert (verdict.healthy, verdict.cards, verdict.incidents, verdict.boot_id) == (True, (SICK,), (asked.incident,), "b1")
        assert "recovery action is 1" in verdict.reason
        await agent.report((SICK, 0))
        await until(lambda: not heard.standing)
        await until(lambda: not heard.verdicts[-1].cards)
        assert [one.state for one in heard.incidents[asked.incident]] == [IncidentState.CONFIRMED, IncidentState.CLOSED]


async def test_a_killed_monitor_neither_loses_nor_doubles_an_incident(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as heard:
        async with world.monitor():
            await agent.report((SICK, 1))
            await until(lambda: bool(heard.standing))
        await agent.report((OTHER, 2))
        async with world.monitor():
            await until(lambda: len(heard.standing) == 2)
            assert len(heard.incidents) == 2
            await until(lambda: set(heard.verdicts[-1].cards) == {SICK, OTHER})
        async with world.monitor(recover_after_s=0):
            await asyncio.sleep(1.5)  # faults of the last verdict that nothing shows have ended by then
            assert set(heard.verdicts[-1].cards) == {SICK, OTHER}
            await agent.report((SICK, 0), (OTHER, 0))
            await until(lambda: not heard.standing)
        assert {one[-1].state for one in heard.incidents.values()} == {IncidentState.CLOSED}
        assert len(heard.incidents) == 2


async def test_a_request_without_an_incident_is_withdrawn_at_the_start(world: HealthWorld) -> None:
    async with Bus.connect(world.nats.url, name="health-monitor", instance="gone") as bus:
        await bus.publish(HealthEvictionAsked(node=NODE, incident="i9", cards=(SICK,)), NODE, "i9")
    async with listening(world.bus) as heard, world.monitor():
        await until(lambda: any(one.incident == "i9" and one.ended for one in heard.asked))


async def test_a_report_under_another_nodes_name_is_refused_and_counted(world: HealthWorld) -> None:
    agent, before = Agent(world.nats), metrics.REFUSED.labels("foreign-node")._value.get()
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as heard, world.monitor() as health:
        await agent.report((SICK, 1), node=NodeName("n2"), on="n1")
        await agent.report((OTHER, 1))
        await until(lambda: bool(heard.standing))
        assert [one.cards for one in heard.standing.values()] == [(OTHER,)]
        assert metrics.REFUSED.labels("foreign-node")._value.get() == before + 1
        assert health.ready


@pytest.mark.parametrize("cards", [(0,), (0, 1)])
async def test_a_node_whose_cards_are_all_sick_is_unhealthy(world: HealthWorld, cards: tuple[int, ...]) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as heard, world.monitor():
        await agent.report(*((card_id(f"GPU-{index}"), 1) for index in cards))
        await until(lambda: bool(heard.verdicts) and len(heard.verdicts[-1].cards) == len(cards))
        assert heard.verdicts[-1].healthy is (len(cards) == 1)
