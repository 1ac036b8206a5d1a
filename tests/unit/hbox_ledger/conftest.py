"""A small cluster for the ledger's core: nodes a, b with two cards of 40 GiB, plans and facts about it in one line each."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from hbox_common.events import BindOutcome, Outcome, Placement, Plan, PlanAnswer, PlansProposed
from hbox_common.model import (
    Card,
    CardRequest,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Epoch,
    Generation,
    Index,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    PodPhase,
    PodUid,
    QueueName,
    Resources,
    SchedulerId,
)
from hbox_common.model.devices import card_id
from hbox_ledger.core import arbitrate, lifecycle
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.reconcile import ListOrder
from hbox_ledger.core.step import Step

from ...jobterms import terms

WHOLE = CardSlice(0, 100, 40_960)


def node(name: str, cards: int = 2, cpu: int = 8000, *, ready: bool = True) -> NodeState:
    return NodeState(
        NodeName(name), name, Generation(1), ready,
        allocatable={"cpu": cpu, "pods": 10, "nvidia.com/gpu": cards * 4},
        cards=tuple(Card(i, f"{name}-{i}", "A100", 40_960, shares=4) for i in range(cards)),
    )  # fmt: skip


def card(index: int, cores: int = 100, memory: int = 40_960) -> CardSlice:
    return CardSlice(index, cores, memory)


def on(where: str, index: int, cores: int = 100, memory: int = 40_960) -> CardSlice:
    """As `card`, by the card's id."""
    return CardSlice(index, cores, memory, card=card_id(f"{where}-{index}"))


def plan(
    id: str,
    *placements: tuple[str, str, Sequence[CardSlice]],
    job: str = "",
    min_member: int = 1,
    queue: str = "default",
    cpu: int = 1000,
) -> Plan:
    """Each placement is (pod, node, slices)."""
    requests: list[Resources] = []
    made = []
    for number, (pod, where, slices) in enumerate(placements):
        requests.append({"cpu": cpu, "pods": 1} | ({"nvidia.com/gpu": len(slices)} if slices else {}))
        made.append(
            Placement(
                pod_uid=PodUid(pod), pod=pod, resource_version="1", node=NodeName(where), generation=Generation(1),
                slices=tuple(slices), requests=number,
            )
        )  # fmt: skip
    return Plan(
        id=PlanId(id), job=JobId(job or id), namespace="ml", name=job or id, queue=QueueName(queue), priority=0, min_member=min_member,
        bound=0, requests=tuple(requests), placements=tuple(made),
    )  # fmt: skip


def fact(pod: str, where: str, phase: PodPhase = PodPhase.RUNNING, *, claim: str = "", cards: int = 0, ours: bool = True,
         slices: Sequence[CardSlice] = (), job: str = "", asks: CardRequest | None = None) -> PodFact:  # fmt: skip
    requests = {"cpu": 1000, "pods": 1} | ({"nvidia.com/gpu": cards or len(slices)} if cards or slices else {})
    return PodFact(
        uid=PodUid(pod), namespace="ml", name=pod, phase=phase, node=NodeName(where), job=JobId(job or pod),
        queue=QueueName("default"), priority=0, requests=requests, cards=cards or len(slices), slices=tuple(slices),
        claim=ClaimId(claim), ours=ours, asks=asks,
    )  # fmt: skip


@dataclass
class World:
    """The core with a clock that stands still until it is moved."""

    node = staticmethod(node)
    card = staticmethod(card)
    on = staticmethod(on)
    plan = staticmethod(plan)
    fact = staticmethod(fact)

    state: LedgerState = field(default_factory=lambda: LedgerState(Epoch(7), frozen=False))
    now: float = 1000.0
    told: bool = True  #: of each job just what its plan says
    classes: dict[JobId, str] = field(default_factory=dict)  #: and its PriorityClass, where it has one

    def turn(self) -> Step:
        return self.state.step(self.now)

    def propose(self, *plans: Plan, epoch: int = 7, answered: dict[PlanId, PlanAnswer] | None = None) -> list[PlanAnswer]:
        step = self.turn()
        if self.told:
            known = (terms(plan) for plan in plans)
            self.state.records.only(replace(job, priority_class=self.classes.get(job.id, "")) for job in known)
        message = PlansProposed(scheduler=SchedulerId("s"), epoch=Epoch(epoch), seen=Index(0), plans=plans)
        arbitrate.propose(self.state, step, message, answered or {})
        self.last = step
        self.state.validate()
        return list(step.answers.get(SchedulerId("s"), {}).values())

    def in_order(self, facts: Sequence[PodFact]) -> list[PodFact]:
        """Pods of a list in the order in which a comparison applies them."""
        order = ListOrder()
        order.add(self.state, facts)
        return order.facts()

    def commits(self, *plans: Plan) -> None:
        assert [a.committed for a in self.propose(*plans)] == [True] * len(plans)

    def refuses(self, refused: Plan) -> str:
        [answer] = self.propose(refused)
        assert not answer.committed
        assert not self.last.changes
        assert answer.reason is not None
        return answer.reason.value

    def refusal(self, plan: Plan) -> str:
        """What the scheduler is told of a plan that is refused."""
        [answer] = self.propose(plan)
        assert not answer.committed
        return answer.message

    def outcome(
        self,
        pod: str,
        outcome: BindOutcome,
        *,
        generation: int | None = None,
        at: str = "",
        blocked: str = "",
        grace_s: int = -1,
    ) -> Step:
        holding = self.state.live[self.state.by_pod[PodUid(pod)]]
        step = self.turn()
        said = Outcome(
            decision="d", claim=holding.claim.id, generation=generation or holding.generation, job=holding.claim.job,
            pod_uid=PodUid(pod), outcome=outcome, node=NodeName(at), blocked=bool(blocked), message=blocked, grace_s=grace_s,
        )  # fmt: skip
        lifecycle.outcome(self.state, step, said)
        self.state.validate()
        return step

    def blocked(self, pod: str, *, generation: int | None = None) -> Step:
        """The API server does not let the pod be evicted."""
        said = "The disruption budget web needs 3 healthy pods and has 3 currently"
        return self.outcome(pod, BindOutcome.UNKNOWN, generation=generation, blocked=said)

    def see(self, *facts: PodFact) -> Step:
        step = self.turn()
        for f in facts:
            lifecycle.observed(self.state, step, f)
        self.state.validate()
        return step

    def wait(self, seconds: float) -> Step:
        self.now += seconds
        step = self.turn()
        lifecycle.tick(self.state, step)
        lifecycle.send_again(self.state, step)
        self.state.validate()
        return step

    def claim(self, pod: str) -> Claim:
        return self.state.live[self.state.by_pod[PodUid(pod)]].claim

    def claim_state(self, pod: str) -> ClaimState | None:
        return self.claim(pod).state if PodUid(pod) in self.state.by_pod else None


@pytest.fixture
def world() -> World:
    made = World()
    for name in ("a", "b"):
        made.state.nodes[NodeName(name)] = node(name)
    return made
