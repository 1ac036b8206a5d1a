"""Labels and taints as small integers, so that a selector is one comparison over a column.

The first selector that names a key of a node creates the label's column; other keys cost nothing. Users may name any keys: those that no node has share one
column. Of the others the least recently used columns are dropped and rebuilt on demand.

Each distinct value, and each distinct set of taints, is evaluated once per task. Some never recur: names of deleted nodes, and taints that contain their time,
as the cluster autoscaler's. So values that no row has are dropped, which changes the codes of the others: codes and columns are valid only until the next
description of a node, and callers must not keep them.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from copy import copy

import numpy as np

from hbox_common.model import NodeState, Taint

from .arrays import Bools, Ints

#: Pseudo label key for `matchFields`. The NUL byte prevents a clash with a label key.
NAME_FIELD = "\0metadata.name"

#: The zone of each node, for domains; nodes without one are together in one domain.
ZONE_FIELD = "\0zone"
_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")

ABSENT = 0

#: Values beyond two for each that rows had when they were looked through last.
SPARE = 256

#: Columns: 40 kB each with 5,000 nodes, and a look at each whenever a node is described.
COLUMNS = 512


def _left(codes: Ints) -> tuple[list[int], Ints]:
    """The codes that rows have, and 0, in their order; and the codes of the rows once these are all there are."""
    left, renumbered = np.unique(np.append(codes, ABSENT), return_inverse=True)
    return left.tolist(), renumbered.reshape(-1)[:-1].astype(np.int64)


def grown(array: np.ndarray, axis: int, size: int, fill: int = 0) -> np.ndarray:
    """The array with `axis` as long as `size`, the new part filled with `fill`."""
    shape = list(array.shape)
    shape[axis] = size
    out = np.full(shape, fill, dtype=array.dtype)
    out[tuple(slice(0, length) for length in array.shape)] = array
    return out


class LabelColumn:
    """One key: `codes[N]`, 0 = the node has no such label, and the values in the order of their codes."""

    def __init__(self, rows: int) -> None:
        self.codes: Ints = np.zeros(rows, dtype=np.int64)
        self.values: list[str | None] = [None]
        self._code: dict[str, int] = {}
        self._most = SPARE

    def put(self, row: int, value: str | None) -> None:
        if value is None:
            self.codes[row] = ABSENT
            return
        code = self._code.get(value)
        if code is None:
            if len(self.values) >= self._most:
                self._forget()
            code = self._code[value] = len(self.values)
            self.values.append(value)
        self.codes[row] = code

    def _forget(self) -> None:
        left, self.codes = _left(self.codes)
        self.values = [self.values[code] for code in left]
        self._code = {value: code for code, value in enumerate(self.values) if value is not None}
        self._most = 2 * len(self.values) + SPARE

    def matching(self, holds: Callable[[str | None], bool], rows: slice | Ints) -> Bools:
        """Rows whose value satisfies `holds`; it is asked once per distinct value (None = no such label)."""
        truth = np.fromiter((holds(value) for value in self.values), dtype=np.bool_, count=len(self.values))
        return truth[self.codes[rows]]


class Descriptions:
    """Labels and taints of all rows."""

    def __init__(self, rows: int) -> None:
        self._size = rows
        self._labels: list[Mapping[str, str]] = [{}] * rows
        self._names: list[str] = [""] * rows
        self._columns: OrderedDict[str, LabelColumn] = OrderedDict()
        self._absent = LabelColumn(rows)  #: the column of all keys that no node has
        self._nodes: dict[str, int] = {}  #: number of nodes by label key
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self._taint_code: dict[tuple[Taint, ...], int] = {(): 0}
        self.taints: Ints = np.zeros(rows, dtype=np.int64)
        self._most_taints = SPARE

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._columns)

    def grow(self, rows: int) -> None:
        more = rows - self._size
        self._labels.extend([{}] * more)
        self._names.extend([""] * more)
        self.taints = grown(self.taints, 0, rows)
        for column in self._columns.values():
            column.codes = grown(column.codes, 0, rows)
        self._absent = LabelColumn(rows)
        self._size = rows

    def put(self, row: int, node: NodeState) -> None:
        self._relabel(row, node.labels)
        self._names[row] = node.name
        for key, column in self._columns.items():
            column.put(row, self._value(row, key))
        code = self._taint_code.get(node.taints)
        if code is None:
            if len(self.taint_sets) >= self._most_taints:
                self._forget_taints()
            code = self._taint_code[node.taints] = len(self.taint_sets)
            self.taint_sets.append(node.taints)
        self.taints[row] = code

    def drop(self, row: int) -> None:
        """Describe a row without a node."""
        self._relabel(row, {})
        self._names[row], self.taints[row] = "", 0
        for column in self._columns.values():
            column.put(row, None)

    def _relabel(self, row: int, labels: Mapping[str, str]) -> None:
        """Replace a row's labels. Releases the columns of keys that no node has any more."""
        before, self._labels[row] = self._labels[row], labels
        if before.keys() == labels.keys():
            return
        for key in labels:
            self._nodes[key] = self._nodes.get(key, 0) + 1
        for key in before:
            self._nodes[key] -= 1
            if not self._nodes[key]:
                del self._nodes[key]
                self._columns.pop(key, None)

    def _forget_taints(self) -> None:
        left, self.taints = _left(self.taints)
        self.taint_sets = [self.taint_sets[code] for code in left]
        self._taint_code = {taints: code for code, taints in enumerate(self.taint_sets)}
        self._most_taints = 2 * len(self.taint_sets) + SPARE

    def tolerated(self, keys: Collection[str]) -> "Descriptions":
        """The same without taints that have one of these keys. To be read only, and at once."""
        view = copy(self)
        view.taint_sets = [tuple(taint for taint in taints if taint.key not in keys) for taints in self.taint_sets]
        return view

    def column(self, key: str) -> LabelColumn:
        """The column of a label key, NAME_FIELD or ZONE_FIELD. To be read only."""
        column = self._columns.get(key)
        if column is None:
            if key not in self._nodes and key not in (NAME_FIELD, ZONE_FIELD):
                return self._absent
            if len(self._columns) >= COLUMNS:
                self._columns.popitem(last=False)
            column = self._columns[key] = LabelColumn(self._size)
            for row, name in enumerate(self._names):
                if name:
                    column.put(row, self._value(row, key))
        else:
            self._columns.move_to_end(key)
        return column

    def _value(self, row: int, key: str) -> str | None:
        labels = self._labels[row]
        if key == ZONE_FIELD:
            return next((labels[zone] for zone in _ZONES if zone in labels), "")
        return self._names[row] if key == NAME_FIELD else labels.get(key)
