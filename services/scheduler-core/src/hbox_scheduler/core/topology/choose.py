"""Which domain, of those allowed: the decision for equal pods, exact and made at once."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ..arrays import Bools, Ints
from .aims import Aim
from .cover import fewest
from .spread import Ground, Levels, spread
from .tree import Tree

#: Domains above the leaves of which the inside is looked at before one is taken, best fit first.
_LOOKED_AT = 8


class Survey:
    """A ground summed up by domain `[D]` and by leaf `[L]`."""

    def __init__(self, tree: Tree, ground: Ground) -> None:
        self.tree = tree
        self.ground = ground
        self.room = tree.sums(ground.room)

    @cached_property
    def whole(self) -> Bools:
        """`[D]`: nothing is in use there."""
        return np.asarray(self.room == self.tree.sums(self.ground.empty))

    @cached_property
    def leaf_room(self) -> Ints:
        """`[L]`"""
        return self._by_leaf(self.ground.room)

    @cached_property
    def leaf_whole(self) -> Bools:
        """`[L]`"""
        return np.asarray(self.leaf_room == self._by_leaf(self.ground.empty))

    @cached_property
    def leaf_taken(self) -> Bools:
        """`[L]`: the gang itself is there."""
        return self._by_leaf(self.ground.taken) > 0

    def nodes_needed(self, need: int) -> Ints:
        """`[L]`: the fewest nodes of each leaf that hold so many, where the leaf does."""
        leaves, room = self.tree.leaves(), self.ground.room
        order = np.lexsort((-room, leaves))
        before = np.cumsum(room[order]) - room[order]
        before -= (np.cumsum(self.leaf_room) - self.leaf_room)[leaves[order]]
        return self._by_leaf_of(leaves[order], (before < need) & (room[order] > 0))

    def _by_leaf(self, amounts: Ints | Bools) -> Ints:
        return self._by_leaf_of(self.tree.leaves(), amounts)

    @staticmethod
    def _by_leaf_of(leaves: Ints, amounts: Ints | Bools) -> Ints:
        return np.bincount(leaves, amounts.astype(np.float64)).astype(np.int64)


def choose(survey: Survey, need: int, aim: Aim, *, groups: Sequence[Sequence[int]], scores: Mapping[int, float]) -> Ints | None:
    """`[N]` pods for each node of the best domain, `need` in all; None = no domain has room.

    groups: domains that are allowed, lowest tier first. Hard: the first group with room decides, and in it the domain that needs the fewest
    leaves. Soft: the fewest leaves of all come first, then the lowest tier. Then the fewest nodes, few whole leaves broken, the policy's `scores` of the
    domains, best fit, best fit of the domain above. With `aim.tight` best fit comes before the whole leaves.
    """
    tree = survey.tree
    best: tuple[tuple[float, ...], Ints] | None = None
    soft = not aim.hard and aim.levels is Levels.LEAVES
    for group in _with_fewest(survey, groups, need) if soft else groups:
        for domain in ranked(survey, need, aim, group=group, scores=scores)[:_LOOKED_AT]:
            for large in (False, True) if aim.levels is Levels.STEPS else (False,):
                counts = spread(tree, survey.ground, domain, need, aim.levels, by_liking=not aim.tight, large=large)
                assert counts is not None, "the domain has room"
                key = (*_cost(survey, counts, aim, score=scores.get(domain, 0.0), domain=domain), domain)
                if best is None or key < best[0]:
                    best = key, counts
            if tree.is_leaf(domain) and not aim.tight:
                break  # they are ranked: no other of this group is better
        if best is not None:
            return best[1]
    return None


def ranked(survey: Survey, need: int, aim: Aim, *, group: Sequence[int], scores: Mapping[int, float]) -> list[int]:
    """Domains of a group with room for `need` pods, as `choose` prefers them when their insides are equal."""
    tree, room, whole = survey.tree, survey.room, survey.whole
    several = int(survey.ground.room.max(initial=0)) > 1  # else every pod has a node of its own
    in_leaf = survey.nodes_needed(need) if several else None

    def key(domain: int) -> tuple[float, ...]:
        nodes = float(in_leaf[tree.leaves()[tree.nodes(domain)[0]]]) if in_leaf is not None and tree.is_leaf(domain) else 0.0
        broken = float(room[domain]) if whole[domain] and tree.is_leaf(domain) else 0.0
        above = int(tree.parents[domain])
        fit = (float(room[domain]), float(room[above]) if above >= 0 else 0.0)
        score = -scores.get(domain, 0.0)
        return (nodes, *fit, broken, score, domain) if aim.tight else (nodes, broken, score, *fit, domain)

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
    tree, ground = survey.tree, survey.ground
    if domain == tree.root:
        return fewest(survey.leaf_room, survey.leaf_taken, need)
    rows = tree.nodes(domain)
    if tree.is_leaf(domain):
        return 0 if ground.taken[rows].any() else 1
    leaves = tree.leaves()[rows]
    room = np.bincount(leaves, weights=ground.room[rows]).astype(np.int64)
    return fewest(room, np.bincount(leaves, weights=ground.taken[rows]) > 0, need)


def _cost(survey: Survey, counts: Ints, aim: Aim, *, score: float, domain: int) -> tuple[float, ...]:
    """What using these nodes costs, the most important first."""
    tree, room = survey.tree, survey.room
    used = np.bincount(tree.leaves(), weights=counts) > 0
    nodes = float(np.count_nonzero(counts))
    fresh = float(np.count_nonzero(used & ~survey.leaf_taken))
    broken = float(survey.leaf_room[used & survey.leaf_whole].sum())
    fit = float(survey.leaf_room[used].sum())
    above = int(tree.parents[domain])
    around = float(room[above]) if above >= 0 else 0.0
    if aim.tight:
        steps = np.bincount(tree.tiers - tree.tiers[0], weights=tree.sums(counts) > 0)[::-1]
        on_nodes = float(survey.ground.room[counts > 0].sum())
        return (*steps.tolist(), nodes, float(room[domain]), fit, on_nodes, around, broken, -score)
    return (fresh, nodes, broken, -score, fit, around)
