"""Event loops of HBox's processes: which implementation they use, and corrected cancellation in older Pythons."""

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it can be imported. Who is cancelled in a loop that comes from here is (`heed_cancellation`)."""
    heed_cancellation()
    try:
        import uvloop  # noqa: PLC0415  not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_handle)
    return loop


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log resolver errors that no caller retrieves at DEBUG; pass every other error to the loop's default handler.

    If a connection attempt times out, uvloop continues to resolve its host name and drops the result. While DNS is down, the default handler would log an
    error for each attempt. The caller reports the failed connection itself."""
    if isinstance(context.get("exception"), socket.gaierror) and str(context.get("message", "")).startswith("Future exception"):
        log.debug("a host name was not resolved, and its caller had timed out before: %s", context["exception"])
    else:
        loop.default_exception_handler(context)


def heed_cancellation() -> None:
    """Replace two parts of asyncio by those of newer Pythons (ADR 83).

    Before 3.12, if a task is cancelled in the same loop iteration in which its `asyncio.wait_for` completes, the cancellation is lost and the task continues
    (python/cpython#86296): a command continues after Ctrl-C, a leader after losing its lease. nats-py uses `wait_for` whenever it connects.

    Before 3.11.4, and so in Debian 12, if the `asyncio.timeout` of a cancelled task's cleanup expires, the task gets another cancellation instead of
    TimeoutError (python/cpython#102780): the rest of its cleanup is skipped.
    """
    if sys.version_info < (3, 12):
        asyncio.wait_for = _wait_for  # type: ignore[assignment]  # typeshed allows futures in addition to awaitables
    if sys.version_info < (3, 11, 4) and not hasattr(asyncio.Timeout, "cancelling_before"):
        _mend(asyncio.Timeout)


async def _wait_for(fut: Awaitable[T], timeout: float | None) -> T:
    async with asyncio.timeout(timeout):
        return await fut


def _mend(limit: type[asyncio.Timeout]) -> None:
    enter, leave = limit.__aenter__, limit.__aexit__

    async def entered(self: asyncio.Timeout) -> asyncio.Timeout:
        self.cancelling_before = _cancelling()  # type: ignore[attr-defined]
        return await enter(self)

    async def left(
        self: asyncio.Timeout, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave(self, kind, error, trace)
        if self.expired() and kind is asyncio.CancelledError and _cancelling() <= self.cancelling_before:  # type: ignore[attr-defined]
            raise TimeoutError from error

    limit.cancelling_before = 0  # type: ignore[attr-defined]
    limit.__aenter__ = entered  # type: ignore[method-assign]
    limit.__aexit__ = left  # type: ignore[method-assign, assignment]  # by position


def _cancelling() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
