"""Units of several equal pods, each of which has to be inside one domain: which domains, and how many units each.

A unit is to a domain what a pod is to a node, so the same choice decides: one of its nodes represents each domain with its units.
"""

from collections.abc import Sequence

import numpy as np

from ..cluster.arrays import Bools, Ints
from .cover import fewest
from .spread import NodeCapacities, SpreadLevels, spread
from .tree import Tree


def share_out(
    tree: Tree, capacities: NodeCapacities, outer: int, *, domains: Sequence[int], size: int, count: int, levels: SpreadLevels
) -> list[tuple[int, int]] | None:
    """Domains and units for each, `count` units of `size` pods in all, on as few domains of each tier and as few nodes as can be found. None = they do not fit.
    `domains`: where units may be, all inside `outer`; domains with common nodes are not distinguished."""
    room, empty, weight, taken = (np.zeros(tree.rows, dtype=np.int64) for _ in range(4))
    rooms, empties, in_use = tree.sums(capacities.room), tree.sums(capacities.empty), tree.sums(capacities.taken)
    at: dict[int, int] = {}
    for domain in maximal(tree, domains):
        row = next((row for row in tree.nodes(domain).tolist() if row not in at), None)
        if row is not None:
            at[row] = domain
            room[row], empty[row], weight[row] = rooms[domain] // size, empties[domain] // size, rooms[domain]
            taken[row] = in_use[domain]
    units = NodeCapacities(room, empty, taken > 0, weight, np.zeros(tree.rows, dtype=np.float64))
    spreads = [spread(tree, units, outer, count, levels, large=large) for large in (False, True)]
    found = [counts for counts in spreads if counts is not None]
    if not found:
        return None

    def nodes(counts: Ints) -> int:
        """How many nodes it takes where each domain is packed by itself."""
        parts = [(tree.nodes(at[row]), size * int(counts[row])) for row in np.flatnonzero(counts).tolist()]
        return sum(fewest(capacities.room[rows], capacities.taken[rows], pods) or 0 for rows, pods in parts)

    best = min(found, key=lambda counts: (used_by_tier(tree, counts > 0), nodes(counts)))
    return [(at[row], int(best[row])) for row in np.flatnonzero(best).tolist()]


def used_by_tier(tree: Tree, used: Bools) -> tuple[int, ...]:
    """Domains in which nodes are used `[N]`: how many of each tier, the highest first."""
    by_tier = np.bincount(tree.levels, weights=tree.sums(used) > 0)[::-1]
    return tuple(by_tier.astype(np.int64).tolist())


def maximal(tree: Tree, domains: Sequence[int]) -> list[int]:
    """Those that are not below another one of them."""
    among = set(domains)
    found = []
    for domain in domains:
        above = int(tree.parents[domain])
        while above >= 0 and above not in among:
            above = int(tree.parents[above])
        if above < 0:
            found.append(domain)
    return found
