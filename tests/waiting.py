"""Waiting for what another task, process or machine brings about, and tells nobody."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

#: Below the 30 s and 60 s after which pods end, pulls are begun anew and decisions expire: what only these bring about is not in time.
DEADLINE_S = 20.0
LOOK_AGAIN_S = 0.02
#: Between two questions to another process: fifty a second slow down an API server that the test measures.
ASK_AGAIN_S = 0.1


async def until(check: Callable[[], Any], what: str = "", *, timeout_s: float = DEADLINE_S) -> Any:
    """The first true result of `check`, plain or async. Raises AssertionError, which says what was waited for and for how long."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            while True:
                result, pause_s = check(), LOOK_AGAIN_S
                if isinstance(result, Awaitable):
                    result, pause_s = await result, ASK_AGAIN_S
                if result:
                    return result
                await asyncio.sleep(pause_s)
    except TimeoutError:
        if not limit.expired():
            raise  # the check's own
        raise AssertionError(f"not within {timeout_s:g} s: {what or check}") from None
