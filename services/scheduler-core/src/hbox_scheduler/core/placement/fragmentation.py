"""Fragmentation of the idle cards by two measures: the part that pods cannot use, and the largest gangs that would start.

FGD's F (Weng et al., USENIX ATC'23; `plugins.fgd`): the part of a node's idle cards that a pod of the mix, weighted by popularity, cannot use. The mix consists
of all running and pending pods. The other measure is the number of pods with 1, 2, 4, ... whole cards each that would start together, by whole idle cards
alone. Nodes that accept no pods (not ready, cordoned, unhealthy) are excluded.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..cluster import Columns
from ..cluster.task import Task
from ..devices import ALL, free_percent
from ..plugins.fgd import Fragments, Shape, shape_of


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Amounts in cards."""

    cards: int  #: healthy cards of nodes that accept pods
    idle: float  #: parts of cards among them
    fragments: float  #: FGD's F: idle amounts that the mix cannot use
    largest: Mapping[int, int]  #: whole cards of a pod -> pods that would start together

    @property
    def ratio(self) -> float:
        """Unusable idle amounts per card; 0 if there are no cards."""
        return self.fragments / self.cards if self.cards else 0.0


def fragmentation(columns: Columns, tasks: Iterable[tuple[Task, int]]) -> Fragmentation:
    """`tasks`: requests of running and pending pods, with the number of pods."""
    mix: Counter[Shape] = Counter()
    for task, count in tasks:
        if count > 0:
            mix[shape_of(task)] += count
    size = columns.size
    rows = np.flatnonzero(columns.alive[:size] & columns.ready[:size] & columns.schedulable[:size] & columns.healthy[:size])
    free = free_percent(columns, rows)
    if not free.size:
        return Fragmentation(0, 0.0, 0.0, {})
    table = Fragments(mix, models=columns.model_names)
    cpu = columns.resource("cpu")
    free_cpu = np.maximum(columns.allocatable[cpu, rows] - columns.used[cpu, rows], 0)
    idle = free.sum(axis=1)
    asked = any(shape.cards for shape in mix)  #: without pods that request cards, F is undefined: report 0
    lost = table.expected(idle, *table.tally(free), table.weights(free_cpu, columns.card_model[rows, 0]))
    whole = ((free == ALL) & (columns.card_pods[rows] == 0)).sum(axis=1)
    usable = columns.card_ok[rows]
    largest: dict[int, int] = {}
    step, most = 1, int((columns.card_index[rows] >= 0).sum(axis=1).max())
    while step <= most:
        largest[step] = int((whole // step).sum())
        step *= 2
    return Fragmentation(int(usable.sum()), float(idle.sum()) / ALL, float(lost.sum()) if asked else 0.0, largest)
