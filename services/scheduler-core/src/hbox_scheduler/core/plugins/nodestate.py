"""Nodes that take no new work whatever it asks for; and for a while none with cards."""

from collections.abc import Iterator

from ..cluster import Columns
from ..cluster.arrays import Bools, Rows
from ..cluster.task import Task
from ..explain.labels import Label


class NodeCondition:
    """Not ready, cordoned, or found unhealthy by health-monitor; for pods with cards also while its device plugin fails pods in a row (`Columns.rest`)."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        yield Label.NODE_NOT_READY, ~columns.ready[rows]
        yield Label.NODE_UNSCHEDULABLE, ~columns.schedulable[rows]
        yield Label.NODE_UNHEALTHY, ~columns.healthy[rows]
        if columns.rests and task.cards is not None:
            yield Label.NODE_RESTS, columns.resting[rows]
