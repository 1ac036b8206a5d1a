"""How long a pod runs, by what is written and what was learned."""

from collections.abc import Mapping
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import QueueName
from hbox_common.model.annotations import WALLTIME

from ..cluster.arrays import Floats
from ..cluster.entities import Member, QueueInfo, Status
from ..cluster.placedpods import PlacedPods
from ..cluster.runtimes import LEAST_S, RunTimes, Whose
from ..cluster.walltimes import walltime_in

if TYPE_CHECKING:
    from ..framework.session import Session

_RUNS = (Status.RUNNING, Status.BOUND, Status.ALLOCATED)


def written_s(member: Member, queue: QueueInfo | None) -> float | None:
    """The member's walltime by the annotation of the pod, its PodGroup or its queue, in this order; None if none is a duration."""
    return walltime_in(member.annotations, member.gang.annotations, queue.annotations if queue is not None else {})


def not_longer(annotations: Mapping[str, str], before: Mapping[str, str], queue: Mapping[str, str]) -> Mapping[str, str]:
    """Annotations of a placed pod. If they have a longer walltime than before, or none any more, the former one stays, with which the pod was admitted."""
    had, has = walltime_in(before, queue), walltime_in(annotations, queue)
    if had is None or (has is not None and has <= had):
        return annotations
    return {**annotations, WALLTIME: f"{had:.3f}s"}


def bound_s(member: Member, queue: QueueInfo | None, known: RunTimes, *, sure: bool) -> float:
    """How long the member runs at most if it starts now; inf = unknown. Not `sure`: more likely than not."""
    return bound_of(written_s(member, queue), member.gang.queue, member.namespace, known, sure=sure)


def bound_of(written_s: float | None, queue: QueueName, namespace: str, known: RunTimes, *, sure: bool) -> float:
    """As `bound_s`, of a pod of this namespace in the queue for which a walltime is written, or none."""
    if written_s is not None:
        return known.believed_s(queue, namespace, written_s)
    learned = known.bound_s(queue, namespace, sure=sure)
    return inf if learned is None else learned


def placed_pods(session: "Session") -> PlacedPods:
    """The pods that run, or will as soon as their plans are answered."""
    fresh = [member for gang in session.fresh for member in gang.of(*_RUNS) if member.row >= 0]
    return session.running.placed.current(fresh)


class Ends:
    """Expected ends of placed pods, in seconds since the epoch; inf = unknown."""

    def __init__(self, pods: PlacedPods, queues: Mapping[QueueName, QueueInfo], known: RunTimes, now: float) -> None:
        self._pods, self._known, self._now = pods, known, now
        by_queue: dict[str, float] = {}
        for name, _ in pods.pairs:
            if name not in by_queue:
                queue = queues.get(QueueName(name))
                found = walltime_in(queue.annotations) if queue is not None and queue.annotations else None
                by_queue[name] = nan if found is None else found
        of_pair = np.array([by_queue[name] for name, _ in pods.pairs], dtype=np.float64)
        #: `[V]`: the walltime by the annotation of the pod, its PodGroup or its queue, in this order; nan = none is a duration
        self.written_s: Floats = np.where(np.isnan(pods.walltime_s), of_pair[pods.whose], pods.walltime_s)
        self._ran_s: Floats = now - np.where(np.isnan(pods.started), now, np.minimum(pods.started, now))

    def overruns(self) -> dict[Whose, float]:
        """By how much pods exceed their walltimes: the largest factor of each queue and namespace; left out where none exceeds its own."""
        pods = self._pods
        with np.errstate(invalid="ignore"):
            factors = (self._now - pods.started) / np.maximum(self.written_s, LEAST_S)
            over = np.flatnonzero(factors > 1.0)
        worst = np.ones(len(pods.pairs))
        np.maximum.at(worst, pods.whose[over], factors[over])
        return {pods.pairs[code]: float(worst[code]) for code in np.flatnonzero(worst > 1.0).tolist()}

    def expected(self) -> Floats:
        """`[V]`: the earlier of the written and the learned end: an end expected too early keeps nodes idle for nothing, one expected too late admits pods that
        delay the start. A pod that overran both is expected to continue for a quarter of what it has run."""
        learned = self._known.whole_s(self._pods.pairs, self._pods.whose, self._ran_s)
        left = np.minimum(self._left_s(self.written_s), self._left_s(learned))
        any_known = self._known.any_of(self._pods.pairs)[self._pods.whose]
        overrun = np.where(np.isnan(self.written_s) & ~any_known, inf, self._now + self._ran_s / 4)
        return np.where(left < inf, self._now + left, overrun)

    def likely(self) -> Floats:
        """As `expected`, but an end that is as likely too early as too late: the median of the runs that lasted longer, or half of what the walltime
        leaves."""
        learned = self._known.whole_s(self._pods.pairs, self._pods.whose, self._ran_s, part=0.5)
        found = np.where(learned > self._ran_s, self._now + learned - self._ran_s, self._now + self._left_s(self.written_s) / 2)
        return np.where(found < inf, found, self.expected())

    def _left_s(self, whole_s: Floats) -> Floats:
        """`[V]`: seconds until so long a run is over; inf = it is over already, or unknown."""
        with np.errstate(invalid="ignore"):
            return np.where(whole_s > self._ran_s, whole_s - self._ran_s, inf)
