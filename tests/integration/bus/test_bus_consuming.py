"""Durable consumers: nothing lost, nothing acknowledged too early, nobody blocked by a message that cannot be handled."""

import asyncio
import os
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer, metrics
from hbox_common.bus.dead_letters import DeadLetters
from hbox_common.bus.puller import nak
from hbox_common.errors import Bug, Unavailable
from hbox_common.events import JobsWaiting, JobsWithdrawn, NodeStateChanged, encode, headers

from ...waiting import until
from .bus_world import Reader, dead_letters, job, name_of, running


async def all_answered(bus: Bus) -> bool:
    return bool((await bus._connection.api("CONSUMER.INFO.HBOX_JOBS.reader"))["num_ack_pending"] == 0)


async def test_messages_come_in_order_with_what_the_broker_knows_of_them(bus: Bus) -> None:
    parent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    await bus.publish(job("a"), "0", message_id="first", traceparent=parent)
    await bus.publish(job("b"), "0")
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader)):
        await until(lambda: len(reader.names) == 2)
    first = reader.deliveries[0]
    assert reader.names == ["a", "b"]
    assert (first.message_id, first.sequence, first.deliveries, first.traceparent) == ("first", 1, 1, parent)
    assert first.subject == "hbox.v1.job.withdrawn.0"


async def test_what_was_acknowledged_does_not_come_again(bus: Bus) -> None:
    await bus.publish(job("a"), "0")
    first, second = Reader(), Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], first)):
        await until(lambda: first.names == ["a"])
    await bus.publish(job("b"), "0")
    async with running(bus.consume("reader", [JobsWithdrawn], second)):
        await until(lambda: second.names)
    assert second.names == ["b"]


async def test_a_backlog_is_handed_over_in_batches_of_the_size_asked_for(bus: Bus) -> None:
    for i in range(50):
        await bus.publish(job(str(i)), "0")
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader, batch=20)):
        await until(lambda: len(reader.names) == 50)
    assert reader.names == [str(i) for i in range(50)]
    assert max(reader.batches) <= 20 < 50


async def test_no_message_waits_behind_one_in_hand_while_another_reader_has_nothing_to_do(bus: Bus) -> None:
    others = asyncio.Event()
    done: list[str] = []

    async def handle(deliveries: Sequence[Delivery]) -> None:
        [name] = [name_of(delivery.event) for delivery in deliveries]
        if name == "slow":
            await others.wait()
        done.append(name)

    both = (bus.consume("reader", [JobsWithdrawn], handle, batch=1) for _ in range(2))
    async with running(next(both)), running(next(both)):
        for name in ("slow", *map(str, range(6))):
            await bus.publish(job(name), "0")
        await until(lambda: len(done) == 6)
        others.set()
        await until(lambda: len(done) == 7)
    assert sorted(done[:6]) == [str(i) for i in range(6)]
    assert done[6] == "slow"


async def test_the_puller_goes_on_within_two_seconds_of_a_restart(bus: Bus, server: EmbeddedServer) -> None:
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader)):
        await bus.publish(job("before"), "0")
        await until(lambda: reader.names == ["before"])
        await server.kill()
        await until(lambda: not bus.connected)
        await server.start()
        await bus.publish(job("after"), "0")
        await until(lambda: "after" in reader.names, timeout_s=2.0)
        assert reader.names == ["before", "after"], "also where the broker forgot that it had been told"


async def test_the_puller_goes_on_after_an_orderly_restart_too(bus: Bus, server: EmbeddedServer) -> None:
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader)):
        await bus.publish(job("before"), "0")
        await until(lambda: reader.names == ["before"])
        await server.stop()
        await server.start()
        await bus.publish(job("after"), "0")
        await until(lambda: "after" in reader.names, timeout_s=2.0)
        assert reader.names == ["before", "after"], "also where the broker forgot that it had been told"


async def test_a_wiped_broker_starts_the_consumer_anew(bus: Bus, server: EmbeddedServer) -> None:
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader)):
        for i in range(3):
            await bus.publish(job(f"old{i}"), "0")
        await until(lambda: len(reader.names) == 3)
        await server.kill()
        shutil.rmtree(server.store)
        await server.start()
        await bus.publish(job("new"), "0")
        await until(lambda: reader.names[3:] == ["new"])


