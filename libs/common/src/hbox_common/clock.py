"""Where time and identity enter: shells read them here and hand them to the pure cores as arguments."""

import time
from collections.abc import Callable
from uuid import uuid4

Clock = Callable[[], float]

_rate, _since = 1.0, 0.0


def run_faster(rate: float, since: float) -> None:
    """Run this process' wall clock `rate` times as fast as the machine's, equal to it at `since`, seconds since the epoch: for an emulated cluster, all of
    whose processes get the same values. The monotonic clock (timeouts towards other processes) is unchanged."""
    global _rate, _since  # the clock is the process' own, as the machine's is
    _rate, _since = rate, since


def wall_s() -> float:
    """Seconds since the epoch, for what people and other systems read. It may jump."""
    now = time.time()
    return now if _rate == 1.0 else _since + (now - _since) * _rate


def monotonic_s() -> float:
    """Seconds of the machine that never jump back, for deadlines and expiry."""
    return time.monotonic()


def processor_s() -> float:
    """Processor seconds used by all threads of this process: the cost of work, without waiting."""
    return time.process_time()


def thread_s() -> float:
    """Processor seconds used by the calling thread."""
    return time.thread_time()


def new_id() -> str:
    """A fresh random identity of 32 lower-case hexadecimal digits."""
    return uuid4().hex
