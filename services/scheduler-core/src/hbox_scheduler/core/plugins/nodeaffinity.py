"""Pools of nodes; node selectors and node affinity, as Kubernetes matches them (required terms are alternatives, preferred ones add their weights)."""

import re
from collections.abc import Callable, Iterator

import numpy as np

from hbox_common.model import POOL, POOLED, Match, MatchOperator, NodeTerm, may_use

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Rows
from ..cluster.interning import NAME_FIELD
from ..cluster.task import Task
from ..explain.labels import Label

#: As Kubernetes reads one: Python's own takes `1_0`, which a label may well be, for 10.
_INTEGER = re.compile(r"[+-]?[0-9]{1,32}", re.ASCII)


def _integer(text: str) -> int | None:
    """An int64 in decimal digits; None for anything else."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def holds(match: Match) -> Callable[[str | None], bool]:
    """The test of one expression on a label's value; None = the node has no such label. NotIn holds without the label, Gt and Lt do not."""
    values = frozenset(match.values)
    match match.operator:
        case MatchOperator.IN:
            return lambda value: value in values
        case MatchOperator.NOT_IN:
            return lambda value: value not in values
        case MatchOperator.EXISTS:
            return lambda value: value is not None
        case MatchOperator.DOES_NOT_EXIST:
            return lambda value: value is None
    bound = _integer(match.values[0]) if len(match.values) == 1 else None
    greater = match.operator is MatchOperator.GT

    def compare(value: str | None) -> bool:
        number = None if value is None else _integer(value)
        if number is None or bound is None:
            return False
        return number > bound if greater else number < bound

    return compare


def term_mask(columns: Columns, rows: Rows, term: NodeTerm) -> Bools:
    """`[n]`: nodes for which all expressions and fields of the term hold. An empty term matches nothing."""
    mask = np.full(columns.alive[rows].shape, bool(term.expressions or term.fields), dtype=np.bool_)
    for match in term.expressions:
        mask &= columns.descriptions.column(match.key).matching(holds(match), rows)
    for match in term.fields:
        if match.key != "metadata.name":
            mask[:] = False
        else:
            mask &= columns.descriptions.column(NAME_FIELD).matching(holds(match), rows)
    return mask


class NodeAffinity:
    """Predicate for what is required, score for what is preferred."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        if (pools := task.pools) is not None:
            column = columns.descriptions.column(POOL)
            yield Label.NODE_POOL, ~column.matching(lambda value: may_use(pools, value or POOLED), rows)
        for key, value in task.node_selector:
            has = columns.descriptions.column(key).matching(holds(Match(key, MatchOperator.IN, (value,))), rows)
            yield Label.NODE_SELECTOR_MISMATCH, ~has
        if task.affinity is not None:
            mask = np.zeros(columns.alive[rows].shape, dtype=np.bool_)
            for term in task.affinity:
                mask |= term_mask(columns, rows, term)
            yield Label.NODE_AFFINITY_MISMATCH, ~mask

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """The weights of the preferred terms that hold, out of all of them, times 100."""
        total = sum(preferred.weight for preferred in task.preferred)
        if total <= 0:
            return None
        score = np.zeros(columns.alive[rows].shape, dtype=np.float64)
        for preferred in task.preferred:
            score += preferred.weight * term_mask(columns, rows, preferred.term)
        return score * (100.0 / total)
