"""A decision of an epoch that no ledger is in: set aside, and no other is dropped for it."""

import asyncio
from collections.abc import AsyncIterator

from hbox_common.events import BindOutcome, DeadLetter, EpochAsked, EpochSaid, Event
from hbox_common.model import Epoch

from ...waiting import until
from .binder_world import BinderWorld, a_bind


async def test_a_false_epoch_makes_the_binder_deaf_to_nobody(world: BinderWorld) -> None:
    async def answer(_: Event) -> AsyncIterator[Event]:
        yield EpochSaid(epoch=Epoch(1))

    ledger = asyncio.create_task(world.bus.serve(EpochAsked, answer))
    await world.node("n1")
    first, lie, second = await world.pod("first"), await world.pod("lie"), await world.pod("second")
    async with world.binder():
        await world.decide(a_bind(first))
        assert (await world.settled(a_bind(first))).outcome is BindOutcome.BOUND
        await world.decide(a_bind(lie), epoch=2**40)
        await world.decide(a_bind(second))
        assert (await world.settled(a_bind(second))).outcome is BindOutcome.BOUND

        async def letters() -> list[str]:
            return [d.event.reason for d in await world.bus.last(DeadLetter, [(None,)]) if isinstance(d.event, DeadLetter)]

        [reason] = await until(letters, timeout_s=30)
        assert "the ledger's epoch is 1" in reason
        assert not (await world.seen("lie")).spec.node_name
    ledger.cancel()


async def test_one_that_was_believed_while_the_ledger_was_away_is_forgotten_when_it_is_back(world: BinderWorld) -> None:
    async def answer(_: Event) -> AsyncIterator[Event]:
        yield EpochSaid(epoch=Epoch(1))

    await world.node("n1")
    lie, after = await world.pod("lie"), await world.pod("after")
    async with world.binder():
        await world.decide(a_bind(lie), epoch=9)
        await world.settled(a_bind(lie))
        ledger = asyncio.create_task(world.bus.serve(EpochAsked, answer))
        await asyncio.sleep(0.5)
        await world.decide(a_bind(after))
        assert (await world.settled(a_bind(after))).outcome is BindOutcome.BOUND
    ledger.cancel()
