"""Names for the array types of the core. N = node rows, R = resources, D = card positions of a node."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

#: Which rows a vectorised hook is to look at: a slice for all of them, row numbers for a few.
Rows: TypeAlias = slice | Ints