async def test_a_stream_deleted_under_the_consumer_is_made_again(bus: Bus) -> None:
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader)):
        await bus.publish(job("old"), "0")
        await until(lambda: reader.names == ["old"])
        await bus._connection.api("STREAM.DELETE.HBOX_JOBS")
        await bus.publish(job("new"), "0")
        await until(lambda: reader.names == ["old", "new"])


async def test_a_consumer_deleted_under_us_is_made_again(bus: Bus) -> None:
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader)):
        await bus.publish(job("a"), "0")
        await until(lambda: reader.names == ["a"])
        await bus._connection.api("CONSUMER.DELETE.HBOX_JOBS.reader")
        await bus.publish(job("b"), "0")
        await until(lambda: "b" in reader.names)


async def test_a_message_whose_acknowledgement_was_lost_is_acknowledged_when_it_comes_again_and_not_handled(
    bus: Bus, server: EmbeddedServer
) -> None:
    async def lose_the_broker(_: Sequence[Delivery]) -> None:
        if not reader.names:
            await server.kill()
            await until(lambda: not bus.connected)

    reader = Reader(lose_the_broker)
    async with running(bus.consume("reader", [JobsWithdrawn], reader, ack_wait_s=1.0)):
        await bus.publish(job("a"), "0")
        await until(lambda: reader.names == ["a"])
        await server.start()
        await until(lambda: bus.connected)
        await asyncio.sleep(1.5)  # longer than ack_wait: it would have come again
        assert reader.names == ["a"]
        await until(lambda: all_answered(bus))


async def test_messages_of_a_process_that_died_come_to_the_next_one(bus: Bus, server: EmbeddedServer) -> None:
    await bus.publish(job("a"), "0")
    dying = textwrap.dedent(f"""
        import asyncio, os
        from hbox_common.bus import Bus
        from hbox_common.events import JobsWithdrawn

        async def die(deliveries):
            os._exit(9)

        async def main():
            async with Bus.connect({server.url!r}, name="dying", instance="1") as bus:
                await bus.consume("reader", [JobsWithdrawn], die, ack_wait_s=1.0)

        asyncio.run(main())
    """)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", dying, env=os.environ)
    assert await process.wait() == 9
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader, ack_wait_s=1.0)):
        await until(lambda: reader.names == ["a"])
    assert reader.deliveries[0].deliveries == 2


async def test_a_reader_that_is_stopped_gives_back_what_it_had_at_once(bus: Bus) -> None:
    begun = asyncio.Event()

    async def stuck(_: Sequence[Delivery]) -> None:
        begun.set()
        await asyncio.Event().wait()

    await bus.publish(job("a"), "0")
    async with running(bus.consume("reader", [JobsWithdrawn], stuck, ack_wait_s=30.0)):
        await begun.wait()
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader, ack_wait_s=30.0)):
        await until(lambda: reader.names == ["a"], timeout_s=2.0)


async def test_a_slow_handler_keeps_its_messages_and_those_that_wait_behind(bus: Bus) -> None:
    async def slow(_: Sequence[Delivery]) -> None:
        await asyncio.sleep(1.2)

    reader = Reader(slow)
    async with running(bus.consume("reader", [JobsWithdrawn], reader, batch=1, ack_wait_s=0.5)):
        await bus.publish(job("a"), "0")
        await bus.publish(job("b"), "0")
        await until(lambda: len(reader.names) == 2)
        await asyncio.sleep(0.7)
    assert reader.names == ["a", "b"]
    assert [delivery.deliveries for delivery in reader.deliveries] == [1, 1]


async def test_what_a_slow_handler_holds_is_not_handed_to_another_process(bus: Bus, server: EmbeddedServer) -> None:
    begun = asyncio.Event()

    async def slow(_: Sequence[Delivery]) -> None:
        begun.set()
        await asyncio.sleep(2.0)

    one, two = Reader(slow), Reader()
    async with (
        Bus.connect(server.url, name="test", instance="2") as other,
        running(bus.consume("reader", [JobsWithdrawn], one, ack_wait_s=0.5)),
    ):
        await bus.publish(job("a"), "0")
        await begun.wait()
        async with running(other.consume("reader", [JobsWithdrawn], two, ack_wait_s=0.5)):
            await until(lambda: one.names == ["a"])
        assert two.names == []


