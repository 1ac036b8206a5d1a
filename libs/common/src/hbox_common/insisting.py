"""Trying again, for as long as the other side is away: the one loop for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hbox_common.errors import Unavailable

T = TypeVar("T")

RETRY_S = 0.5


async def insist(call: Callable[[], Awaitable[T]], *, say: Callable[[Unavailable], object], every_s: float = RETRY_S) -> T:
    """What `call` returns, once it does not raise Unavailable any more; `say` is told each time that it does. Raises what else it raises.

    What is to be given up for something newer meanwhile is not for this: it asks anew what to do after each failure.
    """
    while True:
        try:
            return await call()
        except Unavailable as e:
            say(e)
        await asyncio.sleep(every_s)
