"""Who is told when a node is chosen, and by which scores: see `explain.decisions`."""

from collections.abc import Sequence
from typing import Protocol

from hbox_common.model import PodUid

from .arrays import Floats, Ints
from .task import Task


class Choices(Protocol):
    """Told of choices, before anything is booked."""

    def of_equals(self, task: Task, rows: Ints, rank: Floats) -> None:
        """Pods that ask for the same go to these rows, the best first. `rank[N]`: the sum of the scores by shape, -inf where nothing fits."""

    def of_pod(self, pod: PodUid, row: int, scores: Floats, terms: Sequence[tuple[str, Floats]]) -> None:
        """The pod goes to this row. `scores[N]`: -inf where it may not go, the caller's no longer; `terms`: `[N]` each."""
