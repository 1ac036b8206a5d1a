"""backfill: members that ask for nothing go wherever the filters let them (reference volcano §3)."""

from typing import TYPE_CHECKING

from ..session.nouns import GroupPhase, Status
from ..session.placing import Placing

if TYPE_CHECKING:
    from ..session.session import Session


def run(session: "Session") -> None:
    """In the orders of queues, gangs and members; bound where their gang is ready."""
    placing = Placing(session)
    gangs = [gang for gang in session.gangs if gang.queue in session.queues and gang.phase is not GroupPhase.PENDING]
    gangs.sort(key=lambda gang: (session.queue_key(session.queues[gang.queue]), session.gang_key(gang)))
    for gang in gangs:
        members = [member for member in gang.members if member.status is Status.PENDING and member.best_effort]
        if not members or session.invalid(gang):
            continue
        statement = session.statement()
        for member in sorted(members, key=session.member_key):
            room = placing.find(member, future=False)
            if room is not None:
                statement.allocate(member, room.row, room.slices)
        if session.ready(gang):
            statement.commit()
        else:
            statement.discard()
