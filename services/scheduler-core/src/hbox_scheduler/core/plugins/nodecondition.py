"""Excludes nodes that take no new pods, nodes that rest after their kubelets refused pods of the same kind, and nodes whose kubelet's policy is unknown."""

from collections.abc import Iterator

from hbox_common.model import KindRest, RequestKind

from ..cluster import Columns
from ..cluster.arrays import Bools, Rows
from ..cluster.task import Task
from ..explain.labels import Label


class NodeCondition:
    """Excludes nodes that are not ready, cordoned, unhealthy by health-monitor's verdict, or resting (`Columns.rest`)."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        yield Label.NODE_NOT_READY, ~columns.ready[rows]
        yield Label.NODE_UNSCHEDULABLE, ~columns.schedulable[rows]
        yield Label.NODE_UNHEALTHY, ~columns.healthy[rows]
        if columns.rests:
            yield Label.NODE_RESTS, columns.refused.matching(task, columns.resting[rows], _is_of_cards)
            yield Label.NODE_REFUSES, columns.refused.matching(task, columns.resting[rows], _is_other)


class KubeletPolicy:
    """Excludes nodes that wait for node-agent's first report (`NodeState.report_due`), for pods that a kubelet may refuse."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        if task.aligned is not None:
            yield Label.KUBELET_POLICY, columns.unreported[rows]


def _is_of_cards(rest: KindRest) -> bool:
    return rest.kind == RequestKind.CARDS


def _is_other(rest: KindRest) -> bool:
    return rest.kind != RequestKind.CARDS
