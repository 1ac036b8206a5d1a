"""One label per node: the first predicate, in a fixed order, that the node fails.

So the counts of all labels sum to the number of nodes (kube-scheduler's own counts may not: kubernetes #91340).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugins.base import Predicate, Room
from ..state import Columns
from ..task import Task


@dataclass(frozen=True, slots=True)
class Reasons:
    """`counts` by label sums to `nodes` less `fitting`."""

    nodes: int
    counts: dict[str, int]
    fitting: int = 0

    def headline(self) -> str:
        """As kube-scheduler words it, the most frequent reason first."""
        if not self.nodes:
            return "0/0 nodes are available: the cluster has no nodes"
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{count} {label}" for label, count in ordered)
        return f"{self.fitting}/{self.nodes} nodes are available" + (f": {listed}" if listed else "")


def reasons_of(columns: Columns, task: Task, judges: Sequence[Predicate | Room]) -> Reasons:
    """Why one more pod of the task does not fit, node by node, as the columns are now."""
    rows = np.flatnonzero(columns.alive[: columns.size]).astype(np.int64)
    undecided = np.ones(len(rows), dtype=np.bool_)
    counts: dict[str, int] = {}
    for judge in judges:
        for label, fails in judge.failures(columns, rows, task):
            hit = int(np.count_nonzero(undecided & fails))
            if hit:
                counts[str(label)] = counts.get(str(label), 0) + hit
                undecided &= ~fails
    return Reasons(nodes=len(rows), counts=counts, fitting=int(np.count_nonzero(undecided)))
