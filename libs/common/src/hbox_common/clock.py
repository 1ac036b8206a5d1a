"""Where time and identity enter: shells read them here and hand them to the pure cores as arguments."""

import time
from collections.abc import Callable
from uuid import uuid4

Clock = Callable[[], float]


def wall_s() -> float:
    """Seconds since the epoch, for what people and other systems read. It may jump."""
    return time.time()


def monotonic_s() -> float:
    """Seconds that never jump back, for deadlines and expiry."""
    return time.monotonic()


def new_id() -> str:
    """A fresh random identity of 32 lower-case hexadecimal digits."""
    return uuid4().hex