async def test_a_handler_that_reaches_nobody_is_asked_again_while_others_go_on(bus: Bus) -> None:
    refusals = 0

    async def refuse_a(deliveries: Sequence[Delivery]) -> None:
        nonlocal refusals
        if any(name_of(delivery.event) == "a" for delivery in deliveries) and refusals < 4:
            refusals += 1
            raise Unavailable("the database is away")

    reader = Reader(refuse_a)
    async with dead_letters(bus) as letters, running(bus.consume("reader", [JobsWithdrawn], reader, max_deliver=2)):
        await bus.publish(job("a"), "0")
        await until(lambda: refusals >= 1)
        await bus.publish(job("b"), "0")
        await until(lambda: len(reader.names) == 2)
        assert reader.names == ["b", "a"]
        assert reader.deliveries[1].deliveries == 1, "an outage does not count as a failure"
        assert letters == []


async def test_a_poison_message_is_set_aside_once_and_the_others_are_handled(bus: Bus) -> None:
    tries = 0

    async def choke(deliveries: Sequence[Delivery]) -> None:
        nonlocal tries
        if any(name_of(delivery.event) == "poison" for delivery in deliveries):
            tries += len(deliveries) == 1
            raise ValueError("cannot swallow this")

    reader = Reader(choke)
    for name in ("a", "poison", "b"):
        await bus.publish(job(name), "0")
    async with dead_letters(bus) as letters, running(bus.consume("reader", [JobsWithdrawn], reader, max_deliver=3)):
        await until(lambda: letters)
        await bus.publish(job("c"), "0")
        await until(lambda: len(reader.names) == 3)
        assert reader.names == ["a", "b", "c"]
        (letter,) = letters
        assert (letter.consumer, letter.sequence, letter.deliveries) == ("reader", 2, 3)
        assert "ValueError: cannot swallow this" in letter.reason
        assert letter.body == encode(job("poison"))
        assert tries == 3


async def test_messages_that_cannot_be_read_are_set_aside_at_once(bus: Bus) -> None:
    good, subject = job("good"), JobsWithdrawn.subject("0")
    header = headers(good, source="test", message_id="", now=0.0)
    connection = bus._connection
    bad = {
        "not a msgpack map": (b"\xc1", header),
        "content-type": (encode(good), header | {"content-type": "application/json"}),
        "unknown message type": (encode(good), header | {"ce-type": "io.hbox.v9.new.thing"}),
        "does not belong": (encode(JobsWaiting(verdicts=())), header | {"ce-type": JobsWaiting.ce_type()}),
        "are allowed": (b"x" * (JobsWithdrawn.about.max_bytes + 1), header),
        "revisions": (b"\x81\xa4jobs\x90", header),
    }
    for i, (body, its_header) in enumerate(bad.values()):
        await connection.request(subject, body, headers=its_header | {"Nats-Msg-Id": f"bad{i}"})
    await connection.request(subject, b"bare")
    await bus.publish(good, "0")
    reader = Reader()
    async with dead_letters(bus) as letters, running(bus.consume("reader", [JobsWithdrawn], reader)):
        await until(lambda: len(letters) == len(bad) + 1)
        await until(lambda: reader.names == ["good"])
        for letter, words in zip(letters, [*bad, "unknown message type"], strict=True):
            assert words in letter.reason
        await until(lambda: all_answered(bus))


async def test_a_bug_of_ours_ends_the_consumer_instead_of_blaming_the_message(bus: Bus) -> None:
    async def broken(_: Sequence[Delivery]) -> None:
        raise Bug("the books are wrong")

    await bus.publish(job("a"), "0")
    with pytest.raises(Bug, match="books"):
        await bus.consume("reader", [JobsWithdrawn], broken)


async def test_a_dead_letter_is_stored_though_its_stream_has_to_be_made_anew(bus: Bus) -> None:
    await bus._connection.api("STREAM.DELETE.HBOX_DLQ")
    await bus._connection.request(JobsWithdrawn.subject("0"), b"rubbish")
    async with running(bus.consume("reader", [JobsWithdrawn], Reader())), dead_letters(bus) as letters:
        await until(lambda: len(letters) == 1)


async def test_what_cannot_be_set_aside_comes_again_until_it_is(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeadLetters, "bury", _once_unavailable(DeadLetters.bury))
    monkeypatch.setattr("hbox_common.bus.puller.nak", lambda _: nak(0.1))
    await bus._connection.request(JobsWithdrawn.subject("0"), b"rubbish")
    async with running(bus.consume("reader", [JobsWithdrawn], Reader())), dead_letters(bus) as letters:
        await until(lambda: [letter.deliveries for letter in letters] == [2])


