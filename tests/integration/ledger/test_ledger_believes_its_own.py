"""What is said on the bus of jobs, pods and epochs by those whose word it is not: refused or set aside, and nothing of it stays."""

import asyncio

import msgpack

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.clock import new_id, wall_s
from hbox_common.events import (
    BindDecided,
    BindOutcome,
    DeadLetter,
    EvictDecided,
    Outcome,
    OutcomesObserved,
    PodsObserved,
    Victim,
)
from hbox_common.model import Epoch, PodPhase, PodUid
from hbox_ledger.settings import LedgerSettings

from ...waiting import until
from .conftest import Kit
from .ledger_world import DEADLINE_S, Others, others, running


async def bound(kit: Kit, world: Others, epoch: Epoch) -> None:
    """Pod `old` runs on card 0 of n0."""
    await world.propose(epoch, kit.plan("running", ("old", "n0", (kit.whole(0),))))
    await until(lambda: world.all(BindDecided), timeout_s=DEADLINE_S)
    [bind] = world.all(BindDecided)[0].binds
    done = Outcome(
        decision=bind.id, claim=bind.claim, generation=1, job=bind.job, pod_uid="old", outcome=BindOutcome.BOUND, node="n0"
    )
    world.pods.append(kit.fact("old", "n0", claim=bind.claim))
    await world.bus.publish(OutcomesObserved(epoch=epoch, outcomes=(done,)), "0")
    await until(lambda: posted(world), timeout_s=DEADLINE_S)


async def posted(world: Others) -> bool:
    return any(claim.pod == "old" and claim.state == "posted" for page in await world.claims() for claim in page.claims)


async def dead(bus: Bus) -> list[DeadLetter]:
    return [letter.event for letter in await bus.last(DeadLetter, [(None,)]) if isinstance(letter.event, DeadLetter)]


async def test_a_priority_that_only_the_plan_knows_of_evicts_nobody(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world, running(settings):
        epoch = await world.open_epoch()
        await bound(kit, world, epoch)
        [held] = [claim for page in await world.claims() for claim in page.claims]
        victim = Victim(claim=held.id, pod_uid=PodUid("old"))
        honest = kit.plan("wants", ("new", "n0", (kit.whole(0),)))
        await world.tell([honest])
        lie = honest.model_copy(update={"victims": (victim,), "priority": 2**31})
        await world.propose(epoch, lie, tell=False)
        assert world.answers()["wants"].reason == "JobDiffers"
        assert "priority 2147483648, the job has 0" in world.answers()["wants"].message
        assert not world.all(EvictDecided)


async def test_a_plan_that_is_faster_than_the_news_of_its_job_waits_for_it(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world, running(settings):
        epoch = await world.open_epoch()
        early, never = kit.plan("early", ("pod", "n0", (kit.whole(0),))), kit.plan("never", ("none", "n0", (kit.whole(1),)))
        await world.propose(epoch, early, never, wait=False, tell=False)
        await asyncio.sleep(0.05)
        await world.propose(epoch, kit.plan("other", ("other", "n0", (kit.whole(2),))))
        assert world.answers().keys() == {"other"}, "nobody else waits"
        await world.tell([early])
        await until(lambda: {"early", "never"} <= world.answers().keys(), timeout_s=DEADLINE_S)
        assert world.answers()["early"].committed
        assert world.answers()["never"].reason == "JobNotKnownYet"


async def test_that_a_pod_is_gone_is_for_job_controller_to_say(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with (
        others(broker) as world,
        running(settings),
        Bus.connect(broker.url, name="somebody", instance="1") as somebody,
    ):
        epoch = await world.open_epoch()
        await bound(kit, world, epoch)
        await somebody.publish(PodsObserved(pods=(kit.fact("old", "n0", PodPhase.GONE),)), "0")
        [letter] = await until(lambda: dead(somebody), timeout_s=DEADLINE_S)
        assert "is for job-controller to say, not for '/hbox/somebody/1'" in letter.reason
        assert await posted(world)


async def test_an_epoch_that_no_ledger_can_have_come_to_leaves_the_next_one_in_its_own(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world:
        async with running(settings):
            first = await world.open_epoch()
            await bound(kit, world, first)
        for epoch in (2**40, 2**63 - 1):
            body = msgpack.packb({"epoch": epoch, "binds": [], "index": 2**53})
            await world.bus.publish_raw(BindDecided, body, "0", message_id=new_id())
            body = msgpack.packb({"epoch": epoch, "evictions": []})
            await world.bus.publish_raw(EvictDecided, body, "0", message_id=new_id())
        async with running(settings):
            second = await world.next_epoch(first, DEADLINE_S)
            assert second < wall_s() + 100
            await world.propose(second, kit.plan("after", ("after", "n0", (kit.whole(1),))))
            assert world.answers()["after"].committed
            assert await posted(world)
