"""Runs a command's coroutine. Ctrl-C, SIGTERM and the loss of the terminal cancel it, so that it can clean up; a second signal ends it at once."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hbox_common.loops import new_event_loop

T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """The command was asked to stop, and has stopped in order."""


def run(work: Callable[[], Coroutine[Any, Any, T]], *, hurry: Callable[[], None] | None = None) -> T:
    """The result of `work()`. Raises Interrupted when a signal ended it; at the second signal `hurry` is called, or what cleans up is cancelled too."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_guarded(work, hurry))


@contextmanager
def in_order() -> Iterator[None]:
    """For a command without an event loop: SIGTERM and the loss of the terminal end it as Ctrl-C does, after its cleanup. Raises Interrupted."""

    def stop(*_: object) -> None:
        raise Interrupted

    before = {sig: signal.signal(sig, stop) for sig in (signal.SIGTERM, *_hang_up())}
    try:
        yield
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def _hang_up() -> tuple[signal.Signals, ...]:
    """Who runs under `nohup` is not to hear of the terminal's end."""
    return (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else ()


async def _guarded(work: Callable[[], Coroutine[Any, Any, T]], hurry: Callable[[], None] | None) -> T:
    loop = asyncio.get_running_loop()
    task: asyncio.Task[T] = loop.create_task(work())
    signals = 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        if signals == 1 or hurry is None:
            task.cancel()
        else:
            hurry()

    handled = (signal.SIGINT, signal.SIGTERM, *_hang_up())
    for sig in handled:
        loop.add_signal_handler(sig, stop)
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted from None
    finally:
        for sig in handled:
            loop.remove_signal_handler(sig)
