"""Room that is promised: plans with victims that the ledger accepted, until the last victim is gone.

The places of a promise are booked on the columns from the start, over-full as they are, so that nobody else gets what the victims leave. Once all of them
are gone the places fit, and a plan without victims asks the ledger for them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from hbox_common.model import JobId, PlanId, PodUid

from .taking import Taking


@dataclass(slots=True)
class Promise:
    """One job's taking. `waits_for`: victims that still have a booking."""

    plan: PlanId
    taking: Taking
    waits_for: set[PodUid]
    until: float  #: it is given up then, and the job looks elsewhere
    accepted: bool = False


@dataclass(slots=True)
class Promises:
    """At most one promise a job."""

    _of: dict[JobId, Promise] = field(default_factory=dict)
    _waiting: dict[PodUid, JobId] = field(default_factory=dict)
    _sent_away: dict[PodUid, float] = field(
        default_factory=dict
    )  #: pods for whose places nobody waits, and until when they are believed to leave

    def __len__(self) -> int:
        return len(self._of)

    def put(self, promise: Promise) -> None:
        job = promise.taking.entry.job.id
        self._of[job] = promise
        self._waiting.update(dict.fromkeys(promise.waits_for, job))

    def get(self, job: JobId) -> Promise | None:
        return self._of.get(job)

    def of_plan(self, job: JobId, plan: PlanId) -> Promise | None:
        promise = self._of.get(job)
        return promise if promise is not None and promise.plan == plan else None

    def drop(self, job: JobId) -> Promise | None:
        promise = self._of.pop(job, None)
        if promise is not None:
            for pod in promise.waits_for:
                self._waiting.pop(pod, None)
        return promise

    def waiting_for(self, pod: PodUid) -> JobId | None:
        """The job that waits for this pod to leave."""
        return self._waiting.get(pod)

    def __contains__(self, pod: object) -> bool:
        """Whether this pod leaves."""
        return pod in self._waiting or pod in self._sent_away

    def __iter__(self) -> Iterator[PodUid]:
        """Pods that leave."""
        return chain(self._waiting, self._sent_away)

    def send_away(self, pods: Iterable[PodUid], until: float) -> None:
        """They leave, and nobody waits for that."""
        self._sent_away.update(dict.fromkeys(pods, until))

    def stay(self, pods: Iterable[PodUid]) -> None:
        """They do not leave after all."""
        for pod in pods:
            self._sent_away.pop(pod, None)

    def outstayed(self, now: float) -> None:
        """Those sent away who never left count as staying."""
        self.stay([pod for pod, until in self._sent_away.items() if until <= now])

    def left(self, pod: PodUid) -> None:
        """A pod's booking is gone."""
        self._sent_away.pop(pod, None)
        job = self._waiting.pop(pod, None)
        if job is not None:
            self._of[job].waits_for.discard(pod)

    def due(self) -> Iterator[Promise]:
        """Accepted ones whose victims are all gone."""
        return (promise for promise in list(self._of.values()) if promise.accepted and not promise.waits_for)

    def overdue(self, now: float) -> Iterator[Promise]:
        return (promise for promise in list(self._of.values()) if promise.until <= now)

    def next_at(self) -> list[float]:
        """When one is `overdue` next."""
        return [min(promise.until for promise in self._of.values())] if self._of else []
