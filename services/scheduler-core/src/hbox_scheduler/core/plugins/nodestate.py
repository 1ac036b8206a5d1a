"""Nodes that take no new work whatever it asks for; and for a while none of a kind that their kubelets refuse."""

from collections.abc import Iterator

from hbox_common.model import KindRest, RequestKind

from ..cluster import Columns
from ..cluster.arrays import Bools, Rows
from ..cluster.task import Task
from ..explain.labels import Label


class NodeCondition:
    """Not ready, cordoned, or found unhealthy by health-monitor; and nodes whose kubelets refused such pods a moment ago (`Columns.rest`)."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        yield Label.NODE_NOT_READY, ~columns.ready[rows]
        yield Label.NODE_UNSCHEDULABLE, ~columns.schedulable[rows]
        yield Label.NODE_UNHEALTHY, ~columns.healthy[rows]
        if columns.rests:
            yield Label.NODE_RESTS, columns.refused.matching(task, columns.resting[rows], _is_of_cards)
            yield Label.NODE_REFUSES, columns.refused.matching(task, columns.resting[rows], _is_other)


def _is_of_cards(rest: KindRest) -> bool:
    return rest.kind == RequestKind.CARDS


def _is_other(rest: KindRest) -> bool:
    return rest.kind != RequestKind.CARDS
