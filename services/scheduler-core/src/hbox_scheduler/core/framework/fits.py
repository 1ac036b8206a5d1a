"""Limits of the engine's own: pools, host ports, resources, cards and NUMA nodes, whatever the policy."""

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Ints
from ..cluster.task import Task
from ..devices import DEEP, CardFit
from .nodeports import NodePorts
from .pools import PoolFit
from .resources import ResourceFit
from .zones import ZoneFit

#: What a node takes of members that ask for nothing.
NO_LIMIT = 1 << 30

#: What the engine itself never over-books, in the order in which reasons are given.
FITS = (PoolFit(), NodePorts(), ResourceFit(cards=False), CardFit(DEEP), ResourceFit(cards=True), ZoneFit())


def capacity_when_empty(columns: Columns, task: Task) -> Ints:
    """`[N]`: how many such pods each node has room for if nothing else runs anywhere; dead rows have none."""
    empty, rows = columns.emptied(), slice(0, columns.size)
    least = np.where(columns.alive[rows], NO_LIMIT, 0)
    for fit in FITS:
        if (capacity := fit.capacity(empty, rows, task)) is not None:
            np.minimum(least, capacity, out=least)
    return np.maximum(least, 0, out=least)
