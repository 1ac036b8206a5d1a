"""Pools of nodes in a session: the pools that a member may use, their order, and lent nodes.

Amounts of queues are by pool (`hbox_common.model.pools`), so the amounts that a member uses depend on its node. Like card models, pools are tried one at a
time: own pools first, then `pooled`, `public`, and last the pools that others lend. During a try the member counts in that pool and fits on its nodes only
(`PoolFit`). A member that moves keeps its pool.

An owner reclaims lent nodes regardless of plugins, except those that declare `guards_owners`. A gang that this breaks is evicted
whole, on all nodes, provided that all its members may be evicted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from hbox_common.model import POOLED, QueueName, counted_as, counts_in, is_exclusive
from hbox_common.model.minruntime import protects
from hbox_common.model.pools import in_order

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints, Rows
from ..cluster.entities import HOLDING, Gang, Member, QueueInfo, Status
from ..cluster.running import RunningGangs
from ..cluster.task import Task, in_one_pool
from ..explain.labels import Label

_NO_LIMIT = 1 << 30


class PoolFit:
    """Fit plugin: a pod that is tried in one pool fits on no node of another."""

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints | None:
        """`[n]`"""
        return None if task.pool is None else np.where(columns.in_pool(task.pool, rows), _NO_LIMIT, 0).astype(np.int64)

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        if task.pool is not None:
            yield Label.NODE_POOL, ~columns.in_pool(task.pool, rows)


class NodePools:
    """False where all is of `pooled`: then it has no say, and costs nothing."""

    def __init__(
        self, columns: Columns, queues: Mapping[QueueName, QueueInfo], running: RunningGangs, fresh: Sequence[Gang]
    ) -> None:
        self._columns = columns
        self._queues = queues
        self._running = running
        self._fresh = fresh
        there = columns.pools_there()
        self._there = frozenset(there)
        self._active = any(there)
        self._trial: dict[int, str] = {}
        self._orders: dict[tuple[QueueName, tuple[str, ...] | None], tuple[str, ...]] = {}
        self._borrowers: dict[str, frozenset[QueueName]] | None = None

    def __bool__(self) -> bool:
        return self._active

    def of(self, row: int) -> str:
        """The pool in which a node's amounts count."""
        return self._columns.pool_of(row)

    # Pools that are tried.

    def choices(self, member: Member) -> Sequence[str]:
        """The pools that a pending member may use, in order of preference. Empty: no pool has to be tried, because the member may use `pooled` only, or is
        being tried already."""
        if not self._active or member.status is not Status.PENDING or id(member) in self._trial:
            return ()
        key = member.gang.queue, member.task.pools
        found = self._orders.get(key)
        if found is None:
            found = self._orders[key] = self._order(*key)
        return found

    def _order(self, name: QueueName, may: tuple[str, ...] | None) -> tuple[str, ...]:
        queue = self._queues.get(name)
        own = queue.pools if queue is not None else (POOLED,)
        wanted = in_order(own, own if may is None else may)
        order = tuple(counted for pool in wanted if (counted := counted_as(pool)) in self._there)
        return () if order == ("",) else order

    @contextmanager
    def tried(self, members: Iterable[Member], pool: str) -> Iterator[None]:
        """Within the context these members may use nodes of this pool only, and count there. They keep placements made within the context."""
        mine = [member for member in members if member.status is Status.PENDING]
        for member in mine:
            self._trial[id(member)] = pool
            member.pool = counts_in(pool, offline=member.task.offline)
        try:
            yield
        finally:
            for member in mine:
                self._trial.pop(id(member), None)
                if member.status is Status.PENDING:
                    member.pool = ""

    def only(self, member: Member) -> str | None:
        """The one pool in which it may have a place; None: any."""
        if member.status is not Status.PENDING:
            return member.pool if member.row >= 0 else None
        return self._trial.get(id(member))

    def task(self, member: Member, task: Task) -> Task:
        """The member's task (`task`, as others have bounded it), on nodes of the pool that is tried."""
        pool = self.only(member)
        return task if pool is None else in_one_pool(task, pool)

    def allowed(self, member: Member) -> Bools | None:
        """`[N]`: nodes of the pool that is tried; None = all."""
        pool = self.only(member)
        return None if pool is None else self._columns.in_pool(pool, slice(0, self._columns.size))

    # What is lent.

    def owns(self, queue: QueueName, pool: str) -> bool:
        """As `QueueTree.owns`."""
        found = self._queues.get(queue)
        return found is not None and is_exclusive(pool) and pool in found.pools

    def lent(self, owner: QueueName, member: Member) -> bool:
        """Whether the member has a node of a pool that the queue owns, and its own queue does not."""
        return bool(member.pool) and self.owns(owner, member.pool) and not self.owns(member.gang.queue, member.pool)

    def borrowers(self, pool: str) -> frozenset[QueueName]:
        """Queues with members in this pool that own none of it."""
        if self._borrowers is None:
            found: dict[str, set[QueueName]] = {}
            for kind, _ in self._running.by_kind():
                if kind.pool and not self.owns(kind.queue, kind.pool):
                    found.setdefault(kind.pool, set()).add(kind.queue)
            for gang in self._fresh:
                for member in gang.members:
                    if member.pool and member.row >= 0 and not self.owns(gang.queue, member.pool):
                        found.setdefault(member.pool, set()).add(gang.queue)
            self._borrowers = {name: frozenset(queues) for name, queues in found.items() if is_exclusive(name)}
        return self._borrowers.get(pool, frozenset())

    def may_take_back(self, queue: QueueName, pool: str) -> bool:
        """Whether the queue owns the pool and other queues use it."""
        return self.owns(queue, pool) and bool(self.borrowers(pool))

    def to_be_returned(self, owner: QueueName, candidates: Collection[Member], pool: str) -> list[Member]:
        """The candidates on nodes of this pool that the owner lent to them; if their eviction breaks a gang, also its members on other nodes."""
        leaving = Counter(id(m.gang) for m in candidates if m.pool == pool and self.lent(owner, m))
        return [
            m
            for m in candidates
            if id(m.gang) in leaving
            and ((m.pool == pool and self.lent(owner, m)) or m.gang.ready - leaving[id(m.gang)] < m.gang.min_member)
        ]

    def judged_by_shares(self, owner: QueueName, victims: Collection[Member]) -> list[Member]:
        """The victims to which shares apply: all except borrowers of the owner's nodes and the rest of gangs that their eviction broke."""
        broken = {id(m.gang) for m in victims if self.lent(owner, m) and m.gang.ready < m.gang.min_member}
        return [m for m in victims if not self.lent(owner, m) and id(m.gang) not in broken]


def may_go_whole(gang: Gang, now: float) -> bool:
    """Whether all members of the gang are preemptable and past their minimum run time."""
    return all(m.preemptable and not protects(m.protected_until, now) for m in gang.of(*HOLDING))
