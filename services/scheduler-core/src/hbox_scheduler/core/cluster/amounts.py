"""Amounts as a few pairs, and sums of them."""

from typing import TypeAlias

#: Columns and base units, positive ones only, without `pods`.
Asked: TypeAlias = tuple[tuple[int, int], ...]

#: `[R]` base units.
Sums: TypeAlias = list[int]
