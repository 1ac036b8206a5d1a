"""Excludes nodes that take no new pods, nodes that rest after their kubelets refused pods of the same kind, and nodes whose kubelet's policy is unknown."""

from collections.abc import Iterator

from hbox_common.model import KindRest, RequestKind

from ..cluster import Columns
from ..cluster.arrays import Bools, Rows
from ..cluster.task import Task
from ..explain.labels import Label


class NodeCondition:
    """Excludes nodes that are not ready, cordoned, unhealthy by health-monitor's verdict, of which the verdict excludes such pods, or
    resting (`Columns.rest`)."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        yield Label.NODE_NOT_READY, ~columns.ready[rows]
        yield Label.NODE_UNSCHEDULABLE, ~columns.schedulable[rows]
        yield Label.NODE_UNHEALTHY, ~columns.healthy[rows]
        if columns.scoped_rows and task.cards is not None:
            yield from _scopes(columns, rows, task, task.cards.count)
        if columns.rests:
            yield Label.NODE_RESTS, columns.refused.matching(task, columns.resting[rows], _is_of_cards)
            yield Label.NODE_REFUSES, columns.refused.matching(task, columns.resting[rows], _is_other)


class KubeletPolicy:
    """Excludes nodes that wait for node-agent's first report (`NodeState.report_due`), for pods that a kubelet may refuse."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        if task.aligned is not None:
            yield Label.KUBELET_POLICY, columns.unreported[rows]


def _scopes(columns: Columns, rows: Rows, task: Task, cards: int) -> Iterator[tuple[str, Bools]]:
    """Scopes of verdicts that leave a node open to other pods. The ledger refuses by the same rules (`Verdict.refusal`)."""
    if cards > 1:
        yield Label.NODE_MULTI_CARD_OFF, columns.single_card[rows]
    if task.spans:
        yield Label.NODE_MULTI_NODE_OFF, columns.single_node[rows]
    on_node = (columns.card_index[rows] >= 0).sum(axis=1)
    yield Label.NODE_RAIL_OFF, columns.rail_off[rows] & (task.rdma | ((cards >= on_node) & (on_node > 1)))


def _is_of_cards(rest: KindRest) -> bool:
    return rest.kind == RequestKind.CARDS


def _is_other(rest: KindRest) -> bool:
    return rest.kind != RequestKind.CARDS
