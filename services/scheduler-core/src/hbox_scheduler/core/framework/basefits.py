"""Limits that apply under every policy: pools, host ports, resources, cards and NUMA nodes."""

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Ints
from ..cluster.task import Task
from ..devices import DEEP, CardFit
from .hostports import HostPorts
from .nodepools import PoolFit
from .resources import ResourceFit
from .zones import ZoneFit

#: A node's capacity for pods without requests.
NO_LIMIT = 1 << 30

#: The limits, in the order in which reasons name them.
FITS = (PoolFit(), HostPorts(), ResourceFit(cards=False), CardFit(DEEP), ResourceFit(cards=True), ZoneFit())


def capacity_when_empty(columns: Columns, task: Task) -> Ints:
    """`[N]`: the number of such pods for which each node has room when all nodes are empty and all cards sound; 0 for rows without a node. Not to be changed:
    the last result is kept."""
    kept = columns.actual.empty
    kept.follow(columns.described.end)
    if kept.last is not None and kept.last[0] is task:
        return kept.last[1]
    found = base_capacity(columns.emptied(), task)
    if not by_zones(columns, task):
        kept.last = task, found
    return found


def most_when_empty(columns: Columns, task: Task) -> int:
    """The sum of `capacity_when_empty`."""
    kept = columns.actual.empty
    kept.follow(columns.described.end)
    if (known := kept.sums.get(task)) is not None:
        return known
    found = int(capacity_when_empty(columns, task).sum())
    if not by_zones(columns, task):
        kept.sums[task] = found
    return found


def by_zones(columns: Columns, task: Task) -> bool:
    """Whether kubelets' reports of zones, which describe no node anew, count."""
    return task.aligned is not None and bool(columns.zones.strict)


def capacity_when_vacant(columns: Columns, task: Task) -> Ints:
    """As `capacity_when_empty`, with the cards that are sound now."""
    return base_capacity(columns.vacant(), task)


def base_capacity(columns: Columns, task: Task) -> Ints:
    """`[N]`: the number of such pods for which each node has room by these limits; 0 for rows without a node."""
    rows = slice(0, columns.size)
    least = np.where(columns.alive[rows], NO_LIMIT, 0)
    for fit in FITS:
        if (capacity := fit.capacity(columns, rows, task)) is not None:
            np.minimum(least, capacity, out=least)
    return np.maximum(least, 0, out=least)
