"""HyperNodes in columns: the domains of each node, and sums over nodes in every domain at once.

A domain is a set of node rows. Memberships are two parallel arrays, so that one bincount gives "how many fit" for every domain of every tier, whatever the tree
looks like: several roots, trees of unequal depth, missing tiers, nodes in two domains of one tier, nodes in none. Containment follows from the sets, not from
declared children: sources declare these differently, and only the nodes count.

Above all is the virtual root: every node, one tier above the highest (sources: volcano-hypernodes).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hbox_common.model import HyperNode, NodeName
from hbox_common.model.bounds import INT32_MAX

from ..cluster.arrays import Bools, Ints

#: Name of the virtual root, as Volcano's.
TOP = "<cluster-top-hypernode>"


@dataclass(slots=True, eq=False)
class Tree:
    """D domains over N node rows. By tier, then name; the last one is the virtual root."""

    names: tuple[str, ...]
    tiers: Ints  #: `[D]`
    levels: Ints  #: `[D]`: the index of its tier among the existing ones, from 0: tiers are any numbers
    tier_names: tuple[str, ...]
    in_domain: Ints  #: `[K]`: membership k: this domain has...
    of_row: Ints  #: `[K]`: ...this node
    sizes: Ints  #: `[D]`: nodes
    parents: Ints  #: `[D]`: the lowest domain above that has all of its nodes; -1 for the virtual root
    leaf_of: Ints  #: `[N]`: the lowest domain that the node is in; the virtual root where it is in no other
    index: Mapping[str, int]  #: by name
    _starts: Ints
    _groups: dict[int, Ints] = field(default_factory=dict)

    @property
    def root(self) -> int:
        return len(self.names) - 1

    @property
    def rows(self) -> int:
        """N"""
        return len(self.leaf_of)

    def nodes(self, domain: int) -> Ints:
        """Node rows of a domain."""
        return self.of_row[self._starts[domain] : self._starts[domain + 1]]

    def mask(self, domain: int) -> Bools:
        """`[N]`"""
        out = np.zeros(self.rows, dtype=np.bool_)
        out[self.nodes(domain)] = True
        return out

    def sums(self, amounts: Ints | Bools) -> Ints:
        """`[D]`: the sum of `amounts[N]` over each domain's nodes. Exact below 2**53."""
        weights = amounts[self.of_row].astype(np.float64)
        return np.bincount(self.in_domain, weights, len(self.names)).astype(np.int64)

    def holding(self, rows: Iterable[int]) -> Bools:
        """`[D]`: domains that have all of these nodes."""
        wanted = np.zeros(self.rows, dtype=np.bool_)
        wanted[list(rows)] = True
        return np.asarray(self.sums(wanted) == np.count_nonzero(wanted))

    def lowest(self, rows: Iterable[int]) -> int:
        """The lowest domain that has all of these nodes; among equals the smallest, then the first by name."""
        candidates = np.flatnonzero(self.holding(rows))
        return int(min(candidates.tolist(), key=lambda d: (self.tiers[d], self.sizes[d], d)))

    def meeting(self, domain: int) -> Ints:
        """`[N]`: tier of the lowest domain that has both the node and all nodes of `domain`."""
        out = np.full(self.rows, self.tiers[self.root], dtype=np.int64)
        above = np.flatnonzero(self.holding(self.nodes(domain)))
        for one in sorted(above.tolist(), key=lambda d: -int(self.tiers[d])):
            out[self.nodes(one)] = self.tiers[one]
        return out

    def groups(self, domain: int) -> Ints:
        """`[N]`: under which part of `domain` a node is: the number of the domain directly below, or D + row for nodes that are in none.
        Only meaningful at the domain's nodes. Kept: a tree does not change."""
        found = self._groups.get(domain)
        if found is None:
            below = np.full(len(self.names), -1, dtype=np.int64)
            for one in range(len(self.names)):
                step = one
                while step >= 0 and self.parents[step] != domain:
                    step = int(self.parents[step])
                below[one] = step
            found = below[self.leaf_of]
            loose = found < 0
            found[loose] = len(self.names) + np.flatnonzero(loose)
            self._groups[domain] = found
        return found

    def leaves(self) -> Ints:
        """`[N]`: number of the leaf that the node is in, from 0: the lowest domains, and each node outside of all as one of its own."""
        found = self._groups.get(-1)
        if found is None:
            found = self.leaf_of.copy()
            loose = found == self.root
            found[loose] = len(self.names) + np.flatnonzero(loose)
            found = self._groups[-1] = np.unique(found, return_inverse=True)[1].astype(np.int64)
        return found

    def loose(self) -> Bools:
        """`[N]`: nodes outside of all domains."""
        return np.asarray(self.leaf_of == self.root)

    def is_one_loose_node(self, rows: Iterable[int]) -> bool:
        """Whether these rows are one node, outside of all domains."""
        found = set(rows)
        return len(found) == 1 and bool(self.leaf_of[found.pop()] == self.root)

    def is_leaf(self, domain: int) -> bool:
        """Whether no domain is below this one."""
        return domain != self.root and bool((self.leaf_of[self.nodes(domain)] == domain).all())


