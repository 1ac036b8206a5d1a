"""The hooks that plugins implement, each over many nodes at once.

n = the number of rows asked about. A hook reads the columns and changes nothing.
"""

from collections.abc import Iterator
from typing import Protocol

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints, Rows
from ..cluster.task import Task


class Predicate(Protocol):
    """Which nodes a task may use, from what they are; bookings play no part."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        """Label and `[n]` mask of the nodes that fail, in the order in which reasons are given. A node may fail several."""
        ...


class FitPlugin(Protocol):
    """How much of a task fits beside what is booked."""

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints | None:
        """`[n]`: pods of this task that fit on each node, exact in being 0 or not; None = no limit from this plugin."""
        ...

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        """As for a predicate: why one more pod does not fit. A node fails one of them exactly where its capacity is 0."""
        ...
