"""Log of changed rows: an append-only list of row numbers that drops its oldest part.

A reader keeps the position up to which it has read. If the log no longer contains that position, the reader must process all rows.
"""

import numpy as np

from .arrays import Ints


class ChangeLog:
    """Positions rise for ever; `keep` bounds what is remembered, in rows."""

    def __init__(self, keep: int = 20_000) -> None:
        self._rows: list[int] = []
        self._base = 0
        self._keep = keep

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self._base + len(self._rows)

    def add(self, row: int) -> None:
        self._rows.append(row)
        if len(self._rows) > 2 * self._keep:
            self._forget()

    def extend(self, rows: list[int]) -> None:
        self._rows.extend(rows)
        if len(self._rows) > 2 * self._keep:
            self._forget()

    def tail(self, position: int) -> list[int] | None:
        """As `since`: every change, in the order in which they came."""
        return None if position < self._base else self._rows[position - self._base :]

    def since(self, position: int) -> Ints | None:
        """The distinct rows changed since `position`, in ascending order; None = more than is remembered: all of them."""
        tail = self.tail(position)
        if tail is None:
            return None
        if len(tail) == 1:
            return np.array(tail, dtype=np.int64)
        return np.array(sorted(set(tail)), dtype=np.int64)

    def _forget(self) -> None:
        drop = len(self._rows) - self._keep
        del self._rows[:drop]
        self._base += drop
