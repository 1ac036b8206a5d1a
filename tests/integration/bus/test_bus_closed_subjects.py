"""Last values of what is gone: kept for a day, then the broker forgets them, and whoever comes later has never heard of it."""

import asyncio

import pytest

from hbox_common.bus import Bus, EmbeddedServer, Start, follower, publisher
from hbox_common.bus.errors import Outdated
from hbox_common.events import HealthVerdict, NodeStateChanged
from hbox_common.model import Generation, NodeName, NodeState, Verdict

from ...waiting import until
from .bus_world import Reader, node, running


def gone(name: str, generation: int) -> NodeStateChanged:
    return NodeStateChanged(node=NodeState(NodeName(name), "uid", Generation(generation), ready=False, gone=True))


async def stored(bus: Bus) -> int:
    info = await bus._connection.api("STREAM.INFO.HBOX_STATE")
    return int(info["state"]["messages"])


async def test_the_last_value_of_a_node_that_is_gone_goes_too_and_others_stay(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "CLOSED_S", 1)
    await bus.publish(node("stays", 1), "stays")
    await bus.publish(node("goes", 1), "goes")
    await bus.publish(gone("goes", 2), "goes")
    verdict = Verdict(NodeName("goes"), Generation(1), False, (), "sick", 0.0)
    await bus.publish(HealthVerdict(verdict=verdict, node_gone=True), "goes")
    reader = Reader()
    async with running(bus.follow([NodeStateChanged], reader, start=Start.LAST_PER_SUBJECT)):
        await until(lambda: sorted(reader.names) == ["goes@2", "stays@1"], "who is there in time hears of it")

    async def one_left() -> bool:
        return await stored(bus) == 1

    await until(one_left, "the broker has forgotten the node", timeout_s=20)
    later, ready = Reader(), asyncio.Event()
    async with running(bus.follow([NodeStateChanged, HealthVerdict], later, start=Start.LAST_PER_SUBJECT, on_ready=ready.set)):
        await ready.wait()
    assert later.names == ["stays@1"]


async def test_a_node_that_comes_back_in_time_stays(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "CLOSED_S", 1)
    await bus.publish(gone("n", 2), "n")
    await bus.publish(node("n", 3), "n")
    await asyncio.sleep(3.0)
    assert await stored(bus) == 1


async def test_a_reader_that_was_away_for_longer_begins_anew_as_a_process(
    bus: Bus, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "CLOSED_S", 1)
    await bus.publish(node("n", 1), "n")
    reader = Reader()
    work = asyncio.create_task(bus.follow([NodeStateChanged], reader, start=Start.LAST_PER_SUBJECT))
    await until(lambda: reader.names)
    await server.kill()
    await until(lambda: not bus.connected)
    await asyncio.sleep(1.0)
    await server.start()
    with pytest.raises(Outdated, match="deletions since then are no longer in the stream"):
        await asyncio.wait_for(work, 10)
