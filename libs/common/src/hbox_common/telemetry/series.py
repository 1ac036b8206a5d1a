"""Series in Prometheus's text format, for pages with more series than a registry should render at once. Buckets may have exemplars, as in the format of
OpenMetrics: `plain` and `openmetrics` make a page of either format of them."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from .metrics import escaped

#: Names and values, in the order of the text.
Labels: TypeAlias = tuple[tuple[str, str], ...]
#: Labels and value of one series.
Row: TypeAlias = tuple[Labels, float]

_EXEMPLAR = re.compile(rb' # \{trace_id="[0-9a-f]{32}"\} [^\n]*$', re.MULTILINE)
_COUNTER_HEAD = re.compile(rb"^# (HELP|TYPE) (\S+)_total ", re.MULTILINE)


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
    """One histogram; `bounds`: of its buckets, ascending, without +Inf. Each bucket keeps its last exemplar."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0
        self._exemplars: dict[int, str] = {}  #: by bucket

    def add(self, value: float, exemplar: Mapping[str, str] | None = None, *, at: float = 0.0) -> None:
        """`exemplar`: labels with the `trace_id`; `at`: its time, in seconds since the epoch."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._sum += value
        if exemplar is not None:
            self._exemplars[bucket] = f" # {{{_inner(tuple(exemplar.items()))}}} {value:.10g} {at:.3f}"

    def text(self, family: Family, labels: Labels) -> str:
        inner = _inner(labels)
        bounds = (*(repr(float(bound)) for bound in self._bounds), "+Inf")
        buckets = [
            f'{family.name}_bucket{{{inner},le="{bound}"}} {count}{self._exemplars.get(bucket, "")}\n'
            for bucket, (bound, count) in enumerate(zip(bounds, accumulate(self._counts), strict=True))
        ]
        total = f"{family.name}_sum{{{inner}}} {self._sum:.10g}\n{family.name}_count{{{inner}}} {sum(self._counts)}\n"
        return "".join((*buckets, total))


def plain(text: bytes) -> bytes:
    """The page in Prometheus's text format: without exemplars."""
    return _EXEMPLAR.sub(b"", text)


def openmetrics(text: bytes) -> bytes:
    """The page in OpenMetrics's text format."""
    return _COUNTER_HEAD.sub(rb"# \1 \2 ", text) + b"# EOF\n"


def head(family: Family) -> bytes:
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n".encode()


def lines(family: Family, rows: Iterable[Row]) -> bytes:
    return "".join([f"{family.name}{{{_inner(labels)}}} {value:.10g}\n" for labels, value in rows]).encode()


def _inner(labels: Labels) -> str:
    return ",".join([f'{name}="{escaped(value)}"' for name, value in labels])
