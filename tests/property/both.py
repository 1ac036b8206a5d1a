"""A scheduler's core and a ledger's in one process, told the same: for tests of what the two do together."""

from dataclasses import dataclass, field, replace
from itertools import combinations

from hbox_common.events import BindOutcome, Outcome, PlansProposed
from hbox_common.model import (
    CardQuota,
    CardSlice,
    Epoch,
    Generation,
    Job,
    JobId,
    NodeState,
    PodFact,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
    Resources,
    SchedulerId,
    charge,
    demand_of,
    terms_of,
    validate_claim,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core import arbitrate, lifecycle
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.step import Step
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.policy import policy_from
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import node

CARDS, NODES = 4, 3
ROUNDS = 40


@dataclass
class Both:
    """A scheduler and a ledger, with binders and pods that do at once what is decided."""

    queues: list[Queue]
    cluster: list[NodeState] = field(default_factory=lambda: [node(f"n{i}", cards=CARDS, cpu=64) for i in range(NODES)])
    quotas: list[CardQuota] = field(default_factory=list)
    policy: Conf = field(default_factory=default_conf)
    by_weight: bool = field(default=False, kw_only=True)  #: queues have shares by weight
    books: LedgerState = field(default_factory=lambda: LedgerState(Epoch(1), frozen=False))
    now: float = 0.0
    verdicts: dict[JobId, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(id=SchedulerId("s"), policy=policy_from(self.policy), conf=self.policy)
        if self.by_weight:
            self.books.count_demand()
        for state in self.cluster:
            self.books.nodes[state.name] = state
            self.scheduler.on_node(state)
        for queue in self.queues:
            self.rule(queue)
        self.limit(*self.quotas)
        self.scheduler.on_claims_snapshot(epoch=Epoch(1), index=self.books.index, frozen=False, claims=(), now=0.0)

    def limit(self, *quotas: CardQuota) -> None:
        self.quotas = list(quotas)
        self.books.limit(quotas)
        self.scheduler.on_card_quotas(quotas)

    def rule(self, queue: Queue) -> None:
        self.books.rule(self.books.step(self.now), queue.name, queue)
        self.scheduler.on_queue(queue)

    def submit(self, *jobs: Job) -> None:
        self.books.records.receive(map(demand_of if self.by_weight else terms_of, jobs))
        self.scheduler.on_jobs(jobs)
        self.settle()

    def settle(self) -> None:
        """Cycles until nothing moves."""
        for _ in range(ROUNDS):
            self.now += 5.0
            self.before_cycle()
            out = self.scheduler.cycle(self.now)
            self.verdicts.update((verdict.job, verdict.message) for verdict in out.verdicts)
            if not out.plans and not out.given_up:
                return
            step = self.books.step(self.now)
            first = self.books.index
            plans = PlansProposed(
                scheduler=SchedulerId("s"), epoch=Epoch(1), seen=first, plans=tuple(out.plans), given_up=tuple(out.given_up)
            )
            arbitrate.propose(self.books, step, plans, {})
            answers = list(step.answers.get(SchedulerId("s"), {}).values())
            refused = [f"{answer.plan}: {answer.message}" for answer in answers if not answer.committed]
            assert self.by_weight or not refused, refused  # what was taken counts as asked for by the ledger alone for a while
            self.obey(step)
            self.books.validate()
            claims = [change.claim for change in step.changes]
            self.scheduler.on_claims(epoch=Epoch(1), previous=first, index=self.books.index, claims=claims, now=self.now)
            self.scheduler.on_answers(epoch=Epoch(1), index=self.books.index, answers=answers, now=self.now)
        raise AssertionError("it never settles")

    def before_cycle(self) -> None:
        """What others do meanwhile."""

    def obey(self, step: Step) -> None:
        for bind in step.binds:
            bound = Outcome(
                decision=bind.id, claim=bind.claim, generation=1, job=bind.job, pod_uid=bind.pod_uid, outcome=BindOutcome.BOUND, node=bind.node
            )  # fmt: skip
            lifecycle.outcome(self.books, step, bound)
        for eviction in step.evictions:
            claim = self.books.live[eviction.claim].claim
            gone = PodFact(claim.pod_uid, claim.namespace, claim.pod, PodPhase.GONE, claim.node, claim.job, claim.queue, 0, {})
            self.withdraw(claim.job)
            lifecycle.observed(self.books, step, gone)

    def withdraw(self, job: JobId) -> None:
        """job-controller says that it waits for nothing any more."""
        self.scheduler.on_withdrawn([job], [1 << 60])
        self.books.records.withdraw([job], [1 << 60])

    def ends(self, pod: PodUid) -> None:
        """It has run."""
        step, first = self.books.step(self.now), self.books.index
        claim = self.books.live[self.books.by_pod[pod]].claim
        self.withdraw(claim.job)
        gone = PodFact(pod, claim.namespace, claim.pod, PodPhase.GONE, claim.node, claim.job, claim.queue, 0, {})
        lifecycle.observed(self.books, step, gone)
        claims = [change.claim for change in step.changes]
        self.scheduler.on_claims(epoch=Epoch(1), previous=first, index=self.books.index, claims=claims, now=self.now)
        self.settle()

    def refit(self, state: NodeState, model: str) -> None:
        """The node has cards of another model now; what is on them stays."""
        fresh = replace(
            state, generation=Generation(state.generation + 1), cards=tuple(replace(c, model=model) for c in state.cards)
        )
        self.cluster[self.cluster.index(state)] = fresh
        self.books.know(state.name, fresh)
        self.scheduler.on_node(fresh)
        self.settle()

    def by_model(self) -> dict[QueueName, Resources]:
        return {name: dict(self.books.queues.used(name)) for name in self.books.queues}

    def waiting(self) -> list[Job]:
        """Jobs of one pod that has no place."""
        jobs = [
            entry.job for number in range(ROUNDS) if (entry := self.scheduler.reports.entry(JobId(f"j{number}"))) is not None
        ]
        return [one for one in jobs if one.members == 1 and one.tasks[0].pods[0].uid not in self.books.by_pod]

    def would_fit(self, one: Job) -> bool:
        """Whether the ledger would let it have any cards of any node."""
        task = one.tasks[0]
        request = task.cards
        assert request is not None
        for state in self.cluster:
            for cards in combinations(state.cards, request.count):
                cores = 100 if request.whole else request.cores
                slices = [CardSlice(card.index, cores, request.memory_on(card.memory_mib)) for card in cards]
                paid = self.books.card_quotas.headroom(one.namespace, charge(task.requests, slices)).times != 0
                if paid and validate_claim(state, None, self.books.node(state.name), task.requests, slices) is None:
                    return True
        return False

    def held(self, queue: str) -> int:
        return self.books.queues.used(QueueName(queue)).get(GPU, 0)
