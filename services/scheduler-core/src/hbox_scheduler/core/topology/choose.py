"""Which domain, of those allowed: the decision for equal pods, exact and made at once."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..arrays import Ints
from .aims import Aim
from .cover import fewest
from .spread import Ground, Levels, spread
from .tree import Tree

#: Domains above the leaves of which the inside is looked at before one is taken, best fit first.
_LOOKED_AT = 32


def choose(
    tree: Tree, ground: Ground, need: int, aim: Aim, *, groups: Sequence[Sequence[int]], scores: Mapping[int, float]
) -> tuple[int, Ints] | None:
    """A domain and `[N]` pods for each of its nodes, `need` in all; None = no domain has room.

    groups: domains that are allowed, lowest tier first. Hard: the first group with room decides, and in it the domain that needs the fewest
    leaves. Soft: the fewest leaves of all come first, then the lowest tier. Then few whole leaves broken, the policy's `scores` of the domains,
    best fit, best fit of the domain above. With `aim.tight` best fit comes before the whole leaves.
    """
    room = tree.sums(ground.room)
    best: tuple[tuple[float, ...], Ints] | None = None
    aimed_at = None if aim.hard or aim.levels is not Levels.LEAVES else _least(tree, ground, groups, room, need)
    for group in groups:
        for domain in ranked(tree, ground, need, aim, group=group, scores=scores)[:_LOOKED_AT]:
            counts = spread(tree, ground, domain, need, aim.levels, by_liking=not aim.tight)
            assert counts is not None, "the domain has room"
            key = (*_cost(tree, ground, counts, aim, score=scores.get(domain, 0.0), domain=domain), domain)
            if best is None or key < best[0]:
                best = key, counts
            if tree.is_leaf(domain) and not aim.tight:
                break  # they are ranked: no other of this group is better
        if best is not None and (aimed_at is None or best[0][0] <= aimed_at):
            break
    return None if best is None else (tree.lowest(np.flatnonzero(best[1]).tolist()), best[1])


def ranked(tree: Tree, ground: Ground, need: int, aim: Aim, *, group: Sequence[int], scores: Mapping[int, float]) -> list[int]:
    """Domains of a group with room for `need` pods, as `choose` prefers them when their insides are equal."""
    room, empty = tree.sums(ground.room), tree.sums(ground.empty)

    def key(domain: int) -> tuple[float, ...]:
        broken = float(room[domain]) if room[domain] == empty[domain] and tree.is_leaf(domain) else 0.0
        above = int(tree.parents[domain])
        fit = (float(room[domain]), float(room[above]) if above >= 0 else 0.0)
        score = -scores.get(domain, 0.0)
        return (*fit, broken, score, domain) if aim.tight else (broken, score, *fit, domain)

    return sorted((domain for domain in group if room[domain] >= need), key=key)


def _least(tree: Tree, ground: Ground, groups: Sequence[Sequence[int]], room: Ints, need: int) -> int:
    """The fewest leaves that any allowed domain needs."""
    counts = [
        leaves
        for group in groups
        for domain in group
        if room[domain] >= need and (leaves := _leaves(tree, ground, domain, need)) is not None
    ]
    return min(counts, default=0)


def _leaves(tree: Tree, ground: Ground, domain: int, need: int) -> int | None:
    rows = tree.nodes(domain)
    if tree.is_leaf(domain):
        return 0 if ground.taken[rows].any() else 1
    room = np.bincount(tree.leaves()[rows], weights=ground.room[rows]).astype(np.int64)
    return fewest(room, np.bincount(tree.leaves()[rows], weights=ground.taken[rows]) > 0, need)


def _cost(tree: Tree, ground: Ground, counts: Ints, aim: Aim, *, score: float, domain: int) -> tuple[float, ...]:
    """What using these nodes costs, the most important first."""
    leaves = tree.leaves()
    used = np.bincount(leaves, weights=counts) > 0
    fresh = used & ~(np.bincount(leaves, weights=ground.taken) > 0)
    in_leaf = np.bincount(leaves, weights=ground.room)
    broken = float(in_leaf[used & (in_leaf == np.bincount(leaves, weights=ground.empty))].sum())
    fit = float(in_leaf[used].sum())
    room, above = tree.sums(ground.room), int(tree.parents[domain])
    around = float(room[above]) if above >= 0 else 0.0
    if aim.tight:
        steps = np.bincount(tree.tiers - tree.tiers[0], weights=tree.sums(counts) > 0)[::-1]
        return (*steps.tolist(), float(room[domain]), around, fit, broken, -score)
    return (float(np.count_nonzero(fresh)), broken, -score, fit, around)
