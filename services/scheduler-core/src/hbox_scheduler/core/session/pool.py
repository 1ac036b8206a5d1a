"""Members that may be evicted in one action, in arrays: who, where, of which queue, and how much their leaving frees.

Built once an action. Their order of service within a queue is that of its beginning; the order of queues is asked for anew as shares change.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import QueueName

from ..arrays import Bools, Ints
from .nouns import EVICTABLE, Gang, Member, Status

if TYPE_CHECKING:
    from .session import Session


class Pool:
    """V members; arrays are by member, in the order of `members`: within each queue who is taken first comes first."""

    def __init__(self, session: "Session", *, queue: QueueName | None = None) -> None:
        """All that hold a place and may be evicted; `queue`: of that queue only."""
        by_queue: dict[QueueName, list[Gang]] = defaultdict(list)
        for gang in session.gangs:
            if gang.preemptable and (queue is None or gang.queue == queue):
                by_queue[gang.queue].append(gang)
        self.members: list[Member] = []
        harm: list[int] = []
        running, bound = Status.RUNNING, Status.BOUND
        counts: list[int] = []
        for name in sorted(by_queue):
            before = len(self.members)
            for gang in reversed(session.in_order(by_queue[name])):
                mine = [m for m in gang.members if (m.status is running or m.status is bound) and m.preemptable and m.row >= 0]
                if len(mine) > 1:
                    mine.sort(key=session.member_key, reverse=True)
                self.members += mine
                if len(gang.members) == 1:
                    harm += [1] * len(mine)
                else:
                    harm += _harm(gang, len(mine))
            counts.append(len(self.members) - before)
        self.size = len(self.members)
        self.standing: Bools = np.ones(self.size, dtype=np.bool_)  #: not evicted since
        self.position = {id(member): i for i, member in enumerate(self.members)}
        self.rows: Ints = np.array([member.row for member in self.members], dtype=np.int64)
        self.harm: Ints = np.array(harm, dtype=np.int64)
        self.priority: Ints = np.array([member.gang.priority for member in self.members], dtype=np.int64)
        self.queues = sorted(by_queue)
        self.queue: Ints = np.repeat(np.arange(len(self.queues)), counts)
        self.amounts = self._amounts(session)

    def _amounts(self, session: "Session") -> Ints:
        """`[V, R]`"""
        tasks = {id(member.task): member.task for member in self.members}
        code_of = {key: code for code, key in enumerate(tasks)}
        codes = [code_of[id(member.task)] for member in self.members]
        table = np.zeros((len(tasks) + 1, len(session.columns.allocatable)), dtype=np.int64)
        for code, task in enumerate(tasks.values()):
            for column, units in task.amount:
                table[code, column] = units
        return table[np.array(codes, dtype=np.int64)]

    def of(self, gang: Gang) -> list[Member]:
        """The gang's members in the pool that are still where they were."""
        return [member for member in gang.members if id(member) in self.position and member.status in EVICTABLE]


def _harm(gang: Gang, members: int) -> Sequence[int]:
    """How many members are lost with each one, in the order in which they are taken: beyond its surplus a gang goes whole."""
    surplus = max(0, min(members, gang.ready - gang.min_member))
    if surplus == members:
        return [1] * members
    return [1] * surplus + [max(1, gang.holding - surplus)] * (members - surplus)
