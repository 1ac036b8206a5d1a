"""Fill nodes that are used already, as Volcano's binpack: the sum over the resources asked for of (used + asked) / allocatable, weighted.

Two differences: cards count by what is taken of them (a share of a card is not a card), and a pod without cards prefers nodes with few
idle ones, so that it does not take away the cpu that cards need.
"""

from collections.abc import Mapping

import numpy as np

from ..arrays import Floats, Rows
from ..devices.nvidia import ALL, free_percent
from ..state import Columns
from ..task import Task

WEIGHTS: Mapping[str, float] = {"cpu": 1.0, "memory": 1.0}
CARDS_WEIGHT = 5.0


class Binpack:
    """0 to 100, as in Volcano. Booking on a node only raises its own score: nodes can be filled one after another."""

    fills = True
    version = 0

    def __init__(self, *, weights: Mapping[str, float] = WEIGHTS, cards_weight: float = CARDS_WEIGHT) -> None:
        self._weights = weights
        self._cards_weight = cards_weight

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        score = np.zeros(columns.alive[rows].shape, dtype=np.float64)
        total = 0.0
        for name, weight in self._weights.items():
            units = task.requests.get(name, 0)
            if units <= 0:
                continue
            column = columns.resource(name)
            score += weight * (columns.used[column, rows] + units) / np.maximum(columns.allocatable[column, rows], 1)
            total += weight
        cards = (columns.card_index[rows] >= 0).sum(axis=1)
        idle = free_percent(columns, rows).sum(axis=1) / (ALL * np.maximum(cards, 1))
        score -= self._cards_weight * idle
        return score * (100.0 / (total + self._cards_weight))

    def learn(self, task: Task, pods: int) -> None:
        """Nothing to learn."""
