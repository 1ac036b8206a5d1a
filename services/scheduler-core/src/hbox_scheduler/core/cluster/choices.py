"""Port that records the choice of a node and its scores: see `explain.decisions`."""

from collections.abc import Sequence
from typing import Protocol

from hbox_common.model import PodUid

from .arrays import Floats, Ints
from .task import Task


class Choices(Protocol):
    """Records choices before they are booked."""

    def of_equals(self, task: Task, rows: Ints, rank: Floats) -> None:
        """Record that pods with equal requests go to these rows, the best first. `rank[N]`: sum of the scores by shape, -inf where no pod fits."""

    def of_pod(self, pod: PodUid, row: int, scores: Floats, terms: Sequence[tuple[str, Floats]]) -> None:
        """Record that the pod is placed on this row. `scores[N]`: -inf where it does not fit; the callee owns the array. `terms`: `[N]` each."""
