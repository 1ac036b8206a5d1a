"""What is known of a task on every node: allowed or not, how many pods fit, how good. Kept per task, brought up to date row by row."""

from collections import OrderedDict

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows
from ..cluster.interning import grown
from ..cluster.task import Task
from .policy import Policy


class View:
    """`capacity[N]` and `rank[N]` (the score, -inf where nothing fits) of one task, as of the columns' last `refresh`."""

    def __init__(self, columns: Columns, policy: Policy, task: Task) -> None:
        self._columns = columns
        self._policy = policy
        self.task = task
        self.allowed: Bools = np.zeros(0, dtype=np.bool_)
        self.capacity: Ints = np.zeros(0, dtype=np.int64)
        self.rank: Floats = np.zeros(0, dtype=np.float64)
        self._changes = self._described = -1
        self._version = -1

    def refresh(self) -> None:
        """Look again at the rows that changed since the last time; at all of them when that is unknown or the policy learned."""
        columns = self._columns
        if len(self.capacity) < columns.size:
            self.allowed = grown(self.allowed, 0, columns.size)
            self.capacity = grown(self.capacity, 0, columns.size)
            self.rank = grown(self.rank, 0, columns.size)
        if self._described != columns.described.end:
            self._refresh_rows(columns.described.since(self._described), described=True)
            self._described = columns.described.end
        if self._version != self._policy.version:
            self._version, self._changes = self._policy.version, -1
        if self._changes != columns.changes.end:
            self._refresh_rows(columns.changes.since(self._changes), described=False)
            self._changes = columns.changes.end

    def _refresh_rows(self, changed: Ints | None, *, described: bool) -> None:
        columns = self._columns
        rows: Rows = slice(0, columns.size) if changed is None or 3 * len(changed) > columns.size else changed
        if described:
            self.allowed[rows] = self._policy.allowed(columns, rows, self.task)
            return
        fits = self._policy.capacity(columns, rows, self.task)
        fits[~self.allowed[rows]] = 0
        self.capacity[rows] = fits
        open_rows = np.flatnonzero(fits)
        if 2 * len(open_rows) < len(fits):
            self.rank[rows] = -np.inf
            if len(open_rows):
                rows = open_rows if isinstance(rows, slice) else rows[open_rows]
                self.rank[rows] = self._policy.score(columns, rows, self.task)
            return
        score = self._policy.score(columns, rows, self.task)
        score[fits == 0] = -np.inf
        self.rank[rows] = score

    def total(self) -> int:
        """Pods of this task that fit on all nodes together."""
        return int(self.capacity.sum())

    def best(self, pods: int) -> tuple[Ints, Ints]:
        """Rows for up to `pods` more pods and how many on each, best node first; equal ones by row. Empty = none fits.

        Only as many as can be given without looking at scores again: all at once under a policy that fills nodes, else one on the best
        node, together with the nodes before it that are full with one pod.
        """
        if not len(self.rank):
            return _NONE, _NONE
        first = int(self.rank.argmax())
        room = int(self.capacity[first])
        if room == 0:
            return _NONE, _NONE
        fills = self._policy.fills
        if pods == 1 or (fills and room >= pods) or (not fills and room > 1):
            return np.array([first], dtype=np.int64), np.array([min(room, pods) if fills else 1], dtype=np.int64)
        open_rows = np.flatnonzero(self.capacity)
        order = open_rows[np.argsort(-self.rank[open_rows], kind="stable")]
        counts = self.capacity[order]
        if not fills:
            several = np.flatnonzero(counts > 1)
            end = min(pods, int(several[0]) + 1 if len(several) else len(order))
            return order[:end], np.ones(end, dtype=np.int64)
        filled = np.cumsum(counts)
        end = int(np.searchsorted(filled, pods)) + 1
        order, counts = order[:end], counts[:end].copy()
        surplus = int(filled[end - 1]) - pods if end <= len(filled) else 0
        if surplus > 0:
            counts[-1] -= surplus
        return order, counts


_NONE: Ints = np.zeros(0, dtype=np.int64)


class Views:
    """The views of the tasks met lately; at most `cells` nodes in all of them."""

    def __init__(self, columns: Columns, policy: Policy, cells: int = 3_000_000) -> None:
        self._columns = columns
        self._policy = policy
        self._views: OrderedDict[int, View] = OrderedDict()
        self._cells = cells

    def of(self, task: Task) -> View:
        """The task's view, up to date."""
        view = self._views.get(id(task))
        if view is None:
            view = self._views[id(task)] = View(self._columns, self._policy, task)
            if len(self._views) > max(8, self._cells // max(self._columns.size, 1)):
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(id(task))
        view.refresh()
        return view
