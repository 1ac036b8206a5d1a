"""shuffle: evict running members that the policy wants to move; their controllers create successors (sources: volcano-shuffle)."""

from typing import TYPE_CHECKING

from ..cluster.entities import Status

if TYPE_CHECKING:
    from ..framework.session import Session


def run(session: "Session") -> None:
    members = [member for gang in session.gangs for member in gang.of(Status.RUNNING)]
    statement = session.statement()
    for member in session.shuffled(members):
        statement.evict(member, preemptor=None, reason="Shuffled")
    statement.commit()
