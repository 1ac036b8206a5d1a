"""Taints and tolerations, as Kubernetes matches them. NoSchedule and NoExecute keep pods away; PreferNoSchedule counts against a node."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from hbox_common.model import POOL, Taint, TaintEffect, Toleration, TolerationOperator

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Rows
from ..cluster.task import Task
from ..explain.labels import Label

#: No more digits than an int64 and some leading zeros have.
_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}")

#: Effects that keep pods away.
HARD = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)

#: Set by Kubernetes together with `spec.unschedulable`, which NodeCondition has judged already.
_CORDON = "node.kubernetes.io/unschedulable"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes' rule: effect and key match or are empty; with Equal the value matches too, with Gt and Lt the taint's value is an integer beyond it."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator is TolerationOperator.EXISTS:
        return True
    if toleration.operator is TolerationOperator.EQUAL:
        return bool(toleration.key) and toleration.value == taint.value
    value, bound = _integer(taint.value), _integer(toleration.value)
    if not toleration.key or value is None or bound is None:
        return False
    return value > bound if toleration.operator is TolerationOperator.GREATER else value < bound


def _integer(text: str) -> int | None:
    """The value of a decimal int64 as Go parses it; None for any other text."""
    if not _DECIMAL.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration], effects: Sequence[TaintEffect]) -> list[Taint]:
    """The taints with one of these effects that no toleration covers."""
    return [t for t in taints if t.effect in effects and not any(tolerates(tolerance, t) for tolerance in tolerations)]


def _judged(taint: Taint) -> bool:
    """True if another rule already covers the taint: a cordon; or the taint of the node's pool, whose use the queue decides (ADR 37)."""
    return taint.key == _CORDON or (taint.key == POOL and taint.effect is TaintEffect.NO_SCHEDULE)


class Taints:
    """Predicate and score. Each distinct set of taints is judged once per call, however many nodes carry it."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        sets = columns.descriptions.taint_sets
        if len(sets) == 1:
            return
        bad = [any(not _judged(taint) for taint in untolerated(taints, task.tolerations, HARD)) for taints in sets]
        yield Label.UNTOLERATED_TAINT, np.array(bad, dtype=np.bool_)[columns.descriptions.taints[rows]]

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """Minus 100 for each PreferNoSchedule taint that is not tolerated."""
        counts = [
            len(untolerated(taints, task.tolerations, (TaintEffect.PREFER_NO_SCHEDULE,)))
            for taints in columns.descriptions.taint_sets
        ]
        if not any(counts):
            return None
        return -100.0 * np.array(counts, dtype=np.float64)[columns.descriptions.taints[rows]]
