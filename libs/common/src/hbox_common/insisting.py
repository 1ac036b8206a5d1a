"""Trying again, for as long as the other side is away: the one loop for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hbox_common.errors import Unavailable

T = TypeVar("T")

RETRY_S = 0.5


async def insist(call: Callable[[], Awaitable[T]], *, say: Callable[[Unavailable], object], every_s: float = RETRY_S) -> T:
    """Retries `call` until it does not raise Unavailable, and returns its result; `say` is called with each Unavailable. Other exceptions propagate.

    Not for calls that newer data may supersede: such a caller decides again after each failure.
    """
    while True:
        try:
            return await call()
        except Unavailable as e:
            say(e)
        await asyncio.sleep(every_s)
