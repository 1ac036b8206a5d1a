"""Nodes that take no new work whatever it asks for."""

from collections.abc import Iterator

from ..cluster import Columns
from ..cluster.arrays import Bools, Rows
from ..cluster.task import Task
from ..explain.labels import Label


class NodeCondition:
    """Not ready, cordoned, or found unhealthy by health-monitor."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:  # noqa: ARG002  # the hook's signature
        yield Label.NODE_NOT_READY, ~columns.ready[rows]
        yield Label.NODE_UNSCHEDULABLE, ~columns.schedulable[rows]
        yield Label.NODE_UNHEALTHY, ~columns.healthy[rows]
