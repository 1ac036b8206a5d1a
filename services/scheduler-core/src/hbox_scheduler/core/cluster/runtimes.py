"""Run times of pods by queue and namespace: they predict the ends of pods without a walltime, and correct walltimes that are exceeded.

Learned from claims that end: 64 run times of each of 1,024 pairs of queue and namespace. The scheduler publishes what it learned (`RunTimesLearned`), and a
restarted scheduler continues from there. A pod without a walltime and without history has no known end.

A walltime is an upper bound of its pod's run time, as Slurm's `--time`, but HBox does not kill pods that exceed it. Instead, the longest overrun among the last
64 ends of the same namespace in the queue, and of its pods that overrun now, multiplies all of its walltimes: a walltime of a tenth of the truth is believed
once, and from then on counts as the truth.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import TypeAlias

import numpy as np

from hbox_common.events import RUN_TIME_SHARDS
from hbox_common.events.base import shard_of
from hbox_common.model import QueueName, RanFor

from .arrays import Bools, Floats, Ints

#: Key of a history: a queue and a namespace; ("queue", "") = all namespaces of a queue; ("", "") = all pods.
Whose: TypeAlias = tuple[str, str]

#: A shorter walltime counts as this long, seconds: starting and stopping take time.
LEAST_S = 10.0

#: Maximum number of run times of each history, and of histories.
_KEPT, _PAIRS = 64, 1024

#: Minimum number of known run times for a prediction: of a running pod, and of a pod that would start.
_FOR_END, _FOR_START = 4, 16

_EVERYBODY: Whose = ("", "")


@dataclass(slots=True)
class _History:
    ran: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    overruns: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))  #: of those with a walltime: 1 or more
    _sorted: list[float] | None = None

    def add(self, ran_s: float) -> None:
        self.ran.append(ran_s)
        self._sorted = None

    def replace(self, ran: Iterable[float], overruns: Iterable[float]) -> None:
        for kept, new in ((self.ran, ran), (self.overruns, overruns)):
            kept.clear()
            kept.extend(new)
        self._sorted = None

    def in_order(self) -> list[float]:
        if self._sorted is None:
            self._sorted = sorted(self.ran)
        return self._sorted


class _Table:
    """Histories in one array, so that many run times are looked up at once: those of one history are numbers of their own in the order of all values."""

    def __init__(self, histories: Sequence[_History | None]) -> None:
        """`histories`: by code; several codes may have the same one."""
        known = {id(one): one for one in histories if one is not None and len(one.ran) >= _FOR_END}
        number = {key: place for place, key in enumerate(known)}
        self._history: Ints = np.array([number.get(id(one), -1) for one in histories], dtype=np.int64)
        ran = [one.in_order() for one in known.values()]
        self._ends: Ints = np.cumsum([len(one) for one in ran], dtype=np.int64)
        self._ran: Floats = np.array([each for one in ran for each in one], dtype=np.float64)
        self._values: Floats = np.unique(self._ran)
        own = np.repeat(np.arange(len(ran)), [len(one) for one in ran])
        self._places: Ints = own * len(self._values) + np.searchsorted(self._values, self._ran)

    def whole_s(self, codes: Ints, ran_s: Floats, part: float) -> Floats:
        """`[n]`: as `RunTimes.whole_s`, by these histories alone."""
        found = np.full(len(ran_s), nan)
        if not len(self._ends):
            return found
        history = self._history[codes]
        there = np.flatnonzero(history >= 0)
        history = history[there]
        rank = np.searchsorted(self._values, ran_s[there], side="right")
        first = np.searchsorted(self._places, history * len(self._values) + rank)
        longer = self._ends[history] - first
        enough = longer >= _FOR_END
        first, longer = first[enough], longer[enough]
        found[there[enough]] = self._ran[first + np.minimum((part * longer).astype(np.int64), longer - 1)]
        return found


class RunTimes:
    """All that was learned. Times in seconds."""

    def __init__(self) -> None:
        self._histories: OrderedDict[Whose, _History] = OrderedDict()
        self._pending: set[str] = set()  #: shards in which something was learned since it was published
        self.overrunning: Mapping[Whose, float] = {}  #: factors by which running pods exceed their walltimes, the worst of each

    def ended(self, queue: QueueName, namespace: str, ran_s: float, walltime_s: float | None) -> None:
        """A pod ended by itself. `walltime_s`: its walltime annotation."""
        if not isfinite(ran_s) or ran_s < 0:
            return
        for whose in ((queue, namespace), (queue, ""), _EVERYBODY):
            self._of(whose).add(ran_s)
            self._pending.add(_shard(whose))
        if walltime_s is not None:
            self._of((queue, namespace)).overruns.append(overrun(ran_s, walltime_s))

    def take_pending(self) -> dict[str, tuple[RanFor, ...]]:
        """All that is known in each shard in which something was learned since the last call."""
        pending: dict[str, list[RanFor]] = {shard: [] for shard in sorted(self._pending)}
        self._pending.clear()
        for whose, known in self._histories.items() if pending else ():
            if (shard := pending.get(_shard(whose))) is not None:
                shard.append(RanFor(QueueName(whose[0]), whose[1], tuple(known.ran), tuple(known.overruns)))
        return {shard: tuple(learned) for shard, learned in pending.items()}

    def put_back(self, shard: str) -> None:
        """The shard could not be published."""
        self._pending.add(shard)

    def take_in(self, learned: Iterable[RanFor]) -> None:
        """Adopt the histories that another scheduler, or an earlier process of this one, published, if they have more run times than are known here. Own
        messages change nothing."""
        for one in learned:
            known = self._of((one.queue, one.namespace))
            ran = [each for each in one.ran if isfinite(each) and each >= 0][-_KEPT:]
            if len(ran) > len(known.ran):
                known.replace(ran, [each for each in one.overruns if isfinite(each) and each >= 1])

    def believed_s(self, queue: QueueName, namespace: str, walltime_s: float) -> float:
        """Maximum run time of a pod with this walltime, by the overruns of earlier pods."""
        known = self._histories.get((queue, namespace))
        worst = max(known.overruns, default=1.0) if known is not None else 1.0
        return max(walltime_s, LEAST_S) * max(worst, self.overrunning.get((queue, namespace), 1.0))

    def bound_s(self, queue: QueueName, namespace: str, *, sure: bool = True) -> float | None:
        """Maximum run time of a pod that starts now: the 95th percentile of earlier ones, or the median if it need not be `sure`; None = too few are known."""
        known = self._histories.get((queue, namespace))
        if known is None or len(known.ran) < _FOR_START:
            return None
        ran = known.in_order()
        return ran[min(int((0.95 if sure else 0.5) * len(ran)), len(ran) - 1)]

    def whole_s(self, pairs: Sequence[Whose], whose: Ints, ran_s: Floats, *, part: float = 0.9) -> Floats:
        """`[V]`: expected total run time of each pod that has run for `ran_s`: the 90th percentile, or another one, of those that ran longer; nan = too few are
        known. `whose`: `[V]`, a code of `pairs`."""
        found = np.full(len(ran_s), nan)
        left = np.arange(len(ran_s))
        for level in (lambda pair: pair, lambda pair: (pair[0], ""), lambda _: _EVERYBODY):
            table = _Table([self._histories.get(level(pair)) for pair in pairs])
            whole = table.whole_s(whose[left], ran_s[left], part)
            found[left] = whole
            left = left[np.isnan(whole)]
            if not len(left):
                break
        return found

    def any_of(self, pairs: Sequence[Whose]) -> Bools:
        """By pair: enough run times are known to call a run unusually long."""
        known = map(self._histories.get, pairs)
        return np.array([one is not None and len(one.ran) >= _FOR_START for one in known], dtype=np.bool_)

    def _of(self, whose: Whose) -> _History:
        found = self._histories.get(whose)
        if found is None:
            found = self._histories[whose] = _History()
            if len(self._histories) > _PAIRS:
                self._histories.popitem(last=False)
        self._histories.move_to_end(whose)
        return found


def _shard(whose: Whose) -> str:
    return shard_of("/".join(whose), RUN_TIME_SHARDS)


def overrun(ran_s: float, walltime_s: float) -> float:
    """Factor by which a pod exceeded its walltime; 1 if it did not."""
    return max(ran_s / max(walltime_s, LEAST_S), 1.0)
