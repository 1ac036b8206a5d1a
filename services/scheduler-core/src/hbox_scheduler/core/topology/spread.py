"""Equal pods over the nodes of one domain, level after level."""

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from ..cluster.arrays import Bools, Floats, Ints
from .cover import Parts, select
from .tree import Tree


class SpreadLevels(Enum):
    """Of what the fewest are used, before nodes."""

    LEAVES = auto()  #: the lowest domains, whatever lies between: what costs bandwidth
    STEPS = auto()  #: the domains of the next tier, then of the tier below, ...: as Kueue counts
    NODES = auto()  #: nodes only


@dataclass(frozen=True, slots=True)
class NodeCapacities:
    """What there is to place equal pods on, by node row."""

    room: Ints  #: `[N]`: pods that fit
    empty: Ints  #: `[N]`: pods that would fit if nothing else were there
    taken: Bools  #: `[N]`: nodes that the same gang uses
    weight: Ints  #: `[N]`: room in pods, where `room` counts units of several pods
    score: Floats  #: `[N]`: the policy's scores


def spread(
    tree: Tree,
    capacities: NodeCapacities,
    domain: int,
    need: int,
    levels: SpreadLevels,
    *,
    by_score: bool = False,
    large: bool = False,
) -> Ints | None:
    """`[N]`: pods for each node of the domain, `need` in all. None = they do not fit.

    large: of the parts of each level the largest (`cover.select`).
    by_score: a single pod is placed on the node with the policy's highest score, instead of the one with the least room.
    """
    rows = tree.nodes(domain)
    if int(capacities.room[rows].sum()) < need:
        return None
    match levels:
        case SpreadLevels.LEAVES:
            rows = _narrowed(capacities, tree.leaves()[rows], rows, need)
        case SpreadLevels.STEPS:
            rows = _step_down(tree, capacities, domain, need, large=large)
        case SpreadLevels.NODES:
            pass
    return _over_nodes(capacities, rows, need, by_score=by_score)


def _step_down(tree: Tree, capacities: NodeCapacities, domain: int, need: int, *, large: bool) -> Ints:
    """Of the parts of the domain the fewest, of all the parts of those the fewest, and so on down to the leaves."""
    rows = tree.nodes(domain)
    inside = np.full(len(rows), domain, dtype=np.int64)
    domains = len(tree.names)
    while (open_ := inside < domains).any():
        parts = inside.copy()
        for one in np.unique(inside[open_]).tolist():
            here = inside == one
            parts[here] = tree.groups(one)[rows[here]]
        if (parts >= domains).all():
            break
        kept = np.isin(rows, _narrowed(capacities, parts, rows, need, large=large))
        rows, inside = rows[kept], parts[kept]
    return rows


def _narrowed(capacities: NodeCapacities, groups: Ints, rows: Ints, need: int, *, large: bool = False) -> Ints:
    """The rows of those groups that take part. There must be room."""
    if not len(rows) or (groups == groups[0]).all():
        return rows
    _, inverse = np.unique(groups, return_inverse=True)

    def sums(amounts: Ints | Bools) -> Ints:
        return np.bincount(inverse, amounts[rows].astype(np.float64)).astype(np.int64)

    room = sums(capacities.room)
    parts = Parts(
        room=room,
        whole=room == sums(capacities.empty),
        taken=sums(capacities.taken) > 0,
        weight=sums(capacities.weight),
        score=np.zeros(len(room), dtype=np.float64),
    )
    chosen = select(parts, need, large=large)
    assert chosen is not None, "more pods than room"
    return rows[np.isin(inverse, chosen[0])]


def _over_nodes(capacities: NodeCapacities, rows: Ints, need: int, *, by_score: bool) -> Ints:
    """`[N]`: pods for each of the rows, on as few nodes as possible."""
    counts = np.zeros(len(capacities.room), dtype=np.int64)
    room = capacities.room[rows]
    if need == int(room.sum()):
        counts[rows] = room
    elif need == 1 and by_score:
        counts[rows[np.where(room > 0, capacities.score[rows], -np.inf).argmax()]] = 1
    else:
        parts = Parts(
            room, room == capacities.empty[rows], capacities.taken[rows], capacities.weight[rows], capacities.score[rows]
        )
        chosen = select(parts, need)
        assert chosen is not None, "more pods than room"
        counts[rows[chosen[0]]] = chosen[1]
    return counts
