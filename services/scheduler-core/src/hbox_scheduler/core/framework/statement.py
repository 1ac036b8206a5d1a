"""The journal of one decision: `commit` keeps all its operations, `discard` reverts all of them.

Each operation updates the columns, the member and the plugins' sums at once; `discard` reverts the operations, newest first, and restores every cell. The bugs
of Volcano's statement when it replays a dry run (#5362, #5684) cannot occur here: a dry run is a statement that is rolled back, and the same operations
repeat the chosen outcome.
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


@dataclass(slots=True)  # not frozen: frozen ones take three times as long to create, and large gangs create thousands
class Operation:
    """One operation on a member, or on several equal ones (`batch`), with the member's previous state. Never modified after creation."""

    kind: OperationKind
    member: Member
    status: Status
    row: int
    slices: tuple[CardSlice, ...]
    preemptor: Gang | None = None  #: the gang for which an eviction is made
    reason: str = ""
    models: Asked = ()
    pool: str = ""
    batch: Sequence[Member] = ()  #: the first is `member`

    @property
    def members(self) -> Sequence[Member]:
        return self.batch or (self.member,)


def _whole(slices: Sequence[CardSlice]) -> tuple[CardSlice, ...]:
    """The slices as a tuple; a tuple subclass with more data (`devices.PodSlices`) is returned unchanged."""
    return slices if isinstance(slices, tuple) else tuple(slices)


def depart(columns: Columns, member: Member, times: int = 1) -> None:
    """Book the departure of the member from its node. `times=-1` reverts it, or nominates the member to resources that victims still hold."""
    columns.depart(member.row, member.task.requests, member.slices, times, aligned=member.task.aligned, pod=member.id)


class Statement:
    """Operations on one session. Unusable after `commit` or `discard`."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.operations: list[Operation] = []

    def __len__(self) -> int:
        return len(self.operations)

    def allocate(self, member: Member, row: int, slices: Sequence[CardSlice] = ()) -> None:
        """Place a pending member on resources that are free now."""
        self._note(OperationKind.ALLOCATE, member)
        member.row, member.slices = row, _whole(slices)
        self._turn(member, Status.ALLOCATED)
        self._session.columns.book(row, member.task.requests, member.slices, aligned=member.task.aligned)
        self._session.namespace_quotas.book((member,))
        self._count_models(member)
        self._session.placed(member, row)

    def allocate_all(self, members: Sequence[Member], batch: Batch, slices: Sequence[tuple[CardSlice, ...]]) -> None:
        """As `allocate`, for equal pending members of one gang, in the order of the batch, which is booked at once."""
        session = self._session
        session.columns.apply(batch)
        rows: list[int] = batch.rows.repeat(batch.counts).tolist()
        first, allocated = members[0], Status.ALLOCATED
        self.operations.append(Operation(OperationKind.ALLOCATE, first, first.status, first.row, first.slices, batch=members))
        for member, row, own in zip(members, rows, slices, strict=True):
            member.status, member.row, member.slices = allocated, row, own
        members[0].gang.moved_uniform(members, Status.PENDING)
        session.namespace_quotas.book(members)
        for member in members if session.models or session.pools else ():
            self._count_models(member)
        session.placed_all(members)

    def pipeline(self, member: Member, row: int, slices: Sequence[CardSlice] = ()) -> None:
        """Nominate a pending member to resources that are free once all terminating pods are gone."""
        self._note(OperationKind.PIPELINE, member)
        self._session.promises += 1
        member.row, member.slices = row, _whole(slices)
        self._turn(member, Status.PIPELINED)
        depart(self._session.columns, member, -1)
        self._session.namespace_quotas.book((member,))
        self._count_models(member)
        self._session.placed(member, row)

    def evict(self, member: Member, *, preemptor: Gang | None, reason: str) -> None:
        """Evict a member from its node."""
        self._note(OperationKind.EVICT, member, preemptor, reason)
        self._turn(member, Status.RELEASING)
        if member.row >= 0:
            depart(self._session.columns, member)
        if self._session.models:
            self._session.models.evicted(member)
        self._session.displaced(member, member.row)

    def evict_all(self, members: Sequence[Member], *, preemptor: Gang | None, reason: str) -> None:
        """As `evict`, for each member in order; equal members on one node are booked together."""
        if len(members) == 1:
            self.evict(members[0], preemptor=preemptor, reason=reason)
            return
        groups: dict[tuple[int, int], list[Member]] = {}
        note, releasing = self.operations.append, Status.RELEASING
        for member in members:
            before, row = member.status, member.row
            note(Operation(OperationKind.EVICT, member, before, row, member.slices, preemptor, reason))
            member.status = releasing
            member.gang.moved(member, before)
            if row >= 0:
                groups.setdefault((row, id(member.task)), []).append(member)
        for (row, _), group in groups.items():
            task = group[0].task
            slices = [one for member in group for one in member.slices]
            pods = [member.id for member in group] if self._session.columns.zones else ()
            self._session.columns.depart_uniform(
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
        """Record the member's pool and the models of its cards, and count them."""
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
        """The members that the statement evicts."""
        return [done.member for done in self.operations if done.kind is OperationKind.EVICT]

    def mark(self) -> int:
        """A point to which `rollback` can return."""
        return len(self.operations)

    def rollback(self, mark: int = 0) -> None:
        """Revert all operations after the mark, newest first."""
        while len(self.operations) > mark:
            done = self.operations.pop()
            for member in reversed(done.members):
                self._take_back(done, member)

    def _take_back(self, done: Operation, member: Member) -> None:
        """Revert an operation for one of its members."""
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