def _once_unavailable(bury: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    calls = 0

    async def first_fails(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Unavailable("HBOX_DLQ is full")
        await bury(*args)

    return first_fails


async def test_a_message_whose_readers_die_is_set_aside_unseen(bus: Bus) -> None:
    async def die(_: Sequence[Delivery]) -> None:
        begun.set()
        await asyncio.Event().wait()

    await bus.publish(job("killer"), "0")
    for _ in range(2):
        begun = asyncio.Event()
        async with running(bus.consume("reader", [JobsWithdrawn], die, max_deliver=1, ack_wait_s=30.0)):
            await begun.wait()
    reader = Reader()
    async with dead_letters(bus) as letters, running(bus.consume("reader", [JobsWithdrawn], reader, max_deliver=1)):
        await bus.publish(job("next"), "0")
        await until(lambda: reader.names)
        assert reader.names == ["next"]
        await until(lambda: [letter.deliveries for letter in letters] == [3])


async def test_what_was_put_off_of_a_stream_that_is_gone_is_neither_handled_nor_acknowledged(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off_s = 6.0  # longer than it takes a busy machine to notice that the stream is another one
    monkeypatch.setattr("hbox_common.bus.puller.unavailable_delay_s", lambda _: put_off_s)
    refused = asyncio.Event()

    async def refuse_old(deliveries: Sequence[Delivery]) -> None:
        names = [name_of(delivery.event) for delivery in deliveries]
        if "old" in names and not refused.is_set():
            refused.set()
            raise Unavailable("the database is away")

    reader = Reader(refuse_old)
    async with running(bus.consume("reader", [JobsWithdrawn], reader, batch=1)):
        await bus.publish(job("old"), "0")
        await refused.wait()
        await bus._connection.api("STREAM.DELETE.HBOX_JOBS")
        await bus.publish(job("new"), "0")
        await until(lambda: "new" in reader.names)
        await asyncio.sleep(put_off_s + 0.2)
        assert reader.names == ["new"]


async def test_two_processes_with_one_durable_share_its_messages(bus: Bus, server: EmbeddedServer) -> None:
    one, two = Reader(), Reader()
    async with (
        Bus.connect(server.url, name="test", instance="2") as other,
        running(bus.consume("r", [JobsWithdrawn], one, batch=1), other.consume("r", [JobsWithdrawn], two, batch=1)),
    ):
        for i in range(40):
            await bus.publish(job(str(i)), "0")
        await until(lambda: len(one.names) + len(two.names) == 40)
    assert sorted(one.names + two.names) == sorted(str(i) for i in range(40))


async def test_several_types_of_one_stream_are_consumed_together(bus: Bus) -> None:
    seen: list[str] = []

    async def take(deliveries: Sequence[Delivery]) -> None:
        seen.extend(type(delivery.event).__name__ for delivery in deliveries)

    async with running(bus.consume("reader", [JobsWithdrawn, JobsWaiting], take)):
        await bus.publish(job("a"), "0")
        await bus.publish(JobsWaiting(verdicts=()), "0")
        await until(lambda: len(seen) == 2)
    with pytest.raises(ValueError, match="one stream"):
        await bus.consume("reader", [JobsWithdrawn, NodeStateChanged], take)


async def test_a_window_gathers_what_comes_meanwhile(bus: Bus) -> None:
    reader = Reader()
    async with running(bus.consume("reader", [JobsWithdrawn], reader, window_s=0.3)):
        await bus.publish(job("first"), "0")
        await until(lambda: reader.batches == [1])
        for i in range(10):
            await bus.publish(job(str(i)), "0")
        await until(lambda: len(reader.names) == 11)
    assert reader.batches == [1, 10]


async def test_what_waits_and_how_old_it_is_can_be_measured(bus: Bus) -> None:
    for i in range(5):
        await bus.publish(job(str(i)), "0")
    await asyncio.sleep(1.1)
    handled, go_on = asyncio.Event(), asyncio.Event()

    async def handle(_: Sequence[Delivery]) -> None:
        handled.set()
        await go_on.wait()

    def said(metric: Any) -> float:
        return float(metric.labels("measured")._value.get())

    async with running(bus.consume("measured", [JobsWithdrawn], handle, batch=1)):
        await handled.wait()
        assert said(metrics.WAITING) == 4
        assert 1 <= said(metrics.BEHIND_S) < 60
        go_on.set()
        await until(lambda: said(metrics.WAITING) == 0)
