"""Vendor-specific parts of slices (`CardSlice.part`) by row and card. Stored sparsely outside the columns, because few slices have one."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hbox_common.model import CardSlice


class SliceParts:
    """`_held[row][(index, part)]`: number of slices with this part on that card."""

    def __init__(self) -> None:
        self._held: dict[int, Counter[tuple[int, str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def rows(self) -> Iterable[int]:
        """Rows with at least one part."""
        return self._held.keys()

    def book(self, row: int, slices: Sequence[CardSlice], times: int = 1) -> None:
        """Book the parts of these slices; `times=-1` reverts it."""
        for s in slices:
            if s.part:
                held = self._held.setdefault(row, Counter())
                held[s.index, s.part] += times
                if not held[s.index, s.part]:
                    del held[s.index, s.part]
                    if not held:
                        del self._held[row]

    def clear(self, row: int) -> None:
        """Remove all bookings of this row."""
        self._held.pop(row, None)

    def of(self, row: int) -> dict[int, tuple[str, ...]]:
        """The parts on each card of a row, by index."""
        found: dict[int, tuple[str, ...]] = {}
        for (index, part), count in sorted(self._held.get(row, {}).items()):
            found[index] = (*found.get(index, ()), *(part,) * max(count, 0))
        return found

    def items(self, row: int) -> Iterable[tuple[tuple[int, str], int]]:
        """Card index and part, with the number of slices, on a row."""
        return self._held.get(row, {}).items()

    def copy(self) -> "SliceParts":
        fresh = SliceParts()
        fresh._held = {row: Counter(held) for row, held in self._held.items()}
        return fresh

    def only(self, row: int) -> "SliceParts":
        """A copy of this row alone, as row 0."""
        fresh = SliceParts()
        if row in self._held:
            fresh._held[0] = Counter(self._held[row])
        return fresh

    def without(self, other: "SliceParts") -> "SliceParts":
        """A copy minus the bookings of `other`."""
        left = self.copy()
        for row, held in other._held.items():
            mine = left._held.setdefault(row, Counter())
            mine.subtract(held)
            for key in [key for key, count in mine.items() if not count]:
                del mine[key]
            if not mine:
                del left._held[row]
        return left

    def maximum(self, other: "SliceParts") -> "SliceParts":
        """A copy with the larger count of both for each part."""
        most = self.copy()
        for row, held in other._held.items():
            most._held[row] = most._held.get(row, Counter()) | held
        return most
