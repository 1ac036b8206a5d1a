"""Which of the nodes that are equal to all scores comes first (`EqualNodeOrder`)."""

from collections.abc import Sequence

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints
from .hooks import EqualNodeOrder


def first_of_equals(plugins: Sequence[EqualNodeOrder], columns: Columns, rank: Floats, first: int) -> int:
    """The row that is taken in place of `first`, the first of the best. rank: `[N]`."""
    for plugin in plugins:
        apart = plugin.distinguishes(columns, np.array((first,), dtype=np.int64))
        if apart is not None and apart[0]:
            equal = np.flatnonzero(rank[: columns.size] == rank[first])
            return int(equal[plugin.equal_node_keys(columns, equal).argmin()])
    return first


def up_to_equals(plugins: Sequence[EqualNodeOrder], columns: Columns, rank: Floats, order: Ints) -> Ints:
    """Sort `order`, best first, up to the first group of equal rows that a plugin orders, and cut it after this group: the order of later rows depends on
    it. rank: `[N]`."""
    for plugin in plugins:
        apart = plugin.distinguishes(columns, order)
        if apart is None or not apart.any():
            continue
        score = rank[order]
        begin = int(np.searchsorted(-score, -score[int(apart.argmax())], side="left"))
        end = int(np.searchsorted(-score, -score[begin], side="right"))
        equal = order[begin:end]
        keys = plugin.equal_node_keys(columns, equal)
        return np.concatenate((order[:begin], equal[np.argsort(keys, kind="stable")]))
    return order
