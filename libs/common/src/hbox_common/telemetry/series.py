"""Series in Prometheus's text format, for pages with more series than a registry should render at once."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from .metrics import escaped

#: Names and values, in the order of the text.
Labels: TypeAlias = tuple[tuple[str, str], ...]
#: Labels and value of one series.
Row: TypeAlias = tuple[Labels, float]


class Family(NamedTuple):
    name: str
    type: str
    help: str


class Counters:
    """Counters by labels. The first text with a counter shows 0: Prometheus takes no increase from a series that begins with its first event."""

    def __init__(self) -> None:
        self._values: dict[Labels, float] = {}
        self._shown: set[Labels] = set()

    def add(self, labels: Labels, amount: float) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def keep(self, kept: Callable[[Labels], bool]) -> None:
        """End all other series."""
        for gone in [labels for labels in self._values if not kept(labels)]:
            del self._values[gone]
            self._shown.discard(gone)

    def rows(self) -> list[Row]:
        rows = [(labels, value if labels in self._shown else 0.0) for labels, value in sorted(self._values.items())]
        self._shown.update(self._values)
        return rows


class Histogram:
    """One histogram; `bounds`: of its buckets, ascending, without +Inf."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def text(self, family: Family, labels: Labels) -> str:
        inner = _inner(labels)
        bounds = (*(f"{bound:.10g}" for bound in self._bounds), "+Inf")
        buckets = [
            f'{family.name}_bucket{{{inner},le="{bound}"}} {count}\n'
            for bound, count in zip(bounds, accumulate(self._counts), strict=True)
        ]
        total = f"{family.name}_sum{{{inner}}} {self._sum:.10g}\n{family.name}_count{{{inner}}} {sum(self._counts)}\n"
        return "".join((*buckets, total))


def head(family: Family) -> bytes:
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n".encode()


def lines(family: Family, rows: Iterable[Row]) -> bytes:
    return "".join([f"{family.name}{{{_inner(labels)}}} {value:.10g}\n" for labels, value in rows]).encode()


def _inner(labels: Labels) -> str:
    return ",".join([f'{name}="{escaped(value)}"' for name, value in labels])
