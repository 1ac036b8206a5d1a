"""backfill: members that ask for nothing go wherever the filters let them (sources: volcano-backfill)."""

from typing import TYPE_CHECKING

from hbox_common.model import GroupPhase

from ..cluster.entities import Status
from ..framework.placing import Placing

if TYPE_CHECKING:
    from ..framework.session import Session


def run(session: "Session") -> None:
    """In the orders of queues, gangs and members; bound where their gang is ready."""
    placing = Placing(session)
    waiting = {
        gang: members
        for gang in session.unplaced
        if gang.count(Status.PENDING) and gang.queue in session.queues and gang.phase is not GroupPhase.PENDING
        if (members := [member for member in gang.of(Status.PENDING) if member.best_effort])
    }
    for gang in sorted(waiting, key=lambda gang: (session.queue_key(session.queues[gang.queue]), session.gang_key(gang))):
        if session.invalid(gang):
            continue
        statement = session.statement()
        for member in sorted(waiting[gang], key=session.member_key):
            room = placing.find(member, future=False)
            if room is not None:
                statement.allocate(member, room.row, room.slices)
        if session.ready(gang) and (not gang.whole or gang.served >= gang.min_member):
            statement.commit()
        else:
            statement.discard()
