"""Runs a command's coroutine: Ctrl-C and SIGTERM cancel it once, so that it can clean up; a second one does not wait."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """The command was asked to stop, and has stopped in order."""


def run(work: Callable[[], Coroutine[Any, Any, T]], *, hurry: Callable[[], None] = lambda: None) -> T:
    """The result of `work()`. Raises Interrupted when a signal ended it; `hurry` is called at the second signal."""
    try:
        import uvloop  # noqa: PLC0415  not on every platform

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    except ImportError:
        factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_guarded(work, hurry))


async def _guarded(work: Callable[[], Coroutine[Any, Any, T]], hurry: Callable[[], None]) -> T:
    loop = asyncio.get_running_loop()
    task: asyncio.Task[T] = loop.create_task(work())
    signals = 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            task.cancel()
        else:
            hurry()

    for sig in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sig, stop)
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted from None
    finally:
        for sig in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(sig)
