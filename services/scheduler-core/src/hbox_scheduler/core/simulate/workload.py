"""The parts of a record that came from outside, and what its scheduler made of them: when pods arrived, when and where they got places, for how long, and how
they ended.

Other decisions change what follows, so a record's messages about its own decisions cannot be passed on under another policy. The work itself can:

- a pod *arrives* when its job lists it first;
- it *runs* for as long as it held its place, from the plan that placed it to the end of its claim, if it ended by itself;
- it is *withdrawn* if it went without ever having had a place;
- a pod that was evicted, or whose node went, was *cut short*: its full run time is unknown. If its controller made another one in its place (in the same job,
  of the same name if there is one), the two are one piece of work, which runs for as long as the last of them;
- pods that held their places before the record began, and those of other schedulers, are *outside*: they hold the same under every policy.

Messages about jobs carry no time: they count as of the next call that has one, which is the cycle that they wake.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

from hbox_common.model import VENDORS, Claim, Epoch, Index, Job, JobId, NodeName, NodeState, PlanId, PodUid, QueueName
from hbox_common.model.resources import CPU

from ..record.record import Call

#: What an evicted pod takes to end where the record has none.
LEAVES_S = 1.0


class End(StrEnum):
    """How a pod's life went on record."""

    OPEN = "open"  #: it waits or runs as the record ends
    ENDED = "ended"
    WITHDRAWN = "withdrawn"
    EVICTED = "evicted"
    LOST = "lost"  #: with its node


