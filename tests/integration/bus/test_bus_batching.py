"""The lead-edge batcher on a real broker and, where its errors matter, on a publish that refuses."""

import asyncio
from collections.abc import Sequence

from hbox_common.bus import Bus, EmbeddedServer, LeadEdgeBatcher, Start
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import Event, JobsWithdrawn
from hbox_common.model import JobId

from ...waiting import until
from .bus_world import Reader, running


def make(names: Sequence[str]) -> JobsWithdrawn:
    return JobsWithdrawn(jobs=tuple(JobId(name) for name in names), revisions=(1,) * len(names))


class Refusing:
    """A publish that raises `errors` in turn, then keeps what comes."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.events, self.ids = list(errors), list[tuple[str, ...]](), list[str | None]()

    async def __call__(self, event: Event, *keys: str, message_id: str | None = None) -> None:
        assert isinstance(event, JobsWithdrawn)
        self.ids.append(message_id)
        if self.errors:
            raise self.errors.pop(0)
        if len(event.jobs) > 4:
            raise InvalidRequest("too large")
        self.events.append(event.jobs)


async def test_the_first_item_goes_at_once_and_the_rest_of_the_burst_together(bus: Bus) -> None:
    batcher = LeadEdgeBatcher(bus.publish, make, "0")
    reader = Reader()
    async with running(batcher.run(), bus.follow([JobsWithdrawn], reader, start=Start.ALL)):
        await batcher.hand_in("first")
        for i in range(100):
            batcher.hand_in(str(i))
        await until(lambda: sum(len(d.event.jobs) for d in reader.deliveries if isinstance(d.event, JobsWithdrawn)) == 101)
    sizes = [len(d.event.jobs) for d in reader.deliveries if isinstance(d.event, JobsWithdrawn)]
    assert sizes[0] == 1
    assert len(sizes) <= 4


async def test_publish_returns_when_the_broker_has_the_item(bus: Bus, server: EmbeddedServer) -> None:
    batcher = LeadEdgeBatcher(bus.publish, make, "0")
    async with running(batcher.run()):
        await server.kill()
        waiting = batcher.hand_in("a")
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await server.start()
        await asyncio.wait_for(waiting, 5.0)


async def test_a_batch_whose_outcome_is_unknown_is_repeated_under_the_same_id() -> None:
    publish = Refusing(Unavailable("lost", outcome_unknown=True))
    batcher = LeadEdgeBatcher(publish, make, "0")
    async with running(batcher.run()):
        await batcher.hand_in("a")
    assert publish.events == [("a",)]
    assert publish.ids[0] == publish.ids[1]


async def test_a_batch_too_large_is_halved_in_order_and_each_half_has_an_id_of_its_own() -> None:
    publish = Refusing()
    batcher = LeadEdgeBatcher(publish, make, "0")
    for i in range(10):
        batcher.hand_in(str(i))
    async with running(batcher.run()):
        await until(lambda: sum(map(len, publish.events)) == 10)
    assert [name for event in publish.events for name in event] == [str(i) for i in range(10)]
    assert len(set(publish.ids)) == len(publish.ids)


async def test_an_item_too_large_alone_is_refused_to_its_owner_and_the_others_go() -> None:
    publish = Refusing(InvalidRequest("both too large"), InvalidRequest("a is too large"))
    batcher = LeadEdgeBatcher(publish, make, "0")
    a, b = batcher.hand_in("a"), batcher.hand_in("b")
    async with running(batcher.run()):
        await asyncio.wait([a, b])
    assert isinstance(a.exception(), InvalidRequest)
    assert b.exception() is None
    assert publish.events == [("b",)]


async def test_what_waits_at_the_end_is_sent() -> None:
    publish = Refusing()
    batcher = LeadEdgeBatcher(publish, make, "0", window_s=10.0)
    async with running(batcher.run()):
        await batcher.hand_in("a")
        batcher.hand_in("b")
    assert publish.events == [("a",), ("b",)]
