"""Jobs that start and end on a fabric of units and pods; every scheduler gets the same ones."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hbox_scheduler.core.cluster.arrays import Ints

#: Cards of a node.
CARDS = 8

#: Cards of a pod, pods of a job, and how many of a thousand jobs are so. Most jobs are small and most cards are in gangs (sources: gang-sizes).
MIX: tuple[tuple[int, int, int], ...] = (
    (1, 1, 140),
    (2, 1, 60),
    (4, 1, 80),
    (8, 1, 120),
    (4, 2, 30),
    (8, 2, 130),
    (8, 3, 40),
    (8, 4, 120),
    (8, 6, 40),
    (8, 8, 90),
    (8, 12, 35),
    (8, 16, 50),
    (8, 20, 15),
    (8, 24, 15),
    (8, 32, 20),
    (8, 48, 8),
    (8, 64, 7),
)


@dataclass(frozen=True, slots=True)
class Fabric:
    """`unit[N]`, `pod[N]`: of each node, in rows; nodes of a unit follow each other."""

    unit: Ints
    pod: Ints

    @property
    def nodes(self) -> int:
        return len(self.unit)

    @property
    def units(self) -> int:
        return int(self.unit[-1]) + 1

    @property
    def unit_nodes(self) -> int:
        return int(np.bincount(self.unit).max())

    @property
    def pod_nodes(self) -> int:
        return int(np.bincount(self.pod).max())


def fabric(nodes: int, unit_nodes: int, pod_units: int) -> Fabric:
    unit = np.arange(nodes, dtype=np.int64) // unit_nodes
    return Fabric(unit, unit // pod_units)


@dataclass(frozen=True, slots=True)
class Work:
    """One job: `pods` equal pods of so many whole cards."""

    name: str
    cards: int
    pods: int

    @property
    def all_cards(self) -> int:
        return self.cards * self.pods


@dataclass(frozen=True, slots=True)
class Event:
    """A job comes, or ends. `measured`: it comes when the cluster has been as full as it is to be."""

    work: Work
    ends: bool = False
    measured: bool = False


def events(cards: int, *, load: float, measured: int, seed: int) -> Iterator[Event]:
    """Jobs come until `load` of all cards is asked for, then one that runs ends, whichever, for each that does not fit below that; until so many gangs came
    into the full cluster."""
    dice, used, number, full = random.Random(seed), 0, 0, False
    running: list[Work] = []
    shapes, weights = [(c, p) for c, p, _ in MIX], [weight for _, _, weight in MIX]
    while measured > 0:
        ((size, pods),) = dice.choices(shapes, weights)
        work = Work(f"j{number:05}", size, pods)
        number += 1
        while used + work.all_cards > load * cards:
            full = True
            ended = running.pop(dice.randrange(len(running)))
            used -= ended.all_cards
            yield Event(ended, ends=True)
        running.append(work)
        used += work.all_cards
        measured -= full and pods > 1
        yield Event(work, measured=full)
