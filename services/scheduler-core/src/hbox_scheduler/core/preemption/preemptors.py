"""Gangs that may evict others, served one by one: the part that preempt and reclaim share beyond the victim search."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import GroupPhase, TopologyMode

from ..cluster.arrays import Bools
from ..cluster.entities import Gang, Member, Status
from ..framework.placing import Placing
from ..framework.statement import Statement
from ..topology.constraints import concerned
from .evictablepods import EvictablePods
from .victims import Giving, Legal, Search

if TYPE_CHECKING:
    from ..framework.session import Session


def preemptors(session: "Session", *, best_effort: bool = False) -> Iterator[Gang]:
    """Admitted, valid, starving gangs that are not offline; `best_effort`: include gangs whose pending members all have no requests. Gangs that are bound to a
    topology domain are excluded: gangpreempt and gangreclaim serve them by whole domains."""
    for gang in session.unplaced:
        if gang.phase is GroupPhase.PENDING or gang.queue not in session.queues or gang.offline:
            continue
        if bound_to_domain(gang) or not (any(waiting(gang)) or (best_effort and any(best_effort_waiting(gang)))):
            continue
        if session.starving(gang) and not session.invalid(gang):
            yield gang


def growing(session: "Session") -> Iterator[Gang]:
    """Admitted gangs with their minimum placed and more pods pending. Topology-bound gangs are excluded: they grow on free resources only."""
    for gang in session.unplaced:
        if not gang.holding or gang.queue not in session.queues or gang.offline or bound_to_domain(gang):
            continue
        if session.ready(gang) and not session.starving(gang) and any(waiting(gang)) and not session.invalid(gang):
            yield gang


def bound_to_domain(gang: Gang) -> bool:
    wishes = [gang.topology, *(policy.topology for policy in gang.sub_gang_policies)]
    return any(wish is not None and wish.mode is TopologyMode.HARD for wish in wishes)


def waiting(gang: Gang) -> Iterator[Member]:
    """Pending members that request resources and may evict others."""
    return (m for m in gang.members if m.status is Status.PENDING and not m.never_preempts and not m.best_effort)


def best_effort_waiting(gang: Gang) -> Iterator[Member]:
    """Pending members without requests, which may evict other members without requests."""
    return (m for m in gang.members if m.status is Status.PENDING and not m.never_preempts and m.best_effort)


#: Maximum victim gangs that one request tries to release at the end.
_SPARED = 8

#: Maximum leaves of the fabric to try for a gang that prefers one leaf, the most free capacity first.
_LEAVES = 8


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """A gang to place, and the rules for its victims."""

    gang: Gang
    members: Sequence[Member]
    legal: Legal
    may: Callable[[Member], bool] | None
    rightful: Callable[[Gang, Statement], bool] | None  #: whether the gang may evict all victims of the statement together
    giving: Giving | None
    gangs_last: bool = False  #: as in `Search`
    surplus: bool = False  #: for pods beyond the gang's minimum


class PreemptionRequests:
    """One action's requests on the same evictable pods. A gang equal to a failed one is skipped, because no request of the action frees resources for it."""

    def __init__(
        self,
        session: "Session",
        evictable: EvictablePods,
        *,
        reason: str,
        moves: int | None = None,
        resolve: bool = True,
        failed: set[object] | None = None,
    ) -> None:
        """moves, resolve: as in `Search`; failed: keys of gangs that failed earlier, in another session."""
        self._session = session
        self._evictable = evictable
        self._reason = reason
        self._moves = moves
        self._resolve = resolve
        self._failed: set[object] = set() if failed is None else failed

    def serve(
        self,
        gang: Gang,
        members: Sequence[Member],
        *,
        eligible: Bools,
        legal: Legal,
        may: Callable[[Member], bool] | None = None,
        rightful: Callable[[Gang, Statement], bool] | None = None,
        giving: Giving | None = None,
        surplus: bool = False,
    ) -> bool:
        """Nominate a gang's members in this order while the gang starves: all of its minimum or none. If earlier evictions already free enough, the members are
        nominated too, so that the next gang does not count on the same resources. Returns whether the gang evicts any pod.

        eligible: `[V]`, evictable members that the gang may evict; may: whether a member may evict others now; rightful: whether the gang may evict all
        victims of a statement together; giving: as in `Search`; surplus: the members are beyond the gang's minimum.
        """
        if may is not None:
            examples = {(id(member.task), member.preemptable): member for member in members}
            refused = {kind for kind, member in examples.items() if not may(member)}
            members = [member for member in members if (id(member.task), member.preemptable) not in refused]
        key = self._key(gang, members)
        if not members or key in self._failed or not (eligible & self._evictable.in_place).any():
            return False
        request = PreemptionRequest(gang, members, legal, may, rightful, giving, surplus=surplus)
        search, enough = self._search(request, eligible)
        if not enough and search.broke:  # a broken gang may end evictions in its queue: retry, gangs last
            search.discard()
            request = replace(request, gangs_last=True)
            search, enough = self._search(request, eligible)
        if not enough:
            search.discard()
            self._failed.add(key)
            return False
        if not search.evicts:
            search.statement.commit()
            return False
        if self._moves is None and len(members) > 1:  # for one member the search itself has done it
            search, eligible = self._spare(request, search, eligible)
            if self._session.topological and concerned(gang):
                search = self._in_one_leaf(request, search, eligible)
        search.statement.commit()
        return True

    def _in_one_leaf(self, request: "PreemptionRequest", search: Search, eligible: Bools) -> Search:
        """For a gang that prefers one leaf of the fabric: the same in one leaf, if that evicts no more than the search across leaves."""
        tree, columns, members = self._session.tree, self._session.columns, request.members
        leaves = tree.leaves()
        if len(set(leaves[[member.row for member in members if member.row >= 0]].tolist())) < 2:
            return search
        harm, needed = _harm(search), sum(member.row >= 0 for member in members)
        search.discard()
        free = Placing(self._session).capacity(members[0], columns.future())
        taken = np.bincount(self._evictable.rows[eligible & self._evictable.in_place], minlength=columns.size)[: columns.size]
        room = np.bincount(leaves, weights=np.minimum(free, needed) + taken)
        order = np.argsort(-np.bincount(leaves, weights=np.minimum(free, needed)), kind="stable")
        for leaf in order[room[order] >= needed][:_LEAVES].tolist():
            inside, enough = self._search(request, eligible, within=leaves == leaf)
            if enough and inside.evicts and _harm(inside).within(harm):
                return inside
            inside.discard()
        return self._search(request, eligible)[0]

    def _search(self, request: "PreemptionRequest", eligible: Bools, *, within: Bools | None = None) -> tuple[Search, bool]:
        """A search on a statement of its own, and whether the gang has what it needs. within: `[N]`, nodes that may be used; None = all."""
        session, gang = self._session, request.gang
        statement = session.statement()
        search = Search(
            session,
            statement,
            gang,
            self._evictable,
            eligible=eligible,
            legal=request.legal,
            reason=self._reason,
            giving=request.giving,
            moves=self._moves,
            resolve=self._resolve,
            within=within,
            gangs_last=request.gangs_last,
        )
        left, all_served = len(request.members), True
        for member in request.members:
            if not request.surplus and not session.starving(gang):
                break
            left -= 1
            served = (request.may is None or request.may(member)) and search.serve(member)
            all_served = all_served and served
            if not served and gang.ready + gang.waiting + left < gang.min_member:
                break
        if not search.evicts:
            return search, all_served
        rightful = request.rightful is None or request.rightful(gang, statement)
        return search, rightful and (session.ready(gang) or session.pipelined(gang))

    def _spare(self, request: "PreemptionRequest", search: Search, eligible: Bools) -> tuple[Search, Bools]:
        """A victim for an earlier member may be unnecessary, since a later member had a larger one evicted: try without it. The most important ones first."""
        tried: set[Gang] = set()
        for _ in range(_SPARED):
            spared = next((gang for gang in search.needless() if gang not in tried), None)
            if spared is None:
                break
            tried.add(spared)
            search.discard()
            without = eligible.copy()
            without[self._evictable.positions(spared)] = False
            again, enough = self._search(request, without)
            if enough and again.evicts:
                search, eligible = again, without
                continue
            again.discard()
            search, _ = self._search(request, eligible)
        return search, eligible

    def _key(self, gang: Gang, members: Iterable[Member]) -> object:
        kinds = Counter(
            (m.task, m.constraints, m.preemptable, tuple(sorted(m.labels.items())) if m.constraints.anti_affinity else ())
            for m in members
        )
        need = gang.min_member - gang.ready - gang.waiting
        return gang.queue, gang.namespace, gang.priority, need, frozenset(kinds.items())


@dataclass(frozen=True, slots=True)
class _Harm:
    """What a search takes."""

    members: int
    gangs: int  #: of which they are
    priorities: tuple[int, ...]  #: of their gangs, the highest first

    def within(self, other: "_Harm") -> bool:
        """Whether it is no more than the other in any respect."""
        return self.members <= other.members and self.gangs <= other.gangs and self.priorities <= other.priorities


def _harm(search: Search) -> _Harm:
    evicted = search.statement.evicted()
    priorities = sorted((member.gang.priority for member in evicted), reverse=True)
    return _Harm(len(evicted), len({id(member.gang) for member in evicted}), tuple(priorities))
