"""A cluster in memory: a scheduler, and a ledger that accepts its plans at once; with short constructors for nodes and jobs."""

from collections.abc import Callable, Iterable, Sequence

from hbox_common.events import Plan
from hbox_common.model import (
    DEFAULT_QUEUE,
    Card,
    CardRequest,
    Claim,
    Generation,
    Job,
    JobId,
    NodeName,
    NodeState,
    PodGroupTask,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    Resources,
    SchedulerId,
)
from hbox_common.model.devices import VENDORS, Vendor
from hbox_common.model.resources import CPU, MEMORY, MIB, PODS

from ..framework.conf import Conf
from ..policy import Policy, policy_from
from ..protocol.limits import Limits
from ..scheduler import Scheduler
from .instantledger import InstantLedger


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
    """A node from cores of cpu and equal cards."""
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
    """A job of equal pods; `cards` as a number are whole ones."""
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


class Simulation(InstantLedger):
    """A scheduler, and a ledger that answers within the same call. Time does not pass unless it is set."""

    def __init__(
        self,
        policy: Policy,
        *,
        limits: Limits | None = None,
        queues: Sequence[Queue] = (Queue(DEFAULT_QUEUE),),
        conf: Conf | None = None,
        attach: Callable[[Scheduler], None] = lambda _: None,
    ) -> None:
        """`conf`: another policy than `policy`, in full; None = `policy`, without actions that evict. `attach` is called with the new
        scheduler."""
        scheduler = Scheduler(
            id=SchedulerId("simulation"), policy=policy if conf is None else policy_from(conf), limits=limits, conf=conf
        )
        attach(scheduler)
        super().__init__(scheduler)
        for queue in queues:
            self.scheduler.on_queue(queue)
        self.open()

    def submit(self, jobs: Iterable[Job]) -> None:
        self.scheduler.on_jobs(jobs)

    def run(self) -> list[Plan]:
        """Cycle until nothing is left to do at this time; every plan is accepted, and every PodGroup that is admitted is Inqueue. Returns the plans in order.
        Raises Bug for a wrong plan."""
        made: list[Plan] = []
        while True:
            out = self.step()
            if not out.plans and not out.more and not out.admitted:
                return made
            made.extend(out.plans)

    def finish(self, pods: Iterable[PodUid]) -> None:
        """Pods end and their claims with them; the jobs do not ask for them any more."""
        ended = [self.claims[pod] for pod in pods]
        self.scheduler.on_withdrawn([claim.job for claim in ended], [1 << 60] * len(ended))
        self.gone([claim.pod_uid for claim in ended])

    def leave(self) -> list[Claim]:
        """Remove the evicted pods without successors. Returns their claims."""
        gone, self.evicted = self.evicted, []
        self.finish([claim.pod_uid for claim in gone])
        return gone
