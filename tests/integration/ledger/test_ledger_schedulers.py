"""Two schedulers that see the same room and propose at once, over a bus that repeats and reorders: each plan gets exactly one answer."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

import pytest

from hbox_common.bus import EmbeddedServer
from hbox_common.events import Plan, PlanAnswer, PlansAnswered, PlansProposed
from hbox_common.model import Epoch, Index, SchedulerId
from hbox_ledger.settings import LedgerSettings

from .conftest import Kit
from .ledger_world import Others, others, running

pytestmark = pytest.mark.timeout(180)

SCHEDULERS = (SchedulerId("s"), SchedulerId("t"))
PODS, CARDS = 12, 4

Message: TypeAlias = tuple[SchedulerId, Epoch, tuple[Plan, ...]]


def plans(kit: Kit, scheduler: str, *, of: str = "") -> list[Plan]:
    """A card for each of the first pods; the others ask for none. The schedulers disagree about who gets which."""
    shift = SCHEDULERS.index(SchedulerId(scheduler))
    return [
        kit.plan(
            f"{of}{scheduler}{n}", (f"pod{n}", "n0", (kit.whole((n + shift) % CARDS),) if n < 2 * CARDS else ()), job=f"job{n}"
        )
        for n in range(PODS)
    ]


async def sent(kit: Kit, world: Others, messages: Sequence[Message], epoch: Epoch) -> None:
    """Publish them all at once, and wait until the ledger has judged them all: what comes last is answered last."""
    await world.tell([plan for _, _, some in messages for plan in some])
    async with asyncio.TaskGroup() as tasks:
        for scheduler, made_in, some in messages:
            said = PlansProposed(scheduler=scheduler, epoch=made_in, seen=Index(0), plans=some)
            tasks.create_task(world.bus.publish(said, scheduler))
    for end in (
        "end",
        "end-of-all",
    ):  # the answers of several turns are published side by side: those of the first end, and all before, come before the second
        await world.propose(epoch, kit.plan(f"{end}-{epoch}", ("nobody", "nowhere", ())))


def answers(world: Others) -> dict[str, list[PlanAnswer]]:
    found: dict[str, list[PlanAnswer]] = defaultdict(list)
    for event in world.all(PlansAnswered):
        for answer in event.answers:
            found[answer.plan].append(answer)
    return found


def final(given: list[PlanAnswer]) -> set[tuple[bool, str | None, str, int]]:
    """The answers that are none to ask again after."""
    return {(a.committed, a.reason, a.message, a.refresh) for a in given if a.reason not in ("StaleEpoch", "LedgerReconciling")}


@pytest.mark.parametrize("seed", range(3))
async def test_each_plan_of_two_schedulers_gets_one_answer_whatever_the_bus_does(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, seed: int
) -> None:
    rng = random.Random(seed)
    async with others(broker) as world:
        async with running(settings):
            epoch = await world.open_epoch()
            one: list[Message] = [(s, epoch, (plan,)) for s in SCHEDULERS for plan in plans(kit, s)]
            several: list[Message] = [(s, epoch, tuple(rng.sample(plans(kit, s), 5))) for s in SCHEDULERS]
            stale: list[Message] = [(s, Epoch(epoch - 1), (plan,)) for s in SCHEDULERS for plan in plans(kit, s, of="stale-")]
            early: list[Message] = [(s, Epoch(epoch - 1), some) for s, _, some in one]
            messages = [*one, *one, *several, *several, *stale, *early]
            rng.shuffle(messages)
            await sent(kit, world, messages, epoch)

            given = {id: some for id, some in answers(world).items() if not id.startswith("end")}
            assert given.keys() == {plan.id for _, _, some in messages for plan in some}
            first = {id: final(some) for id, some in given.items() if not id.startswith("stale")}
            assert all(len(one) == 1 for one in first.values()), "a plan got no answer, or two"
            assert not any(final(some) for id, some in given.items() if id.startswith("stale"))
            [page] = await world.claims()
            committed = sorted(id for id, [(yes, *_)] in first.items() if yes)
            assert sorted(claim.plan for claim in page.claims) == committed
            assert len({claim.pod for claim in page.claims}) == len(committed) == CARDS + PODS - 2 * CARDS
            cards = [s.index for claim in page.claims for s in claim.slices]
            assert sorted(cards) == list(range(CARDS))

        async with running(settings):
            epoch = await world.next_epoch(epoch, 60.0)
            again = [(s, epoch, some) for s, _, some in messages if not some[0].id.startswith("stale")]
            rng.shuffle(again)
            await sent(kit, world, again, epoch)
            assert {id: final(some) for id, some in answers(world).items() if id in first} == first
            [page] = await world.claims()
            assert sorted(claim.plan for claim in page.claims) == committed
