"""Jobs are withdrawn and come back under their ids, whatever is under way for them.

When nothing moves any more the scheduler knows what the ledger knows, keeps places for nobody, and nobody waits who fits. The cores of both: messages between
them are late, in order, and lost now and then: what a scheduler proposes, and what it is answered; changes of claims are not, since whoever misses one asks for
all. Schedulers and ledgers are started anew meanwhile, and pods of others come and go.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import pytest

from hbox_common.events import (
    Bind,
    BindOutcome,
    ClaimsChanged,
    Evict,
    EvictKind,
    HeldNomination,
    Outcome,
    PlanAnswer,
    PlansAnswered,
    PlansProposed,
)
from hbox_common.model import (
    Epoch,
    Job,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    PodPhase,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    SchedulerId,
    terms_of,
)
from hbox_common.model.devices import GPU
from hbox_ledger.core import arbitrate, lifecycle
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.step import Step
from hbox_ledger.messages import messages_of
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate import job, node

from .test_nominations_survive import POLICY

CARDS, NODES = 4, 2
QUEUE = Queue(QueueName("default"))
#: Beyond all that is waited for: successors, nominations, what the ledger remembers of them.
QUIET_S = 260.0


@dataclass
class World:
    rng: Random
    cluster: list[NodeState] = field(default_factory=lambda: [node(f"n{i}", cards=CARDS, cpu=64) for i in range(NODES)])
    books: LedgerState = field(default_factory=lambda: LedgerState(Epoch(1), frozen=False))
    answered: dict[PlanId, PlanAnswer] = field(default_factory=dict)  #: as in the ledger's database
    jobs: dict[JobId, Job] = field(default_factory=dict)
    gone: list[JobId] = field(default_factory=list)  #: withdrawn, and may come back
    bound: dict[PodUid, NodeName] = field(default_factory=dict)
    decided: list[Bind | Evict] = field(default_factory=list)  #: and not done yet
    to_ledger: deque[PlansProposed] = field(default_factory=deque)
    to_scheduler: deque[Callable[[], None]] = field(default_factory=deque)
    now: float = 0.0
    revision: int = 1
    schedulers: int = 0
    lossy: bool = True

    def __post_init__(self) -> None:
        self._learn()
        self.start_scheduler()

    def _learn(self) -> None:
        for state in self.cluster:
            self.books.nodes[state.name] = state
        self.books.queues[QUEUE.name] = QUEUE

    # Who may die.

    def start_scheduler(self) -> None:
        self.schedulers += 1
        self.scheduler = Scheduler(
            id=SchedulerId(f"s{self.schedulers}"),
            policy=policy_of(PolicyName.BINPACK),
            conf=parse_conf(POLICY, plugins=list(PLUGINS)),
            limits=Limits(resend_after_s=20.0),
        )
        for state in self.cluster:
            self.scheduler.on_node(state)
        self.scheduler.on_queue(QUEUE)
        self.to_scheduler.clear()
        self.snapshot()
        self.scheduler.on_jobs(self.jobs.values())

    def start_ledger(self) -> None:
        old = self.books
        self.books = LedgerState(Epoch(old.epoch + 1), frozen=False)
        self._learn()
        kept = [HeldNomination.model_validate_json(one.model_dump_json()) for one in old.nominations.all()]
        for record in old.live.values():
            record.beneficiary, record.blocked = PlanId(""), ""
        self.books.load(old.live.values(), old.gangs.values(), kept)
        self.books.records.receive(map(terms_of, self.jobs.values()))
        self.decided.clear()
        step = self.books.step(self.now)
        lifecycle.send_open(self.books, step, list(self.books.open))
        self.tell(step)
        self.to_scheduler.append(self.snapshot)

    def snapshot(self) -> None:
        self.scheduler.on_claims_snapshot(
            epoch=self.books.epoch,
            index=self.books.index,
            frozen=False,
            claims=[record.claim for record in self.books.live.values()],
            nominations=self.books.nominations.all(),
            now=self.now,
        )

    # Jobs.

    def submit(self, one: Job) -> None:
        self.jobs[one.id] = one
        self.books.records.receive([terms_of(one)])
        self.scheduler.on_jobs([one])

    def withdraw(self, id: JobId) -> None:
        """Its pods are deleted."""
        one = self.jobs.pop(id)
        self.revision += 1
        self.scheduler.on_withdrawn([id], [self.revision])
        self.books.records.withdraw([id], [self.revision])
        self.gone.append(id)
        for pod in pods_of(one):
            if pod in self.bound:
                self.ends(pod)

    def comes_back(self, id: JobId) -> None:
        self.gone.remove(id)
        self.revision += 1
        (pods, cards), priority = self.rng.choice(((1, 4), (1, 2), (2, 2), (1, 1), (1, 3))), self.rng.choice((0, 5, 10))
        fresh = job(id, pods=pods, cards=cards, priority=priority, created_at=float(self.revision), revision=self.revision)
        [spec] = fresh.tasks
        named = (f"{pod.name}.{self.revision}" for pod in spec.pods)
        self.submit(replace(fresh, tasks=(replace(spec, pods=tuple(PodRef(PodUid(name), name, "1") for name in named)),)))

    def ends(self, pod: PodUid) -> None:
        """It is gone from its node."""
        where = self.bound.pop(pod)
        owner = self.owner(pod)
        step = self.books.step(self.now)
        lifecycle.observed(
            self.books, step, PodFact(pod, "default", pod, PodPhase.GONE, where, JobId(owner or ""), QUEUE.name, 0, {})
        )
        self.tell(step)

    def owner(self, pod: PodUid) -> JobId | None:
        return next((one.id for one in self.jobs.values() if pod in pods_of(one)), None)

    # What happens.

    def cycle(self) -> None:
        self.now += 0.5
        out = self.scheduler.cycle(self.now, self.now)
        said = partial(PlansProposed, scheduler=self.scheduler.id, epoch=self.scheduler.epoch, seen=self.scheduler.index)
        if out.given_up:
            self.to_ledger.append(said(plans=(), given_up=tuple(out.given_up)))
        for plans in (out.plans, out.resend):
            if plans and not (self.lossy and self.rng.random() < 0.15):
                self.to_ledger.append(said(plans=tuple(plans)))

    def judge(self) -> None:
        said = self.to_ledger.popleft()
        step = self.books.step(self.now)
        self.books.held = "pods were last seen a while ago" if self.lossy and self.rng.random() < 0.2 else ""
        arbitrate.propose(self.books, step, said, self.answered)
        self.answered |= {stored.answer.plan: stored.answer for stored in step.stored}
        self.tell(step)

    def tick(self) -> None:
        step = self.books.step(self.now)
        lifecycle.tick(self.books, step)
        lifecycle.send_again(self.books, step)
        self.tell(step)

    def tell(self, step: Step) -> None:
        self.books.validate()
        step.nominations = self.books.nominations.take_changes()
        self.decided += [*step.binds, *step.evictions]
        for message in messages_of(step, epoch=self.books.epoch, index=self.books.index):
            match message.event:
                case ClaimsChanged() as change:
                    self.to_scheduler.append(partial(self.changed, change))
                case PlansAnswered() as said if not (self.lossy and self.rng.random() < 0.1):
                    self.to_scheduler.append(partial(self.answers, said, message.keys[0]))

    def changed(self, change: ClaimsChanged) -> None:
        if not self.scheduler.on_claims(
            epoch=change.epoch, previous=change.previous, index=change.index, claims=change.claims, nominations=change.nominations,
            ended=change.ended, now=self.now,
        ):  # fmt: skip
            self.snapshot()

    def answers(self, said: PlansAnswered, to: str) -> None:
        if to == self.scheduler.id and not self.scheduler.on_answers(
            epoch=said.epoch, index=said.index, answers=said.answers, now=self.now
        ):
            self.snapshot()

    def bind(self) -> None:
        """The binder does one thing that was decided."""
        one = self.decided.pop(self.rng.randrange(len(self.decided)))
        record = self.books.live.get(one.claim)
        if record is None or record.generation != one.generation:
            return
        pod = one.pod_uid
        alive = self.owner(pod) is not None or pod in self.bound
        there = NodeName("")
        if isinstance(one, Bind):
            outcome = BindOutcome.BOUND if alive else BindOutcome.GONE
            if alive:
                self.bound[pod] = there = one.node
        elif pod in self.bound:
            outcome, there = (
                (BindOutcome.EVICTED, there) if one.kind is EvictKind.EVICT else (BindOutcome.BOUND, self.bound[pod])
            )
        else:
            outcome = BindOutcome.REVOKED if alive and one.kind is EvictKind.REVOKE else BindOutcome.GONE
        step = self.books.step(self.now)
        said = Outcome(
            decision=one.id, claim=one.claim, generation=one.generation, job=one.job, pod_uid=pod, outcome=outcome, node=there
        )
        lifecycle.outcome(self.books, step, said)
        self.tell(step)

    def stranger(self) -> None:
        """A pod of another scheduler comes to a node, whoever has its cards, or goes."""
        step = self.books.step(self.now)
        number = self.rng.randint(0, 3)
        uid, there = PodUid(f"stranger{number}"), self.cluster[number % NODES]
        phase = PodPhase.GONE if uid in self.books.by_pod else PodPhase.RUNNING
        fact = PodFact(uid, "default", uid, phase, there.name, JobId(uid), QueueName(""), 0, {GPU: 1, "pods": 1}, cards=1)
        self.books.gone.pop(uid, None)
        lifecycle.observed(self.books, step, fact)
        self.tell(step)

    def busy(self) -> list[JobId]:
        """Jobs for which something is under way."""
        entries = [entry for id in sorted(self.jobs) if (entry := self.scheduler.reports.entry(id)) is not None]
        return [entry.job.id for entry in entries if entry.state in (JobState.PROPOSED, JobState.NOMINATED)]

    def leaving(self) -> list[PodUid]:
        """Whose eviction was accepted."""
        live = self.books.live
        return sorted(live[id].claim.pod_uid for id in self.books.evicting.claims() if id not in self.books.open)

    def leaves(self, pod: PodUid) -> None:
        if (owner := self.owner(pod)) is not None:
            self.withdraw(owner)
        elif pod in self.bound:
            self.ends(pod)

    def step(self) -> None:
        match self.rng.randint(0, 18):
            case 0 if self.jobs and self.rng.random() < 0.25:
                self.withdraw(self.rng.choice(sorted(self.jobs)))
            case 1 | 2 if self.gone:
                self.comes_back(self.rng.choice(self.gone))
            case 3 if self.rng.random() < 0.2:
                self.start_scheduler()
            case 4 if self.rng.random() < 0.2:
                self.start_ledger()
            case 5 if self.leaving():
                self.leaves(self.rng.choice(self.leaving()))
            case 6 if self.decided:
                for _ in range(self.rng.randint(1, 6)):
                    if self.decided:
                        self.bind()
            case 7 | 8 if self.to_ledger:
                self.judge()
            case 9 | 10 if self.to_scheduler:
                for _ in range(self.rng.randint(1, 3)):
                    if self.to_scheduler:
                        self.to_scheduler.popleft()()
            case 11:
                self.tick()
            case 12 if self.rng.random() < 0.2:
                self.stranger()
            case 13 if busy := self.busy():
                id = self.rng.choice(busy)
                self.withdraw(id)
                self.comes_back(id)
            case _:
                for _ in range(self.rng.randint(1, 5)):
                    self.cycle()

    def settle(self) -> None:
        self.lossy = False
        self.rng = Random(0)
        last = self.now
        while self.now < last + QUIET_S:
            before = self.books.index
            while self.to_ledger or self.to_scheduler or self.decided or self.leaving():
                while self.to_ledger:
                    self.judge()
                while self.to_scheduler:
                    self.to_scheduler.popleft()()
                while self.decided:
                    self.bind()
                for pod in self.leaving():
                    self.leaves(pod)
            self.tick()
            self.cycle()
            if self.books.index != before:
                last = self.now
            assert self.now < 9000.0, "it never settles"


def pods_of(one: Job) -> set[PodUid]:
    return {pod.uid for spec in one.tasks for pod in spec.pods}


@pytest.mark.parametrize("seed", range(60, 72))
def test_nothing_is_left_of_what_jobs_were(seed: int) -> None:
    world = World(Random(seed))
    for number in range(7):
        world.gone.append(JobId(f"j{number}"))
    for _ in range(400):
        world.step()
    world.settle()
    books, scheduler = world.books, world.scheduler
    assert scheduler.reports.placed_on() == {record.claim.pod_uid: record.claim.node for record in books.live.values()}
    assert not len(books.nominations)
    assert scheduler.reports.outstanding() == []
    states = scheduler.reports.jobs_by_state
    assert {state for state, count in states.items() if count} <= {JobState.SETTLED, JobState.UNSCHEDULABLE}, states
    idle = {state.name: CARDS - books.node(state.name).used.get(GPU, 0) for state in world.cluster}
    for one in world.jobs.values():
        [spec] = one.tasks
        if len(spec.pods) == 1 and spec.pods[0].uid not in books.by_pod:
            assert max(idle.values()) < spec.requests[GPU], f"{one.id} waits beside idle cards"
