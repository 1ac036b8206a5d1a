"""Followers: late ones get the last values, and nobody is left behind or unwarned by a broker that was restarted or wiped."""

import asyncio
import shutil
from collections.abc import Sequence

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.errors import Bug, Unavailable
from hbox_common.events import HealthVerdict, JobsWithdrawn, NodeStateChanged

from ...waiting import until
from .bus_world import Reader, dead_letters, job, name_of, node, running


class Gap:
    """Counts calls of `on_gap`, and what had been read at each."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self.at = reader, list[int]()

    async def __call__(self) -> None:
        self.at.append(len(self._reader.names))


async def test_a_late_follower_gets_the_last_value_of_every_subject_and_then_is_ready(bus: Bus) -> None:
    for name, generation in (("n1", 1), ("n2", 1), ("n1", 2), ("n1", 3)):
        await bus.publish(node(name, generation), name)
    reader, ready_at = Reader(), list[int]()
    follow = bus.follow(
        [NodeStateChanged], reader, start=Start.LAST_PER_SUBJECT, on_ready=lambda: ready_at.append(len(reader.names))
    )
    async with running(follow):
        await until(lambda: ready_at)
        assert sorted(reader.names) == ["n1@3", "n2@1"]
        await bus.publish(node("n2", 2), "n2")
        await until(lambda: reader.names[2:] == ["n2@2"])
    assert ready_at == [2]


@pytest.mark.parametrize("start", list(Start))
async def test_a_follower_of_nothing_is_ready_at_once(bus: Bus, start: Start) -> None:
    ready = asyncio.Event()
    async with running(bus.follow([NodeStateChanged], Reader(), start=start, on_ready=ready.set)):
        await asyncio.wait_for(ready.wait(), 2.0)


async def test_thousands_of_last_values_are_all_handed_over_before_ready(bus: Bus) -> None:
    count = 2000
    async with asyncio.TaskGroup() as tasks:
        for i in range(count):
            tasks.create_task(bus.publish(node(f"n{i}", 1), f"n{i}"))
    reader, ready = Reader(), asyncio.Event()
    async with running(bus.follow([NodeStateChanged], reader, start=Start.LAST_PER_SUBJECT, on_ready=ready.set)):
        await asyncio.wait_for(ready.wait(), 10.0)
        assert len(set(reader.names)) == count


async def test_a_new_follower_sees_only_what_is_stored_after_it_is_ready(bus: Bus) -> None:
    await bus.publish(job("old"), "0")
    reader, ready = Reader(), asyncio.Event()
    async with running(bus.follow([JobsWithdrawn], reader, on_ready=ready.set)):
        await ready.wait()
        await bus.publish(job("new"), "0")
        await until(lambda: reader.names)
    assert reader.names == ["new"]


async def test_a_follower_of_all_reads_the_history_first(bus: Bus) -> None:
    for i in range(5):
        await bus.publish(job(str(i)), "0")
    reader, ready = Reader(), asyncio.Event()
    async with running(bus.follow([JobsWithdrawn], reader, start=Start.ALL, on_ready=ready.set)):
        await ready.wait()
    assert reader.names == ["0", "1", "2", "3", "4"]


async def test_types_that_were_not_asked_for_are_not_handed_over(bus: Bus) -> None:
    await bus.publish(node("n", 1), "n")
    reader, ready = Reader(), asyncio.Event()
    async with running(bus.follow([HealthVerdict], reader, start=Start.LAST_PER_SUBJECT, on_ready=ready.set)):
        await ready.wait()
    assert reader.names == []


@pytest.mark.parametrize("start", [Start.NEW, Start.LAST_PER_SUBJECT])
async def test_a_follower_goes_on_right_after_a_restart_without_a_gap_or_a_repetition(
    bus: Bus, server: EmbeddedServer, start: Start
) -> None:
    reader, ready = Reader(), asyncio.Event()
    gap = Gap(reader)
    async with running(bus.follow([NodeStateChanged], reader, start=start, on_ready=ready.set, on_gap=gap)):
        await ready.wait()
        await bus.publish(node("n1", 1), "n1")
        await until(lambda: reader.names == ["n1@1"])
        await server.kill()
        await until(lambda: not bus.connected)
        await server.start()
        await bus.publish(node("n1", 2), "n1")
        await until(lambda: reader.names == ["n1@1", "n1@2"], timeout_s=2.0)
    assert gap.at == []


async def test_what_is_stored_while_a_follower_is_away_is_handed_over_afterwards(bus: Bus, server: EmbeddedServer) -> None:
    reader, ready = Reader(), asyncio.Event()
    async with (
        Bus.connect(server.url, name="other", instance="1") as other,
        running(other.follow([JobsWithdrawn], reader, on_ready=ready.set)),
    ):
        await ready.wait()
        await bus.publish(job("a"), "0")
        await until(lambda: reader.names == ["a"])
        other._connection._client._transport._io_writer.transport.abort()  # type: ignore[union-attr]
        await bus.publish(job("b"), "0")
        await bus.publish(job("c"), "0")
        await until(lambda: reader.names == ["a", "b", "c"], timeout_s=2.0)


async def test_a_wiped_stream_is_reported_before_anything_newer_is_handed_over(bus: Bus, server: EmbeddedServer) -> None:
    reader, ready = Reader(), asyncio.Event()
    gap = Gap(reader)
    async with running(bus.follow([JobsWithdrawn], reader, on_ready=ready.set, on_gap=gap)):
        await ready.wait()
        await bus.publish(job("old"), "0")
        await until(lambda: reader.names == ["old"])
        await server.kill()
        shutil.rmtree(server.store)
        await server.start()
        await bus.publish(job("new"), "0")
        await until(lambda: reader.names == ["old", "new"], timeout_s=3.0)
    assert gap.at == [1]


async def test_a_stream_deleted_while_we_follow_is_reported_too(bus: Bus) -> None:
    reader, ready = Reader(), asyncio.Event()
    gap = Gap(reader)
    async with running(bus.follow([JobsWithdrawn], reader, on_ready=ready.set, on_gap=gap)):
        await ready.wait()
        await bus._connection.api("STREAM.DELETE.HBOX_JOBS")
        await bus.publish(job("new"), "0")
        await until(lambda: reader.names == ["new"], timeout_s=3.0)
    assert gap.at == [0]


async def test_messages_dropped_before_they_were_read_are_a_gap(bus: Bus, server: EmbeddedServer) -> None:
    reader, ready = Reader(), asyncio.Event()
    gap = Gap(reader)
    async with (
        Bus.connect(server.url, name="other", instance="1") as other,
        running(other.follow([JobsWithdrawn], reader, on_ready=ready.set, on_gap=gap)),
    ):
        await ready.wait()
        await bus.publish(job("a"), "0")
        await until(lambda: reader.names == ["a"])
        other._connection._client._transport._io_writer.transport.abort()  # type: ignore[union-attr]
        await bus.publish(job("b"), "0")
        await bus._connection.api("STREAM.PURGE.HBOX_JOBS")
        await bus.publish(job("c"), "0")
        await until(lambda: reader.names == ["a", "c"], timeout_s=3.0)
    assert gap.at == [1]


async def test_last_values_are_replayed_from_a_stream_that_was_made_anew(bus: Bus, server: EmbeddedServer) -> None:
    reader, ready = Reader(), list[bool]()
    follow = bus.follow([NodeStateChanged], reader, start=Start.LAST_PER_SUBJECT, on_ready=lambda: ready.append(True))
    async with running(follow):
        await bus.publish(node("n1", 1), "n1")
        await until(lambda: reader.names == ["n1@1"])
        await server.kill()
        shutil.rmtree(server.store)
        await server.start()
        await bus.publish(node("n1", 1), "n1")
        await until(lambda: reader.names == ["n1@1", "n1@1"], timeout_s=3.0)
    assert ready == [True]


async def test_a_consumer_the_broker_forgot_is_made_again_where_we_stopped(bus: Bus) -> None:
    reader, ready = Reader(), asyncio.Event()
    async with running(bus.follow([JobsWithdrawn], reader, on_ready=ready.set)):
        await ready.wait()
        await bus.publish(job("a"), "0")
        await until(lambda: reader.names == ["a"])
        (consumer,) = (await bus._connection.api("CONSUMER.NAMES.HBOX_JOBS"))["consumers"]
        await bus._connection.api(f"CONSUMER.DELETE.HBOX_JOBS.{consumer}")
        await bus.publish(job("b"), "0")
        await until(lambda: reader.names == ["a", "b"], timeout_s=3.0)


async def test_a_follower_leaves_no_consumer_behind(bus: Bus) -> None:
    ready = asyncio.Event()
    async with running(bus.follow([JobsWithdrawn], Reader(), on_ready=ready.set)):
        await ready.wait()
    assert (await bus._connection.api("CONSUMER.NAMES.HBOX_JOBS"))["total"] == 0


async def test_a_follower_that_reaches_nobody_is_handed_the_same_again(bus: Bus) -> None:
    refusals = 0

    async def refuse(_: Sequence[Delivery]) -> None:
        nonlocal refusals
        refusals += 1
        if refusals < 3:
            raise Unavailable("not now")

    reader = Reader(refuse)
    await bus.publish(job("a"), "0")
    async with running(bus.follow([JobsWithdrawn], reader, start=Start.ALL)):
        await until(lambda: reader.names == ["a"])
    assert refusals == 3


async def test_a_message_that_cannot_be_followed_is_set_aside_and_the_others_are_handed_over(bus: Bus) -> None:
    async def choke(deliveries: Sequence[Delivery]) -> None:
        if any(name_of(delivery.event) == "poison" for delivery in deliveries):
            raise KeyError("poison")

    reader = Reader(choke)
    for name in ("a", "poison", "b"):
        await bus.publish(job(name), "0")
    await bus._connection.request(JobsWithdrawn.subject("0"), b"rubbish")
    await bus.publish(job("c"), "0")
    async with dead_letters(bus) as letters, running(bus.follow([JobsWithdrawn], reader, start=Start.ALL)):
        await until(lambda: len(letters) == 2 and len(reader.names) == 3)
        assert reader.names == ["a", "b", "c"]
        assert {letter.sequence for letter in letters} == {2, 4}


async def test_a_bug_of_ours_ends_the_follower(bus: Bus) -> None:
    async def broken(_: Sequence[Delivery]) -> None:
        raise Bug("the view is wrong")

    await bus.publish(job("a"), "0")
    with pytest.raises(Bug, match="view"):
        await bus.follow([JobsWithdrawn], broken, start=Start.ALL)
