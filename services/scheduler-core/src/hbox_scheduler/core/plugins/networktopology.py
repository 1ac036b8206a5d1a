"""network-topology-aware: which domains a gang may be in, and which are best (sources: volcano-network-topology).

Gradients: the domains that are allowed, in which those members that run already are, and whose sums of free resources could hold what the gang
needs; by tier, lowest first, and for evictions widest first and few. Scores: domains by how full they are with the gang in them; nodes of gangs with a
domain by how near to it they are; nodes of all other pods by how full their domains are, the nearest counting most, so that whole domains stay free.

`hypernode.keep-whole.enable`, which Volcano does not have, comes to much the same for all other pods at no cost for batches: where the policy's scores leave it
open which idle node is taken, it is one of the unit (lowest domain) with the fewest idle nodes, and one of a unit that is idle as a whole only where nothing
else is left. What is free stays in large pieces for gangs (sources: leaf-cover).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import HOLDING, Gang, Member, Status, SubGang
from ..framework.hooks import DomainGradients, DomainScore, EqualNodeOrder, PodScore, Validity
from ..topology.constraints import concerned, constraint_of, problem_of
from ..topology.tree import TOP, Tree
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_BINPACK = "hypernode.binpack."
_RESOURCES = _BINPACK + "resources"
_FULL = 100.0
#: What a rail that is missing costs a node, of 100 for being near.
_RAIL = 10.0


class NetworkTopology(Validity, DomainGradients, DomainScore, PodScore, EqualNodeOrder):
    """Arguments: weight 1; hypernode.keep-whole.enable false; hypernode.binpack.cpu 1, .memory 1, .resources (names with commas between),
    .resources.<name> 1;
    hypernode.binpack.normal-pod.enable true, .fading 0.8; hypernode.gradient.evict.max-hypernodes: no more domains for evictions than these (0 = all;
    Volcano's default is 8, the last by name, which misses those where it would be possible)."""

    name = "network-topology-aware"
    heeds_domains = True

    def __init__(self, conf: "PluginConf") -> None:
        """Raises InvalidRequest for arguments that are wrong."""
        arguments = Arguments(conf)
        self._weight = arguments.number("weight", 1.0, least=0)
        self._weights = {name: arguments.number(_BINPACK + name, 1.0, least=0) for name in ("cpu", "memory")}
        for name in arguments.names(_RESOURCES):
            self._weights[name] = arguments.number(f"{_RESOURCES}.{name}", 1.0, least=0)
        arguments.starting(f"{_RESOURCES}.")  # weights of resources that are not named do nothing
        self._normal_pods = arguments.switch(_BINPACK + "normal-pod.enable", True)
        self._keeps_whole = arguments.switch("hypernode.keep-whole.enable", False)
        self._fading = arguments.number(_BINPACK + "normal-pod.fading", 0.8, least=0)
        self._evict_at_most = arguments.integer("hypernode.gradient.evict.max-hypernodes", 0, least=0)
        arguments.done()

    def open(self, session: "Session") -> None:
        self._session = session
        self._sizes: dict[int, Ints] = {}

    @property
    def _tree(self) -> Tree:
        return self._session.tree

    @property
    def sees_plain_pods(self) -> bool:
        return bool(self._weight) and self._normal_pods

    def concerns(self, member: Member) -> bool:
        return self.sees_plain_pods or concerned(member.gang)

    def valid(self, gang: Gang) -> str:
        return problem_of(gang)

    # Domains.

    def gradients(self, sub_gang: SubGang | None, gang: Gang, *, evict: bool) -> list[list[str]] | None:
        tree = self._tree
        constraint = constraint_of(tree, gang, sub_gang)
        if constraint is None:
            return [[TOP]]
        if constraint.hard and tree.root == 0:
            return []  # nothing is known of the fabric: no domain can be promised
        subject = gang if sub_gang is None else sub_gang
        old = self._session.cluster.facts.fabrics.old if constraint.hard else ()
        held = [member.row for member in subject.members if member.status in HOLDING]
        good: Bools = (tree.tiers <= constraint.ceiling) & (tree.tiers >= constraint.floor) & (tree.sizes > 0)
        if old:
            good &= np.array([name not in old for name in tree.names])
        if held:
            good &= tree.holding(held)
        elif (need := self._need(subject)) is not None:
            good &= self._could_hold(need, evict=evict)
        found = np.flatnonzero(good)
        groups = [[tree.names[d] for d in found[tree.tiers[found] == tier].tolist()] for tier in np.unique(tree.tiers[found])]
        return self._widest_first(groups) if evict else groups

    def _need(self, subject: Gang | SubGang) -> Ints | None:
        """`[R]`: the minimum that it needs, by its smallest members; None if that is unknown."""
        size = subject.min_member if isinstance(subject, Gang) else subject.size
        if _uniform(subject.members):
            first = subject.members[0]
            return first.request * size if 0 < size <= len(subject.members) and not first.best_effort else None
        waiting = [member for member in subject.members if member.status is Status.PENDING and not member.best_effort]
        size -= sum(member.status is Status.PENDING for member in subject.members) - len(waiting)
        if size <= 0 or len(waiting) < size:
            return None
        return np.asarray(np.sort(np.stack([member.request for member in waiting]), axis=0)[:size].sum(axis=0))

    def _could_hold(self, need: Ints, *, evict: bool) -> Bools:
        """`[D]`: the sums of what is free now or will be (to evict: of what there is) cover the need."""
        columns, tree = self._session.columns, self._tree
        good = np.ones(len(tree.names), dtype=np.bool_)
        for column in np.flatnonzero(need[: len(columns.allocatable)] > 0).tolist():
            sizes = columns.allocatable[column, : tree.rows]
            free = (
                sizes
                if evict
                else sizes - np.minimum(columns.used[column], columns.used[column] - columns.leaving[column])[: tree.rows]
            )
            good &= tree.sums(np.maximum(free, 0)) >= need[column]
        return good

    def _widest_first(self, groups: list[list[str]]) -> list[list[str]]:
        left = self._evict_at_most or len(self._tree.names)
        chosen: list[list[str]] = []
        for group in reversed(groups):
            if left > 0:
                chosen.append(group[-left:])
                left -= len(chosen[-1])
        return chosen

    def domain_scores(self, sub_gang: SubGang | None, gang: Gang, domains: Sequence[str]) -> Mapping[str, float]:
        members = gang.members if sub_gang is None else sub_gang.members
        packed = self._packed(self._asked(members))
        scores = {name: float(packed[self._tree.index[name]]) for name in domains}
        best = max(scores.values(), default=0.0)
        equal = [name for name, score in scores.items() if score == best]
        if len(equal) > 1:
            there = self._members_in(members)
            for name in equal:
                scores[name] += float(there[self._tree.index[name]]) / max(len(members), 1)
        return {name: self._weight * _FULL * score for name, score in scores.items()}

    def _asked(self, members: Sequence[Member]) -> Ints:
        """`[R]`: total requests of the pending members."""
        if _uniform(members):
            return members[0].request * len(members)
        counts = Counter(id(member.task) for member in members if member.status is Status.PENDING)
        requests = {id(member.task): member.request for member in members}
        return sum((count * requests[task] for task, count in counts.items()), self._session.zeros())

    def _packed(self, need: Ints) -> Floats:
        """`[D]`: weighted mean over the requested resources of (used + requested) / size; 0 if that exceeds the size."""
        columns, tree = self._session.columns, self._tree
        total = np.zeros(len(tree.names), dtype=np.float64)
        fits = np.ones(len(tree.names), dtype=np.bool_)
        weights = 0.0
        for name, weight in self._weights.items():
            column = columns.resources.get(name)
            if column is None or not need[column]:
                continue
            sizes = self._sizes_of(column)
            used = tree.sums(columns.used[column, : tree.rows]) + need[column]
            fits &= used <= sizes
            total += weight * used / np.maximum(sizes, 1)
            weights += weight
        return np.where(fits, total / weights, 0.0) if weights else total

    def _members_in(self, members: Sequence[Member]) -> Ints:
        """`[D]`: members with a place in each domain."""
        there = np.zeros(self._tree.rows, dtype=np.int64)
        for member in members:
            if member.row >= 0:
                there[member.row] += 1
        return self._tree.sums(there)

    # Nodes.

    def score(self, member: Member, columns: Columns) -> Floats | None:  # noqa: ARG002  # the hook's signature
        if self._tree.root == 0:
            return None  # no domains: all nodes are equal
        if not concerned(member.gang):
            return self._weight * _FULL * self._packed_around(member) if self._normal_pods else None
        home = self._home(member.gang)
        if home is None:
            return self._whole_rails(member) if self._session.cluster.facts.fabrics.degraded else None
        tree = self._tree
        low, high = int(tree.tiers[0]), int(tree.tiers[tree.root])
        near = (high - tree.meeting(home)) / max(high - low, 1)
        best = near >= near.max()
        if len(np.unique(tree.leaf_of[best])) > 1:
            members = member.sub_gang.members if member.sub_gang is not None else member.gang.members
            near[best] += self._members_in(members)[tree.leaf_of[best]] / max(len(members), 1)
        near = self._weight * _FULL * near
        return near + self._whole_rails(member) if self._session.cluster.facts.fabrics.degraded else near

    # Equal nodes.

    def distinguishes(self, columns: Columns, rows: Ints) -> Bools | None:
        return _idle(columns, rows) if self._keeps_whole and columns.units is not None else None

    def equal_node_keys(self, columns: Columns, rows: Ints) -> Ints:
        assert columns.units is not None
        size = len(columns.units)
        has = columns.alive[:size] & (columns.card_index[:size, 0] >= 0)
        idle_in = np.bincount(columns.units, has & ~columns.card_pods[:size].any(axis=1))
        units = columns.units[rows]
        whole = idle_in == np.bincount(columns.units, has)
        key = (whole[units] * (size + 1) + idle_in[units]) * (size + 1) + units
        return np.asarray(key, dtype=np.int64)

    def _whole_rails(self, member: Member) -> Floats:
        """`[N]`: minus `_RAIL` for each rail of a node that is down, slow or at another leaf: other nodes come first where they do as well. A gang of one pod
        needs no rail."""
        out = np.zeros(self._tree.rows, dtype=np.float64)
        if len(member.gang.members) > 1:
            rows = self._session.columns.row_of
            for node, rails in self._session.cluster.facts.fabrics.degraded.items():
                if (row := rows.get(node)) is not None:
                    out[row] = -self._weight * _RAIL * rails
        return out

    def _home(self, gang: Gang) -> int | None:
        """The domain that the gang has, by its note or else by its members."""
        if gang.allocated_domain in self._tree.index:
            return self._tree.index[gang.allocated_domain]
        held = [member.row for member in gang.members if member.status in HOLDING]
        return self._tree.lowest(held) if held else None

    def _packed_around(self, member: Member) -> Floats:
        """`[N]`: mean over the tiers of how full the node's domain there would be, each tier's weight `fading` times that of the one below.

        A node that is in no domain of a tier counts as full there: pods without a wish rather go outside of the fabric.
        """
        packed = self._packed(member.request)
        total = np.zeros(self._tree.rows, dtype=np.float64)
        for weight, domains, rows in self._tiers:
            there = np.ones(len(total), dtype=np.float64)
            there[rows] = packed[domains]
            total += weight * there
        return total

    @cached_property
    def _tiers(self) -> list[tuple[float, Ints, Ints]]:
        """Of each tier its weight (1 in all), and its memberships: domains, rows. Of a node in two domains of a tier the last counts."""
        tree = self._tree
        tiers = sorted(set(tree.tiers.tolist()))
        weights = [float(self._fading ** (tier - 1)) if self._fading or tier >= 1 else 1.0 for tier in tiers]
        whole = sum(weights) or 1.0
        members = [np.flatnonzero(tree.tiers[tree.in_domain] == tier) for tier in tiers]
        return [
            (weight / whole, tree.in_domain[which], tree.of_row[which]) for weight, which in zip(weights, members, strict=True)
        ]

    def _sizes_of(self, column: int) -> Ints:
        """`[D]`: what all nodes of each domain have of a resource; does not change while a session is on."""
        found = self._sizes.get(column)
        if found is None:
            found = self._sizes[column] = self._tree.sums(self._session.columns.allocatable[column, : self._tree.rows])
        return found


def _idle(columns: Columns, rows: Ints) -> Bools:
    """`[n]`: nodes with cards of which none is in use."""
    return np.asarray((columns.card_index[rows, 0] >= 0) & ~columns.card_pods[rows].any(axis=1))


def _uniform(members: Sequence[Member]) -> bool:
    """Whether all of them wait, and ask for the same."""
    if not members:
        return False
    task = members[0].task
    return all(member.task is task and member.status is Status.PENDING for member in members)
