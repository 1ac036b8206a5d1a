"""Which domain, of those allowed: the decision for equal pods, exact and made at once."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ..cluster.arrays import Bools, Ints
from .constraints import TopologyConstraint
from .cover import fewest
from .spread import NodeCapacities, SpreadLevels, spread
from .tree import Tree

#: Number of domains above the leaves whose inside is examined before one is taken, best fit first.
_LOOKED_AT = 8


class Survey:
    """A capacities summed up by domain `[D]` and by leaf `[L]`."""

    def __init__(self, tree: Tree, capacities: NodeCapacities) -> None:
        self.tree = tree
        self.capacities = capacities
        self.room = tree.sums(capacities.room)

    @cached_property
    def whole(self) -> Bools:
        """`[D]`: nothing is in use there."""
        return np.asarray(self.room == self.tree.sums(self.capacities.empty))

    @cached_property
    def leaf_room(self) -> Ints:
        """`[L]`"""
        return self._by_leaf(self.capacities.room)

    @cached_property
    def leaf_whole(self) -> Bools:
        """`[L]`"""
        return np.asarray(self.leaf_room == self._by_leaf(self.capacities.empty))

    @cached_property
    def leaf_taken(self) -> Bools:
        """`[L]`: the gang itself is there."""
        return self._by_leaf(self.capacities.taken) > 0

    def nodes_needed(self, need: int) -> Ints:
        """`[L]`: the fewest nodes of each leaf that hold so many, where the leaf does."""
        leaves, room = self.tree.leaves(), self.capacities.room
        order = np.lexsort((-room, leaves))
        before = np.cumsum(room[order]) - room[order]
        before -= (np.cumsum(self.leaf_room) - self.leaf_room)[leaves[order]]
        return self._by_leaf_of(leaves[order], (before < need) & (room[order] > 0))

    def _by_leaf(self, amounts: Ints | Bools) -> Ints:
        return self._by_leaf_of(self.tree.leaves(), amounts)

    @staticmethod
    def _by_leaf_of(leaves: Ints, amounts: Ints | Bools) -> Ints:
        return np.bincount(leaves, amounts.astype(np.float64)).astype(np.int64)


def choose(
    survey: Survey, need: int, constraint: TopologyConstraint, *, groups: Sequence[Sequence[int]], scores: Mapping[int, float]
) -> Ints | None:
    """`[N]` pods for each node of the best domain, `need` in all; None = no domain has room.

    groups: domains that are allowed, lowest tier first. Hard: the first group with room decides, and in it the domain that needs the fewest
    leaves. Soft: the fewest leaves of all come first, then the lowest tier. Then the fewest nodes, few whole leaves broken, the policy's `scores` of the
    domains, best fit, best fit of the domain above. With `constraint.tight` best fit comes before the whole leaves, with `constraint.fullest` the scores
    before the nodes.
    """
    tree = survey.tree
    best: tuple[tuple[float, ...], Ints] | None = None
    soft = not constraint.hard and constraint.levels is SpreadLevels.LEAVES
    for group in _with_fewest(survey, groups, need) if soft else groups:
        for domain in ranked(survey, need, constraint, group=group, scores=scores)[:_LOOKED_AT]:
            for large in (False, True) if constraint.levels is SpreadLevels.STEPS else (False,):
                counts = spread(
                    tree, survey.capacities, domain, need, constraint.levels, by_score=not constraint.tight, large=large
                )
                assert counts is not None, "the domain has room"
                key = (*_cost(survey, counts, constraint, score=scores.get(domain, 0.0), domain=domain), domain)
                if best is None or key < best[0]:
                    best = key, counts
            if tree.is_leaf(domain) and not constraint.tight:
                break  # they are ranked: no other of this group is better
        if best is not None:
            return best[1]
    return None


def ranked(
    survey: Survey, need: int, constraint: TopologyConstraint, *, group: Sequence[int], scores: Mapping[int, float]
) -> list[int]:
    """Domains of a group with room for `need` pods, as `choose` prefers them when their insides are equal."""
    tree, room, whole = survey.tree, survey.room, survey.whole
    several = int(survey.capacities.room.max(initial=0)) > 1  # else every pod has a node of its own
    in_leaf = survey.nodes_needed(need) if several else None

    def key(domain: int) -> tuple[float, ...]:
        nodes = float(in_leaf[tree.leaves()[tree.nodes(domain)[0]]]) if in_leaf is not None and tree.is_leaf(domain) else 0.0
        broken = float(room[domain]) if whole[domain] and tree.is_leaf(domain) else 0.0
        above = int(tree.parents[domain])
        fit = (float(room[domain]), float(room[above]) if above >= 0 else 0.0)
        score = -scores.get(domain, 0.0)
        if constraint.tight:
            return nodes, *fit, broken, score, domain
        return (score, nodes, broken, *fit, domain) if constraint.fullest else (nodes, broken, score, *fit, domain)

    return sorted((domain for domain in group if room[domain] >= need), key=key)


def _with_fewest(survey: Survey, groups: Sequence[Sequence[int]], need: int) -> list[list[int]]:
    """Of each group those domains that need no more leaves than any other domain of any group."""
    counts = {
        domain: count
        for group in groups
        for domain in group
        if survey.room[domain] >= need and (count := _leaves(survey, domain, need)) is not None
    }
    least = min(counts.values(), default=0)
    return [[domain for domain in group if counts.get(domain) == least] for group in groups]


def _leaves(survey: Survey, domain: int, need: int) -> int | None:
    tree, capacities = survey.tree, survey.capacities
    if domain == tree.root:
        return fewest(survey.leaf_room, survey.leaf_taken, need)
    rows = tree.nodes(domain)
    if tree.is_leaf(domain):
        return 0 if capacities.taken[rows].any() else 1
    leaves = tree.leaves()[rows]
    room = np.bincount(leaves, weights=capacities.room[rows]).astype(np.int64)
    return fewest(room, np.bincount(leaves, weights=capacities.taken[rows]) > 0, need)


def _cost(survey: Survey, counts: Ints, constraint: TopologyConstraint, *, score: float, domain: int) -> tuple[float, ...]:
    """What using these nodes costs, the most important first."""
    tree, room = survey.tree, survey.room
    used = np.bincount(tree.leaves(), weights=counts) > 0
    nodes = float(np.count_nonzero(counts))
    fresh = float(np.count_nonzero(used & ~survey.leaf_taken))
    broken = float(survey.leaf_room[used & survey.leaf_whole].sum())
    fit = float(survey.leaf_room[used].sum())
    above = int(tree.parents[domain])
    around = float(room[above]) if above >= 0 else 0.0
    if constraint.tight:
        steps = np.bincount(tree.levels, weights=tree.sums(counts) > 0)[::-1]
        on_nodes = float(survey.capacities.room[counts > 0].sum())
        return (*steps.tolist(), nodes, float(room[domain]), fit, on_nodes, around, broken, -score)
    return (fresh, -score, nodes, broken, fit, around) if constraint.fullest else (fresh, nodes, broken, -score, fit, around)
