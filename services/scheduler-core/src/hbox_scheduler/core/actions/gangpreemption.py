"""Eviction for a whole gang inside one domain, shared by gangpreempt and gangreclaim (sources: volcano-gangpreempt).

For each candidate domain the search groups the victims into bundles (`bundles`). It adds bundles in order until the sums of free resources suffice, then
evicts them in a statement and places the gang; if the gang does not fit, it adds more. Then it releases every unnecessary bundle. A broken gang is evicted
whole, including its members in other domains. The search chooses the domain with the fewest broken gangs, then the fewest victims, then the lowest tier.
It evicts nothing unless the whole gang is nominated.

Volcano tries the widest domains first and takes the first that works. This search minimises the harm among at most `maxDomains` domains, preferring those
where the least amount is missing. With `allowWholeBundle: false` it evicts surplus members only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import GroupPhase
from hbox_common.model.minruntime import protects
from hbox_common.model.rights import may_preempt, reclaimable

from ..cluster.arrays import Ints
from ..cluster.entities import EVICTABLE, Gang, Member, SubGang
from ..framework.statement import Statement
from ..plugins.arguments import Given
from ..preemption.preemptors import bound_to_domain
from ..preemption.protection import Protection
from .allocator import Allocator, When
from .bundles import Bundle, bundles_of, leaving, leaving_here, spared
from .domains import Domains
from .pending import needed, pending_members_of

if TYPE_CHECKING:
    from ..framework.session import Session

#: Maximum bundles that the search tries to release one by one.
_SPARED_SINGLY = 32

#: Maximum queries to the policy for legal victims; each excludes gangs that cannot be evicted whole.
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Offer:
    """A domain with its victims."""

    domain: int
    bundles: list[Bundle]
    harm: tuple[int, ...]  #: broken gangs and lost members, without offline work, then with it; last the tier


class Takes(Enum):
    """Victims of the action, in addition to offline work."""

    PREEMPT = auto()  #: lower priorities of the same queue
    RECLAIM = auto()  #: other queues
    OFFLINE = auto()  #: no others


class GangPreemption:
    """One action on one session."""

    def __init__(self, session: "Session", *, action: str, takes: Takes) -> None:
        """Raises InvalidRequest if an argument of the action is invalid."""
        arguments = Given(f"action {action}", session.arguments(action))
        self._most = arguments.integer("maxDomains", 8, least=1)
        self._breaking = arguments.switch("allowWholeBundle", True)
        arguments.done()
        self._session = session
        self._protected: list[Member] = []  #: candidates still protected by their minimum run time
        self._protection = Protection(session)
        self._takes, self._reclaim = takes, takes is not Takes.PREEMPT
        self._left_over = takes is Takes.OFFLINE or action.removeprefix("gang") in session.conf.actions
        self._reason = {Takes.PREEMPT: "Preempted", Takes.RECLAIM: "Reclaimed", Takes.OFFLINE: "Revoked"}[takes]
        self._domains = Domains(
            session, Allocator(session, may=session.preemptive if takes is Takes.RECLAIM else None, later=True)
        )

    def preemptors(self) -> list[Gang]:
        """If preempt or reclaim also run: only topology-bound gangs; else all."""
        session = self._session
        return [
            gang
            for gang in session.unplaced
            if gang.phase is not GroupPhase.PENDING
            and gang.queue in session.queues
            and not gang.offline
            and (not self._left_over or bound_to_domain(gang))
            and session.starving(gang)
            and not session.invalid(gang)
        ]

    def serve(self, gang: Gang) -> bool:
        """Evict victims so that the gang's minimum fits. Does nothing if the gang fits without evictions: allocate places it."""
        self._protected.clear()
        served = self._serve(gang)
        if self._protected and not served:
            legal = partial(self._session.evictable, gang, reclaim=self._reclaim)
            self._protection.note(gang, lambda: self._protected, legal)
        return served

    def _serve(self, gang: Gang) -> bool:
        session = self._session
        wanted = needed(session, pending_members_of(session, gang))
        members = [member for members in wanted.values() for member in members]
        if not members or any(member.never_preempts for member in members):
            return False
        legal = self._legal(gang)
        if not legal:
            return False
        offers: list[Offer] = []
        for domain in self._promising(gang, legal, _asked(wanted)):
            statement = session.statement()
            offer = self._offer(statement, gang, wanted, domain, legal)
            statement.discard()
            if offer is not None and not offer.bundles:
                return False
            if offer is not None:
                offers.append(offer)
        if not offers:
            return False
        best = min(offers, key=lambda offer: offer.harm)
        statement = session.statement()
        works = self._works(statement, gang, wanted, best.domain, best.bundles)
        if not works or (self._takes is Takes.RECLAIM and not session.rightful(gang, statement)):
            statement.discard()
            return False
        statement.commit()
        return True

    def _candidates(self, gang: Gang) -> list[Member]:
        """Victims that the action admits, in the order of eviction. Records those under minimum run time in `_protected`."""
        session = self._session
        found: list[Member] = []
        for other in session.gangs:
            if other is gang or not (other.preemptable or other.offline):
                continue
            queue = session.queues.get(other.queue)
            if other.offline:
                fair = True
            elif self._takes is Takes.OFFLINE:
                fair = False
            elif self._reclaim:
                fair = reclaimable(queue, preemptable=other.preemptable) and other.queue != gang.queue
            else:
                fair = other.queue == gang.queue and may_preempt(gang.priority, other.priority)
            if not fair:
                continue
            for member in other.members:
                if member.status in EVICTABLE and member.row >= 0 and (other.offline or member.preemptable):
                    kept = not other.offline and protects(member.protected_until, session.now)
                    (self._protected if kept else found).append(member)
        return session.victims_first(found, preemptor=gang)

    def _legal(self, gang: Gang) -> list[Member]:
        """The candidates that the policy allows to be evicted together: whole gangs or their surplus. Other members of a gang that must stay are excluded
        and queried again, so that they do not use up the policy's limits for later candidates."""
        candidates = self._candidates(gang)
        legal: list[Member] = []
        for _ in range(_ROUNDS):
            legal = self._session.evictable(gang, candidates, reclaim=self._reclaim) if candidates else []
            by_gang: dict[Gang, list[Member]] = {}
            for member in legal:
                by_gang.setdefault(member.gang, []).append(member)
            kept = {
                id(member)
                for other, members in by_gang.items()
                for member in (members if len(members) == other.holding else spared(other, members))
            }
            if len(kept) == len(legal):
                break
            candidates = [member for member in candidates if id(member) in kept or member.gang not in by_gang]
        return legal

    def _promising(self, gang: Gang, legal: Sequence[Member], need: Ints) -> list[int]:
        """Domains where the sums of free and evictable amounts suffice, the least missing amount first."""
        session, tree = self._session, self._session.tree
        columns = session.columns
        gradients = session.gradients(None, gang, evict=True) if session.topological else [[tree.names[tree.root]]]
        domains = np.array([tree.index[name] for group in gradients for name in group], dtype=np.int64)
        lacking = np.zeros(len(domains), dtype=np.float64)
        good = np.ones(len(domains), dtype=np.bool_)
        freed = np.zeros((len(need), tree.rows), dtype=np.int64)
        for member in legal:
            freed[: len(member.request), member.row] += member.request
        for column in np.flatnonzero(need > 0).tolist():
            free = (columns.allocatable[column] - columns.used[column] + columns.leaving[column])[: tree.rows]
            idle = tree.sums(np.maximum(free, 0))[domains]
            good &= idle + tree.sums(freed[column])[domains] >= need[column]
            lacking = np.maximum(lacking, (need[column] - idle) / need[column])
        order = np.lexsort((domains, tree.tiers[domains], lacking))
        chosen: list[int] = domains[order[good[order]]].tolist()
        return chosen[: self._most]

    def _offer(
        self, statement: Statement, gang: Gang, wanted: dict[SubGang, list[Member]], domain: int, legal: Sequence[Member]
    ) -> Offer | None:
        """The smallest set of victims for this domain; no bundles = the gang fits without evictions; None = it does not fit. Leaves the statement unchanged."""
        tree = self._session.tree
        need = _asked(wanted)
        inside = tree.mask(domain)
        bundles = bundles_of(self._session, legal, inside, preemptor=gang, need=need, breaking=self._breaking)
        bundles = self._allowed(gang, bundles)

        def rows(some: Sequence[Bundle]) -> set[int] | None:
            """The gang's rows after evicting these bundles; None = it does not fit."""
            good = self._works(statement, gang, wanted, domain, some)
            found = {member.row for members in wanted.values() for member in members} if good else None
            statement.rollback()
            return found

        if rows([]) is not None:
            return Offer(domain, [], ())
        count = self._first(bundles, need, domain)
        while (used := rows(bundles[:count])) is None:
            if count >= len(bundles):
                return None
            count = min(2 * count, len(bundles))
        short = need - self._free(domain)[: len(need)]
        chosen = _needed(bundles[:count], used, lambda some: rows(some) is not None, need=need, short=short)
        lost = [bundle for bundle in chosen if not bundle.members[0].task.offline]
        harm = tuple(number for some in (lost, chosen) for number in (sum(one.breaks for one in some), len(leaving(some))))
        return Offer(domain, chosen, (*harm, int(tree.tiers[domain])))

    def _allowed(self, gang: Gang, bundles: Sequence[Bundle]) -> list[Bundle]:
        """The bundles whose members may all be evicted, in this order."""
        session = self._session
        ordered = leaving(bundles)
        fair = set(map(id, session.evictable(gang, ordered, reclaim=self._reclaim))) if ordered else set()
        return [bundle for bundle in bundles if all(id(member) in fair for member in bundle.members)]

    def _first(self, bundles: Sequence[Bundle], need: Ints, domain: int) -> int:
        """Number of first bundles that free enough by the sums; at least one."""
        short = need - self._free(domain)[: len(need)]
        gone: set[int] = set()
        for count, bundle in enumerate(bundles, start=1):
            for member in bundle.here:
                if id(member) not in gone:
                    gone.add(id(member))
                    short[: len(member.request)] -= member.request
            if (short <= 0).all():
                return count
        return max(len(bundles), 1)

    def _free(self, domain: int) -> Ints:
        """`[R]`: sum of the free amounts in a domain after all terminating pods are gone."""
        columns, rows = self._session.columns, self._session.tree.nodes(domain)
        free = columns.allocatable[:, rows] - columns.used[:, rows] + columns.leaving[:, rows]
        return np.asarray(np.maximum(free, 0).sum(axis=1))

    def _works(
        self, statement: Statement, gang: Gang, wanted: dict[SubGang, list[Member]], domain: int, bundles: Sequence[Bundle]
    ) -> bool:
        """Evict the bundles and place the gang, in the statement. Returns whether the gang fits."""
        if bundles:
            statement.evict_all(leaving(bundles), preemptor=gang, reason=self._reason)
        return self._domains.place_in(statement, gang, wanted, domain, When.NOMINATE)


