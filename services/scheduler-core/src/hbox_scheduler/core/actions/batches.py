"""Batch placement of equal members: a strategy of `allocate` for members that every plugin treats by their shape (`Session.by_shape`).

The result equals placing them one by one. Views cache masks, capacities and scores by shape across sessions and update changed rows only. The queue decides,
as always, which members are placed and in which order; the batch only avoids a search for a node for each member.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import CardSlice

from ..cluster import Batch
from ..cluster.entities import Member, Status
from ..cluster.task import Task
from ..devices import cores_of, pick, slices_of
from ..framework.placing import Placing
from ..framework.statement import Statement

if TYPE_CHECKING:
    from ..framework.session import Session


class Batches:
    """Batch placements of one session."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._placing = Placing(session)

    def concerns(self, member: Member) -> bool:
        """Whether the member may be placed in a batch: by its shape, while the session has no nominations."""
        return member.nominated is None and not self._session.promises and self._session.by_shape(member)

    def bounded(self, member: Member) -> bool:
        """Whether limits of card models or quotas of its namespace may exclude cards for the member."""
        session = self._session
        return member.task.cards is not None and (bool(session.models) or bool(session.namespace_quotas))

    def place(self, statement: Statement, members: Sequence[Member]) -> int:
        """Place as many equal members of one gang as fit, in order. Returns the number of placed members."""
        pools, done = self._session.pools, 0
        choices = pools.choices(members[0]) if pools else ()
        for pool in choices:
            with pools.tried(members[done:], pool):
                done += self._place(statement, members[done:])
            if done == len(members):
                break
        return done if choices else self._place(statement, members)

    def _place(self, statement: Statement, members: Sequence[Member]) -> int:
        queue, done = self._session.queues[members[0].gang.queue], 0
        while done < len(members):
            first = members[done]
            wanted = self._placing.most(first, self._session.room(queue, first, len(members) - done))
            rows = self.rows(self._placing.task(first), wanted) if wanted > 0 else []
            if not rows:
                break
            taken = members[done : done + len(rows)]
            batch, slices, order = self.seats(first, rows)
            statement.allocate_all([taken[i] for i in order], batch, slices)
            done += len(rows)
        return done

    def rows(self, task: Task, wanted: int) -> list[int]:
        """One row per member for at most `wanted` members, as many as can be chosen without updating all nodes."""
        assert self._session.views is not None
        return self._session.views.of(task).sequence(wanted)

    def seats(self, member: Member, rows: Sequence[int]) -> tuple[Batch, list[tuple[CardSlice, ...]], Sequence[int]]:
        """The batch to book for members equal to this one on these rows in order; the slices of each member; and for each its index in `rows`."""
        session, columns, cards = self._session, self._session.columns, member.task.cards
        if rows.count(rows[0]) == len(rows):
            batch, slices = self._on_one_row(member, rows[0], len(rows))
            return batch, slices, range(len(rows))
        counts = Counter(rows)
        distinct = np.array([*counts], dtype=np.int64)
        keys = None if cards is None else session.card_keys(member.task, columns, distinct)
        batch = pick(columns, distinct, np.array([*counts.values()], dtype=np.int64), self._placing.task(member), keys)
        order: Sequence[int] = range(len(rows))
        if len(counts) < len(rows):
            place = {row: number for number, row in enumerate(counts)}
            order = sorted(order, key=[place[row] for row in rows].__getitem__)
        return batch, slices_of(columns, batch, cards.count if cards is not None else 0), order

    def _on_one_row(self, member: Member, row: int, count: int) -> tuple[Batch, list[tuple[CardSlice, ...]]]:
        """As `seats`, for a single row."""
        session, columns, task = self._session, self._session.columns, self._placing.task(member)
        assert session.views is not None
        states, at, counts = session.views.states, np.array([row], dtype=np.int64), np.array([count], dtype=np.int64)
        if task.cards is None:
            return pick(columns, at, counts, task), [()] * count
        key = task, states.of((row,))[0] if session.orders_cards_of(task) else states.cards_of(row), count
        if (known := states.cards.get(key)) is None:
            batch = pick(columns, at, counts, task, session.card_keys(member.task, columns, at))
            slices = slices_of(columns, batch, task.cards.count)
            if batch.slices:
                return batch, slices
            states.cards[key] = batch.card_positions, batch.memory_mib, slices
            return batch, slices
        positions, memory_mib, slices = known
        batch = Batch(
            at, counts, task.amount, at.repeat(len(positions)), positions, cores_of(task.cards), memory_mib, task.ports,
            aligned=task.aligned,
        )  # fmt: skip
        return batch, slices


class Run:
    """Equal members that start alone, placed one per turn. Each gets its node in its turn; the cards of all are chosen when the run ends. Until then the
    members count as placed."""

    def __init__(self, session: "Session", batches: Batches) -> None:
        self._session = session
        self._batches = batches
        self._taken: list[Member] = []
        self._rows: list[int] = []  #: rows of `_taken`, then rows for further members
        self._task: Task | None = None
        self._kind: tuple[object, ...] = ()  #: key of the last member: members with the same key are equal for every plugin
        self._room = 0  #: number of further such members that fit into their queue
        self._size = 1  #: number of rows requested at once; grows with the run
        self._full: set[int] = set()  #: shapes in one pool that no longer fit there: no pod is evicted during a run

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, member: Member) -> bool:
        """Place the member if it fits. Returns whether it was placed."""
        pools = self._session.pools
        choices = pools.choices(member) if pools else ()
        for pool in choices:
            with pools.tried((member,), pool):
                if self._take(member, pools.task(member, self._session.task(member))):
                    return True
        return not choices and self._take(member, self._session.task(member))

    def _take(self, member: Member, task: Task) -> bool:
        session, gang = self._session, member.gang
        if id(task) in self._full:
            return False
        interchangeable = gang.interchangeable
        kind = gang.queue, task, gang.priority, gang.priority_class, gang.counts_minimum, None if interchangeable else gang
        if kind != self._kind or not self._room:
            self._kind, self._room = kind, session.room(session.queues[gang.queue], member, _MOST)
        if not self._room:
            return False
        if task is not self._task or len(self._taken) == len(self._rows):
            size = min(8 * self._size, _MOST) if task is self._task else 1
            self.end()
            rows = self._batches.rows(task, size)
            if not rows:
                if task.pool is not None:
                    self._full.add(id(task))
                return False
            self._task, self._size, self._rows, self._kind = task, size, rows, kind
        row = self._rows[len(self._taken)]
        self._taken.append(member)
        self._room -= 1
        member.status, member.row = Status.ALLOCATED, row
        gang.moved(member, Status.PENDING)
        session.placed(member, row)
        return True

    def end(self) -> None:
        """Choose the cards of the members placed so far, and bind the members."""
        if self._taken:
            session = self._session
            batch, slices, order = self._batches.seats(self._taken[0], self._rows[: len(self._taken)])
            session.columns.apply(batch)
            for number, own in zip(order, slices, strict=True):
                self._taken[number].slices = own
            session.outcome.bindings += self._taken
        self._taken, self._rows, self._task, self._kind = [], [], None, ()


#: Maximum members of a run before their cards are chosen.
_MOST = 512
