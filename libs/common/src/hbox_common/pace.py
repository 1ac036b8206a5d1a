"""Sizes the slices of long work, so that a turn of the event loop lasts tens of milliseconds, also on a slow or crowded machine.

The items of a slice are cut by the clock; committing them takes about as long again, and cannot be cut. If a turn still took too long (a remote database,
a busy disk), the next slices have fewer items, but at least LEAST: smaller ones would not make a commit's fixed cost smaller.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """Processes long work in slices whose size depends on the duration of the previous ones."""

    def __init__(self) -> None:
        self._most = LEAST

    @contextmanager
    def slice(self, items: Sequence[T], first: int) -> Iterator[Slice[T]]:
        """The items from `first` for one turn, which lasts as long as the context."""
        begin = monotonic_s()
        yield Slice(items, first, self._most, begin + DECIDE_S)
        took_s = monotonic_s() - begin
        self._most = max(LEAST, self._most // 2) if took_s > HOLD_S else min(MOST, self._most * 2)


async def in_slices(items: Sequence[T], work: Callable[[Iterable[T]], None]) -> None:
    """Call `work` with one slice of `items` after the other, each in a turn of the event loop of its own: other tasks run in between. `work` iterates the
    slice, which ends by the clock; if it takes no item, the rest is left out."""
    pace, first = Pace(), 0
    while first < len(items):
        with pace.slice(items, first) as part:
            work(part)
        if not part.taken:
            return
        first += len(part.taken)
        await asyncio.sleep(0)
