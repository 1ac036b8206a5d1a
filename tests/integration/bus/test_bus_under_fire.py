"""A broker killed again and again under load: nothing lost, nothing stored twice, readers complete."""

import asyncio

from hbox_common.bus import Bus, EmbeddedServer, Start
from hbox_common.events import QueueRefused

from ...waiting import until
from .bus_world import Reader, lasting, running

KILLS = 5
WRITERS = 8


async def test_messages_published_through_five_kills_are_each_stored_and_followed_once_and_consumed(
    bus: Bus, server: EmbeddedServer
) -> None:
    consumed, followed, late = Reader(), Reader(), Reader()
    gaps: list[str] = []
    sent: list[str] = []
    stop = asyncio.Event()

    async def write(writer: int) -> None:
        while not stop.is_set():
            name = f"{writer}/{len(sent)}"
            sent.append(name)
            await bus.publish(lasting(name), "q")

    async def gap() -> None:
        gaps.append("a gap")

    consume = bus.consume("reader", [QueueRefused], consumed, ack_wait_s=1.0)
    async with running(consume, bus.follow([QueueRefused], followed, start=Start.ALL, on_gap=gap)):
        async with asyncio.TaskGroup() as writers:
            for writer in range(WRITERS):
                writers.create_task(write(writer))
            for _ in range(KILLS):
                before = len(followed.names)
                await until(lambda before=before: len(followed.names) > before + 50)  # type: ignore[misc]
                await server.kill()
                await server.start()
            stop.set()
        await until(lambda: len(followed.names) >= len(sent))
        await until(lambda: set(consumed.names) >= set(sent))
    assert sorted(followed.names) == sorted(sent), "each once"
    assert [delivery.sequence for delivery in followed.deliveries] == list(range(1, len(sent) + 1)), "and in order"
    assert gaps == []
    assert len(consumed.names) == len(sent), "this process handles nothing twice"
    async with running(bus.follow([QueueRefused], late, start=Start.ALL)):
        await until(lambda: len(late.names) == len(sent))
