"""Nominations: plans with victims, from proposal until the last victim has left (as `nominatedNodeName` of kube-scheduler).

The places of a nomination are booked on the columns from the start, on top of the victims, so that no other job gets what the victims release. When the last of
them is gone, a plan without victims requests the places from the ledger. If the ledger rejects it because a kubelet has given one of the cards to another pod
meanwhile, the places stay nominated and are requested again, on other cards of their nodes.

The ledger records accepted nominations. A scheduler that starts reads them, books the same places before it plans anything, and continues from there. Until the
job itself is received, such a nomination has no `placement`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain

from hbox_common.events import Plan
from hbox_common.model import Index, JobId, PlanId, PodUid

from ..cluster.task import Task
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
    refresh: Index = Index(0)  #: its places are requested again on a view as new as that, and not before `ask_at`
    ask_at: float = 0.0
    searched_at: Index = Index(-1)  #: index of the view on which the last search for other victims failed


@dataclass(slots=True)
class Nominations:
    """All nominations, at most one a job, and pods that were evicted for no job (`shuffle`).

    A cycle reads indexes: a nomination whose victims still run, before their deadlines, costs it nothing.
    """

    _of: dict[JobId, Nomination] = field(default_factory=dict)
    #: by the pods that leave: in two shards two jobs may be nominated for the places of one pod
    _waiting: dict[PodUid, dict[JobId, None]] = field(default_factory=dict)
    #: pods that leave without a nomination for their places, and until when they are expected to leave
    _evicted: dict[PodUid, float] = field(default_factory=dict)
    #: deadline (monotonic) of each victim that still runs, also after its nomination ended; then the victim is overdue
    _leave_by: dict[PodUid, float] = field(default_factory=dict)
    _accepted: set[PodUid] = field(default_factory=set)  #: of these, pods whose evictions were accepted
    _free: dict[JobId, None] = field(default_factory=dict)  #: nominations whose victims have all left
    _unknown: dict[JobId, None] = field(default_factory=dict)  #: nominations without a placement
    _by_task: dict[Task, dict[JobId, None]] = field(default_factory=dict)  #: by the shapes of their pods
    #: heap of deadlines; an entry counts while `_leave_by` has the same time and a job waits for the pod
    _deadlines: list[tuple[float, PodUid]] = field(default_factory=list)
    _late: dict[PodUid, None] = field(default_factory=dict)  #: victims whose deadline has passed
    #: heap of `Nomination.until`; an entry counts while the job has this nomination
    _ends: list[tuple[float, JobId, PlanId]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._of)

    def put(self, nomination: Nomination, leave_by: float) -> None:
        """Add a nomination in place of the job's former one. `leave_by`: deadline (monotonic) of its victims whose grace periods are unknown."""
        job = nomination.job
        self.drop(job)
        self._of[job] = nomination
        for pod in sorted(nomination.waits_for):
            self._waiting.setdefault(pod, {})[job] = None
            if pod not in self._accepted:
                self._leave_by[pod] = leave_by
                self._late.pop(pod, None)
            heappush(self._deadlines, (self._leave_by.get(pod, leave_by), pod))
        if not nomination.waits_for:
            self._free[job] = None
        heappush(self._ends, (nomination.until, job, nomination.plan))
        if nomination.placement is not None:
            self._index(nomination.placement, job)
        else:
            self._unknown[job] = None

    def resume(self, nomination: Nomination, placement: JobPlacement) -> None:
        """Set the placement of a nomination that was taken over: its job is known now."""
        nomination.placement = placement
        self._unknown.pop(nomination.job, None)
        self._index(placement, nomination.job)

    def _index(self, placement: JobPlacement, job: JobId) -> None:
        for task in {placed.task: None for placed in placement.placements}:
            self._by_task.setdefault(task, {})[job] = None

    def resolve_again(self, resolved: Mapping[Task, Task]) -> None:
        """Replace the tasks of placements, after `Columns` assigned resources to other columns. `resolved`: new tasks by their former ones."""
        self._by_task.clear()
        for nomination in self._of.values():
            if (placement := nomination.placement) is not None:
                placements = tuple(replace(one, task=resolved.get(one.task, one.task)) for one in placement.placements)
                nomination.placement = replace(placement, placements=placements)
                self._index(nomination.placement, nomination.job)

    @property
    def by_task(self) -> Mapping[Task, Collection[JobId]]:
        """Nominated jobs by the shapes of their pods."""
        return self._by_task

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
                    self._late.pop(pod, None)
            self._free.pop(job, None)
            self._unknown.pop(job, None)
            for task in {placed.task: None for placed in nomination.placement.placements} if nomination.placement else ():
                of_task = self._by_task[task]
                del of_task[job]
                if not of_task:
                    del self._by_task[task]
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
        """These pods leave, and no nomination waits for their places."""
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
            self._late.pop(pod, None)
            heappush(self._deadlines, (at, pod))

    def is_late(self, pod: PodUid, now: float) -> bool:
        """Whether the deadline of this victim has passed."""
        return self._leave_by.get(pod, float("inf")) <= now

    def delayed(self, now: float) -> Iterator[Nomination]:
        """Nominations with a victim whose deadline has passed, in the order of the deadlines."""
        while self._deadlines and self._deadlines[0][0] <= now:
            at, pod = heappop(self._deadlines)
            if self._is_deadline(at, pod):
                self._late[pod] = None
        return (self._of[job] for job in {job: None for pod in self._late for job in self._waiting[pod]})

    def next_deadline(self) -> float | None:
        """The first deadline of a victim that has not passed at the last call of `delayed`; None: there is none."""
        while self._deadlines and not self._is_deadline(*self._deadlines[0]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _is_deadline(self, at: float, pod: PodUid) -> bool:
        return pod in self._waiting and self._leave_by.get(pod) == at

    def kept(self) -> Iterator[PodUid]:
        """Pods to which places are given."""
        return (pod for nomination in self._of.values() for pod in nomination.pods)

    def expire_evicted(self, now: float) -> None:
        """Evicted pods that never left count as staying."""
        self.stay([pod for pod, until in self._evicted.items() if until <= now])

    def pod_left(self, pod: PodUid) -> None:
        """A pod's booking is gone."""
        self._evicted.pop(pod, None)
        self._leave_by.pop(pod, None)
        self._accepted.discard(pod)
        self._late.pop(pod, None)
        for job in self._waiting.pop(pod, ()):
            self._of[job].waits_for.discard(pod)
            if not self._of[job].waits_for:
                self._free[job] = None

    def due(self, index: Index, now: float) -> Iterator[Nomination]:
        """Accepted ones whose victims are all gone and whose jobs are known, of which a view at `index` knows why they were refused, after their back-off."""
        return (
            nomination
            for nomination in [self._of[job] for job in self._free]
            if nomination.accepted
            and nomination.placement is not None
            and nomination.refresh <= index
            and nomination.ask_at <= now
        )

    def unknown(self) -> list[Nomination]:
        """Nominations that another process made, of jobs that are not known yet."""
        return [self._of[job] for job in self._unknown]

    def expired(self, now: float) -> list[Nomination]:
        """Nominations that ended by their time; the caller drops them."""
        ended: dict[JobId, Nomination] = {}
        while self._ends and self._ends[0][0] <= now:
            _, job, plan = heappop(self._ends)
            if (nomination := self.of_plan(job, plan)) is not None:
                ended[job] = nomination
        return list(ended.values())

    def next_at(self, now: float) -> list[float]:
        """When the next nomination expires, and when back-offs end."""
        while self._ends and self.of_plan(*self._ends[0][1:]) is None:
            heappop(self._ends)
        back_offs = [at for job in self._free if (at := self._of[job].ask_at) > now]
        return [*back_offs, self._ends[0][0]] if self._ends else back_offs
