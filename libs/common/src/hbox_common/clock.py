"""Where time and identity enter: shells read them here and hand them to the pure cores as arguments."""

import time
from collections.abc import Callable
from uuid import uuid4

Clock = Callable[[], float]

_rate, _since = 1.0, 0.0


def run_faster(rate: float, since: float) -> None:
    """From here on the wall clock of this process goes `rate` times as fast as the machine's, and agrees with it at `since`, seconds since the epoch: for an
    emulated cluster, all of whose processes are told the same. What is counted by the monotonic clock (patience with other processes) stays as it is."""
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
    """Seconds that this process, with all its threads, has had of processors: what something costs, where waiting costs nothing."""
    return time.process_time()


def new_id() -> str:
    """A fresh random identity of 32 lower-case hexadecimal digits."""
    return uuid4().hex
