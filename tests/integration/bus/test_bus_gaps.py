"""A reader that lives but is slow: what its stream dropped before it was read is told, and nothing else is."""

import asyncio
from collections.abc import Sequence

import pytest

from hbox_common.bus import Bus, Delivery
from hbox_common.bus.continuity import LOOK_S
from hbox_common.bus.errors import StreamApiError
from hbox_common.events import JobsWithdrawn, PodsObserved, Stream
from hbox_common.model import JobId

from ...waiting import until
from .bus_world import Reader, job, running

KIB = 1024


async def scaled_down(bus: Bus, stream: Stream, max_bytes: int) -> None:
    config = (await bus._connection.api(f"STREAM.INFO.{stream.value}"))["config"]
    await bus._connection.api(f"STREAM.UPDATE.{stream.value}", {**config, "max_bytes": max_bytes})


async def publish(bus: Bus, first: int, count: int) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(first, first + count):
            tasks.create_task(bus.publish(job(str(number)), "0"))


async def attached(bus: Bus, durable: str) -> None:
    """Returns when the broker knows the consumer: what is dropped before that nobody was to read."""

    async def known() -> bool:
        try:
            await bus._connection.api(f"CONSUMER.INFO.{Stream.JOBS.value}.{durable}")
        except StreamApiError:
            return False
        return True

    await until(known, f"the consumer {durable}")


class Slow(Reader):
    """Takes nothing while it is shut; `asked`: it was handed something."""

    def __init__(self) -> None:
        super().__init__(self.wait)
        self.open, self.asked = asyncio.Event(), asyncio.Event()
        self.gaps = 0

    async def wait(self, _: Sequence[Delivery]) -> None:
        self.asked.set()
        await self.open.wait()

    async def gap(self) -> None:
        self.gaps += 1


@pytest.fixture
async def small(bus: Bus) -> Bus:
    await scaled_down(bus, Stream.JOBS, 512 * KIB)
    return bus


async def test_what_a_slow_follower_lost_is_told_while_it_lives(small: Bus) -> None:
    reader, ready = Slow(), asyncio.Event()
    async with running(small.follow([JobsWithdrawn], reader, on_ready=ready.set, on_gap=reader.gap)):
        await ready.wait()
        await publish(small, 0, 4000)
        reader.open.set()
        await until(lambda: "3999" in reader.names, "the last message is read", timeout_s=30)
        await until(lambda: reader.gaps, "the loss is told", timeout_s=10)
    assert len(reader.names) < 4000, "nothing was lost: the limit is too large for this test"


async def test_what_a_slow_consumer_lost_is_told_while_it_lives(small: Bus) -> None:
    reader = Slow()
    async with running(small.consume("slow", [JobsWithdrawn], reader, on_missed=reader.gap)):
        await publish(small, 0, 10)
        await reader.asked.wait()
        await publish(small, 10, 4000)
        reader.open.set()
        await until(lambda: "4009" in reader.names, "the last message is read", timeout_s=30)
        await until(lambda: reader.gaps, "the loss is told", timeout_s=10)
    assert len(set(reader.names)) < 4010


async def test_who_keeps_up_is_told_of_nothing_while_its_stream_is_filled_many_times(small: Bus) -> None:
    """With a filter that passes most messages over, and with one that passes all of them over."""
    reader, idle = Slow(), Slow()
    reader.open.set()
    idle.open.set()
    reads, passes_over = asyncio.Event(), asyncio.Event()
    async with running(
        small.follow([JobsWithdrawn], reader, on_ready=reads.set, on_gap=reader.gap),
        small.follow([PodsObserved], idle, on_ready=passes_over.set, on_gap=idle.gap),
        small.consume("keeps-up", [PodsObserved], idle, on_missed=idle.gap),
    ):
        await reads.wait()
        await passes_over.wait()
        await attached(small, "keeps-up")
        for round_ in range(20):
            await publish(small, 200 * round_, 200)

            def all_is_read(published: int = 200 * (round_ + 1)) -> bool:
                return len(reader.names) == published

            await until(all_is_read)
            await asyncio.sleep(0.5)  # no stream of ours is filled within two looks
        await asyncio.sleep(2 * LOOK_S + 0.5)
    assert (reader.gaps, idle.gaps) == (0, 0)
    info = await small._connection.api(f"STREAM.INFO.{Stream.JOBS.value}")
    assert info["state"]["first_seq"] > 2000, "the stream was not filled: the limit is too large for this test"


async def test_a_consumer_that_is_made_anew_begins_with_what_is_new_and_not_days_ago(bus: Bus) -> None:
    await publish(bus, 0, 50)
    await asyncio.sleep(1.5)
    reader = Reader()
    for _ in range(2):  # and one that is there goes on where it was
        async with running(bus.consume("anew", [JobsWithdrawn], reader, from_last_s=1.0)):
            before = len(reader.names)

            def came(before: int = before) -> bool:
                return len(reader.names) > before

            await attached(bus, "anew")
            await bus.publish(job(f"new{before}"), "0")
            await until(came)
    assert reader.names == ["new0", "new1"]
    await bus._connection.api("CONSUMER.DELETE.HBOX_JOBS.anew")
    await asyncio.sleep(1.5)
    async with running(bus.consume("anew", [JobsWithdrawn], reader, from_last_s=1.0)):
        await attached(bus, "anew")
        await bus.publish(job("after"), "0")
        await until(lambda: reader.names[2:] == ["after"])


async def test_a_consumer_of_the_last_of_each_begins_with_them(bus: Bus) -> None:
    for number in range(5):
        await bus.publish(job(str(number)), "a")
        await bus.publish(job(str(10 + number)), "b")
    reader = Reader()
    async with running(bus.consume("each", [JobsWithdrawn], reader, last_of_each=True)):
        await until(lambda: len(reader.names) == 2)
        await bus.publish(job("more"), "a")
        await until(lambda: len(reader.names) == 3)
    assert sorted(map(JobId, reader.names)) == ["14", "4", "more"]
