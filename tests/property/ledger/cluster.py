"""A cluster that tells the truth, late: pods, a binder and the streams between them and the ledger.

Pods change only here. What the ledger hears of them (outcomes, facts) was true when it was made; it may come late, twice, in any order or never.
Decisions reach the binder the same way. The binder keeps the real one's promises: a decision of an older epoch than the highest seen is not begun,
what was begun may land at any later moment, and an outcome that lets a claim be freed is given only for a pod that is gone, bound otherwise or
fenced against that claim.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from hbox_common.events import (
    Bind,
    BindDecided,
    BindOutcome,
    Event,
    Evict,
    EvictDecided,
    EvictKind,
    Outcome,
    OutcomesObserved,
    PodRead,
    PodsObserved,
    PodStanding,
    content_type,
    decode,
)
from hbox_common.model import (
    PUBLIC,
    Card,
    CardQuota,
    CardSlice,
    ClaimId,
    Epoch,
    Generation,
    Index,
    JobId,
    NodeName,
    NodeState,
    PodFact,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
    Resources,
    by_pool,
)
from hbox_common.model.devices.nvidia import GPU_MEMORY
from hbox_common.model.pools import POOL
from hbox_ledger.core.recovery import BEGINNING, Position, StreamHistory
from hbox_ledger.ledger import Numbered

CARDS, MEMORY_MIB, SHARES = 2, 100, 3
MODELS = ("common", "rare")  #: of each node's cards, by index
ROOM: Resources = {"cpu": 6000, "pods": 7, "nvidia.com/gpu": CARDS * SHARES}
NODES = {
    name: NodeState(
        name,
        name,
        Generation(1),
        ready=True,
        allocatable=ROOM,
        cards=tuple(Card(i, f"{name}{i}", MODELS[i], MEMORY_MIB, SHARES) for i in range(CARDS)),
    )
    for name in (NodeName("a"), NodeName("b"))
}
#: Of which pool nodes are; the others are `pooled`. `LAB` owns its own, and lends them to everybody.
OWN, OPEN = NodeName("own"), NodeName("open")
POOL_OF = {OWN: "lab", OPEN: PUBLIC}
NODES |= {name: replace(NODES[NodeName("a")], name=name, uid=name, labels={POOL: pool}) for name, pool in POOL_OF.items()}

GPU = "nvidia.com/gpu"
#: What is divided by weight: less than nodes lend out in parts, so that there is something to give back.
SCARCE: Resources = {"cpu": 12_000, "nvidia.com/gpu": 4}
RARE = f"{GPU}.rare"
DEPARTMENT, RED, BLUE, LONE, GREEN, LAB, MATE = map(QueueName, ("department", "red", "blue", "lone", "green", "lab", "mate"))
QUEUES = {
    DEPARTMENT: Queue(DEPARTMENT, weight=2, capability={"cpu": 12_000, GPU: 3}, deserved={GPU: 3}),
    RED: Queue(
        RED, weight=3, parent=DEPARTMENT, capability={"cpu": 5000, GPU: 2, RARE: 1}, deserved={GPU: 2}, guarantee={GPU: 1}
    ),
    BLUE: Queue(BLUE, parent=DEPARTMENT, deserved={GPU: 1}, guarantee={GPU: 1}, non_preemptible_classes=("*",)),
    LONE: Queue(LONE, weight=4, deserved={GPU: 1, RARE: 1}, non_preemptible_classes=("*",)),
    GREEN: Queue(GREEN, weight=8, reclaimable=False),
    LAB: Queue(LAB, pools=("lab",), lent_pools=("lab",), deserved={GPU: 2}, guarantee={GPU: 1}),
    MATE: Queue(MATE, pools=("lab",), reclaimable=False),  # shares the lab's nodes, and gives nothing back
}
#: Of which pool the amounts in their objects are; of the others `pooled`.
HOMES = {LAB: "lab", MATE: "lab"}


def owns(queue: str, node: str) -> bool:
    """Whether the node is of an exclusive pool, and the queue an owner of it."""
    return node == OWN and queue in HOMES


def borrows(queue: str, node: str) -> bool:
    return node == OWN and queue not in HOMES


def at_home(queue: str, amounts: Resources) -> Resources:
    """Amounts of its object, by pool."""
    pool = HOMES.get(QueueName(queue), "")
    return {f"{name}@{pool}" if pool else name: units for name, units in amounts.items()}


def without_pods(amounts: Resources) -> list[str]:
    """Names of amounts that are about rights: all but the count of pods."""
    return [name for name in amounts if by_pool(name)[0] != "pods"]


#: One namespace has a quota: a card and a half of memory.
NARROW = "narrow"
QUOTA = CardQuota(NARROW, "cards", {GPU_MEMORY: 150})


def counted(requests: Resources, slices: Iterable[CardSlice], node: str) -> Resources:
    """What counts against queues: what is asked for, and the given cards by model, in the pool of the node."""
    found = dict(requests)
    for s in slices:
        if s.index < CARDS:
            found[f"{GPU}.{MODELS[s.index]}"] = found.get(f"{GPU}.{MODELS[s.index]}", 0) + 1
    pool = POOL_OF.get(NodeName(node), "")
    return {f"{name}@{pool}": units for name, units in found.items()} if pool else found


def path(queue: str) -> tuple[QueueName, ...]:
    """The queue and all above it, itself first."""
    found = [QueueName(queue)]
    while (known := QUEUES.get(found[-1])) is not None and known.parent:
        found.append(QueueName(known.parent))
    return tuple(found)


@dataclass(frozen=True)
class Job:
    id: JobId
    queue: QueueName
    priority: int
    min_member: int
    preemptable: bool = True
    namespace: str = "n"


JOBS = [
    Job(JobId("a"), RED, 0, 1),
    Job(JobId("b"), RED, 5, 2),
    Job(JobId("c"), BLUE, 0, 1),
    Job(JobId("d"), BLUE, 5, 3, preemptable=False),
    Job(JobId("e"), GREEN, 0, 1, namespace=NARROW),
    Job(JobId("f"), BLUE, 5, 1),
    Job(JobId("g"), RED, 5, 1, namespace=NARROW),
    Job(JobId("i"), LONE, 5, 1, preemptable=False),
    Job(JobId("k"), LONE, 0, 2),
    Job(JobId("h"), LONE, 0, 1),
]
#: Where there are other pools than `pooled`.
LAB_JOBS = [
    Job(JobId("l"), LAB, 0, 1),
    Job(JobId("m"), LAB, 5, 2),
    Job(JobId("o"), MATE, 0, 1),
    Job(JobId("q"), MATE, 5, 2),
]


@dataclass
class Pod:
    """`job` None: another scheduler's."""

    uid: PodUid
    job: Job | None
    phase: PodPhase | None = None  #: None: waits for a node
    node: NodeName = NodeName("")
    claim: ClaimId = ClaimId("")
    slices: tuple[CardSlice, ...] = ()
    requests: Resources = field(default_factory=dict)
    fenced: set[ClaimId] = field(default_factory=set)
    leaving: bool = False
    guarded: bool = False  #: a disruption budget does not let it be evicted

    @property
    def holds(self) -> bool:
        return self.phase is not None and self.phase.holds

    @property
    def over(self) -> bool:
        return self.phase is not None and not self.phase.holds

    def fact(self) -> PodFact:
        job = self.job
        return PodFact(
            uid=self.uid, namespace=job.namespace if job else "n", name=self.uid, phase=self.phase or PodPhase.GONE, node=self.node,
            job=job.id if job else JobId(self.uid), queue=job.queue if job else QueueName("theirs"), priority=job.priority if job else 9,
            requests=self.requests, cards=len(self.slices), slices=self.slices, claim=self.claim, ours=job is not None,
            min_member=job.min_member if job else 1, preemptable=job.preemptable if job else True,
        )  # fmt: skip