def _needed(
    bundles: Sequence[Bundle],
    used: set[int],
    works: Callable[[Sequence[Bundle]], bool],
    *,
    need: Ints,
    short: Ints,
) -> list[Bundle]:
    """The bundles without unnecessary ones. Releases all bundles on nodes that the gang does not use (it uses `used`) at once, then single bundles, the most
    important first, if the sums still suffice. `short` `[R]`: amounts missing in the domain without evictions."""
    chosen = [bundle for bundle in bundles if any(member.row in used for member in bundle.here)]
    if len(chosen) == len(bundles) or not works(chosen):
        chosen = list(bundles)
    tried = 0
    for bundle in reversed(list(chosen)):
        rest = [one for one in chosen if one is not bundle]
        if tried == _SPARED_SINGLY or (_freed(rest, need) < short)[need > 0].any():
            continue
        tried += 1
        if works(rest):
            chosen = rest
    return chosen


def _freed(bundles: Sequence[Bundle], need: Ints) -> Ints:
    """`[R]`, as long as `need`: amounts that the bundles free in the domain."""
    total = np.zeros(len(need), dtype=np.int64)
    for member in leaving_here(bundles):
        total += member.request[: len(need)]
    return total


def _asked(wanted: dict[SubGang, list[Member]]) -> Ints:
    """`[R]`: sum of the members' requests."""
    return np.asarray(np.sum([member.request for members in wanted.values() for member in members], axis=0))
