"""The evictable members of one action as arrays: member, node, queue and freed amounts.

Each action builds them once. Order within a queue: the lowest priority first; then surplus members before members whose eviction breaks a gang; then the
least lost work, if a plugin estimates it; then the reverse order of service at the start of the action. Members under minimum run time (`minruntime`) are
excluded. The queues are not ordered here, because their order follows the shares.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import OFFLINE, QueueName
from hbox_common.model.minruntime import protects

from ..cluster.arrays import Bools, Ints
from ..cluster.entities import EVICTABLE, Gang, Member, Status
from ..cluster.task import Task
from ..framework.hooks import Plugin

if TYPE_CHECKING:
    from ..framework.session import Session

#: Pseudo queue of the offline work of all queues, which is evicted first.
OFFLINE_QUEUE = QueueName(OFFLINE)


class EvictablePods:
    """V members; arrays are indexed as `members`, which is in the order of eviction within each queue."""

    def __init__(self, session: "Session", *, queue: QueueName | None = None, offline: bool = False) -> None:
        """Collect all running or bound members that may be evicted. `queue`: only of that queue, plus offline work; `offline`: only offline work."""
        by_queue: dict[QueueName, list[Gang]] = defaultdict(list)
        leaving = session.offline_runs
        there = [
            gang
            for gang in session.gangs
            if (gang.preemptable and (queue is None or gang.queue == queue) and not offline) or (leaving and gang.offline)
        ]
        for gang in reversed(session.in_order(there)):
            by_queue[OFFLINE_QUEUE if leaving and gang.offline else gang.queue].append(gang)
        members: list[Member] = []
        self.protected: list[Member] = []  #: members under minimum run time
        harm: list[int] = []  # members lost with it: beyond its surplus a gang is evicted whole
        breaks: list[bool] = []  # whether its eviction breaks its gang
        counts: list[int] = []
        running, bound, now = Status.RUNNING, Status.BOUND, session.now
        for name in sorted(by_queue):
            before, leaves = len(members), name == OFFLINE_QUEUE  # offline work is always evictable
            for gang in by_queue[name]:
                if len(gang.members) == 1:  # most jobs of most clusters
                    m = gang.members[0]
                    if (m.status is running or m.status is bound) and m.row >= 0 and (leaves or m.preemptable):
                        if leaves or m.protected_until <= now or not protects(m.protected_until, now):
                            members.append(m)
                            harm.append(1)
                            breaks.append(gang.min_member > 0)
                        else:
                            self.protected.append(m)
                    continue
                mine = [
                    m
                    for m in gang.members
                    if (m.status is running or m.status is bound)
                    and m.row >= 0
                    and (leaves or (m.preemptable and (m.protected_until <= now or not protects(m.protected_until, now))))
                ]
                members += mine
                self.protected += [
                    m
                    for m in gang.members
                    if m.protected_until > now
                    and not leaves
                    and (m.status is running or m.status is bound)
                    and m.row >= 0
                    and m.preemptable
                    and protects(m.protected_until, now)
                ]
                if len(mine) > 1:
                    members[-len(mine) :] = sorted(mine, key=session.member_key, reverse=True)
                surplus = max(0, min(len(mine), gang.ready - gang.min_member))
                harm += [1] * surplus + [max(1, gang.holding - surplus)] * (len(mine) - surplus)
                breaks += [False] * surplus + [True] * (len(mine) - surplus)
            counts.append(len(members) - before)
        queues = np.repeat(np.arange(len(counts)), counts)
        priority = np.array([member.gang.priority for member in members], dtype=np.int64)
        losses = session.losses(members)
        order = np.lexsort(
            (
                np.arange(len(members)),
                *(() if losses is None else (np.array(losses, dtype=np.float64),)),
                np.array(breaks, dtype=np.bool_),
                priority if any(plugin.ranks_priorities for plugin in session.plugins(Plugin)) else 0 * priority,
                queues,
            )
        )
        self.members = [members[i] for i in order.tolist()]
        self.size = len(members)
        self.in_place: Bools = np.ones(self.size, dtype=np.bool_)  #: False once evicted
        self.position = dict(zip(self.members, range(self.size), strict=True))
        self.rows: Ints = np.array([member.row for member in self.members], dtype=np.int64)
        #: members lost with it: beyond its surplus a gang is evicted whole
        self.harm: Ints = np.array(harm, dtype=np.int64)[order]
        self.priority: Ints = priority[order]
        self.queues = sorted(by_queue)
        self.queue: Ints = queues
        self.codes = {name: code for code, name in enumerate(self.queues)}
        self.strangers = [name for name in self.queues if name not in session.queues]  #: queues that the session does not know
        self.starts: list[int] = [0, *np.cumsum(counts).tolist()]  #: by code: index of the queue's first member
        classes, levels = np.unique(self.priority, return_inverse=True)
        self.priority_level: Ints = levels  #: rank of each priority, from 0
        self.priorities = max(len(classes), 1)
        self._by_row = np.argsort(self.rows, kind="stable")
        self._sorted_rows = self.rows[self._by_row]
        self.amounts = self._amounts(session)

    def _amounts(self, session: "Session") -> Ints:
        """Requested amounts `[V, R]`."""
        asked = [member.task for member in self.members]
        tasks: dict[Task, int] = {task: code for code, task in enumerate(dict.fromkeys(asked))}
        codes = [tasks[task] for task in asked]
        table = np.zeros((len(tasks) + 1, len(session.columns.allocatable)), dtype=np.int64)
        for task, code in tasks.items():
            for column, units in task.amount:
                table[code, column] = units
        return table[np.array(codes, dtype=np.int64)]

    def staying(self, eligible: Bools) -> list[Member]:
        """The members of the mask `eligible` `[V]` that are not evicted."""
        return [self.members[position] for position in np.flatnonzero(eligible & self.in_place).tolist()]

    def on_row(self, row: int) -> Ints:
        """The members on a node, by their positions."""
        first, last = np.searchsorted(self._sorted_rows, (row, row + 1))
        return self._by_row[first:last]

    def positions(self, gang: Gang) -> list[int]:
        """Positions of the gang's members."""
        return [self.position[member] for member in gang.members if member in self.position]

    def of(self, gang: Gang) -> list[Member]:
        """The gang's members among them that are not evicted."""
        return [member for member in gang.members if member in self.position and member.status in EVICTABLE]