class Cluster:
    def __init__(self) -> None:
        self.pods: dict[PodUid, Pod] = {}
        self.epoch = Epoch(0)  #: the highest that the binder has seen
        self.begun: list[Bind | Evict] = []
        self.news: list[Numbered] = []  #: that the ledger has not heard
        self.old_news: list[Numbered] = []  #: that had an effect
        self.said = 0

    def read(self, uid: PodUid) -> PodRead:
        """What a consistent read at the API server says."""
        pod = self.pods.get(uid)
        if pod is None or pod.phase is PodPhase.GONE:
            return PodRead(uid=uid, standing=PodStanding.GONE)
        return PodRead(uid=uid, standing=PodStanding.ENDED if pod.over else PodStanding.HOLDS, node=pod.node)

    def waiting(self, job: Job, count: int, *, besides: Collection[str]) -> list[Pod]:
        """So many pods of this job that wait for a node; made where there are fewer."""
        found = [pod for pod in self.pods.values() if pod.job is job and pod.phase is None and pod.uid not in besides]
        while len(found) < count:
            pod = Pod(PodUid(f"{job.id}{len(self.pods)}"), job)
            self.pods[pod.uid] = pod
            found.append(pod)
        return found[:count]

    def bound(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.holds]

    # --- the binder

    def take(self, event: Event) -> None:
        """A message of decisions comes to the binder."""
        if not isinstance(event, (BindDecided, EvictDecided)) or event.epoch < self.epoch:
            return
        self.epoch = event.epoch
        self.begun += event.binds if isinstance(event, BindDecided) else event.evictions

    def land(self, decision: Bind | Evict, *, now: float) -> None:
        """A call that was begun has its effect, and its outcome is told."""
        pod = self.pods[decision.pod_uid]
        if isinstance(decision, Bind):
            outcome = self._bind(pod, decision, now)
        elif decision.kind is EvictKind.REVOKE:
            outcome = self._standing(pod, decision.claim) or BindOutcome.REVOKED
            if outcome is BindOutcome.REVOKED:
                pod.fenced.add(decision.claim)
        elif not pod.holds:
            outcome = BindOutcome.GONE
        elif pod.guarded and not pod.leaving:
            self.tell(decision, BindOutcome.UNKNOWN, blocked=True)
            return
        else:
            pod.leaving, outcome = True, BindOutcome.EVICTED
        self.tell(decision, outcome)

    def _bind(self, pod: Pod, bind: Bind, now: float) -> BindOutcome:
        if (found := self._standing(pod, bind.claim)) is not None:
            return found
        if bind.claim in pod.fenced:
            return BindOutcome.REVOKED
        if bind.deadline <= now:
            pod.fenced.add(bind.claim)
            return BindOutcome.EXPIRED
        pod.phase, pod.node, pod.claim, pod.slices = PodPhase.BOUND, bind.node, bind.claim, bind.slices
        pod.requests = {"cpu": 1000, "pods": 1, GPU: len(bind.slices)}
        return BindOutcome.BOUND

    def _standing(self, pod: Pod, claim: ClaimId) -> BindOutcome | None:
        """What is true of a pod that cannot be bound any more."""
        if pod.over:
            return BindOutcome.GONE
        if pod.phase is None:
            return None
        return BindOutcome.BOUND if pod.claim == claim else BindOutcome.CONFLICT

    def tell(self, decision: Bind | Evict, outcome: BindOutcome, *, blocked: bool = False) -> None:
        pod = self.pods[decision.pod_uid]
        said = Outcome(
            decision=decision.id, claim=decision.claim, generation=decision.generation, job=decision.job, pod_uid=decision.pod_uid,
            outcome=outcome, node=pod.node if pod.holds else NodeName(""), blocked=blocked,
        )  # fmt: skip
        self._news(OutcomesObserved(epoch=self.epoch, outcomes=(said,)))

    # --- what pods do by themselves

    def change(self, pod: Pod, phase: PodPhase) -> None:
        pod.phase = phase
        self._news(PodsObserved(pods=(pod.fact(),)))

    def foreign(self, node: NodeName, slices: tuple[CardSlice, ...]) -> None:
        """Another scheduler binds a pod of its own, looking at nobody's books."""
        pod = Pod(PodUid(f"x{len(self.pods)}"), None, node=node, slices=slices, requests={"cpu": 500, "pods": 1})
        self.pods[pod.uid] = pod
        self.change(pod, PodPhase.RUNNING)

    def _news(self, event: OutcomesObserved | PodsObserved) -> None:
        self.said += 1
        self.news.append(Numbered(f"m{self.said}", event))


@dataclass
class Streams:
    """What the ledger has published, for ever: a message comes at least once, and a repetition under its id is dropped."""

    said: dict[str, Event] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)  #: evictions that were decided in what a restored database has forgotten

    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None:
        self.said.setdefault(
            message_id, decode(body, {"ce-type": type_.ce_type(), "content-type": content_type(type_.ce_type())})
        )

    def decisions(self) -> list[Event]:
        return [event for event in self.said.values() if isinstance(event, (BindDecided, EvictDecided))]

    def heard(self) -> StreamHistory:
        decided = sorted((e for e in self.said.values() if isinstance(e, BindDecided)), key=lambda e: (e.epoch, e.index))
        standings = [Position(e.epoch, e.index) for e in decided]
        standings += [Position(e.epoch, Index(0)) for e in self.said.values() if isinstance(e, EvictDecided)]
        return StreamHistory(max(standings, default=BEGINNING), tuple(bind for event in decided for bind in event.binds))
