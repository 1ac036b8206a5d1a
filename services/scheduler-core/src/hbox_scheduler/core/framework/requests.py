"""What members ask for as a few (column, units) pairs: sums over members are made millions of times, and most columns of a request are 0.

Sums of queues and gangs are lists of ints, `[R]`: for a handful of columns they are several times faster than arrays.
"""

import numpy as np

from ..cluster.amounts import Asked, Sums
from ..cluster.arrays import Ints
from ..cluster.entities import Member
from ..cluster.running import Kind
from ..cluster.task import Task


class Requests:
    """Requests of members, once for equal tasks. The tasks have to live as long as this."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Task, Asked]] = {}

    def of(self, member: Member | Kind) -> Asked:
        found = self._known.get(id(member.task))
        if found is None:
            found = self._known[id(member.task)] = (member.task, pairs(member.request))
        return found[1]


def pairs(vector: Ints) -> Asked:
    """The positive amounts of a vector `[R]`."""
    return tuple((int(column), int(vector[column])) for column in np.flatnonzero(vector > 0))


def add(sums: Sums, asked: Asked, times: int = 1) -> None:
    for column, units in asked:
        sums[column] += times * units