def tree_of(hypernodes: Sequence[HyperNode], row_of: Mapping[NodeName, int], rows: int) -> Tree:
    """The tree over the nodes in `row_of` (row < `rows`). Members that do not exist count nowhere; a HyperNode that is its own descendant
    has what its other members have."""
    by_name = {hypernode.name: hypernode for hypernode in hypernodes}
    ordered = sorted(by_name.values(), key=lambda hypernode: (hypernode.tier, hypernode.name))
    sets = [_nodes_below(hypernode, by_name, row_of) for hypernode in ordered]
    everything = np.array(sorted(row_of.values()), dtype=np.int64)
    sets.append(everything)
    tiers = [min(hypernode.tier, INT32_MAX) for hypernode in ordered]
    tiers.append(max(tiers, default=0) + 1)
    sizes = np.array([len(rows) for rows in sets], dtype=np.int64)
    in_domain = np.repeat(np.arange(len(sets), dtype=np.int64), sizes)
    of_row = np.concatenate(sets)
    leaf_of = np.full(rows, len(sets) - 1, dtype=np.int64)
    for domain in sorted(range(len(ordered)), key=lambda d: (-tiers[d], -sizes[d], -d)):
        leaf_of[sets[domain]] = domain
    return Tree(
        names=(*(hypernode.name for hypernode in ordered), TOP),
        tiers=np.array(tiers, dtype=np.int64),
        levels=np.unique(tiers, return_inverse=True)[1].astype(np.int64),
        tier_names=(*(hypernode.tier_name for hypernode in ordered), ""),
        in_domain=in_domain,
        of_row=of_row,
        sizes=sizes,
        parents=_parents(tiers, sets, rows),
        leaf_of=leaf_of,
        index={name: number for number, name in enumerate((*(hypernode.name for hypernode in ordered), TOP))},
        _starts=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes))),
    )


def _nodes_below(top: HyperNode, by_name: Mapping[str, HyperNode], row_of: Mapping[NodeName, int]) -> Ints:
    found: set[int] = set()
    seen = {top.name}
    waiting = [top]
    while waiting:
        hypernode = waiting.pop()
        found.update(row_of[node] for node in hypernode.nodes if node in row_of)
        for child in hypernode.children:
            if child in by_name and child not in seen:
                seen.add(child)
                waiting.append(by_name[child])
    return np.array(sorted(found), dtype=np.int64)


def _parents(tiers: Sequence[int], sets: Sequence[Ints], rows: int) -> Ints:
    """Candidates for a domain's parent are the domains of its first node: few."""
    root = len(sets) - 1
    parents = np.full(len(sets), root, dtype=np.int64)
    parents[root] = -1
    domains_of: dict[int, list[int]] = {}
    for domain, members in enumerate(sets[:-1]):
        for row in members.tolist():
            domains_of.setdefault(row, []).append(domain)
    inside = np.zeros(rows, dtype=np.bool_)
    for domain, members in enumerate(sets[:-1]):
        if not len(members):
            continue
        above = [one for one in domains_of[int(members[0])] if tiers[one] > tiers[domain] and len(sets[one]) >= len(members)]
        for one in sorted(above, key=lambda d: (tiers[d], len(sets[d]), d)):
            inside[sets[one]] = True
            holds = bool(inside[members].all())
            inside[sets[one]] = False
            if holds:
                parents[domain] = one
                break
    return parents