@dataclass(slots=True)
class Life:
    """One pod of a record. Times are those of the record's clock, in seconds. `first`: of its first place, on `node`; `started`: of its last one."""

    uid: PodUid
    job: JobId
    name: str
    arrived: float
    outside: bool = False
    node: NodeName = NodeName("")
    first: float | None = None
    started: float | None = None
    ended: float | None = None
    unlisted: float | None = None  #: since when its job lists it no more
    evicted: float | None = None  #: when the plan of which it is a victim was accepted
    claim: Claim | None = None  #: its last
    end: End = End.OPEN
    replaced_by: PodUid | None = None
    replaces: PodUid | None = None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job as it came."""

    id: JobId
    name: str  #: namespace/name
    queue: QueueName
    arrived: float
    began: bool  #: pods of it held places already


@dataclass(slots=True)
class Meter:
    """What is held over time. Sums are amounts times seconds."""

    at: float
    cards: float = 0.0
    cores: float = 0.0
    card_s: float = 0.0
    core_s: float = 0.0

    def add(self, at: float, cards: float, cores: float) -> None:
        """From `at` on so much more is held."""
        self.until(at)
        self.cards += cards
        self.cores += cores

    def until(self, at: float) -> None:
        passed = max(at - self.at, 0.0)
        self.card_s += passed * self.cards
        self.core_s += passed * self.cores
        self.at = max(self.at, at)


def held_by(claim: Claim, node: NodeState | None) -> tuple[float, float]:
    """Cards and cores that a claim holds: a share of a card is the larger of its parts of compute and memory."""
    cores = claim.requests.get(CPU, 0) / 1000
    if not claim.slices:
        return float(VENDORS.asked(claim.requests)), cores
    cards = 0.0
    for part in claim.slices:
        memory = (
            part.memory_mib / size
            if node is not None and (card := node.card(part.card, part.index)) and (size := card.memory_mib)
            else 0.0
        )
        cards += 1.0 if part.whole else max(part.cores / 100, min(memory, 1.0))
    return cards, cores


def capacity_of(nodes: Iterable[NodeState]) -> tuple[float, float]:
    """Cards and cores of the nodes that take work."""
    usable = [node for node in nodes if node.ready and not node.gone]
    return (
        float(sum(card.healthy for node in usable for card in node.cards)),
        sum(node.allocatable.get(CPU, 0) for node in usable) / 1000,
    )


def timed(calls: Iterable[Call]) -> Iterator[tuple[float, Call]]:
    """Each call with its time: its own, or that of the next one that has one; at the end that of the last one."""
    waiting: list[Call] = []
    last = 0.0
    for call in calls:
        at = call.arguments.get("now")
        if at is None:
            waiting.append(call)
            continue
        last = max(last, float(at))
        for one in waiting:
            yield last, one
        waiting.clear()
        yield last, call
    for one in waiting:
        yield last, one


@dataclass(slots=True)
class Workload:
    """A record's work; `take` is handed its calls in order, and `close` ends it."""

    lives: dict[PodUid, Life] = field(default_factory=dict)
    jobs: dict[JobId, JobFacts] = field(default_factory=dict)
    begun: float | None = None
    until: float = 0.0
    held: Meter = field(default_factory=lambda: Meter(0.0))
    capacity: Meter = field(default_factory=lambda: Meter(0.0))
    evictions: int = 0
    leaves_s: float = LEAVES_S  #: what victims took to end, in the median
    _nodes: dict[NodeName, NodeState] = field(default_factory=dict)
    _gone: dict[NodeName, float] = field(default_factory=dict)
    _plans: dict[PlanId, float] = field(default_factory=dict)  #: that give places, with their time
    _victims: dict[PlanId, Sequence[PodUid]] = field(default_factory=dict)
    _listed: dict[JobId, set[PodUid]] = field(default_factory=dict)
    _revisions: dict[JobId, int] = field(default_factory=dict)
    _touched: int = 0
    _touched_of: dict[JobId, int] = field(default_factory=dict)
    _epoch: Epoch = Epoch(0)
    _index: Index = Index(0)

    def duration(self, uid: PodUid) -> float | None:
        """How long the work that began as this pod runs, in seconds from its start; None: not known."""
        last = self.last(uid)
        return (
            last.ended - last.started if last.end is End.ENDED and last.ended is not None and last.started is not None else None
        )

    def withdrawn_at(self, uid: PodUid) -> float | None:
        """When the work that began as this pod was withdrawn."""
        last = self.last(uid)
        return last.unlisted if last.end is End.WITHDRAWN else None

    def last(self, uid: PodUid) -> Life:
        """The last pod of the work that began as this one."""
        life = self.lives[uid]
        while life.replaced_by is not None:
            life = self.lives[life.replaced_by]
        return life

    # Reading.

    def take(self, at: float, call: Call) -> None:
        """A call of the record; `at`: see `timed`."""
        if self.begun is None:
            self.begun = at
            self.held.at = self.capacity.at = at
        self.until = max(self.until, at)
        if call.error:
            return
        what: dict[str, Any] = dict(call.arguments)
        match call.name:
            case "on_node":
                self._node(what["node"], at)
            case "on_jobs":
                self._take_jobs(what["jobs"], at)
            case "on_groups":
                self._touched += 1
            case "on_jobs_snapshot":
                self._touched += 1
                named = {job.id for job in what["jobs"]}
                for job in [j for j, touched in self._touched_of.items() if touched <= what["since"] and j not in named]:
                    self._unlist(job, at)
                self._take_jobs(what["jobs"], at)
            case "on_withdrawn":
                for job, revision in zip(what["jobs"], what["revisions"], strict=True):
                    if self._revisions.get(job, -1) <= revision:
                        self._unlist(job, at)
                        self._revisions[job] = revision
            case "on_claims_snapshot":
                self._snapshot(what["epoch"], what["index"], what["claims"], at)
            case "on_claims" if call.result and (what["epoch"], what["index"]) > (self._epoch, self._index):
                self._epoch, self._index = what["epoch"], what["index"]
                for claim in sorted(what["claims"], key=lambda claim: not claim.state.live):
                    self._claim(claim, at)
            case "on_answers":
                for answer in what["answers"]:
                    victims = self._victims.pop(answer.plan, ())
                    if answer.committed:
                        self._evict(victims, at)
            case "cycle":
                for plan in call.result.plans:
                    if plan.victims:
                        self._victims[plan.id] = [victim.pod_uid for victim in plan.victims]
                    else:
                        self._plans[plan.id] = at

    def close(self) -> None:
        """The record has ended: say how each life went."""
        self.held.until(self.until)
        self.capacity.until(self.until)
        for life in self.lives.values():
            life.end = self._end_of(life)
        took = [
            life.ended - life.evicted for life in self.lives.values() if life.ended is not None and life.evicted is not None
        ]
        if took:
            self.leaves_s = max(median(took), 0.0)
        self._replacements()

    def _node(self, node: NodeState, at: float) -> None:
        known = self._nodes.get(node.name)
        if known is not None and node.generation < known.generation:
            return
        before = capacity_of([known] if known is not None else [])
        after = capacity_of([node])
        self.capacity.add(at, after[0] - before[0], after[1] - before[1])
        self._nodes[node.name] = node
        if node.gone:
            self._gone[node.name] = at
        else:
            self._gone.pop(node.name, None)

    def _take_jobs(self, jobs: Iterable[Job], at: float) -> None:
        self._touched += 1
        for job in jobs:
            self._touched_of[job.id] = self._touched
            if job.revision <= self._revisions.get(job.id, -1):
                continue
            self._revisions[job.id] = job.revision
            listed = {pod.uid: pod.name for task in job.tasks for pod in task.pods}
            for uid in self._listed.get(job.id, set()) - listed.keys():
                self.lives[uid].unlisted = at
            for uid, name in listed.items():
                if uid not in self.lives:
                    self.lives[uid] = Life(uid, job.id, name, at)
                self.lives[uid].unlisted = None
            self._listed[job.id] = set(listed)
            if job.id not in self.jobs and listed:
                self.jobs[job.id] = JobFacts(job.id, f"{job.namespace}/{job.name}", job.queue, at, job.bound > 0)

    def _unlist(self, job: JobId, at: float) -> None:
        for uid in self._listed.pop(job, ()):
            self.lives[uid].unlisted = at
        self._touched_of.pop(job, None)

    def _snapshot(self, epoch: Epoch, index: Index, claims: Iterable[Claim], at: float) -> None:
        if (epoch, index) < (self._epoch, self._index):
            return
        self._epoch, self._index = epoch, index
        live = {claim.pod_uid: claim for claim in claims if claim.state.live}
        for life in self.lives.values():
            if life.started is not None and life.ended is None and life.uid not in live:
                self._void(life, at)
        for claim in live.values():
            self._claim(claim, at)

    def _claim(self, claim: Claim, at: float) -> None:
        life = self.lives.get(claim.pod_uid)
        if not claim.state.live:
            if life is not None and life.claim is not None and life.claim.id == claim.id and life.ended is None:
                self._void(life, at)
            return
        given = self._plans.get(claim.plan)
        if life is None:
            life = self.lives[claim.pod_uid] = Life(claim.pod_uid, claim.job, claim.pod, at, outside=given is None)
        held = life.started is not None and life.ended is None
        life.claim = claim
        if held:
            return
        life.started, life.ended = at if given is None else given, None
        if life.first is None:
            life.first, life.node = life.started, claim.node
            life.outside = given is None
        self._hold(life, at, 1)

    def _void(self, life: Life, at: float) -> None:
        self._hold(life, at, -1)
        life.ended = at

    def _hold(self, life: Life, at: float, times: int) -> None:
        if life.claim is not None:
            cards, cores = held_by(life.claim, self._nodes.get(life.claim.node))
            self.held.add(at, times * cards, times * cores)

    def _evict(self, victims: Sequence[PodUid], at: float) -> None:
        for uid in victims:
            if (life := self.lives.get(uid)) is not None and life.evicted is None:
                life.evicted = at
                self.evictions += 1

    def _end_of(self, life: Life) -> End:
        if life.first is None:
            return End.OPEN if life.unlisted is None else End.WITHDRAWN
        if life.ended is None:
            return End.OPEN
        if life.evicted is not None:
            return End.EVICTED
        if life.claim is not None and self._gone.get(life.claim.node, life.ended + 1.0) <= life.ended:
            return End.LOST
        listed = life.uid in self._listed.get(life.job, ())
        return End.OPEN if listed else End.ENDED  # a claim that was taken back: the pod waits again

    def _replacements(self) -> None:
        """Find for each pod that was cut short the one that its controller made in its place."""
        by_job: dict[JobId, list[Life]] = {}
        for life in self.lives.values():
            by_job.setdefault(life.job, []).append(life)
        for lives in by_job.values():
            free = sorted((life for life in lives if not life.outside), key=lambda life: life.arrived)
            cut = [life for life in lives if life.end in (End.EVICTED, End.LOST)]
            for life in sorted(cut, key=lambda life: life.ended or 0.0):
                since = life.evicted if life.evicted is not None else life.ended or 0.0
                later = [one for one in free if one.arrived >= since and one.arrived > life.arrived and one.replaces is None]
                found = next((one for one in later if one.name == life.name), later[0] if later else None)
                if found is not None:
                    life.replaced_by, found.replaces = found.uid, life.uid
