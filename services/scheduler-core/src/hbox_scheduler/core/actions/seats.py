"""Room for equal members, and places taken in it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Bools, Ints
from ..devices.nvidia import pick, slices_of
from ..session.nouns import Gang, Member
from ..session.placing import Placing
from ..session.statement import Statement
from ..topology.spread import Ground

if TYPE_CHECKING:
    from ..session.session import Session


class Seats:
    """On one session, on its columns as they are when asked."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._placing = Placing(session)

    def kinds(self, members: Iterable[Member]) -> list[list[Member]]:
        """Members that every rule sees alike, the largest kind first."""
        found: dict[tuple[int, bool], list[Member]] = {}
        for member in members:
            found.setdefault((id(member.task), member.preemptable), []).append(member)
        return sorted(found.values(), key=lambda kind: -self.size(kind[0]))

    def size(self, member: Member) -> float:
        """Its largest share of what the cluster has of a resource."""
        total = self._session.total
        asked = np.flatnonzero(member.request[: len(total)])
        return float((member.request[asked] / np.maximum(total[asked], 1)).max()) if len(asked) else 0.0

    @staticmethod
    def entangled(members: Sequence[Member]) -> bool:
        """Whether where one of them goes changes where the next may go, beside what is booked."""
        return any(m.wishes.near or m.wishes.apart or m.wishes.spread or m.task.ports for m in members)

    def ground(self, member: Member, gang: Gang, *, later: bool) -> Ground:
        """Room for members like this one: now, or once all that leaves has left."""
        columns, placing = self._session.columns, self._placing
        books = columns.future() if later else columns
        allowed = placing.allowed(member, columns)
        room = np.where(allowed, placing.capacity(member, books), 0)
        taken = np.zeros(columns.size, dtype=np.bool_)
        taken[[one.row for one in gang.members if one.row >= 0]] = True
        return Ground(
            room=room,
            empty=np.where(allowed, placing.capacity(member, columns.vacant()), 0),
            taken=taken,
            weight=room,
            liking=placing.scores(member, books, room > 0),
        )

    def take(self, statement: Statement, members: list[Member], counts: Ints, *, later: bool) -> bool:
        """Place equal members, `counts[N]` on each node: in their order, along the fabric, so that neighbours in rank are neighbours there.

        Returns False where a quota does not let one of them in.
        """
        tree, columns = self._session.tree, self._session.columns
        rows = np.flatnonzero(counts)
        rows = rows[np.lexsort((rows, tree.leaf_of[rows]))]
        if later:
            return all(
                self._take_later(statement, member, row)
                for member, row in zip(members, rows.repeat(counts[rows]).tolist(), strict=True)
            )
        task = members[0].task
        slices = slices_of(columns, pick(columns, rows, counts[rows], task), task.cards.count if task.cards is not None else 0)
        queue = self._session.queues[members[0].gang.queue]
        for member, row, own in zip(members, rows.repeat(counts[rows]).tolist(), slices, strict=True):
            if not self._session.allocatable(queue, member):
                return False
            statement.allocate(member, row, own)
        return True

    def _take_later(self, statement: Statement, member: Member, row: int) -> bool:
        """Where it fits now it gets the place, else the promise of it."""
        here = np.zeros(self._session.columns.size, dtype=np.bool_)
        here[row] = True
        return self.take_one_by_one(statement, [member], here, later=True)

    def take_one_by_one(self, statement: Statement, members: list[Member], within: Bools, *, later: bool) -> bool:
        """Place each where the policy likes it best, by the rules as they are after the one before. `within`: `[N]`."""
        for member in members:
            if not self._session.allocatable(self._session.queues[member.gang.queue], member):
                return False
            room = self._placing.find(member, within, future=later)
            if room is None:
                return False
            if room.now:
                statement.allocate(member, room.row, room.slices)
            else:
                statement.pipeline(member, room.row, room.slices)
        return True
