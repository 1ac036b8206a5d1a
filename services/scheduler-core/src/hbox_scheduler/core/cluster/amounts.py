"""Amounts as a few pairs, and sums of them."""

from typing import TypeAlias

#: Resource columns and the units of each: a request, resolved once.
Amount: TypeAlias = tuple[tuple[int, int], ...]

#: Columns and base units, positive ones only, without `pods`.
Asked: TypeAlias = tuple[tuple[int, int], ...]

#: `[R]` base units.
Sums: TypeAlias = list[int]
