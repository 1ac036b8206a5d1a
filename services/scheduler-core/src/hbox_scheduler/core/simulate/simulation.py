"""A cluster in memory whose ledger accepts every plan that is right, at once, and fails loudly on one that is not.

The books are kept by `hbox_common.model` alone, apart from the scheduler's columns, so that each plan is a check of one against the other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hbox_common.errors import Bug
from hbox_common.events import Plan, PlanAnswer
from hbox_common.model import (
    DEFAULT_QUEUE,
    Card,
    CardRequest,
    Claim,
    ClaimId,
    ClaimState,
    Epoch,
    Generation,
    GroupPhase,
    GroupState,
    Index,
    Job,
    JobId,
    NodeAllocation,
    NodeName,
    NodeState,
    PodGroupTask,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    Resources,
    SchedulerId,
    Verdict,
    cards_by_model,
    validate_claim,
)
from hbox_common.model.devices import VENDORS, Vendor
from hbox_common.model.resources import CPU, MEMORY, MIB, PODS

from ..framework.conf import Conf
from ..policy import Policy
from ..protocol.limits import Limits
from ..scheduler import Scheduler


def node(
    name: str,
    *,
    cards: int = 0,
    model: str = "A100",
    vendor: Vendor = VENDORS.default,
    card_mib: int = 40_960,
    shares: int = 1,
    cpu: int = 64,
    memory_mib: int = 262_144,
    generation: int = 1,
    ready: bool = True,
    unschedulable: bool = False,
    labels: dict[str, str] | None = None,
) -> NodeState:
    """A node in few words: cores of cpu, equal cards."""
    allocatable = {CPU: 1000 * cpu, MEMORY: memory_mib * MIB, PODS: 110}
    if cards:
        allocatable[vendor.cards] = cards * shares
    return NodeState(
        name=NodeName(name),
        uid=f"uid-{name}",
        generation=Generation(generation),
        ready=ready,
        unschedulable=unschedulable,
        labels=labels or {},
        allocatable=allocatable,
        cards=tuple(Card(i, f"{name}-{i}", model, card_mib, shares) for i in range(cards)),
    )


def job(
    name: str,
    *,
    pods: int = 1,
    min_member: int | None = None,
    cpu_milli: int = 1000,
    memory_mib: int = 1024,
    cards: CardRequest | int = 0,
    vendor: Vendor = VENDORS.default,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    created_at: float = 0.0,
    revision: int = 1,
    node_selector: dict[str, str] | None = None,
) -> Job:
    """A job of equal pods in few words; `cards` as a number are whole ones."""
    request = CardRequest(cards) if isinstance(cards, int) and cards else cards or None
    requests: Resources = {CPU: cpu_milli, MEMORY: memory_mib * MIB, PODS: 1}
    if isinstance(request, CardRequest):
        requests[vendor.cards] = request.count
    task = PodGroupTask(
        name="worker",
        requests=requests,
        pods=tuple(PodRef(PodUid(f"{name}-{i}"), f"{name}-{i}", "1") for i in range(pods)),
        cards=request if isinstance(request, CardRequest) else None,
        node_selector=node_selector or {},
    )
    return Job(
        id=JobId(name),
        namespace="default",
        name=name,
        queue=QueueName(queue),
        priority=priority,
        min_member=pods if min_member is None else min_member,
        members=pods,
        bound=0,
        created_at=created_at,
        revision=revision,
        tasks=(task,),
        gang=pods > 1,
    )


class Simulation:
    """A scheduler, and a ledger that answers within the same call. Time stands still unless it is set."""

    def __init__(
        self,
        policy: Policy,
        *,
        limits: Limits | None = None,
        queues: Sequence[Queue] = (Queue(DEFAULT_QUEUE),),
        conf: Conf | None = None,
        user_policy: bool = False,
        attach: Callable[[Scheduler], None] = lambda _: None,
    ) -> None:
        """`conf`: by which room is taken from others, and `user_policy` all jobs are placed. `attach` is called with the new
        scheduler."""
        self.scheduler = Scheduler(
            id=SchedulerId("simulation"), policy=policy, limits=limits, conf=conf, user_policy=user_policy
        )
        attach(self.scheduler)
        self.evicted: list[Claim] = []  #: victims of accepted plans that have not left yet
        self.now = 0.0
        self.verdicts: dict[JobId, str] = {}
        self.claims: dict[PodUid, Claim] = {}
        self.groups: dict[JobId, GroupState] = {}
        self._nodes: dict[NodeName, NodeState] = {}
        self._health: dict[NodeName, Verdict] = {}
        self._books: dict[NodeName, NodeAllocation] = {}
        self._index = Index(0)
        self._epoch = Epoch(1)
        for queue in queues:
            self.scheduler.on_queue(queue)
        self.scheduler.on_claims_snapshot(epoch=self._epoch, index=self._index, frozen=False, claims=(), now=0.0)

    def put_nodes(self, nodes: Iterable[NodeState]) -> None:
        for state in nodes:
            self._nodes[state.name] = state
            self.scheduler.on_node(state)

    def put_verdict(self, verdict: Verdict) -> None:
        self._health[verdict.node] = verdict
        self.scheduler.on_verdict(verdict)

    def submit(self, jobs: Iterable[Job]) -> None:
        self.scheduler.on_jobs(jobs)

    def put_groups(self, groups: Iterable[GroupState]) -> None:
        """PodGroups with a minimum of resources, as they are now."""
        news = list(groups)
        self.groups.update((group.id, group) for group in news)
        self.scheduler.on_groups(news)

    def run(self) -> list[Plan]:
        """Cycle until nothing is left to do at this time; every plan is accepted, and every PodGroup that is let in is Inqueue. Returns the plans in order.
        Raises Bug for a wrong plan."""
        made: list[Plan] = []
        while True:
            out = self.scheduler.cycle(self.now, self.now)
            self.verdicts.update((verdict.job, verdict.message) for verdict in out.verdicts)
            if not out.plans and not out.more and not out.admitted:
                return made
            entered = [self.groups[job] for job in out.admitted]
            self.put_groups(replace(one, phase=GroupPhase.INQUEUE, revision=one.revision + 1) for one in entered)
            made.extend(out.plans)
            self.accept(out.plans)

    def gone(self, pods: Iterable[PodUid]) -> None:
        """Pods end and their claims with them; what their jobs ask for is told by `submit`."""
        ended = [self.claims.pop(pod) for pod in pods]
        for claim in ended:
            self._books[claim.node].book(claim.requests, claim.slices, -1)
        self._tell([replace(claim, state=ClaimState.VOID) for claim in ended])

    def finish(self, pods: Iterable[PodUid]) -> None:
        """Pods end and their claims with them; the jobs do not ask for them any more."""
        ended = [self.claims[pod] for pod in pods]
        self.scheduler.on_withdrawn([claim.job for claim in ended], [1 << 60] * len(ended))
        self.gone([claim.pod_uid for claim in ended])

    def leave(self) -> list[Claim]:
        """Those evicted are gone, and nobody asks for them again. Returns their claims."""
        gone, self.evicted = self.evicted, []
        self.finish([claim.pod_uid for claim in gone])
        return gone

    def accept(self, plans: Sequence[Plan]) -> None:
        """The ledger says yes to these plans and claims their places. Raises Bug where one is wrong."""
        for plan in plans:
            self.evicted += [self.claims[victim.pod_uid] for victim in plan.victims]
        claims = [claim for plan in plans if not plan.victims for claim in self._claims_of(plan)]
        self._tell(claims)
        self.scheduler.on_answers(
            epoch=self._epoch,
            index=self._index,
            answers=[PlanAnswer(plan=plan.id, job=plan.job, committed=True) for plan in plans],
            now=self.now,
        )

    def _claims_of(self, plan: Plan) -> list[Claim]:
        if plan.bound + len(plan.placements) < plan.min_member:
            raise Bug(f"plan {plan.id} starts {len(plan.placements)} pods beside {plan.bound}, {plan.min_member} are needed")
        claims: list[Claim] = []
        for placement in plan.placements:
            requests = plan.requests[placement.requests]
            books = self._books.setdefault(placement.node, NodeAllocation())
            refusal = validate_claim(
                self._nodes.get(placement.node), self._health.get(placement.node), books, requests, placement.slices
            )
            if refusal is not None:
                raise Bug(f"plan {plan.id}: {placement.pod} does not fit: {refusal.message}")
            books.book(requests, placement.slices)
            claim = Claim(
                id=ClaimId(f"{plan.id}/{placement.pod_uid}"),
                pod_uid=placement.pod_uid,
                namespace=plan.namespace,
                pod=placement.pod,
                job=plan.job,
                plan=plan.id,
                queue=plan.queue,
                priority=plan.priority,
                node=placement.node,
                requests=requests,
                slices=placement.slices,
                state=ClaimState.POSTED,
                min_member=plan.min_member,
                preemptable=plan.preemptable,
                created_at=plan.created_at,
                claimed_at=self.now,
                models=cards_by_model(self._nodes.get(placement.node), placement.slices),
            )
            if placement.pod_uid in self.claims:
                raise Bug(f"pod {placement.pod} is placed twice")
            self.claims[placement.pod_uid] = claim
            claims.append(claim)
        return claims

    def _tell(self, claims: Sequence[Claim]) -> None:
        previous, self._index = self._index, Index(self._index + 1)
        known = self.scheduler.on_claims(epoch=self._epoch, previous=previous, index=self._index, claims=claims, now=self.now)
        assert known
