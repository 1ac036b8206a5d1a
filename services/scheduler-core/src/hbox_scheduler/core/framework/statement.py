"""The journal of one decision: whole outcomes are committed, everything else leaves no trace.

Each operation changes the columns, the member and the plugins' sums at once; `discard` takes the operations back, newest first, and every cell is what
it was before. What Volcano's statement gets wrong when it replays a dry run (#5362, #5684) cannot happen here: a dry run is a statement that
is rolled back, and the chosen outcome is made anew by the same operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from hbox_common.model import CardSlice, counts_in

from ..cluster import Batch, Columns
from ..cluster.amounts import Asked
from ..cluster.entities import Gang, Member, Status

if TYPE_CHECKING:
    from .session import Session


class OperationKind(Enum):
    EVICT = auto()
    PIPELINE = auto()
    ALLOCATE = auto()


@dataclass(slots=True)  # not frozen: those take three times as long to make, and large gangs make thousands
class Operation:
    """What was done to a member, or to `alike` ones at once, and what it was before. Not changed after it was made."""

    kind: OperationKind
    member: Member
    status: Status
    row: int
    slices: tuple[CardSlice, ...]
    preemptor: Gang | None = None  #: of an eviction: for whom
    reason: str = ""
    models: Asked = ()
    pool: str = ""
    alike: Sequence[Member] = ()  #: the first is `member`

    @property
    def members(self) -> Sequence[Member]:
        return self.alike or (self.member,)


def _whole(slices: Sequence[CardSlice]) -> tuple[CardSlice, ...]:
    """As a tuple; one that knows more than its items (`devices.PodSlices`) stays what it is."""
    return slices if isinstance(slices, tuple) else tuple(slices)


def depart(columns: Columns, member: Member, times: int = 1) -> None:
    """The member will leave its place (`times=1`), or does not after all, or is promised one that others leave (-1)."""
    columns.depart(member.row, member.task.requests, member.slices, times, aligned=member.task.aligned, pod=member.id)


class Statement:
    """Operations on one session. Not to be used after `commit` or `discard`."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.operations: list[Operation] = []

    def __len__(self) -> int:
        return len(self.operations)

    def allocate(self, member: Member, row: int, slices: Sequence[CardSlice] = ()) -> None:
        """Give a pending member a place that is free now."""
        self._note(OperationKind.ALLOCATE, member)
        member.row, member.slices = row, _whole(slices)
        self._turn(member, Status.ALLOCATED)
        self._session.columns.book(row, member.task.requests, member.slices, aligned=member.task.aligned)
        self._session.namespace_quotas.book((member,))
        self._count_models(member)
        self._session.placed(member, row)

    def allocate_all(self, members: Sequence[Member], batch: Batch, slices: Sequence[tuple[CardSlice, ...]]) -> None:
        """As `allocate`, for equal pending members of one gang, along the batch, which is booked at once."""
        session = self._session
        session.columns.apply(batch)
        rows: list[int] = batch.rows.repeat(batch.counts).tolist()
        first, allocated = members[0], Status.ALLOCATED
        self.operations.append(Operation(OperationKind.ALLOCATE, first, first.status, first.row, first.slices, alike=members))
        for member, row, own in zip(members, rows, slices, strict=True):
            member.status, member.row, member.slices = allocated, row, own
        members[0].gang.moved_alike(members, Status.PENDING)
        session.namespace_quotas.book(members)
        for member in members if session.models or session.pools else ():
            self._count_models(member)
        session.placed_all(members)

    def pipeline(self, member: Member, row: int, slices: Sequence[CardSlice] = ()) -> None:
        """Promise a pending member a place that will be free once all that leaves has left."""
        self._note(OperationKind.PIPELINE, member)
        self._session.promises += 1
        member.row, member.slices = row, _whole(slices)
        self._turn(member, Status.PIPELINED)
        depart(self._session.columns, member, -1)
        self._session.namespace_quotas.book((member,))
        self._count_models(member)
        self._session.placed(member, row)

    def evict(self, member: Member, *, preemptor: Gang | None, reason: str) -> None:
        """Have a member that holds a place leave it."""
        self._note(OperationKind.EVICT, member, preemptor, reason)
        self._turn(member, Status.RELEASING)
        if member.row >= 0:
            depart(self._session.columns, member)
        if self._session.models:
            self._session.models.evicted(member)
        self._session.displaced(member, member.row)

    def evict_all(self, members: Sequence[Member], *, preemptor: Gang | None, reason: str) -> None:
        """As `evict`, one after the other; those that are alike and on one node at once."""
        if len(members) == 1:
            self.evict(members[0], preemptor=preemptor, reason=reason)
            return
        alike: dict[tuple[int, int], list[Member]] = {}
        note, releasing = self.operations.append, Status.RELEASING
        for member in members:
            before, row = member.status, member.row
            note(Operation(OperationKind.EVICT, member, before, row, member.slices, preemptor, reason))
            member.status = releasing
            member.gang.moved(member, before)
            if row >= 0:
                alike.setdefault((row, id(member.task)), []).append(member)
        for (row, _), group in alike.items():
            task = group[0].task
            slices = [one for member in group for one in member.slices]
            pods = [member.id for member in group] if self._session.columns.zones else ()
            self._session.columns.depart_alike(
                row, task.amount, task.ports, len(group), slices, aligned=task.aligned, pods=pods
            )
        for member in members if self._session.models else ():
            self._session.models.evicted(member)
        self._session.displaced_all(members)

    def _note(self, kind: OperationKind, member: Member, preemptor: Gang | None = None, reason: str = "") -> None:
        models = member.models if kind is OperationKind.EVICT or member.status is not Status.PENDING else ()
        self.operations.append(
            Operation(kind, member, member.status, member.row, member.slices, preemptor, reason, models, member.pool)
        )

    def _count_models(self, member: Member) -> None:
        """It has its cards now, in their pool."""
        if self._session.pools:
            member.pool = counts_in(self._session.pools.of(member.row), offline=member.task.offline)
        models = self._session.models
        if models:
            member.models = models.of(member.row, member.slices)
            models.book(member)

    @staticmethod
    def _turn(member: Member, status: Status) -> None:
        before, member.status = member.status, status
        member.gang.moved(member, before)

    def evicted(self) -> list[Member]:
        """Whom it has leave."""
        return [done.member for done in self.operations if done.kind is OperationKind.EVICT]

    def mark(self) -> int:
        """A point to which `rollback` can return."""
        return len(self.operations)

    def rollback(self, mark: int = 0) -> None:
        """Take back all operations after the mark, newest first."""
        while len(self.operations) > mark:
            done = self.operations.pop()
            for member in reversed(done.members):
                self._take_back(done, member)

    def _take_back(self, done: Operation, member: Member) -> None:
        """Undo what was done to one of its members."""
        session, row = self._session, member.row
        columns = session.columns
        if done.kind is not OperationKind.EVICT:
            session.namespace_quotas.book((member,), -1)
        if session.models:
            self._uncount_models(done.kind, member)
        match done.kind:
            case OperationKind.ALLOCATE:
                columns.undo(row, member.task.requests, member.slices, aligned=member.task.aligned)
            case OperationKind.PIPELINE:
                session.promises -= 1
                depart(columns, member)
            case OperationKind.EVICT:
                if row >= 0:
                    depart(columns, member, -1)
                self._turn(member, done.status)
                session.placed(member, row)
                return
        member.row, member.slices = done.row, done.slices
        self._turn(member, done.status)
        session.displaced(member, row)
        member.models, member.pool = done.models, done.pool

    def _uncount_models(self, kind: OperationKind, member: Member) -> None:
        if kind is OperationKind.EVICT:
            self._session.models.evicted(member, -1)
        else:
            self._session.models.book(member, -1)

    def discard(self) -> None:
        self.rollback()

    def commit(self) -> None:
        """Make the operations part of the session's outcome."""
        self._session.outcome.take(self.operations)
        self.operations = []
