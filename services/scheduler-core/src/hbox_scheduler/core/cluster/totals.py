"""The amounts of all nodes together, kept across sessions.

Every session needs `Columns.present` of all nodes, and a sum over them takes 0.3 ms for 12,500 nodes, while a session changes few rows. So each change of
`alive`, `allocatable`, `used` or `leaving` records its row as stale, and a reader replaces the stale rows' part of the sum. All amounts are integers: the sum
equals the one that is computed anew, whatever the order of changes.
"""

import numpy as np

from .arrays import Bools, Ints


class PresentTotals:
    """`[R]`: the sum of `Columns.present` over all nodes. Invariant: what is not in `stale` counts in the sum as it is in the columns."""

    def __init__(self) -> None:
        self.stale: set[int] = set()  #: rows that changed since `of`
        self._counted: Ints | None = None  #: `[R, N]`: what each row counts in the sum; None: nothing is counted
        self._sum: Ints = np.zeros(0, dtype=np.int64)

    def reset(self) -> None:
        """Resources or rows moved: count everything anew."""
        self._counted = None

    def of(self, alive: Bools, allocatable: Ints, used: Ints, leaving: Ints) -> Ints:
        """The sum as the columns are now; the caller may change it. alive: [N]; the others [R, N], base units."""
        if self._counted is None:
            self._counted = _present(alive, allocatable, used - leaving)
            self._sum = self._counted.sum(axis=1)
        elif self.stale:
            rows = np.fromiter(self.stale, dtype=np.int64, count=len(self.stale))
            now = _present(alive[rows], allocatable[:, rows], used[:, rows] - leaving[:, rows])
            self._sum += (now - self._counted[:, rows]).sum(axis=1)
            self._counted[:, rows] = now
        self.stale.clear()
        return self._sum.copy()


def _present(alive: Bools, allocatable: Ints, held: Ints) -> Ints:
    """`[R, n]`: as `Columns.present`, before the sum; deleted nodes have nothing."""
    return np.asarray(np.where(alive, np.maximum(allocatable, held), 0))
