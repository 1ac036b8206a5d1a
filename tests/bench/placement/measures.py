"""Measures of a placement: units used in comparison with the fewest possible, and the predicted time of an all-reduce."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from hbox_scheduler.core.cluster.arrays import Ints
from hbox_scheduler.core.topology.cover import fewest

from .workload import CARDS, Fabric, Work

#: An H100: bytes a second in the box and over one card of the fabric, seconds a step under one leaf and across switches (sources: fabric-units, ring-cost).
NVLINK, NIC = 450e9, 50e9
SAME_LEAF_S, ACROSS_S = 2e-6, 5e-6
#: Cables down to cables up, of what is crossed: nothing, spines of a pod, cores above pods.
OVERSUBSCRIBED = (1.0, 1.5, 3.0)
#: Gradients of each card.
PAYLOAD = 1e9


def all_reduce_s(nodes: int, tier: int) -> float:
    """Rings of all cards of `nodes` whole nodes, one for each rail, ranks in the order of the fabric. tier: 0 in one unit, 1 in one pod, 2 beyond."""
    inside = 2 * (CARDS - 1) / CARDS * PAYLOAD / NVLINK
    if nodes == 1:
        return inside
    share = 2 * (nodes - 1) / nodes * (PAYLOAD / CARDS) / (NIC / OVERSUBSCRIBED[tier])
    return inside + share + 2 * (nodes - 1) * (ACROSS_S if tier else SAME_LEAF_S)


@dataclass(slots=True)
class Measures:
    """Of gangs of several pods that came into the full cluster. `in_one`, `could`: gangs in one unit, of those no larger than one. `stretched`: the time of an
    all-reduce as a multiple of that in an empty cluster, weighted by cards."""

    gangs: int = 0
    refused: int = 0  #: jobs that found no place, gangs or not
    could: int = 0
    in_one: int = 0
    used: int = 0
    fewest: int = 0
    empty: int = 0
    cards: int = 0
    stretched: float = 0.0
    whole_units: int = 0  #: with nothing in them, added up over the gangs
    worst_s: float = 0.0

    def add(self, fabric: Fabric, free: Ints, work: Work, counts: Ints) -> None:
        """`free`: cards of each node before the gang came, `counts`: what it was given, both `[N]`."""
        nodes = int(np.count_nonzero(counts))
        room = np.bincount(fabric.unit, free // work.cards).astype(np.int64)
        least = fewest(room, np.zeros(fabric.units, dtype=np.bool_), work.pods)
        assert least is not None, "it was placed"
        used = len(np.unique(fabric.unit[counts > 0]))
        empty = -(-work.pods // (fabric.unit_nodes * (CARDS // work.cards)))
        self.gangs += 1
        self.could += empty == 1
        self.in_one += empty == 1 and used == 1
        self.used += used
        self.fewest += least
        self.empty += empty
        tier = 0 if used == 1 else 1 if len(np.unique(fabric.pod[counts > 0])) == 1 else 2
        best = 0 if empty == 1 else 1 if work.pods * work.cards <= fabric.pod_nodes * CARDS else 2
        self.cards += work.all_cards
        self.stretched += work.all_cards * all_reduce_s(nodes, tier) / all_reduce_s(nodes, best)
        self.whole_units += int(np.count_nonzero(np.bincount(fabric.unit, free) == fabric.unit_nodes * CARDS))

    def row(self) -> str:
        """One line: share in one unit, C, spread ratio, all-reduce, whole units, refused."""
        return (
            f"{100 * self.in_one / self.could:9.1f} % {self.used / self.fewest:9.3f} {self.used / self.empty:9.3f}"
            f" {self.stretched / self.cards:9.3f} {self.whole_units / self.gangs:9.1f} {self.refused:9}"
        )


def total(of: Sequence[Measures]) -> Measures:
    """Several of them as one."""
    out = Measures()
    for field in fields(Measures):
        values = [getattr(one, field.name) for one in of]
        setattr(out, field.name, max(values) if field.name == "worst_s" else sum(values))
    return out


HEADS = f"{'in one':>11} {'C':>9} {'spread':>9} {'T/T best':>9} {'whole':>9} {'refused':>9}"
