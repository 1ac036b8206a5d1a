"""Names for the array types of the core. N = node rows, R = resources, D = card positions of a node."""

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

#: Which rows a vectorised hook is to look at: a slice for all of them, row numbers for a few.
Rows: TypeAlias = slice | Ints

_A = TypeVar("_A", bound=np.generic)


def rows_of(array: npt.NDArray[_A], rows: Rows) -> npt.NDArray[_A]:
    """`array[rows]`: of few rows of an array with two axes numpy's brackets take 3 µs, this way takes a tenth of that."""
    return array[rows] if isinstance(rows, slice) else array.take(rows, axis=0)


def cells_of(array: npt.NDArray[_A], lines: Ints, rows: Rows) -> npt.NDArray[_A]:
    """`[K, n]`: of `array[R, N]` these lines, K of them, at these rows."""
    return array[lines, rows] if isinstance(rows, slice) else array[lines[:, None], rows]
