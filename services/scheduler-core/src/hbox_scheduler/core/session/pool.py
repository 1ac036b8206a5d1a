"""Members that may be evicted in one action, in arrays: who, where, of which queue, and how much their leaving frees.

Built once an action. Their order of service within a queue is that of its beginning; the order of queues is asked for anew as shares change.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import QueueName

from ..arrays import Bools, Ints
from ..task import Task
from .nouns import EVICTABLE, HOLDING, Gang, Member

if TYPE_CHECKING:
    from .session import Session


class Pool:
    """V members; arrays are by member, in the order of `members`: within each queue who is taken first comes first."""

    def __init__(self, session: "Session", *, queue: QueueName | None = None) -> None:
        """All that hold a place and may be evicted; `queue`: of that queue only."""
        by_queue: dict[QueueName, list[Gang]] = defaultdict(list)
        for gang in session.gangs:
            if queue is None or gang.queue == queue:
                by_queue[gang.queue].append(gang)
        self.members: list[Member] = []
        harm: list[int] = []
        for name in sorted(by_queue):
            for gang in sorted(by_queue[name], key=session.gang_key, reverse=True):
                if not gang.preemptable:
                    continue
                mine = [m for m in gang.members if m.preemptable and m.status in EVICTABLE and m.row >= 0]
                mine.sort(key=session.member_key, reverse=True)
                self.members += mine
                harm += _harm(gang, len(mine))
        self.size = len(self.members)
        self.standing: Bools = np.ones(self.size, dtype=np.bool_)  #: not evicted since
        self.position = {id(member): i for i, member in enumerate(self.members)}
        self.rows: Ints = np.array([member.row for member in self.members], dtype=np.int64)
        self.harm: Ints = np.array(harm, dtype=np.int64)
        self.priority: Ints = np.array([member.gang.priority for member in self.members], dtype=np.int64)
        self.queues = sorted(by_queue)
        codes = {name: code for code, name in enumerate(self.queues)}
        self.queue: Ints = np.array([codes[member.gang.queue] for member in self.members], dtype=np.int64)
        self.best_effort: Bools = np.array([member.best_effort for member in self.members], dtype=np.bool_)
        self.amounts = self._amounts(session)

    def _amounts(self, session: "Session") -> Ints:
        """`[V, R]`"""
        known: dict[int, int] = {}
        tasks: list[Task] = []
        codes: list[int] = []
        for member in self.members:
            code = known.get(id(member.task))
            if code is None:
                code = known[id(member.task)] = len(tasks)
                tasks.append(member.task)
            codes.append(code)
        table = np.zeros((len(tasks) + 1, len(session.columns.allocatable)), dtype=np.int64)
        for code, task in enumerate(tasks):
            for column, units in task.amount:
                table[code, column] = units
        return table[np.array(codes, dtype=np.int64)]

    def of(self, gang: Gang) -> list[Member]:
        """The gang's members in the pool that are still where they were."""
        return [member for member in gang.members if id(member) in self.position and member.status in EVICTABLE]


def _harm(gang: Gang, members: int) -> Sequence[int]:
    """How many members are lost with each one, in the order in which they are taken: beyond its surplus a gang goes whole."""
    holding = gang.count(*HOLDING)
    surplus = max(0, min(members, gang.ready - gang.min_member))
    return [1] * surplus + [max(1, holding - surplus)] * (members - surplus)
