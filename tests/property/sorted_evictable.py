"""The evictable pods of an action, collected and sorted by their objects: the specification of `EvictablePods`, which reads arrays."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hbox_common.model import QueueName
from hbox_common.model.minruntime import protects
from hbox_scheduler.core.cluster.arrays import Bools, Ints
from hbox_scheduler.core.cluster.entities import EVICTABLE, Gang, Member
from hbox_scheduler.core.cluster.task import Task
from hbox_scheduler.core.framework.hooks import Plugin
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.plugins.checkpoint import has_checkpoint_annotations, lost_s
from hbox_scheduler.core.preemption.evictablepods import OFFLINE_QUEUE


class SortedEvictablePods:
    """As `EvictablePods`. Positions are in the order of eviction, by queue; behind them come the members under minimum run time."""

    def __init__(self, session: Session, *, queue: QueueName | None = None, offline: bool = False) -> None:
        self._session = session
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
        kept: list[Member] = []
        codes: list[int] = []
        harm: list[int] = []
        breaks: list[bool] = []
        self.queues = sorted(by_queue)
        for code, name in enumerate(self.queues):
            leaves = name == OFFLINE_QUEUE
            for gang in by_queue[name]:
                able = [m for m in gang.members if m.status in EVICTABLE and m.row >= 0 and (leaves or m.preemptable)]
                mine = [m for m in able if leaves or not protects(m.protected_until, session.now)]
                kept += [m for m in able if m not in mine]
                members += sorted(mine, key=session.member_key, reverse=True)
                codes += [code] * len(mine)
                surplus = max(0, min(len(mine), gang.ready - gang.min_member))
                if len(gang.members) == 1:
                    surplus = len(mine) * (gang.min_member <= 0)
                harm += [1] * surplus + [max(1, gang.holding - surplus)] * (len(mine) - surplus)
                breaks += [False] * surplus + [True] * (len(mine) - surplus)
        ranks = any(plugin.ranks_priorities for plugin in session.plugins(Plugin))
        losing = any(plugin.name == "checkpoint" for plugin in session.plugins(Plugin)) and any(
            map(has_checkpoint_annotations, members)
        )
        order = sorted(
            range(len(members)),
            key=lambda i: (
                codes[i],
                members[i].gang.priority if ranks else 0,
                breaks[i],
                lost_s(members[i], session.now) if losing else 0.0,
                i,
            ),
        )
        count = len(members)
        self._members = [*(members[i] for i in order), *kept]
        self._kept = len(kept)
        self.size = len(self._members)
        self.in_place: Bools = np.arange(self.size) < count
        self._there = self.in_place.copy()
        self.rows: Ints = np.array([member.row for member in self._members], dtype=np.int64)
        self.harm: Ints = np.array([*(harm[i] for i in order), *(1 for _ in kept)], dtype=np.int64)
        self.priority: Ints = np.array([member.gang.priority for member in self._members], dtype=np.int64)
        self.codes = {name: code for code, name in enumerate(self.queues)}
        self.queue: Ints = np.array([*sorted(codes), *(self.codes[m.gang.queue] for m in kept)], dtype=np.int64)
        self.strangers = [name for name in self.queues if name not in session.queues]
        self._positions = {member: i for i, member in enumerate(self._members[:count])}
        self.protects_any = bool(kept)

    def movable(self) -> Bools:
        """As `EvictablePods.movable`."""
        return np.array([member.movable for member in self._members], dtype=np.bool_)

    def amounts_at(self, positions: Ints, columns: Ints) -> Ints:
        amounts = np.zeros((len(positions), len(self._session.columns.allocatable)), dtype=np.int64)
        for number, position in enumerate(positions.tolist()):
            for column, units in self._members[position].task.amount:
                amounts[number, column] = units
        return amounts[:, columns]

    def by_task(self, positions: Ints) -> Iterator[tuple[Task, Ints, Ints]]:
        of_task: dict[int, list[int]] = defaultdict(list)
        for position in positions.tolist():
            of_task[id(self._members[position].task)].append(position)
        everything = np.arange(len(self._session.columns.allocatable))
        for found in of_task.values():
            own = np.array(found, dtype=np.int64)
            yield self._members[found[0]].task, self.amounts_at(own[:1], everything)[0], own

    def where_task(self, condition: Callable[[Task], bool]) -> Bools:
        return np.array([condition(member.task) for member in self._members], dtype=np.bool_)

    def best_effort(self) -> Bools:
        return np.array([member.best_effort for member in self._members], dtype=np.bool_)

    def lent(self, owner: QueueName) -> Bools:
        return np.array([self._session.pools.lent(owner, member) for member in self._members], dtype=np.bool_)

    def order(self, code: int) -> Ints:
        return np.flatnonzero((self.queue == code) & self._there)

    def divided(self) -> tuple[Ints, Ints]:
        return np.empty(0, dtype=np.int64), np.flatnonzero(self._there)

    def on_row(self, row: int) -> list[int]:
        found: list[int] = np.flatnonzero((self.rows == row) & self._there).tolist()
        return found

    def place(self, position: int) -> int:
        return position

    def rank(self, gang: Gang) -> int:
        return max(self.positions(gang))

    def member(self, position: int) -> Member:
        return self._members[position]

    def members_at(self, positions: Sequence[int]) -> list[Member]:
        return [self._members[position] for position in positions]

    def position(self, member: Member) -> int | None:
        return self._positions.get(member)

    def positions(self, gang: Gang) -> list[int]:
        return [self._positions[member] for member in gang.members if member in self._positions]

    def of(self, gang: Gang) -> list[Member]:
        return [member for member in gang.members if member in self._positions and member.status in EVICTABLE]

    def staying(self, eligible: Bools) -> list[Member]:
        return self.members_at(np.flatnonzero(eligible & self.in_place).tolist())

    def protected(self, among: Bools) -> list[Member]:
        first = self.size - self._kept
        return [member for number, member in enumerate(self._members[first:]) if among[first + number]]
