"""Equal pods over the nodes of one domain, level after level."""

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from ..arrays import Bools, Floats, Ints
from .cover import Parts, select
from .tree import Tree


class Levels(Enum):
    """Of what the fewest are used, before nodes."""

    LEAVES = auto()  #: the lowest domains, whatever lies between: what costs bandwidth
    STEPS = auto()  #: the domains of the next tier, then of the tier below, ...: as Kueue counts
    NODES = auto()  #: nodes only


@dataclass(frozen=True, slots=True)
class Ground:
    """What there is to place equal pods on, by node row."""

    room: Ints  #: `[N]`: pods that fit
    empty: Ints  #: `[N]`: pods that would fit if nothing else were there
    taken: Bools  #: `[N]`: nodes that the same gang uses
    weight: Ints  #: `[N]`: room in pods, where `room` counts units of several pods
    liking: Floats  #: `[N]`: the policy's scores


def spread(tree: Tree, ground: Ground, domain: int, need: int, levels: Levels, *, by_liking: bool = False) -> Ints | None:
    """`[N]`: pods for each node of the domain, `need` in all. None = they do not fit.

    by_liking: a single pod goes to the node that the policy likes best, instead of the one with the least room.
    """
    counts = np.zeros(tree.rows, dtype=np.int64)
    rows = tree.nodes(domain)
    if int(ground.room[rows].sum()) < need:
        return None
    match levels:
        case Levels.LEAVES:
            for part, took in _parted(ground, tree.leaves()[rows], rows, need):
                _over_nodes(ground, part, took, counts, by_liking=by_liking)
        case Levels.STEPS:
            _step(tree, ground, (domain, rows), need, counts)
        case Levels.NODES:
            _over_nodes(ground, rows, need, counts, by_liking=by_liking)
    return counts


def _step(tree: Tree, ground: Ground, where: tuple[int, Ints], need: int, counts: Ints) -> None:
    """`where`: a domain and those of its nodes that take part. Fills `counts`."""
    domain, rows = where
    groups = tree.groups(domain)
    for part, took in _parted(ground, groups[rows], rows, need):
        below = int(groups[part[0]])
        if below < len(tree.names):
            _step(tree, ground, (below, part), took, counts)
        else:
            counts[part] = took


def _parted(ground: Ground, groups: Ints, rows: Ints, need: int) -> list[tuple[Ints, int]]:
    """Groups of rows that take part, and how many pods each takes. There must be room."""
    if not len(rows) or (groups == groups[0]).all():
        return [(rows, need)] if len(rows) else []
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    total = len(first)

    def sums(amounts: Ints) -> Ints:
        return np.bincount(inverse, weights=amounts[rows], minlength=total).astype(np.int64)

    room = sums(ground.room)
    parts = Parts(
        room=room,
        whole=room == sums(ground.empty),
        taken=np.bincount(inverse, weights=ground.taken[rows], minlength=total) > 0,
        weight=sums(ground.weight),
        liking=np.zeros(total, dtype=np.float64),
    )
    chosen = select(parts, need)
    assert chosen is not None, "more pods than room"
    return [(rows[inverse == part], took) for part, took in chosen]


def _over_nodes(ground: Ground, rows: Ints, need: int, counts: Ints, *, by_liking: bool) -> None:
    room = ground.room[rows]
    if need == int(room.sum()):
        counts[rows] = room
        return
    if need == 1 and by_liking:
        counts[rows[np.where(room > 0, ground.liking[rows], -np.inf).argmax()]] = 1
        return
    parts = Parts(room, room == ground.empty[rows], ground.taken[rows], ground.weight[rows], ground.liking[rows])
    chosen = select(parts, need)
    assert chosen is not None, "more pods than room"
    for position, took in chosen:
        counts[rows[position]] = took
