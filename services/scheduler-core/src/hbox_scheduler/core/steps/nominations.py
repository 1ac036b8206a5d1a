"""Nominations: plans with victims, from proposal until the last victim has left (as `nominatedNodeName` of kube-scheduler).

The places of a nomination are booked on the columns from the start, on top of the victims, so that no other job gets what the victims leave. When the last of
them is gone, a plan without victims asks the ledger for the places. Where it is refused because a kubelet has given somebody one of the cards meanwhile, the
places stay nominated and are asked for again, on other cards of their nodes.

The ledger remembers what it accepted. A scheduler that starts finds there for whom others leave, books the same places before it plans anything, and goes on
from there. Until the job itself is heard of, such a nomination has no `placement`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from hbox_common.events import Plan
from hbox_common.model import Index, JobId, PlanId, PodUid

from ..placement.outcomes import JobPlacement


@dataclass(slots=True)
class Nomination:
    """The nominated places of one job. `waits_for`: victims that still have a booking."""

    plan: PlanId
    job: JobId
    pods: tuple[PodUid, ...]  #: to which the places are given
    placement: JobPlacement | None
    waits_for: set[PodUid]
    until: float  #: the nomination is given up then, and the job is tried elsewhere
    accepted: bool = False
    held: Plan | None = None  #: where another process made it: the plan, as the ledger has it
    refusals: int = 0  #: of plans for its places
    refresh: Index = Index(0)  #: its places are asked for again on a view as new as that, and not before `ask_at`
    ask_at: float = 0.0
    searched_at: Index = Index(-1)  #: index of the view on which the last search for other victims failed


@dataclass(slots=True)
class Nominations:
    """All nominations, at most one a job, and pods that were evicted for no job (`shuffle`)."""

    _of: dict[JobId, Nomination] = field(default_factory=dict)
    #: by the pods that leave: of two shards two jobs may have nominated for what one pod leaves
    _waiting: dict[PodUid, dict[JobId, None]] = field(default_factory=dict)
    #: pods for whose places nobody waits, and until when they are believed to leave
    _evicted: dict[PodUid, float] = field(default_factory=dict)
    #: deadline (monotonic) of each victim that still runs, also after its nomination ended; then the victim is overdue
    _leave_by: dict[PodUid, float] = field(default_factory=dict)
    _accepted: set[PodUid] = field(default_factory=set)  #: of these, pods whose evictions were accepted

    def __len__(self) -> int:
        return len(self._of)

    def put(self, nomination: Nomination, leave_by: float) -> None:
        """Add a nomination. `leave_by`: deadline (monotonic) of its victims whose grace periods are unknown."""
        job = nomination.job
        self._of[job] = nomination
        for pod in sorted(nomination.waits_for):
            self._waiting.setdefault(pod, {})[job] = None
            if pod not in self._accepted:
                self._leave_by[pod] = leave_by

    def all(self) -> Iterable[Nomination]:
        return self._of.values()

    def get(self, job: JobId) -> Nomination | None:
        return self._of.get(job)

    def by_plan(self, plan: PlanId) -> Nomination | None:
        return next((nomination for nomination in self._of.values() if nomination.plan == plan), None)

    def of_plan(self, job: JobId, plan: PlanId) -> Nomination | None:
        nomination = self._of.get(job)
        return nomination if nomination is not None and nomination.plan == plan else None

    def drop(self, job: JobId) -> Nomination | None:
        nomination = self._of.pop(job, None)
        if nomination is not None:
            for pod in nomination.waits_for:
                jobs = self._waiting[pod]
                del jobs[job]
                if not jobs:
                    del self._waiting[pod]
        return nomination

    def waiting_for(self, pod: PodUid) -> Iterable[JobId]:
        """The jobs that wait for this pod to leave."""
        return self._waiting.get(pod, ())

    def __contains__(self, pod: object) -> bool:
        """Whether this pod leaves."""
        return pod in self._waiting or pod in self._evicted

    def __iter__(self) -> Iterator[PodUid]:
        """Pods that leave."""
        return chain(self._waiting, self._evicted)

    def add_evicted(self, pods: Iterable[PodUid], until: float) -> None:
        """They leave, and nobody waits for that."""
        self._evicted.update(dict.fromkeys(pods, until))

    def stay(self, pods: Iterable[PodUid]) -> None:
        """They do not leave after all."""
        for pod in pods:
            self._evicted.pop(pod, None)

    def leaves_by(self, pod: PodUid, at: float) -> None:
        """The pod's eviction was accepted. `at`: its deadline (monotonic)."""
        if pod in self._leave_by:
            self._leave_by[pod] = at
            self._accepted.add(pod)

    def is_late(self, pod: PodUid, now: float) -> bool:
        """Whether the deadline of this victim has passed."""
        return self._leave_by.get(pod, float("inf")) <= now

    def is_overdue(self, nomination: Nomination, now: float) -> bool:
        """Whether the deadline of one of its victims has passed."""
        return any(self.is_late(pod, now) for pod in nomination.waits_for)

    def overdue_at(self, nomination: Nomination) -> float:
        """When `is_overdue` becomes true."""
        return min(self._leave_by.get(pod, float("inf")) for pod in nomination.waits_for)

    def kept(self) -> Iterator[PodUid]:
        """Pods to which places are given."""
        return (pod for nomination in self._of.values() for pod in nomination.pods)

    def expire_evicted(self, now: float) -> None:
        """Those sent away who never left count as staying."""
        self.stay([pod for pod, until in self._evicted.items() if until <= now])

    def pod_left(self, pod: PodUid) -> None:
        """A pod's booking is gone."""
        self._evicted.pop(pod, None)
        self._leave_by.pop(pod, None)
        self._accepted.discard(pod)
        for job in self._waiting.pop(pod, ()):
            self._of[job].waits_for.discard(pod)

    def due(self, index: Index, now: float) -> Iterator[Nomination]:
        """Accepted ones whose victims are all gone and whose jobs are known, of which a view at `index` knows why they were refused, after their back-off."""
        return (
            nomination
            for nomination in list(self._of.values())
            if nomination.accepted
            and not nomination.waits_for
            and nomination.placement is not None
            and nomination.refresh <= index
            and nomination.ask_at <= now
        )

    def taken_over(self) -> Iterator[Nomination]:
        """Those that another process made."""
        return (nomination for nomination in list(self._of.values()) if nomination.held is not None)

    def overdue(self, now: float) -> Iterator[Nomination]:
        return (nomination for nomination in list(self._of.values()) if nomination.until <= now)

    def next_at(self, now: float) -> list[float]:
        """When one is `overdue` next, or its back-off is over."""
        return [nomination.ask_at if nomination.ask_at > now else nomination.until for nomination in self._of.values()]
