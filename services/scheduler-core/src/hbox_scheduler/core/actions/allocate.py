"""allocate: queues take turns, each serves its first gang, a gang's turn ends when its minimum has places (reference volcano §3).

A turn is one statement: a gang that is ready afterwards is committed; one that is promised enough places keeps them for this session, so that nobody
else takes them, and commits nothing; any other leaves no trace. A member without a place does not hold up the queue: its gang goes on as long as
its minimum can still be met.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from hbox_common.model import GroupPhase

from ..cluster.arrays import Bools
from ..cluster.entities import Gang, Member, SubGang
from ..framework.placing import FilterKey, NodePlacement, Placing, filter_key_of
from ..framework.statement import OperationKind, Statement
from ..framework.turns import ServiceOrder
from ..topology.constraints import concerned
from .domains import Domains
from .pending import PendingMembers, pending_members_of

if TYPE_CHECKING:
    from ..framework.session import Session


def candidates(session: "Session") -> Iterable[Gang]:
    """Gangs that allocate looks at, of those with members that wait. Where no enqueue action admits PodGroups, those that wait are admitted here."""
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
    turns = ServiceOrder(session, waiting)
    serving = Serving(session)
    while (queue := turns.next_queue()) is not None:
        if session.overused(queue):
            turns.drop(queue)
            continue
        gang = turns.of(queue)
        assert gang is not None
        if serving.turn(waiting[gang]) and waiting[gang].left:
            turns.put_back(gang)


class Serving:
    """Gangs' turns on one session."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._placing = Placing(session)
        self._failed: dict[FilterKey, int] = {}  #: kinds of members without a place, and how many departures there had been

    @cached_property
    def _domains(self) -> Domains:
        return Domains(self._session)

    def turn(self, pending: PendingMembers) -> bool:
        """One turn of a gang. Returns whether it got anything, so that another turn makes sense."""
        session, gang = self._session, pending.gang
        if concerned(gang) and session.topological:
            return self._domains.turn(pending)
        statement = session.statement()
        for sub_gang in sorted(pending.by_sub_gang, key=session.sub_gang_key):
            self.fill(statement, sub_gang, pending.by_sub_gang[sub_gang])
            if session.ready(gang) and session.sub_gang_ready(sub_gang):
                break
        if not session.ready(gang):
            session.outcome.fitting[gang.id] = sum(done.kind is OperationKind.ALLOCATE for done in statement.operations)
        if not statement.operations:
            return False
        if session.ready(gang):
            statement.commit()
            return True
        if not session.pipelined(gang):
            statement.discard()
            return False
        return True

    def fill(self, statement: Statement, sub_gang: SubGang, members: list[Member], within: Bools | None = None) -> None:
        """Place members in their order until the sub-gang is ready; those tried leave `members`. `within`: `[N]`, rows that may be used."""
        session = self._session
        gang = sub_gang.gang
        queue = session.queues[gang.queue]
        failed: set[tuple[str, int]] = set()
        while members:
            member = members.pop(0)
            if not session.allocatable(queue, member):
                continue
            kind = (member.role, id(member.task))
            found = None if kind in failed else self._find(member, within)
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

    def _find(self, member: Member, within: Bools | None) -> NodePlacement | None:
        """A place for it. None at once where one like it found none, and nobody has left since."""
        if within is not None or not self._session.settled(member):
            return self._placing.find(member, within)
        kind, departures = (*filter_key_of(member), self._session.namespace_quotas.need(member)), len(self._session.departures)
        if self._failed.get(kind) == departures:
            return None
        found = self._placing.find(member)
        if found is None:
            self._failed[kind] = departures
        return found


def _hopeless(gang: Gang, failed: Member, left: list[Member]) -> bool:
    """Whether the gang cannot reach its minimum without the member that failed."""
    return failed.gang is gang and gang.ready + gang.waiting + len(left) < gang.min_member
