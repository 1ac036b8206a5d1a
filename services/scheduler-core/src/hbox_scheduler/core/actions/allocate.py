"""allocate: queues take turns, each serves its first gang, a gang's turn ends when its minimum has places (reference volcano §3).

A turn is one statement: a gang that is ready afterwards is committed; one that is promised enough places keeps them for this session, so that nobody
else takes them, and commits nothing; any other leaves no trace. A member without a place does not hold up the queue: its gang goes on as long as
its minimum can still be met.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from hbox_common.model import GroupPhase

from ..arrays import Bools
from ..session.nouns import Gang, Member, SubGang
from ..session.placing import Likeness, Placing, Room, likeness_of
from ..session.statement import Statement
from ..session.turns import Turns
from ..topology.aims import concerned
from .domains import Domains
from .worksheet import Worksheet, worksheet_of

if TYPE_CHECKING:
    from ..session.session import Session


def candidates(session: "Session") -> Iterable[Gang]:
    """Gangs that allocate looks at, of those with members that wait. Where no enqueue action stands at the gate, those outside come in here."""
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
    sheets = {gang: sheet for gang in candidates(session) if (sheet := worksheet_of(session, gang)).left}
    turns = Turns(session, sheets)
    serving = Serving(session)
    while (queue := turns.next_queue()) is not None:
        if session.overused(queue):
            turns.drop(queue)
            continue
        gang = turns.of(queue)
        assert gang is not None
        if serving.turn(sheets[gang]) and sheets[gang].left:
            turns.put_back(gang)


class Serving:
    """Gangs' turns on one session."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._placing = Placing(session)
        self._vain: dict[Likeness, int] = {}  #: kinds of members without a place, and how many departures there had been

    @cached_property
    def _domains(self) -> Domains:
        return Domains(self._session)

    def turn(self, sheet: Worksheet) -> bool:
        """One turn of a gang. Returns whether it got anything, so that another turn makes sense."""
        session, gang = self._session, sheet.gang
        if concerned(gang) and session.topological:
            return self._domains.turn(sheet)
        statement = session.statement()
        for sub_gang in sorted(sheet.pending, key=session.sub_gang_key):
            self.fill(statement, sub_gang, sheet.pending[sub_gang])
            if session.ready(gang) and session.sub_gang_ready(sub_gang):
                break
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
            room = None if kind in failed else self._find(member, within)
            if room is None:
                failed.add(kind)
                if _hopeless(gang, member, members):
                    break
                continue
            if room.now:
                statement.allocate(member, room.row, room.slices)
            else:
                statement.pipeline(member, room.row, room.slices)
            if session.sub_gang_ready(sub_gang) and session.ready(gang):
                break

    def _find(self, member: Member, within: Bools | None) -> Room | None:
        """A place for it. None at once where one like it found none, and nobody has left since."""
        if within is not None or not self._session.settled(member):
            return self._placing.find(member, within)
        kind, departures = (*likeness_of(member), self._session.spaces.need(member)), len(self._session.departures)
        if self._vain.get(kind) == departures:
            return None
        room = self._placing.find(member)
        if room is None:
            self._vain[kind] = departures
        return room


def _hopeless(gang: Gang, failed: Member, left: list[Member]) -> bool:
    """Whether the gang cannot reach its minimum without the member that failed."""
    return failed.gang is gang and gang.ready + gang.waiting + len(left) < gang.min_member
