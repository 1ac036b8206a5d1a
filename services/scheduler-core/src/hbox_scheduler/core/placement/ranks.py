"""Ranks follow the fabric: equal members of a gang change places until, in the order of their ranks, they walk the tree leaf by leaf and node by node.

An assignment after the nodes are chosen. Who is equal to the scheduler may have any of the places that equals were given: amounts, cards and counts of nodes
stay as they are, so that nothing that was decided changes but who is where. Members of several kinds keep to the places of their kind.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

from hbox_common.model import HyperNode, NodeName
from hbox_common.model.annotations import POLICY_ANNOTATIONS
from hbox_common.model.ranks import natural

from ..cluster import Columns
from ..cluster.entities import Member
from ..topology.tree import tree_of

#: Sorts nodes along the fabric: domains from the root to the leaf, then the node.
NodeKey: TypeAlias = tuple[object, ...]

_natural = lru_cache(maxsize=65_536)(natural)
_READ = frozenset(POLICY_ANNOTATIONS)


class Walk:
    """The order of nodes along the fabric; nodes in no HyperNode come last, all by name."""

    def __init__(self) -> None:
        self._hypernodes: Sequence[HyperNode] | None = None
        self._domains: dict[NodeName, NodeKey] = {}

    def follow(self, hypernodes: Sequence[HyperNode]) -> None:
        """The fabric from now on."""
        if hypernodes is not self._hypernodes:
            self._hypernodes, self._domains = hypernodes, _domains(hypernodes)

    def key(self, node: NodeName) -> NodeKey:
        domains = self._domains.get(node)
        return (domains is None, domains or (), _natural(node))


def _domains(hypernodes: Sequence[HyperNode]) -> dict[NodeName, NodeKey]:
    """By node, the names of the domains that it is in, the highest first."""
    rows = {name: row for row, name in enumerate(dict.fromkeys(name for one in hypernodes for name in one.nodes))}
    tree = tree_of(hypernodes, rows, len(rows))
    paths: dict[int, NodeKey] = {tree.root: ()}

    def path(domain: int) -> NodeKey:
        if domain not in paths:
            paths[domain] = (*path(int(tree.parents[domain])), _natural(tree.names[domain]))
        return paths[domain]

    return {name: path(leaf) for name, leaf in zip(rows, tree.leaf_of.tolist(), strict=True) if leaf != tree.root}


def arrange(members: Sequence[Member], columns: Columns, walk: Walk, *, by_labels: bool = True) -> None:
    """Exchange the nodes of equal members of one gang that this session placed; members without ranks keep theirs. `by_labels`: members with different labels
    are not equal, because selectors may read labels."""
    if len(members) < 2 or members[0].rank < 0:
        return
    for equal in _kinds(members, by_labels=by_labels):
        if len(equal) > 1:
            _assign(equal, columns, walk)


def _kinds(members: Sequence[Member], *, by_labels: bool) -> Iterable[list[Member]]:
    """Group equal members."""
    first = members[0]
    if first.gang.plain and all(member.task is first.task and member.status is first.status for member in members):
        return [list(members)]
    found: dict[object, list[Member]] = {}
    for member in members:
        sub_gang = member.sub_gang.name if member.sub_gang is not None else ""
        labels = tuple(sorted(member.labels.items())) if by_labels else ()
        notes = tuple(sorted((name, text) for name, text in member.annotations.items() if name in _READ))
        same = (id(member.task), member.status, sub_gang, member.role, member.priority, member.preemptable, member.constraints)
        found.setdefault((*same, member.budgets, labels, notes), []).append(member)
    return found.values()


def _assign(members: list[Member], columns: Columns, walk: Walk) -> None:
    names = columns.names
    known: dict[int, NodeKey] = {}
    for member in members:
        if member.row not in known:
            known[member.row] = walk.key(names[member.row])
    along = {row: place for place, row in enumerate(sorted(known, key=known.__getitem__))}
    place: Callable[[Member], tuple[int, int]] = lambda one: (along[one.row], one.slices[0].index if one.slices else -1)  # noqa: E731
    by_rank = sorted(members, key=lambda one: (one.rank, one.uid))
    places = [(one.row, one.slices, one.models) for one in sorted(by_rank, key=place)]
    for member, (row, slices, models) in zip(by_rank, places, strict=True):
        member.row, member.slices, member.models = row, slices, models
