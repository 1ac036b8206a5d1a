"""Decisions on remedies and their results, on a real broker and database, with node-remedy played by the test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.clock import wall_s
from hbox_common.events import RemediesDecided, RemedyObserved
from hbox_common.model import IncidentState, NodeName
from hbox_common.model.remedy import Decision, Outcome, Verb
from hbox_health import metrics, remedying

from ...waiting import until
from .conftest import HealthWorld
from .test_judging import NODE, OTHER, SICK, Agent, card, listening


@dataclass
class Remedy:
    """What node-remedy of a node receives and publishes."""

    broker: EmbeddedServer
    received: list[RemediesDecided] = field(default_factory=list)

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            assert isinstance(delivery.event, RemediesDecided)
            self.received.append(delivery.event)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return self.received[-1].decisions if self.received else ()

    async def answer(self, decision: Decision, outcome: Outcome, *holders: str, on: str = NODE, message: str = "") -> None:
        observed = RemedyObserved(
            node=NODE, boot_id="b1", decision=decision, outcome=outcome, holders=holders, message=message, at=wall_s()
        )
        async with Bus.connect(self.broker.url, name="node-remedy", instance="r") as bus:
            await bus.publish(observed, on, message_id=uuid4().hex)


@asynccontextmanager
async def remedy_of(world: HealthWorld) -> AsyncIterator[Remedy]:
    remedy = Remedy(world.nats)
    task = asyncio.create_task(world.bus.follow([RemediesDecided], remedy.take, start=Start.ALL))
    yield remedy
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_idle_sick_card_is_reset_once_and_used_again(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    await world.run_pod("p0", SICK)
    async with listening(world.bus) as seen, remedy_of(world) as remedy, world.monitor(remedies="reset", validated_s=0.5):
        await agent.report((SICK, 1), (OTHER, 0))
        await until(lambda: bool(seen.standing))
        assert remedy.received == [], "a pod is on the card"
        await world.run_pod("p0", ends=True)
        await until(lambda: bool(remedy.decisions))
        [decision] = remedy.decisions
        assert (decision.entity, decision.verb, decision.attempt) == (SICK, Verb.RESET, 1)
        assert (remedy.received[-1].node, remedy.received[-1].boot_id) == (NODE, "b1")
        assert wall_s() < decision.expires <= wall_s() + remedying.LEASE_S
        await remedy.answer(decision, Outcome.BEGUN)
        await agent.report((SICK, 0))
        await remedy.answer(decision, Outcome.DONE)
        await until(lambda: remedy.decisions == ())
        await until(lambda: [one[-1].state for one in seen.incidents.values()] == [IncidentState.CLOSED])
        assert [one[-1].action_done for one in seen.incidents.values()] == ["reset"]
        assert {one.id for message in remedy.received for one in message.decisions} == {decision.id}


async def test_no_verb_that_is_not_enabled_is_decided(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen, remedy_of(world) as remedy, world.monitor(remedies="reboot"):
        await agent.report((SICK, 1))
        await until(lambda: [one[-1].held_by for one in seen.incidents.values()] == [("remedy",)])
        assert remedy.received == []


async def test_a_decision_outlives_a_kill_with_its_id_and_ends_if_its_verb_is_disabled(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with remedy_of(world) as remedy:
        async with world.monitor(remedies="reset"):
            await agent.report((SICK, 1))
            await until(lambda: bool(remedy.decisions))
        [decision] = remedy.decisions
        async with world.monitor(remedies="reset"):
            await agent.report((OTHER, 1))
            await until(lambda: len(remedy.decisions) == 2)
            assert remedy.decisions[0].id == decision.id
        async with world.monitor():
            await until(lambda: remedy.decisions == ())


async def test_a_result_that_is_delivered_twice_counts_once(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen, remedy_of(world) as remedy:
        async with world.monitor(remedies="reset"):
            await agent.report((SICK, 1))
            await until(lambda: bool(remedy.decisions))
            [first] = remedy.decisions
            for outcome in (Outcome.BEGUN, Outcome.FAILED, Outcome.FAILED, Outcome.BEGUN, Outcome.FAILED):
                await remedy.answer(first, outcome)
            await until(lambda: [one.attempt for one in remedy.decisions] == [2])
        async with world.monitor(remedies="reset"):
            await remedy.answer(first, Outcome.FAILED)
            await remedy.answer(remedy.decisions[0], Outcome.BEGUN)
            await agent.report((SICK, 0))
            await until(lambda: [one[-1].state for one in seen.incidents.values()] == [IncidentState.VALIDATING])


async def test_a_card_that_a_process_holds_is_named_with_the_process(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen, remedy_of(world) as remedy, world.monitor(remedies="reset"):
        await agent.report((SICK, 1))
        await until(lambda: bool(remedy.decisions))
        await remedy.answer(remedy.decisions[0], Outcome.REFUSED, "71 dcgm")
        await until(lambda: [one[-1].held_by for one in seen.incidents.values()] == [("71 dcgm",)])
        assert remedy.decisions == ()


async def test_a_result_under_another_nodes_name_is_refused_and_counted(world: HealthWorld) -> None:
    agent, before = Agent(world.nats), metrics.REFUSED.labels("foreign-node")._value.get()
    await world.show(cards=(card(0), card(1)))
    async with remedy_of(world) as remedy, world.monitor(remedies="reset"):
        await agent.report((SICK, 1))
        await until(lambda: bool(remedy.decisions))
        [decision] = remedy.decisions
        await remedy.answer(decision, Outcome.FAILED, on="n2")
        await until(lambda: metrics.REFUSED.labels("foreign-node")._value.get() == before + 1)
        assert remedy.decisions == (decision,)


async def test_a_standing_decision_is_renewed(world: HealthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedying, "RENEW_S", 0.0)
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with remedy_of(world) as remedy, world.monitor(remedies="reset"):
        await agent.report((SICK, 1))
        await until(lambda: bool(remedy.decisions))
        first = remedy.decisions[0]
        await agent.report((OTHER, 0))  # the loop turns
        await until(lambda: remedy.decisions[0].expires > first.expires)
        assert remedy.decisions[0].id == first.id


async def test_decisions_of_a_node_without_incidents_are_withdrawn_at_the_start(world: HealthWorld) -> None:
    stale = Decision("i9", SICK, Verb.RESET, 1, wall_s() + 300)
    async with Bus.connect(world.nats.url, name="health-monitor", instance="gone") as bus:
        await bus.publish(RemediesDecided(node=NodeName("n9"), boot_id="b0", decisions=(stale,)), "n9")
    async with remedy_of(world) as remedy, world.monitor():
        await until(lambda: len(remedy.received) == 2 and remedy.decisions == ())
