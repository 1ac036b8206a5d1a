"""How much of a long work is done in one turn, so that the lock is held for tens of milliseconds, on a slow machine and beside others too.

Deciding is cut by the clock as it runs; writing down what was decided takes about as long again, and cannot be cut. Where a turn took too long
nevertheless (a database far away, a disk that is busy), the next ones are of fewer items, but never of fewer than LEAST: what each commit costs by itself
becomes no less.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Generic, TypeVar

from hbox_common.clock import monotonic_s

T = TypeVar("T")

DECIDE_S = 0.01  #: of one turn
HOLD_S = 0.03  #: what a turn is to take, its commit included
LEAST, MOST = 64, 512


class Slice(Generic[T]):
    """Items for one turn, as they are taken: iterate once. `taken`: those that were."""

    def __init__(self, items: Sequence[T], first: int, most: int, until: float) -> None:
        self._items, self._first, self._most, self._until = items, first, most, until
        self._count = 0

    def __iter__(self) -> Iterator[T]:
        for item in islice(self._items, self._first, self._first + self._most):
            self._count += 1
            yield item
            if self._count >= LEAST and monotonic_s() >= self._until:
                return

    @property
    def taken(self) -> Sequence[T]:
        return self._items[self._first : self._first + self._count]


class Pace:
    """Goes through a long work in slices, faster or slower by how long the ones before took."""

    def __init__(self) -> None:
        self._most = LEAST

    @contextmanager
    def slice(self, items: Sequence[T], first: int) -> Iterator[Slice[T]]:
        """The items from `first` for one turn, which lasts as long as the context."""
        begin = monotonic_s()
        yield Slice(items, first, self._most, begin + DECIDE_S)
        took_s = monotonic_s() - begin
        self._most = max(LEAST, self._most // 2) if took_s > HOLD_S else min(MOST, self._most * 2)
