"""How fragmented the idle cards are, by two measures: what nobody can use of them, and how large a gang would start.

FGD's F (Weng et al., USENIX ATC'23; `plugins.fgd`): the part of idle cards that a pod of the mix, by popularity, cannot use on the node where it is idle. The
mix are the pods that run and wait now. The other measure are gangs of pods with 1, 2, 4, ... whole cards each: how many such pods would start together, by
whole idle cards alone. Nodes that take nobody (not ready, cordoned, sick) count for nothing.
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

    cards: int  #: of nodes that take pods, the sound ones
    idle: float  #: parts of cards among them
    fragments: float  #: FGD's F: of the idle ones, what is of no use to the mix
    largest: Mapping[int, int]  #: whole cards of a pod -> pods that would start together

    @property
    def ratio(self) -> float:
        """What is of no use, of all cards; 0 where there are none."""
        return self.fragments / self.cards if self.cards else 0.0


def fragmentation(columns: Columns, tasks: Iterable[tuple[Task, int]]) -> Fragmentation:
    """`tasks`: what pods that run and wait ask for, and how many do."""
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
    asked = any(shape.cards for shape in mix)  #: else there is nobody to whom anything is of no use
    lost = table.expected(idle, *table.tally(free), table.weights(free_cpu, columns.card_model[rows, 0]))
    whole = ((free == ALL) & (columns.card_pods[rows] == 0)).sum(axis=1)
    usable = columns.card_ok[rows]
    largest: dict[int, int] = {}
    step, most = 1, int((columns.card_index[rows] >= 0).sum(axis=1).max())
    while step <= most:
        largest[step] = int((whole // step).sum())
        step *= 2
    return Fragmentation(int(usable.sum()), float(idle.sum()) / ALL, float(lost.sum()) if asked else 0.0, largest)
