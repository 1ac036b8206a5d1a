"""Scheduler and ledger die and start anew while victims leave, in any order: who was nominated gets its places, and nobody else has to leave for it.

The cores of both, with what the ledger keeps in its database written and read back, and what it tells read off its messages."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from hbox_common.events import BindOutcome, ClaimsChanged, HeldNomination, Outcome, PlansProposed
from hbox_common.model import (
    Epoch,
    Job,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
    SchedulerId,
    terms_of,
)
from hbox_common.model.devices import GPU
from hbox_ledger.core import arbitrate, lifecycle
from hbox_ledger.core.claimrecord import Decision
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.step import Step
from hbox_ledger.messages import messages_of
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import job, node

CARDS, NODES = 4, 3
#: Cycles of half a second: sessions that find nothing pause for two.
QUIET = 5
QUEUE = Queue(QueueName("default"))
POLICY = """
actions: "allocate, preempt, consolidate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: binpack, arguments: {binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 10}}]
"""


@dataclass
class World:
    """Victims stay until `leaves`. `told`: all who were ever told to leave; `due`: successors of those who moved, until they are submitted."""

    cluster: list[NodeState] = field(default_factory=lambda: [node(f"n{i}", cards=CARDS, cpu=64) for i in range(NODES)])
    books: LedgerState = field(default_factory=lambda: LedgerState(Epoch(1), frozen=False))
    jobs: dict[JobId, Job] = field(default_factory=dict)
    told: set[PodUid] = field(default_factory=set)
    now: float = 0.0
    schedulers: int = 0
    due: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._learn(self.books)
        self.start_scheduler()

    def _learn(self, books: LedgerState) -> None:
        for state in self.cluster:
            books.nodes[state.name] = state
        books.queues[QUEUE.name] = QUEUE

    def start_scheduler(self) -> None:
        """The one before it is dead."""
        self.schedulers += 1
        self.scheduler = Scheduler(
            id=SchedulerId(f"s{self.schedulers}"),
            policy=policy_of(PolicyName.BINPACK),
            conf=parse_conf(POLICY, plugins=list(PLUGINS)),
        )
        for state in self.cluster:
            self.scheduler.on_node(state)
        self.scheduler.on_queue(QUEUE)
        self.snapshot()
        self.scheduler.on_jobs(self.jobs.values())

    def start_ledger(self) -> None:
        """The one before it is dead; its database is read."""
        old = self.books
        self.books = LedgerState(Epoch(old.epoch + 1), frozen=False)
        self._learn(self.books)
        kept = [HeldNomination.model_validate_json(one.model_dump_json()) for one in old.nominations.all()]
        for record in old.live.values():
            record.beneficiary = PlanId("")
        self.books.load(old.live.values(), old.gangs.values(), kept)
        self.books.records.receive(map(terms_of, self.jobs.values()))
        self.books.validate()
        self.snapshot()

    def snapshot(self) -> None:
        self.scheduler.on_claims_snapshot(
            epoch=self.books.epoch,
            index=self.books.index,
            frozen=False,
            claims=[record.claim for record in self.books.live.values()],
            nominations=self.books.nominations.all(),
            now=self.now,
        )

    def submit(self, *jobs: Job) -> None:
        self.jobs.update((one.id, one) for one in jobs)
        self.books.records.receive(map(terms_of, jobs))
        self.scheduler.on_jobs(jobs)

    def cycle(self, *, dies: bool = False) -> bool:
        """Whether anything was planned. `dies`: the scheduler, before it hears the answers."""
        self.now += 0.5
        out = self.scheduler.cycle(self.now, self.now)
        if not out.plans and not out.given_up:
            return False
        said = PlansProposed(
            scheduler=self.scheduler.id,
            epoch=self.books.epoch,
            seen=self.books.index,
            plans=tuple(out.plans),
            given_up=tuple(out.given_up),
        )
        step = self.books.step(self.now)
        arbitrate.propose(self.books, step, said, {})
        answers = list(step.answers.get(self.scheduler.id, {}).values())
        assert [answer.message for answer in answers if not answer.committed] == []
        for bind in step.binds:
            bound = Outcome(
                decision=bind.id, claim=bind.claim, generation=1, job=bind.job, pod_uid=bind.pod_uid, outcome=BindOutcome.BOUND, node=bind.node
            )  # fmt: skip
            lifecycle.outcome(self.books, step, bound)
        self.told |= {eviction.pod_uid for eviction in step.evictions}
        if dies:
            self.start_scheduler()
            return True
        self._tell(step)
        self.scheduler.on_answers(epoch=self.books.epoch, index=self.books.index, answers=answers, now=self.now)
        return True

    def settle(self, rng: Random | None = None) -> None:
        """Cycles until nothing is planned for longer than sessions pause. With `rng` schedulers die on the way."""
        quiet = 0
        for _ in range(100):
            quiet = 0 if self.cycle(dies=rng is not None and rng.random() < 0.3) else quiet + 1
            if quiet > QUIET:
                return
        raise AssertionError("it never settles")

    def leaves(self, pod: PodUid) -> None:
        """It was evicted and is gone. Who moves has a successor of another name."""
        moves = {claim.pod_uid for one in self.books.nominations.all() for claim in one.moved}
        record = self.books.live[self.books.by_pod[pod]]
        claim, step = record.claim, self.books.step(self.now)
        gone = PodFact(pod, claim.namespace, claim.pod, PodPhase.GONE, claim.node, claim.job, claim.queue, 0, {})
        lifecycle.observed(self.books, step, gone)
        old = self.jobs.pop(claim.job)
        self.books.records.withdraw([claim.job], [1 << 60])
        self.scheduler.on_withdrawn([claim.job], [1 << 60])
        self._tell(step)
        if pod in moves:
            cards = old.tasks[0].requests[GPU]
            self.due.append(job(successor(old.id), cards=cards, priority=old.priority, created_at=old.created_at))

    def _tell(self, step: Step) -> None:
        self.books.validate()
        step.nominations = self.books.nominations.take_changes()
        for message in messages_of(step, epoch=self.books.epoch, index=self.books.index):
            if isinstance(message.event, ClaimsChanged):
                change = message.event
                assert self.scheduler.on_claims(
                    epoch=change.epoch,
                    previous=change.previous,
                    index=change.index,
                    claims=change.claims,
                    nominations=change.nominations,
                    ended=change.ended,
                    now=self.now,
                )

    def leaving(self) -> list[PodUid]:
        return sorted(record.claim.pod_uid for record in self.books.live.values() if record.decision is Decision.EVICT)

    def where(self) -> dict[PodUid, NodeName]:
        return {record.claim.pod_uid: record.claim.node for record in self.books.live.values()}


def successor(job: JobId) -> str:
    return f"{job}-again"


def places(world: World) -> dict[PodUid, NodeName]:
    """Of nominated jobs, and of the successors of those that move for them."""
    found: dict[PodUid, NodeName] = {}
    for one in world.books.nominations.all():
        found |= {p.pod_uid: p.node for p in one.plan.placements}
        to = {victim.claim: victim.to for victim in one.plan.victims}
        found |= {PodUid(f"{successor(claim.job)}-0"): to[claim.id] for claim in one.moved}
    return found


def kind(world: World, pod: PodUid, node: NodeName | None) -> tuple[NodeName | None, bool, int]:
    """A place: successors that ask for the same get each other's."""
    [task] = world.jobs[JobId(pod.rpartition("-")[0])].tasks
    return node, world.jobs[JobId(pod.rpartition("-")[0])].priority > 0, task.requests[GPU]


