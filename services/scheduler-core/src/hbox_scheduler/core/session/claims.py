"""Gangs that may take from others, one after the other: what preempt and reclaim have in common beyond the search itself."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ..arrays import Bools
from .nouns import Gang, GroupPhase, Member, Status, TopologyMode
from .pool import Pool
from .statement import Kind
from .victims import Legal, Search

if TYPE_CHECKING:
    from .session import Session


def claimants(session: "Session") -> Iterator[Gang]:
    """Gangs past the gate that starve and are valid. Those bound to a topology domain are left to gangpreempt and gangreclaim, which look at whole
    domains."""
    for gang in session.unplaced:
        if gang.phase is GroupPhase.PENDING or gang.queue not in session.queues:
            continue
        if bound_to_domain(gang) or not any(waiting(gang)):
            continue
        if session.starving(gang) and not session.invalid(gang):
            yield gang


def bound_to_domain(gang: Gang) -> bool:
    wishes = [gang.topology, *(policy.topology for policy in gang.sub_gang_policies)]
    return any(wish is not None and wish.mode is TopologyMode.HARD for wish in wishes)


def waiting(gang: Gang) -> Iterator[Member]:
    """Members that wait for a place and may take one from others."""
    return (m for m in gang.members if m.status is Status.PENDING and not m.never_preempts and not m.best_effort)


class Claims:
    """One action's claims on one pool. A gang that is equal to one that got nothing is not searched for again: no claim of the action can have made
    it easier."""

    def __init__(self, session: "Session", pool: Pool, *, reason: str, moves: int | None = None) -> None:
        """moves: whoever leaves is to get another place, at most so many for one gang (`Search`)."""
        self._session = session
        self._pool = pool
        self._reason = reason
        self._moves = moves
        self._hopeless: set[object] = set()

    def serve(
        self,
        gang: Gang,
        members: Iterable[Member],
        *,
        eligible: Bools,
        legal: Legal,
        may: Callable[[Member], bool] | None = None,
    ) -> bool:
        """Places for a gang's members, in this order, as long as it starves; all that it needs to run, or nothing at all. Also nothing where nobody
        has to leave: that is allocate's business.

        eligible: `[V]`, whom of the pool it may take from; may: whether a member may take from others at all, as things stand.
        """
        session = self._session
        members = list(members)
        key = self._key(gang, members)
        if key in self._hopeless or not members:
            return False
        statement = session.statement()
        search = Search(
            session, statement, gang, self._pool, eligible=eligible, legal=legal, reason=self._reason, moves=self._moves
        )
        left, served_all = len(members), True
        for member in members:
            if not session.starving(gang):
                break
            left -= 1
            served = (may is None or may(member)) and search.serve(member)
            served_all = served_all and served
            if not served and gang.ready + gang.waiting + left < gang.min_member:
                break
        evicts = any(done.kind is Kind.EVICT for done in statement.operations)
        if evicts and (session.ready(gang) or session.pipelined(gang)):
            statement.commit()
            return True
        search.discard()
        if evicts or not served_all:
            self._hopeless.add(key)
        return False

    def _key(self, gang: Gang, members: Iterable[Member]) -> object:
        kinds = Counter(
            (id(m.task), m.wishes, m.preemptable, tuple(sorted(m.labels.items())) if m.wishes.apart else ()) for m in members
        )
        need = gang.min_member - gang.ready - gang.waiting
        return gang.queue, gang.namespace, gang.priority, need, frozenset(kinds.items())
