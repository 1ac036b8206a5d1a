"""What every rule about room answers, of resources, cards, host ports and NUMA nodes alike.

n = the number of rows asked about. The columns are read and not changed.
"""

from collections.abc import Iterator
from typing import Protocol

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints, Rows
from ..cluster.task import Task


class FitPlugin(Protocol):
    """A limit on the pods of a task that fit on nodes beyond the bookings."""

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints | None:
        """`[n]`: pods of this task that fit on each node, exact in being 0 or not; None = no limit from this plugin."""
        ...

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        """Label and `[n]` mask of nodes on which one more pod does not fit, in the order in which reasons are given. A node is in one of them exactly
        where its capacity is 0."""
        ...
