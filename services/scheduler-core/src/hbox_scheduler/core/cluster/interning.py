"""Labels and taints as small integers, so that a selector is one comparison over a column.

A label's column exists from the first selector that names its key; keys that nobody asks for cost nothing.
"""

from collections.abc import Callable, Mapping

import numpy as np

from hbox_common.model import NodeState, Taint

from .arrays import Bools, Ints

#: Stands beside the labels, for `matchFields`. No label may be called so: label keys of nodes have at most one '/' and no such word alone.
NAME_FIELD = "\0metadata.name"

ABSENT = 0


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

    def put(self, row: int, value: str | None) -> None:
        if value is None:
            self.codes[row] = ABSENT
            return
        code = self._code.get(value)
        if code is None:
            code = self._code[value] = len(self.values)
            self.values.append(value)
        self.codes[row] = code

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
        self._columns: dict[str, LabelColumn] = {}
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self._taint_code: dict[tuple[Taint, ...], int] = {(): 0}
        self.taints: Ints = np.zeros(rows, dtype=np.int64)

    def grow(self, rows: int) -> None:
        more = rows - self._size
        self._labels.extend([{}] * more)
        self._names.extend([""] * more)
        self.taints = grown(self.taints, 0, rows)
        for column in self._columns.values():
            column.codes = grown(column.codes, 0, rows)
        self._size = rows

    def put(self, row: int, node: NodeState) -> None:
        self._labels[row] = node.labels
        self._names[row] = node.name
        for key, column in self._columns.items():
            column.put(row, self._value(row, key))
        code = self._taint_code.get(node.taints)
        if code is None:
            code = self._taint_code[node.taints] = len(self.taint_sets)
            self.taint_sets.append(node.taints)
        self.taints[row] = code

    def column(self, key: str) -> LabelColumn:
        """The column of a label key, or of NAME_FIELD."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(self._size)
            for row, name in enumerate(self._names):
                if name:
                    column.put(row, self._value(row, key))
        return column

    def _value(self, row: int, key: str) -> str | None:
        return self._names[row] if key == NAME_FIELD else self._labels[row].get(key)
