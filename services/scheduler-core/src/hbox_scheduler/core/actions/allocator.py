"""Room for equal members, and places taken in it."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints
from ..cluster.entities import Gang, Member, QueueInfo
from ..devices import pick, slices_of
from ..framework.placing import Placing
from ..framework.statement import Statement
from ..topology.spread import NodeCapacities

if TYPE_CHECKING:
    from ..framework.session import Session


class When(Enum):
    """Which places are examined, and how they are taken."""

    NOW = auto()  #: those that are free
    LATER = auto()  #: those that will be free; what is free now is taken, the rest promised
    NOMINATE = auto()  #: those that will be free; all are promised, since the gang has to wait for its victims as a whole


class Allocator:
    """On one session, on its columns as they are when asked."""

    def __init__(
        self, session: "Session", *, may: Callable[[QueueInfo, Member], bool] | None = None, later: bool = False
    ) -> None:
        """`may`: a further condition for placing a member in its queue, in addition to the queue's limits. `later`: as for `Placing`."""
        self._session = session
        self._placing = Placing(session, later=later)
        self._may = may

    def kinds(self, members: Iterable[Member]) -> list[list[Member]]:
        """Group members that all filters and scores treat alike, the largest kind first."""
        given = list(members)
        first = given[0]
        if all(member.task is first.task and member.preemptable is first.preemptable for member in given):
            return [given]
        found: dict[tuple[int, bool], list[Member]] = {}
        for member in given:
            found.setdefault((id(member.task), member.preemptable), []).append(member)
        return sorted(found.values(), key=lambda kind: -self.size(kind[0]))

    def size(self, member: Member) -> float:
        """Its largest share of what the cluster has of a resource."""
        total = self._session.total
        asked = np.flatnonzero(member.request[: len(total)])
        return float((member.request[asked] / np.maximum(total[asked], 1)).max()) if len(asked) else 0.0

    @staticmethod
    def entangled(members: Sequence[Member]) -> bool:
        """Whether placing one of them changes the allowed nodes of the next, apart from the bookings."""
        return any(
            m.task.ports or (m.constraints and (m.constraints.affinity or m.constraints.anti_affinity or m.constraints.spread))
            for m in members
        )

    def capacities(self, member: Member, gang: Gang, when: When) -> NodeCapacities:
        """Room for members like this one."""
        columns, placing = self._session.columns, self._placing
        counted = columns if when is When.NOW else columns.future()
        allowed = placing.allowed(member, counted)
        room = np.where(allowed, placing.capacity(member, counted), 0)
        taken = np.zeros(columns.size, dtype=np.bool_)
        taken[[one.row for one in gang.members if one.row >= 0]] = True
        return NodeCapacities(
            room=room,
            empty=np.where(allowed, placing.capacity(member, columns.vacant()), 0),
            taken=taken,
            weight=room,
            score=placing.scores(member, counted, room > 0),
        )

    def take(self, statement: Statement, members: list[Member], counts: Ints, when: When) -> bool:
        """Place equal members, `counts[N]` on each node: in their order, along the fabric, so that neighbours in rank are neighbours there.

        Returns False where a quota does not let one of them in.
        """
        tree, columns = self._session.tree, self._session.columns
        rows = np.flatnonzero(counts)
        rows = rows[np.lexsort((rows, tree.leaf_of[rows]))]
        wanted = counts[rows]
        if when is When.NOW:
            return self._take_batch(statement, members, (rows, wanted), columns)
        free = np.zeros(len(rows), dtype=np.int64)
        if when is When.LATER:
            free = np.minimum(self._placing.capacity(members[0], columns)[rows], wanted)
        ends = np.cumsum(wanted)
        first = [
            member
            for end, count, now in zip(ends, wanted, free, strict=True)
            for member in members[end - count : end - count + now]
        ]
        rest = [
            member for end, count, now in zip(ends, wanted, free, strict=True) for member in members[end - count + now : end]
        ]
        return self._take_batch(statement, first, (rows, free), columns) and self._take_batch(
            statement, rest, (rows, wanted - free), columns.future()
        )

    def _take_batch(self, statement: Statement, members: list[Member], places: tuple[Ints, Ints], columns: Columns) -> bool:
        """`places`: rows, and how many go to each. What `columns` show free only later is promised."""
        rows, counts = (one[places[1] > 0] for one in places)
        if not members:
            return True
        session, first = self._session, members[0]
        task = self._placing.task(first)
        batch = pick(columns, rows, counts, task, session.card_keys(first.task, columns, rows))
        slices = slices_of(columns, batch, first.task.cards.count if first.task.cards is not None else 0)
        queue = session.queues[first.gang.queue]
        if session.namespace_quotas and not session.namespace_quotas.pays(first.namespace, first.task.requests, slices):
            return False
        if session.models and not self._placing.admits(
            first.gang.queue, zip(rows.repeat(counts).tolist(), slices, strict=True)
        ):
            return False
        now = columns is session.columns
        if now and self._may is None:
            if session.room(queue, first, len(members)) < len(members):
                return False
            statement.allocate_all(members, batch, slices)
            return True
        for member, row, own in zip(members, rows.repeat(counts).tolist(), slices, strict=True):
            if not self._admits(queue, member):
                return False
            (statement.allocate if now else statement.pipeline)(member, row, own)
        return True

    def take_one_by_one(self, statement: Statement, members: list[Member], within: Sequence[Bools], when: When) -> bool:
        """Place each where the policy likes it best, by the rules as they are after the one before. `within`: `[N]` masks, tried in this order; one that
        had no place for a member is not tried again for those that are alike."""
        passed: dict[int, int] = {}
        for member in members:
            if not self._admits(self._session.queues[member.gang.queue], member):
                return False
            first = passed.get(id(member.task), 0)
            good = next((i for i in range(first, len(within)) if self._take_one(statement, member, within[i], when)), None)
            if good is None:
                return False
            passed[id(member.task)] = good
        return True

    def _take_one(self, statement: Statement, member: Member, within: Bools, when: When) -> bool:
        if when is When.NOMINATE:
            row = self._best_nominated(member, within)
            if row is not None:
                slices = self._placing.slices(member, row, self._session.columns.future())
                statement.pipeline(member, row, slices)
            return row is not None
        room = self._placing.find(member, within, future=when is When.LATER)
        if room is not None:
            take = statement.allocate if room.now else statement.pipeline
            take(member, room.row, room.slices)
        return room is not None

    def take_nominated(self, statement: Statement, members: Iterable[Member]) -> bool:
        """Each the place that was made free for it in an earlier cycle. False = not all have one, or not all are free now."""
        for member in members:
            row = self._session.row(member.nominated) if member.nominated is not None else None
            if row is None:
                return False
            here = np.zeros(self._session.columns.size, dtype=np.bool_)
            here[row] = True
            if not self.take_one_by_one(statement, [member], [here], When.NOW):
                return False
        return True

    def _admits(self, queue: QueueInfo, member: Member) -> bool:
        return self._session.allocatable(queue, member) and (self._may is None or self._may(queue, member))

    def _best_nominated(self, member: Member, within: Bools) -> int | None:
        future = self._session.columns.future()
        good = self._placing.allowed(member, future) & within & (self._placing.capacity(member, future) > 0)
        return self._placing.best(member, good, future) if good.any() else None
