"""Publishing over outages, wiped brokers and wrong sizes."""

import asyncio
import shutil
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer, Start
from hbox_common.bus import server as server_module
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import ClaimsAsked, Event, JobsAdmitted, JobsWithdrawn, QueueRefused, encode
from hbox_common.model import JobId, SchedulerId

from ...waiting import until
from .bus_world import Reader, job, lasting, node, running


async def stored(bus: Bus, count: int, of: type[Event] = JobsWithdrawn) -> list[str]:
    """The names of all messages of a type in the stream, once there are `count`."""
    reader = Reader()
    async with running(bus.follow([of], reader, start=Start.ALL)):
        await until(lambda: len(reader.names) >= count)
        await asyncio.sleep(0.05)
    return reader.names


async def test_a_message_published_during_an_outage_is_stored_exactly_once(bus: Bus, server: EmbeddedServer) -> None:
    await bus.publish(lasting("before"), "q")
    await server.kill()
    waiting = asyncio.ensure_future(bus.publish(lasting("during"), "q"))
    await until(lambda: not bus.connected)
    await server.start()
    await waiting
    assert await stored(bus, 2, QueueRefused) == ["before", "during"]


async def test_publishes_in_flight_when_the_broker_is_killed_are_each_stored_once(bus: Bus, server: EmbeddedServer) -> None:
    names = [f"job{i}" for i in range(200)]
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(bus.publish(lasting(name), "q"))
        await asyncio.sleep(0.01)
        await server.kill()
        await server.start()
    assert sorted(await stored(bus, 200, QueueRefused)) == sorted(names)


async def test_what_is_too_large_for_one_message_is_divided_also_while_the_broker_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the broker took when it was there: one of theirs may take less than ours does."""
    monkeypatch.setattr(server_module, "MAX_PAYLOAD", 256 * 1024)
    event = JobsAdmitted(scheduler=SchedulerId("s"), jobs=tuple(JobId(f"{i:0>100}") for i in range(5000)))
    reader = Reader()
    async with EmbeddedServer(tmp_path / "small") as server, Bus.connect(server.url, name="test", instance="1") as bus:
        await server.kill()
        await until(lambda: not bus.connected)
        saying = asyncio.ensure_future(bus.publish_parts(event, "0"))
        await asyncio.sleep(0.1)
        await server.start()
        assert await saying == []
        async with running(bus.follow([JobsAdmitted], reader, start=Start.ALL)):
            await until(
                lambda: sum(len(one.event.jobs) for one in reader.deliveries if isinstance(one.event, JobsAdmitted)) == 5000
            )
    assert len(reader.deliveries) > 1


async def test_repeating_a_message_id_stores_nothing_twice(bus: Bus) -> None:
    for _ in range(3):
        await bus.publish(job("once"), "0", message_id="the-same")
    assert await stored(bus, 1) == ["once"]


async def test_a_broker_that_stays_away_makes_publishing_unavailable_in_time(bus: Bus, server: EmbeddedServer) -> None:
    await server.kill()
    with pytest.raises(Unavailable) as raised:
        await bus.publish(job("lost"), "0", timeout_s=0.3)
    assert raised.value.outcome_unknown


async def test_a_broker_whose_storage_was_wiped_gets_its_streams_back(bus: Bus, server: EmbeddedServer) -> None:
    await bus.publish(job("old"), "0")
    await server.kill()
    shutil.rmtree(server.store)
    await server.start()
    await bus.publish(job("new"), "0")
    assert await stored(bus, 1) == ["new"]


async def test_without_leave_to_make_streams_a_missing_one_is_an_error(server: EmbeddedServer) -> None:
    async with Bus.connect(server.url, name="guest", instance="1", ensure=False) as guest:
        with pytest.raises(Unavailable, match="no responder"):
            await guest.publish(job("lost"), "0", timeout_s=0.3)


async def test_a_body_above_its_types_limit_is_refused_before_it_is_sent(bus: Bus) -> None:
    huge = JobsWithdrawn(jobs=tuple("j" * 1000 for _ in range(1100)), revisions=())
    with pytest.raises(InvalidRequest, match="smaller batches"):
        await bus.publish(huge, "0")
    await bus.publish(job("fine"), "0")


async def test_a_body_of_the_largest_size_allowed_passes_the_broker(bus: Bus) -> None:
    text = "j" * 60_000
    jobs = [text] * (JobsWithdrawn.about.max_bytes // 60_010)
    event = JobsWithdrawn(jobs=tuple(jobs), revisions=())
    assert len(encode(event)) > JobsWithdrawn.about.max_bytes * 0.9
    await bus.publish(event, "0", traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")


async def test_wrong_keys_and_questions_cannot_be_published(bus: Bus) -> None:
    with pytest.raises(ValueError, match="takes"):
        await bus.publish(node("n", 1), "n", "too many")
    with pytest.raises(ValueError, match="asked for"):
        await bus.publish(ClaimsAsked(asker="me"))


async def test_an_encoded_body_is_published_as_it_is(bus: Bus) -> None:
    await bus.publish_raw(JobsWithdrawn, encode(job("letter")), "0", message_id="1-1", traceparent="")
    assert await stored(bus, 1) == ["letter"]