def fill(world: World, rng: Random) -> None:
    """With jobs of one or two cards, the older ones first."""
    filled = 0
    while filled < CARDS * NODES:
        cards = min(rng.choice((1, 1, 2)), CARDS * NODES - filled)
        world.submit(job(f"f{filled}", cards=cards, created_at=float(filled)))
        world.settle()
        filled += cards


def live_on(world: World, rng: Random) -> None:
    """Victims leave, one by one. Schedulers and ledgers die, and jobs come that would do with what each victim leaves."""
    nominated = places(world)
    number = 0
    while world.leaving() or world.due:
        match rng.randint(0, 5):
            case 0 if world.leaving():
                world.leaves(rng.choice(world.leaving()))
            case 1 if world.due:
                world.submit(world.due.pop(0))
            case 2:
                world.start_scheduler()
            case 3:
                world.start_ledger()
            case 4:
                number += 1
                world.submit(job(f"late{number}", cards=rng.choice((1, 2)), cpu_milli=500, created_at=50.0 + number))
            case 5:
                world.settle()
    world.settle(rng)
    where = world.where()
    assert Counter(kind(world, pod, where.get(pod)) for pod in nominated) == Counter(
        kind(world, pod, node) for pod, node in nominated.items()
    )
    for state in world.cluster:
        assert world.books.node(state.name).used.get(GPU, 0) <= CARDS


@pytest.mark.parametrize("seed", range(12))
def test_who_evicts_others_gets_their_places_whoever_dies_meanwhile(seed: int) -> None:
    """One or two of a higher priority want more than is free."""
    rng = Random(seed)
    world = World()
    fill(world, rng)
    asked = [
        job(f"high{number}", pods=pods, cards=cards, priority=10, created_at=100.0 + number)
        for number in range(rng.randint(1, 2))
        for pods, cards in [rng.choice(((1, 4), (2, 2), (1, 3)))]
    ]
    world.submit(*asked)
    world.settle(rng)
    assert {one.plan.job for one in world.books.nominations.all()} == {one.id for one in asked}
    told = set(world.told)
    live_on(world, rng)
    assert world.told == told, "nobody else had to leave"
    assert not len(world.books.nominations)


@pytest.mark.parametrize("seed", range(12))
def test_who_moves_gets_the_place_that_was_kept_whoever_dies_meanwhile(seed: int) -> None:
    """Some of the cards come free, here and there; a large job wants as many on one node."""
    rng = Random(seed)
    world = World()
    moved = False
    while not moved:
        world = World()
        fill(world, rng)
        for pod in sorted(world.where()):
            if rng.random() < 0.45:
                world.leaves(pod)
        world.submit(job("large", cards=rng.choice((3, 4)), created_at=100.0))
        world.settle(rng)
        moved = any(one.moved for one in world.books.nominations.all())
    live_on(world, rng)
