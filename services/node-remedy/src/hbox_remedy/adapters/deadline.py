"""Reads of the node's /proc and /sys, with a deadline: a process in an uninterruptible call of the driver blocks readers of its files."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from hbox_common.errors import Unavailable

T = TypeVar("T")

DEADLINE_S = 10.0


async def within(read: Callable[[], T], deadline_s: float | None = None) -> T:
    """The result of `read`, in a thread that is abandoned if it hangs, and which does not delay the end of the program. `deadline_s`: default DEADLINE_S.
    Raises Unavailable at the deadline, and what `read` raises."""
    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = read()
        except Exception as e:  # noqa: BLE001  raised again by the caller
            error = e
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop ended before

    threading.Thread(target=run, daemon=True, name="node files").start()
    try:
        async with asyncio.timeout(deadline_s):
            return await future
    except TimeoutError as e:
        raise Unavailable(f"a file of the node's /proc or /sys has not been read for {deadline_s:g} s") from e
