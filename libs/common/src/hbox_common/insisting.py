"""Trying again, for as long as the other side is away: the one loop for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hbox_common.errors import Unavailable

T = TypeVar("T")

RETRY_S = 0.5


async def insist(
    call: Callable[[], Awaitable[T]], *, on_unavailable: Callable[[Unavailable], object], every_s: float = RETRY_S
) -> T:
    """Retry `call` until it does not raise Unavailable, and return its result; each Unavailable is passed to `on_unavailable`. Other exceptions propagate.

    Not for calls that newer data may supersede: such a caller decides again after each failure.
    """
    while True:
        try:
            return await call()
        except Unavailable as e:
            on_unavailable(e)
        await asyncio.sleep(every_s)
