"""allocate: queues take turns, each serves its first gang, and a gang's turn ends when its minimum is placed (sources: volcano-allocate).

A turn is one statement. If the gang is ready afterwards, the statement is committed. If enough members are nominated, the gang keeps the nominated resources
for this session, so that no other gang takes them, and commits nothing. Otherwise the statement is discarded. A member that does not fit does not block the
queue: the turn continues while the gang can still reach its minimum.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import GroupPhase

from ..cluster.arrays import Bools
from ..cluster.entities import Gang, Member, QueueInfo, Status, SubGang
from ..explain.labels import BY_PLACES_OF_OTHERS
from ..framework.placing import FilterKey, NodePlacement, Placing, filter_key_of
from ..framework.statement import OperationKind, Statement
from ..framework.turns import ServiceOrder
from ..topology.constraints import concerned
from .batches import Batches, Run
from .domains import Domains
from .pending import PendingMembers, pending_members_of

if TYPE_CHECKING:
    from ..framework.session import Session

#: Maximum domains to try for a gang with affinity to itself, after the attempt that its first member's best node determines.
_AFFINITY_DOMAINS = 8


def candidates(session: "Session") -> Iterable[Gang]:
    """Gangs with pending members that allocate serves. If the policy has no enqueue action, pending PodGroups are admitted here."""
    if "enqueue" not in session.conf.actions:
        for gang in session.fresh:
            if gang.phase is GroupPhase.PENDING:
                gang.phase = GroupPhase.INQUEUE
    for gang in session.unplaced:
        if gang.phase is GroupPhase.PENDING:
            continue
        if why := session.invalid(gang):
            session.outcome.verdicts[gang.id] = why
        else:
            yield gang


def run(session: "Session") -> None:
    waiting = {gang: pending for gang in candidates(session) if (pending := pending_members_of(session, gang)).left}
    turns = ServiceOrder(session, waiting, session.cluster.outside)
    serving = Serving(session)
    most, failures = session.cluster.most, 0
    while (most is None or serving.bound < most) and (queue := turns.next_queue()) is not None:
        if not turns.at_last and session.overused(queue):
            turns.drop(queue)
            continue
        gang = turns.of(queue)
        if gang is None:  # the next gang is not part of this session
            break
        if not serving.turn(waiting[gang]):
            failures += session.cluster.failure_cost(gang)
            if session.cluster.most_failures is not None and failures >= session.cluster.most_failures:
                break
        elif waiting[gang].left:
            turns.put_back(gang)
    serving.end()
    session.outcome.untried = turns.left()


class Serving:
    """Gangs' turns on one session."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._placing = Placing(session)
        self._batches = Batches(session)
        self._run = Run(session, self._batches)
        self._failed: dict[FilterKey, int] = {}  #: kinds of members that did not fit -> number of departures at that time

    @cached_property
    def _domains(self) -> Domains:
        return Domains(self._session)

    def turn(self, pending: PendingMembers) -> bool:
        """One turn of a gang. Returns whether it placed any member, so that another turn is useful."""
        session, gang = self._session, pending.gang
        if concerned(gang) and session.topological:
            self._run.end()
            return self._in_the_fabric(pending)
        if (member := self._next_lone(pending)) is not None and self._run.take(member):
            next(iter(pending.by_sub_gang.values())).pop(0)
            return True
        self._run.end()
        untried = {sub_gang: list(members) for sub_gang, members in pending.by_sub_gang.items()}
        statement = session.statement()
        for sub_gang in sorted(pending.by_sub_gang, key=session.sub_gang_key):
            self.fill(statement, sub_gang, pending.by_sub_gang[sub_gang])
            if session.ready(gang) and session.sub_gang_ready(sub_gang):
                break
        if not session.ready(gang):
            self._note_fitting(statement, gang)
        if not statement.operations:
            return False
        if session.ready(gang):
            statement.commit()
            return True
        if not session.pipelined(gang):
            statement.discard()
            return self._in_one_domain(pending, untried)
        return True

    def _in_the_fabric(self, pending: PendingMembers) -> bool:
        """One turn of a gang with topology constraints: in a single pool if possible, else across pools."""
        pools, members = self._session.pools, [member for some in pending.by_sub_gang.values() for member in some]
        choices = pools.choices(members[0]) if pools and members else ()
        for pool in choices:
            with pools.tried(members, pool):
                if self._domains.turn(pending):
                    return True
        return len(choices) != 1 and self._domains.turn(pending)

    def end(self) -> None:
        """Finish the batch in progress after the last turn."""
        self._run.end()

    @property
    def bound(self) -> int:
        """Number of members placed."""
        return len(self._session.outcome.bindings) + len(self._run)

    def _next_lone(self, pending: PendingMembers) -> Member | None:
        """The gang's next member, if it may start alone and is placed by its shape only; else None."""
        gang = pending.gang
        if gang.min_member - gang.ready > 1 or gang.min_task_member or gang.sub_gang_policies:
            return None
        member = next(iter(pending.by_sub_gang.values()))[0]
        return member if self._batches.concerns(member) and not self._batches.bounded(member) else None

    def _note_fitting(self, statement: Statement, gang: Gang) -> None:
        """Record how many members were placed, and by which rules their places exclude all others, apart from their resources."""
        outcome = self._session.outcome
        outcome.fitting[gang.id] = sum(
            len(done.members) for done in statement.operations if done.kind is OperationKind.ALLOCATE
        )
        if outcome.fitting[gang.id] and (left := next((one for one in gang.of(Status.PENDING) if not one.best_effort), None)):
            counts = self._placing.reasons(left).counts
            if apart := [str(label) for label in BY_PLACES_OF_OTHERS if label in counts]:
                outcome.apart[gang.id] = apart

    def _in_one_domain(self, pending: PendingMembers, untried: Mapping[SubGang, list[Member]]) -> bool:
        """Retry a gang with affinity to itself, since the first member's node fixed the domain of all others. Tries the domains of the affinity's topology key
        with enough capacity for the gang's minimum, the smallest capacity first."""
        session, gang = self._session, pending.gang
        for domain in self._domains_of_affinity(gang, next(iter(untried.values()))[0]):
            statement, left = session.statement(), {sub_gang: list(members) for sub_gang, members in untried.items()}
            for sub_gang in sorted(left, key=session.sub_gang_key):
                self.fill(statement, sub_gang, left[sub_gang], domain)
                if session.ready(gang) and session.sub_gang_ready(sub_gang):
                    break
            if session.ready(gang):
                pending.by_sub_gang.update(left)
                statement.commit()
                return True
            statement.discard()
        return False

    def _domains_of_affinity(self, gang: Gang, member: Member) -> Iterator[Bools]:
        """Masks `[N]` of the domains; none for a member without affinity to its own gang."""
        session, columns, terms = self._session, self._session.columns, member.constraints.affinity
        if not terms or not session.population.matches(terms, member.namespace, member):
            return
        codes = columns.descriptions.column(terms[0].topology_key).codes[: columns.size]
        room = np.where(self._placing.allowed(member, columns), self._placing.capacity(member, columns), 0)
        by_domain = np.bincount(codes, weights=room)
        by_domain[0] = 0  # nodes without the label
        fitting = np.flatnonzero(by_domain >= max(gang.min_member - gang.ready, 1))
        for code in fitting[np.argsort(by_domain[fitting], kind="stable")][:_AFFINITY_DOMAINS].tolist():
            yield codes == code

    def fill(self, statement: Statement, sub_gang: SubGang, members: list[Member], within: Bools | None = None) -> None:
        """Place members in order until the sub-gang is ready; removes tried members from `members`. `within`: `[N]`, rows that may be used."""
        session = self._session
        gang = sub_gang.gang
        queue = session.queues[gang.queue]
        failed: set[tuple[str, int]] = set()
        alike = within is None and not gang.sub_gang_policies and not gang.min_task_member
        while members:
            if alike and (members[0].role, id(members[0].task)) not in failed and self._fill_alike(statement, gang, members):
                if session.ready(gang):
                    break
                continue
            member = members.pop(0)
            kind = (member.role, id(member.task))
            found, withheld = self._seek(queue, member, within, known=kind in failed)
            if withheld:
                continue
            if found is None:
                failed.add(kind)
                if _hopeless(gang, member, members):
                    break
                continue
            if found.now:
                statement.allocate(member, found.row, found.slices)
            else:
                statement.pipeline(member, found.row, found.slices)
            if session.sub_gang_ready(sub_gang) and session.ready(gang):
                break

    def _fill_alike(self, statement: Statement, gang: Gang, members: list[Member]) -> int:
        """Place the first equal members that the gang needs in one batch. Returns how many were placed and removes these from `members`."""
        first, need = members[0], max(gang.min_member - gang.ready, 1)
        if need == 1 or not self._batches.concerns(first):
            return 0
        count = next((i for i, one in enumerate(members[:need]) if one.task is not first.task), min(need, len(members)))
        placed = self._batches.place(statement, members[:count])
        del members[:placed]
        return placed

    def _seek(
        self, queue: QueueInfo, member: Member, within: Bools | None, *, known: bool
    ) -> tuple[NodePlacement | None, bool]:
        """A placement in the first pool where the member fits; and whether the queue's limits prevented the search in every pool. known: the member is known
        not to fit, so only the limits are checked."""
        session, withheld = self._session, True
        choices = session.pools.choices(member) if session.pools else ()
        for pool in choices:
            with session.pools.tried((member,), pool):
                if session.allocatable(queue, member):
                    withheld = False
                    if not known and (found := self._find(member, within)) is not None:
                        return found, False
        if choices:
            return None, withheld
        if not session.allocatable(queue, member):
            return None, True
        return None if known else self._find(member, within), False

    def _find(self, member: Member, within: Bools | None) -> NodePlacement | None:
        """A placement for the member. Returns None without a search if an equal member did not fit and no pod was displaced since."""
        if within is not None or not self._session.settled(member):
            return self._placing.find(member, within)
        kind, departures = (
            (*filter_key_of(member), id(self._session.task(member)), self._session.namespace_quotas.need(member), member.pool),
            len(self._session.departures),
        )
        if self._failed.get(kind) == departures:
            return None
        found = self._placing.find(member)
        if found is None:
            self._failed[kind] = departures
        return found


def _hopeless(gang: Gang, failed: Member, left: list[Member]) -> bool:
    """Whether the gang cannot reach its minimum without the member that failed."""
    return failed.gang is gang and gang.ready + gang.waiting + len(left) < gang.min_member
