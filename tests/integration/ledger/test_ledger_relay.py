"""A broker that is away for hours: neither the relay's memory nor the outbox grows with the time, and everything is said afterwards, in order and once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import func, select

from hbox_common.errors import Unavailable
from hbox_common.events import BindDecided, Event, QuotaChanged, Stream
from hbox_common.model import Queue, QueueName
from hbox_ledger import relay
from hbox_ledger.adapters import tables

from ...waiting import until
from .conftest import Kit, Recorder, Running


@dataclass
class Broker(Recorder):
    away: bool = True
    missing: Stream | None = None  #: stream that stores nothing

    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None:
        if self.away or type_.about.stream is self.missing:
            raise Unavailable("no stream stores it")
        await super().publish_raw(type_, body, *keys, message_id=message_id)


@asynccontextmanager
async def relaying(running: Running) -> AsyncIterator[Broker]:
    running.relay._bus = broker = Broker()
    work = asyncio.create_task(running.relay.run())
    yield broker
    work.cancel()
    await asyncio.wait([work])


async def rows(running: Running) -> int:
    return await running.store.read(lambda c: c.execute(select(func.count()).select_from(tables.outbox.table)).scalar_one())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RETRY_S", 0.005), ("FLUSH_S", 0.01), ("WINDOW", 8), ("READ", 4)):
        monkeypatch.setattr(relay, name, value)


async def test_ten_hours_without_a_broker_leave_what_was_decided_and_no_more(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running, relaying(running) as broker:
        await running.open()
        for number in range(20):
            plan = kit.plan(f"p{number}", (f"pod{number}", "n0", ()))
            await running.propose(plan.model_copy(update={"deadline_s": 3600.0}))
        await asyncio.sleep(0.05)
        before = await rows(running)
        for _ in range(300):  # of two minutes
            running.clock[0] += 120.0
            await running.ledger.tick()
        revoked = 20 / 20 + 1  # at their deadlines, together
        assert before <= await rows(running) <= before + revoked
        held = sum(lane.qsize() for lane in running.relay._lanes.values())
        assert held <= 3 * 8
        assert len(running.relay._held) <= 3 * 8 + 3 * relay.AT_ONCE
        broker.away = False

        async def none_left() -> bool:
            return await rows(running) == 0

        await until(none_left, "all is published", timeout_s=30)


async def test_what_did_not_fit_into_memory_is_said_from_the_outbox_in_order_and_once(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running, relaying(running) as broker:
        await running.open()
        await asyncio.sleep(0.02)
        for number in range(60):
            await running.propose(kit.plan(f"p{number}", (f"pod{number}", f"n{number % 2}", ())))
        broker.away = False
        for number in range(60, 80):  # while the backlog is read
            await running.propose(kit.plan(f"p{number}", (f"pod{number}", f"n{number % 2}", ())))

        async def none_left() -> bool:
            return await rows(running) == 0

        await until(none_left, "all is published", timeout_s=30)
        ids = [id for id, _ in broker.sent]
        assert len(ids) == len(set(ids))
        bound = [bind.pod for _, event in broker.sent if isinstance(event, BindDecided) for bind in event.binds]
        numbers = [int(pod.removeprefix("pod")) for pod in bound]
        first = relay.AT_ONCE  # those under way while the broker was away are said again each in its own time
        assert sorted(numbers[:first]) + numbers[first:] == list(range(80))


async def test_a_ledger_that_starts_on_a_full_outbox_says_all_of_it(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        for number in range(40):
            await running.propose(kit.plan(f"p{number}", (f"pod{number}", f"n{number % 2}", ())))
    async with kit.started(database_url) as running, relaying(running) as broker:
        broker.away = False

        async def none_left() -> bool:
            return await rows(running) == 0

        await until(none_left, "all is published", timeout_s=30)
        bound = [bind.pod for _, event in broker.sent if isinstance(event, BindDecided) for bind in event.binds]
        assert bound == [f"pod{number}" for number in range(40)]


async def test_what_is_said_again_after_a_crash_has_the_id_that_it_had(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "FLUSH_S", 60.0)  # it dies before what it has said leaves the outbox

    async def said(broker: Broker) -> list[str]:
        broker.away = False
        return list(await until(lambda: [id for id, event in broker.sent if isinstance(event, BindDecided)]))

    async with kit.started(database_url) as running, relaying(running) as broker:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", ())))
        before = await said(broker)
    async with kit.started(database_url) as running, relaying(running) as broker:
        assert (await said(broker))[:1] == before


async def test_a_public_event_that_is_published_again_after_a_crash_has_the_same_id_and_body(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "FLUSH_S", 60.0)

    async def published(broker: Broker) -> list[tuple[str, Event]]:
        broker.away = False
        return list(await until(lambda: [(id, event) for id, event in broker.sent if isinstance(event, QuotaChanged)]))

    async with kit.started(database_url) as running, relaying(running) as broker:
        await running.open()
        await running.ledger.set_queues(Queue(QueueName("q"), deserved={"nvidia.com/gpu": 4}))
        [(first_id, first)] = await published(broker)
        assert isinstance(first, QuotaChanged)
        assert first.id == first_id
    async with kit.started(database_url) as running, relaying(running) as broker:
        assert await published(broker) == [(first_id, first)]
        await running.ledger.set_queues(Queue(QueueName("q"), deserved={"nvidia.com/gpu": 4}))
        await running.ledger.set_queues(Queue(QueueName("q"), deserved={"nvidia.com/gpu": 5}))
        found = await until(lambda: [event for _, event in broker.sent if isinstance(event, QuotaChanged)][1:])
        assert [(one.data.old.deserved, one.data.new.deserved) for one in found] == [
            ({"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 5})
        ]


async def test_decisions_are_repeated_while_the_stream_of_public_events_stores_nothing(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running, relaying(running) as broker:
        broker.away, broker.missing = False, Stream.CLOUD_EVENTS
        await running.open()
        await running.ledger.set_queues(*(Queue(QueueName(f"q{number}")) for number in range(20)))  # more than the lane holds
        plan = kit.plan("p", ("pod", "n0", ()))
        await running.propose(plan.model_copy(update={"deadline_s": 3600.0}))

        def binds() -> int:
            return sum(isinstance(event, BindDecided) for _, event in broker.sent)

        await until(lambda: binds() == 1)
        running.clock[0] += 120.0
        await running.ledger.tick()
        await until(lambda: binds() == 2)
