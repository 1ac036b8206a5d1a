"""A record's work under another policy: the decisions that it would have made.

The scheduler receives what came from outside (`workload`): nodes, health, queues, quotas, the fabric, disruption budgets, jobs as they arrived, withdrawals,
and the times when the ledger accepted no plans. All consequences of decisions are simulated: a ledger answers each plan at once (`instantledger`), a pod ends
when it has held its place for as long as on record, and its job is updated as by job-controller. Cycles run when the record had one, and when something happens
that the record does not have.

    work of known length     ends so long after its start under this policy
    cut short on record      runs until the record ends
    evicted here             leaves after as long as victims took on record (`Workload.leaves_s`), and comes back as a new pod, which starts over
    on a node that went      lost, and comes back at once
    outside                  holds its place as on record; evicted here it does not come back: its requests are unknown
    NUMA nodes               the zones of outside pods stay; other pods get theirs from the mirror of the kubelet (`zonereports`)

These stay as on record: the usage in ResourceQuotas, the measured usage of nodes, the history of queues, and the answers of an `extender`'s web services.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any

from hbox_common.errors import Unavailable
from hbox_common.events import Plan
from hbox_common.model import (
    GroupPhase,
    GroupState,
    Job,
    JobId,
    Neighbour,
    NodeName,
    NodeState,
    PodGroupTask,
    PodRef,
    PodUid,
)
from hbox_common.model.nodezones import ask_of

from ..framework.webhooks import Question
from ..record.record import INPUTS, Call, Head
from ..record.replay import Answers, scheduler_of
from .instantledger import InstantLedger
from .workload import Meter, Workload, held_by, timed
from .zonereports import ZoneReports

#: Inputs that are adapted to the simulated decisions.
CHANGED = frozenset(
    {
        "on_node",
        "on_zones",
        "on_verdict",
        "on_neighbours",
        "on_groups",
        "on_jobs",
        "on_jobs_snapshot",
        "on_claims_snapshot",
        "follow",
        "cycle",
    }
)

#: Consequences of the record's own decisions are not passed on; `workload` has read what they contain about pods. How pods from before the record would come
#: back if they moved is unknown: so their requests (`on_placed`) are not passed on either, and they stay.
#: Pages of snapshots are left out, since the snapshots contain them.
OWN = frozenset(
    {
        "on_withdrawn",
        "on_claims",
        "on_claims_page",
        "on_jobs_page",
        "on_answers",
        "on_stayed",
        "on_placed",
        "refuse",
        "unpublished",
    }
)

#: Facts about the cluster, which no decision changes: passed on as they were recorded.
OUTSIDE = frozenset(INPUTS) - CHANGED - OWN


class _What(IntEnum):
    """In the order of simultaneous events."""

    HELD = 0  #: an outside pod got its place
    FREED = 1  #: an outside pod ended
    ENDS = 2
    WITHDRAWN = 3
    LEAVES = 4


@dataclass(slots=True)
class _Member:
    """A live pod of a job: `root` is the pod of the record as which its work began."""

    root: PodUid
    ref: PodRef
    spec: PodGroupTask  #: without pods
    placed: bool = False


@dataclass(slots=True)
class _Work:
    """A job. `least`: the most that its `min_member` was on record; `ended`: how many of its pods have ended by themselves."""

    latest: Job
    least: int = 1
    members: dict[PodUid, _Member] = field(default_factory=dict)
    ended: int = 0
    revision: int = 0
    announced: Job | None = None  #: as the scheduler knows it, with revision 0


@dataclass(slots=True)
class WhatIf:
    """One run with the policy of `head`. `follows`: changes of the policy on record count as well.

    `places`: the first place of each piece of work, and its time; `starts`: the first start of each job; `held`, `capacity`: over the record's time.
    """

    head: Head
    workload: Workload
    follows: bool = False
    places: dict[PodUid, tuple[float, NodeName]] = field(default_factory=dict)
    starts: dict[JobId, float] = field(default_factory=dict)
    evictions: int = 0
    lost: int = 0
    unanswered: int = 0  #: questions of plugins to which the record has no answer
    held: Meter = field(init=False)
    ledger: InstantLedger = field(init=False)
    _zones: ZoneReports = field(init=False)
    _answers: Answers = field(default_factory=Answers)
    _work: dict[JobId, _Work] = field(default_factory=dict)
    _live: dict[PodUid, PodUid] = field(default_factory=dict)  #: the pod that does a piece of work now
    _arrived: set[PodUid] = field(default_factory=set)
    _roots: dict[PodUid, PodUid] = field(default_factory=dict)
    _outside: dict[JobId, set[PodUid]] = field(default_factory=dict)  #: live pods whose requests are unknown
    _neighbours: dict[PodUid, Neighbour] = field(default_factory=dict)
    _nodes: dict[NodeName, NodeState] = field(default_factory=dict)
    _groups: dict[JobId, GroupState] = field(default_factory=dict)  #: as on record
    _asking: set[JobId] = field(default_factory=set)  #: PodGroups that were Pending on record
    _events: list[tuple[float, int, int, PodUid]] = field(default_factory=list)
    _leaving: set[PodUid] = field(default_factory=set)
    _count: int = 0
    _wake: float | None = None
    _changed: bool = False
    _open: bool = False  #: the record has had its first cycle

    def __post_init__(self) -> None:
        begun = self.workload.begun or 0.0
        self._zones = ZoneReports(self._is_outside)
        self.held = Meter(begun)
        self.ledger = InstantLedger(scheduler_of(self.head, self._ask), now=begun)
        self.ledger.wall_ahead = self.head.wall - begun
        self.ledger.open(frozen=True)
        for life in self.workload.lives.values():
            if life.outside and life.first is not None:
                self._at(life.first, _What.HELD, life.uid)
                if life.ended is not None and life.evicted is None:
                    self._at(life.ended, _What.FREED, life.uid)

    def run(self, calls: Iterable[Call], *, tick: Callable[[], None] = lambda: None) -> None:
        """All calls of the record, from the first; `tick` is called after each."""
        for at, call in timed(calls):
            self._pass(at)
            if not call.error:
                self._apply(call)
            tick()
        self._pass(self.workload.until)
        self.held.until(self.workload.until)

    # Time.

    def _at(self, at: float, what: _What, uid: PodUid) -> None:
        self._count += 1
        heappush(self._events, (at, what, self._count, uid))

    def _pass(self, until: float) -> None:
        """All that happens up to this time, with the cycles that it wakes."""
        while True:
            due = self._events[0][0] if self._events else None
            wake = self._wake if self._open else None
            at = min((time for time in (due, wake) if time is not None), default=None)
            if at is None or at > until:
                break
            self._set_time(at)
            while self._events and self._events[0][0] <= self.ledger.now:
                _, what, _, uid = heappop(self._events)
                self._happens(_What(what), uid)
            self._wake = None
            self._decide()
        self._set_time(until)

    def _set_time(self, at: float) -> None:
        self.ledger.now = max(self.ledger.now, at)

    def _decide(self) -> None:
        """Cycles until nothing is left to do now."""
        if not self._open:
            return
        self._changed = False
        while True:
            out = self.ledger.step()
            self._follow(out.plans)
            self._wake = None if out.wake_at is None else max(out.wake_at, self.ledger.now + 1e-3)
            if not out.plans and not out.more and not out.admitted:
                return

    # Recorded inputs.

    def _apply(self, call: Call) -> None:
        what: dict[str, Any] = dict(call.arguments)
        if call.name == "cycle":
            self._open = True
            self._answers.known(call.asked)
            self.ledger.wall_ahead = what["wall"] - what["now"]
            if self._changed:
                self._decide()
            return
        self._changed = True
        match call.name:
            case name if name in OUTSIDE:
                getattr(self.ledger.scheduler, name)(**what)
            case "on_node":
                self._node(what["node"])
            case "on_zones":
                self.ledger.scheduler.on_zones(self._zones.observe(what["zones"]))
            case "on_verdict":
                self.ledger.put_verdict(what["verdict"])
            case "follow" if self.follows:
                self.ledger.scheduler.follow(what["conf"])
            case "on_neighbours":
                self._neighbour(what["neighbours"])
            case "on_groups":
                self._group(what["groups"])
            case "on_jobs":
                self._jobs(what["jobs"])
            case "on_jobs_snapshot":
                self._group(what.get("groups", ()))
                self._jobs(what["jobs"])
            case "on_claims_snapshot":
                self.ledger.open(frozen=what["frozen"])
            case _:
                self._changed = False

    def _node(self, node: NodeState) -> None:
        known = self._nodes.get(node.name)
        if known is not None and node.generation < known.generation:
            return
        self._nodes[node.name] = node
        self.ledger.put_nodes([node])
        if node.gone:
            for uid in [uid for uid, claim in self.ledger.claims.items() if claim.node == node.name]:
                self.lost += 1
                self._leave(uid)

    def _neighbour(self, neighbours: Iterable[Neighbour]) -> None:
        """Without start times, which come from their claims: on record they started at other times."""
        news = [replace(neighbour, started_at=None) for neighbour in neighbours]
        self._neighbours.update((neighbour.uid, neighbour) for neighbour in news)
        self.ledger.scheduler.on_neighbours(news)

    def _group(self, groups: Iterable[GroupState]) -> None:
        """PodGroups; one that waited for admission on record waits until it is admitted here."""
        news: list[GroupState] = []
        for group in groups:
            if group.gone:
                self._groups.pop(group.id, None)
            else:
                self._groups[group.id] = group
            if group.phase is GroupPhase.PENDING:
                self._asking.add(group.id)
            known = self.ledger.groups.get(group.id)
            phase = group.phase
            if group.id in self._asking:
                entered = known is not None and known.phase is not GroupPhase.PENDING
                phase = GroupPhase.INQUEUE if entered else GroupPhase.PENDING
            revision = 1 if known is None else known.revision + 1
            news.append(replace(group, phase=phase, revision=revision, admitted=False))
        self.ledger.put_groups(news)

    def _jobs(self, jobs: Iterable[Job]) -> None:
        changed = []
        for job in jobs:
            work = self._work.get(job.id)
            if work is None:
                work = self._work[job.id] = _Work(job)
            elif job.revision < work.latest.revision:
                continue
            work.latest, work.least = job, max(work.least, job.min_member)
            for task in job.tasks:
                spec = replace(task, pods=())
                for pod in task.pods:
                    self._arrives(work, pod, spec)
            for task in job.standing:
                spec = replace(task, pods=())
                for pod in task.pods:
                    self._reveal_outside(work, pod, spec)
            changed.append(work)
        self._announce(changed)

    def _arrives(self, work: _Work, pod: PodRef, spec: PodGroupTask) -> None:
        life = self.workload.lives[pod.uid]
        if life.replaces is not None:
            return  # on record it took the place of one that was cut short; here that one comes back by itself where it has to
        member = work.members.get(self._live.get(pod.uid, pod.uid))
        if member is not None and not member.placed:
            member.spec = spec
        if pod.uid in self._arrived:
            return
        self._arrived.add(pod.uid)
        work.members[pod.uid] = _Member(pod.uid, pod, spec, placed=pod.uid in self.ledger.claims)
        self._live[pod.uid] = self._roots[pod.uid] = pod.uid
        if (withdrawn := self.workload.withdrawn_at(pod.uid)) is not None:
            self._at(withdrawn, _What.WITHDRAWN, pod.uid)

    def _reveal_outside(self, work: _Work, pod: PodRef, spec: PodGroupTask) -> None:
        """Learn the requests of an outside pod."""
        outside = self._outside.get(work.latest.id, set())
        if pod.uid in outside:
            outside.discard(pod.uid)
            self._arrived.add(pod.uid)
            work.members[pod.uid] = _Member(pod.uid, pod, spec, placed=True)
            self._live[pod.uid] = self._roots[pod.uid] = pod.uid

    # Simulated consequences.

    def _follow(self, plans: Iterable[Plan]) -> None:
        """Plans were accepted: schedule the ends of their pods and of their victims."""
        now = self.ledger.now
        touched: dict[JobId, _Work] = {}
        for plan in plans:
            if plan.victims:
                continue
            work = touched[plan.job] = self._work[plan.job]
            self.starts.setdefault(plan.job, now)
            for placement in plan.placements:
                member = work.members[placement.pod_uid]
                member.placed = True
                self.places.setdefault(member.root, (now, placement.node))
                self._hold(placement.pod_uid, 1)
                uid, name = placement.pod_uid, placement.pod
                if (zones := self._zones.placed(placement.node, uid, plan.namespace, name, ask_of(member.spec))) is not None:
                    self.ledger.scheduler.on_zones(zones)
                if (duration := self.workload.duration(member.root)) is not None:
                    self._at(now + duration, _What.ENDS, placement.pod_uid)
        for claim in self.ledger.evicted:
            if claim.pod_uid not in self._leaving:
                self._leaving.add(claim.pod_uid)
                self.evictions += 1
                self._at(now + self.workload.leaves_s, _What.LEAVES, claim.pod_uid)
        self.ledger.evicted.clear()
        self._announce(touched.values())

    def _happens(self, what: _What, uid: PodUid) -> None:
        match what:
            case _What.HELD:
                self._held(uid)
            case _What.FREED | _What.ENDS:
                self._ends(uid)
            case _What.WITHDRAWN:
                if (now := self._live.get(uid)) is not None:
                    self._remove(now, ended=False)
            case _What.LEAVES:
                self._leaving.discard(uid)
                self._leave(uid)

    def _held(self, uid: PodUid) -> None:
        claim = self.workload.lives[uid].claim
        if claim is None or uid in self.ledger.claims:
            return
        self.ledger.hold([claim])
        self._hold(uid, 1)
        work = self._work.get(claim.job)
        if work is not None and (member := work.members.get(uid)) is not None:
            member.placed = True
        else:
            self._outside.setdefault(claim.job, set()).add(uid)
        if work is not None:
            self._announce([work])

    def _ends(self, uid: PodUid) -> None:
        if uid in self.ledger.claims:
            self._remove(uid, ended=True)

    def _leave(self, uid: PodUid) -> None:
        """The pod leaves before its work is done, and comes back as a new pod."""
        member = self._remove(uid, ended=False)
        if member is None:
            return
        self._count += 1
        again = PodUid(f"{member.root}~{self._count}")
        work = self._work[self.workload.lives[member.root].job]
        work.members[again] = _Member(member.root, PodRef(again, member.ref.name, member.ref.resource_version), member.spec)
        self._live[member.root], self._roots[again] = again, member.root
        if (neighbour := self._neighbours.get(member.root)) is not None:
            self.ledger.scheduler.on_neighbours([replace(neighbour, uid=again)])
        self._announce([work])

    def _remove(self, uid: PodUid, *, ended: bool) -> _Member | None:
        """Remove a pod. Returns what is known of it, unless it is an outside pod."""
        root = self._roots.pop(uid, uid)
        self._live.pop(root, None)
        claim = self.ledger.claims.get(uid)
        job = claim.job if claim is not None else self.workload.lives[root].job
        if claim is not None:
            self._hold(uid, -1)
            self.ledger.gone([uid])
            if (zones := self._zones.gone(claim.node, uid)) is not None:
                self.ledger.scheduler.on_zones(zones)
        self._outside.get(job, set()).discard(uid)
        work = self._work.get(job)
        if work is None:
            return None
        work.ended += ended
        member = work.members.pop(uid, None)
        self._announce([work])
        return member

    def _hold(self, uid: PodUid, times: int) -> None:
        claim = self.ledger.claims[uid]
        cards, cores = held_by(claim, self._nodes.get(claim.node))
        self.held.add(self.ledger.now, times * cards, times * cores)

    def _announce(self, changed: Iterable[_Work]) -> None:
        """Publish jobs to the scheduler in their present state; jobs with nothing left to place are withdrawn."""
        news: list[Job] = []
        for work in changed:
            job = work.latest.id
            if all(member.placed for member in work.members.values()):
                if work.announced is not None:
                    self.ledger.scheduler.on_withdrawn([job], [work.revision])
                    work.announced = None
                continue
            now = _as_it_is(work, len(self._outside.get(job, ())))
            if now != work.announced:
                work.announced = now
                work.revision += 1
                news.append(replace(now, revision=work.revision))
        if news:
            self.ledger.scheduler.on_jobs(news)

    def _is_outside(self, uid: PodUid) -> bool:
        """Whether it is a pod whose requests were never recorded, or that no job message names."""
        life = self.workload.lives.get(uid)
        return life is None or life.outside

    def _ask(self, question: Question, /) -> Mapping[str, Any] | None:
        try:
            return self._answers(question)
        except Unavailable:
            self.unanswered += 1
            raise


def _as_it_is(work: _Work, outside: int) -> Job:
    """The job by what its pods do here, with revision 0. `outside`: so many more of its pods hold places."""
    latest = work.latest
    particular = latest.standing or latest.sub_gangs or latest.min_task_member
    placed = sum(member.placed for member in work.members.values())
    return replace(
        latest,
        revision=0,
        members=len(work.members) + outside,
        bound=placed + outside,
        min_member=max(1, work.least - work.ended),
        tasks=_tasks(member for member in work.members.values() if not member.placed),
        standing=_tasks(member for member in work.members.values() if member.placed) if particular else (),
    )


def _tasks(members: Iterable[_Member]) -> tuple[PodGroupTask, ...]:
    """Equal ones together, in the order in which they came."""
    groups: list[tuple[PodGroupTask, list[PodRef]]] = []
    for member in members:
        found = next((refs for spec, refs in groups if spec is member.spec or spec == member.spec), None)
        if found is None:
            groups.append((member.spec, [member.ref]))
        else:
            found.append(member.ref)
    return tuple(replace(spec, pods=tuple(refs)) for spec, refs in groups)
