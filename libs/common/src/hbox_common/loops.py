"""Event loops of our processes: whose they are, and that whoever is cancelled in them ends."""

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it can be imported. Who is cancelled in a loop that comes from here is (`heed_cancellation`)."""
    heed_cancellation()
    try:
        import uvloop  # noqa: PLC0415  not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def heed_cancellation() -> None:
    """Give this process `asyncio.wait_for` as Python has it since 3.12. Before, where a task is cancelled in the turn of the loop in which comes what it waits
    for, it is told of that alone and goes on (python/cpython#86296): a command goes on after Ctrl-C, a leader after it lost its lease. nats-py waits by it
    whenever it connects."""
    if sys.version_info < (3, 12):
        asyncio.wait_for = _wait_for  # type: ignore[assignment]  # typeshed names futures beside awaitables


async def _wait_for(fut: Awaitable[T], timeout: float | None) -> T:
    async with asyncio.timeout(timeout):
        return await fut
