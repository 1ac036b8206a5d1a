"""Run times of pods by queue and namespace: they predict the ends of pods without a walltime, and correct walltimes that are exceeded.

Learned from claims that end: 64 run times of each of 1,024 pairs of queue and namespace. The scheduler publishes what it learned (`RunTimesLearned`), and a
restarted scheduler continues from there. A pod without a walltime and without history has no known end.

A walltime is an upper bound of its pod's run time, as Slurm's `--time`, but HBox does not kill pods that exceed it. Instead, the longest overrun among the last
64 ends of the same namespace in the queue, and of its pods that overrun now, multiplies all of its walltimes: a walltime of a tenth of the truth is believed
once, and from then on counts as the truth.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeAlias

from hbox_common.events import RUN_TIME_SHARDS
from hbox_common.events.base import shard_of
from hbox_common.model import QueueName, RanFor

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

    def whole_s(self, queue: QueueName, namespace: str, ran_s: float, *, part: float = 0.9) -> float | None:
        """Expected total run time of a pod that has run for `ran_s`: the 90th percentile, or another one, of those that ran longer; None = too few are
        known."""
        for whose in ((queue, namespace), (queue, ""), _EVERYBODY):
            if (known := self._histories.get(whose)) is not None:
                ran = known.in_order()
                first = bisect_right(ran, ran_s)
                if len(ran) - first >= _FOR_END:
                    return ran[first + min(int(part * (len(ran) - first)), len(ran) - first - 1)]
        return None

    def any_of(self, queue: QueueName, namespace: str) -> bool:
        """True if enough run times are known to call a run unusually long."""
        known = self._histories.get((queue, namespace))
        return known is not None and len(known.ran) >= _FOR_START

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
