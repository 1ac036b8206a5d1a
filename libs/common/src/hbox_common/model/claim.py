"""Claims on devices, the books of a node, and the one rule by which scheduler-core and quota-ledger judge whether a claim fits.

Proposer and arbiter share this code: where they used different feasibility rules, other schedulers looped for ever
(Nomad #9506, #13017; sources: shared-validate).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from .cardparts import is_share
from .devices import ALL_CORES, VENDORS, Card, CardAllocation, CardSlice
from .devices.cardids import numbered, short_card
from .ids import CardId, ClaimId, JobId, NodeName, PlanId, PodUid, QueueName
from .node import NodeState, Verdict
from .pools import amounts_in
from .resources import Resources, add, shortfall

#: For a live claim whose cards are the ones that the kubelet allocated, not the planned ones.
KUBELET_GAVE = "its kubelet gave it these cards"


class ClaimState(StrEnum):
    """PENDING -> POSTED | VOID, POSTED -> VOID; never back (S12)."""

    PENDING = "pending"
    POSTED = "posted"
    VOID = "void"

    @property
    def live(self) -> bool:
        return self is not ClaimState.VOID


@dataclass(frozen=True, slots=True)
class Claim:
    """What one pod holds of one node, or will. Live claims of a card never exceed the card."""

    id: ClaimId
    pod_uid: PodUid
    namespace: str
    pod: str
    job: JobId
    plan: PlanId  #: empty for pods that were found bound
    queue: QueueName
    priority: int
    node: NodeName
    requests: Resources
    slices: tuple[CardSlice, ...] = ()
    state: ClaimState = ClaimState.PENDING
    reason: str = ""  #: why it is void; `KUBELET_GAVE` of a live one of which that is so
    min_member: int = 1  #: of its job: what has to stay for the job to stay whole
    preemptable: bool = True  #: whether it may be evicted for others at all: the ledger's word (`rights.may_be_protected`)
    created_at: float = 0.0  #: of its job, in seconds since the epoch
    claimed_at: float = 0.0  #: since when it is live
    #: seconds since the epoch until which the claim may not be preempted, as set by the ledger (`minruntime`)
    protected_until: float = 0.0
    #: cards by model (`cardmodels`), and units of cards that are parts of cards (`cardparts.share_on`), by the inventory of when it was made
    models: Resources = field(default_factory=dict)
    pool: str = ""  #: of the node (`pools`), by the inventory of when it was made; empty for `pooled`

    @property
    def amounts(self) -> Resources:
        """All that it counts against queues, by resource and by model, under the names of its pool."""
        return self.counted(by_model=True)

    def counted(self, *, by_model: bool) -> Resources:
        """As `amounts`; by model only where queues name models."""
        amounts = self.requests | counted_models(self.models, by_model=by_model) if self.models else self.requests
        return amounts_in(self.pool, amounts) if self.pool else amounts


def counted_models(models: Resources, *, by_model: bool) -> Resources:
    """The part of a claim's `models` that counts in its queue: models only where queues name some, shares of cards always."""
    return models if by_model else {name: units for name, units in models.items() if is_share(name)}


@dataclass(slots=True)
class NodeAllocation:
    """What is given away of one node: the sum of its live claims. May exceed the node where reality does (force-accounted pods)."""

    used: Resources = field(default_factory=dict)
    cards: dict[CardId, CardAllocation] = field(default_factory=dict)

    def book(self, requests: Resources, slices: Sequence[CardSlice], times: int = 1) -> None:
        """Add a claim (`times=1`) or take it back (`times=-1`)."""
        add(self.used, requests, times)
        for s in slices:
            self.cards.setdefault(s.card, CardAllocation()).book(s, times)

    def of(self, card: Card) -> CardAllocation | None:
        """The allocation of one card of the node; also if an older program booked it under the card's index."""
        return self.cards.get(card.id) or self.cards.get(numbered(card.index))


class RefusalReason(StrEnum):
    """Why a claim or a plan is refused. Labels people see are in `hbox_scheduler.core.explain`."""

    NODE_UNKNOWN = "NodeUnknown"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNHEALTHY = "NodeUnhealthy"
    NODE_POOL = "NodePoolMismatch"
    NODE_RESOURCES = "NodeResourcesInsufficient"
    CARD_UNKNOWN = "CardUnknown"
    CARD_UNHEALTHY = "CardUnhealthy"
    CARD_TAKEN = "CardTaken"
    QUEUE_UNKNOWN = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    QUEUE_INVALID = "QueueInvalid"
    QUEUE_NAMESPACE = "QueueNotForNamespace"
    QUEUE_PRIORITY_CLASS = "QueueNotForPriorityClass"
    QUEUE_CAPABILITY = "QueueCapabilityExceeded"
    QUEUE_BUDGET = "QueueBudgetSpent"
    QUEUE_GUARANTEES = "QueueGuaranteedToOthers"
    NAMESPACE_QUOTA = "ResourceQuotaNotFit"
    GANG_INCOMPLETE = "GangIncomplete"
    POD_CLAIMED = "PodAlreadyClaimed"
    STALE_EPOCH = "StaleEpoch"
    FROZEN = "LedgerReconciling"
    PODS_UNSEEN = "PodsUnseen"
    VICTIM_GONE = "VictimGone"
    VICTIM_PROTECTED = "VictimProtected"
    MALFORMED = "PlanMalformed"
    JOB_UNKNOWN = "JobNotKnownYet"
    JOB_DIFFERS = "JobDiffers"
    EVICTIONS_PAUSED = "EvictionsPaused"
    FABRIC_CHANGED = "FabricChanged"


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: RefusalReason
    message: str


def _admits(card: Card, held: CardAllocation, taken: CardSlice) -> bool:
    """Whether the card's vendor allows this slice in addition to the allocated ones; cards of unknown kind are allocated only as a whole."""
    if not VENDORS.knows(card.kind):
        return not taken.part and not held.parts
    return VENDORS.kind(card.kind).admits(card, held, taken)


def validate_claim(
    node: NodeState | None,
    verdict: Verdict | None,
    allocation: NodeAllocation,
    requests: Resources,
    slices: Sequence[CardSlice],
) -> Refusal | None:
    """Why a claim of `requests` and `slices` does not fit the node in addition to `allocation`; None = it fits.

    Selectors, taints and affinity are checked by the scheduler: they are constraints of the pod and protect no other pod.
    """
    if node is None or node.gone:
        return Refusal(RefusalReason.NODE_UNKNOWN, "the node is not in the inventory")
    if not node.ready or node.unschedulable:
        return Refusal(RefusalReason.NODE_NOT_READY, f"{node.name} is {'cordoned' if node.ready else 'not ready'}")
    if verdict is not None and (why := verdict.refusal(node, requests, slices)):
        return Refusal(RefusalReason.NODE_UNHEALTHY, f"{node.name}: {why}")
    if short := shortfall(requests, allocation.used, node.allocatable):
        return Refusal(RefusalReason.NODE_RESOURCES, f"{node.name} has too little {', '.join(short)}")
    seen: set[CardId] = set()
    for s in slices:
        card = node.card(s.card, s.index)
        if card is None or card.id in seen:
            name = short_card(s.card)
            return Refusal(RefusalReason.CARD_UNKNOWN, f"{node.name} has no card {name}, or the claim names it twice")
        seen.add(card.id)
        if not card.healthy or (verdict is not None and verdict.marks_unhealthy(card)):
            return Refusal(RefusalReason.CARD_UNHEALTHY, f"{node.name} card {card.uuid} is unhealthy")
        if card.effective_traits.cordoned:
            return Refusal(RefusalReason.CARD_UNHEALTHY, f"{node.name} card {card.uuid} is cordoned")
        held = allocation.of(card)
        if held is None or held.pods == 0:
            if s.cores > ALL_CORES or s.memory_mib > card.memory_mib:
                return Refusal(RefusalReason.CARD_TAKEN, f"{node.name} card {card.uuid} is smaller than {s.memory_mib} MiB")
            if s.slots > max(card.shares, 1):
                return Refusal(RefusalReason.CARD_TAKEN, f"{node.name} card {card.uuid} has {card.shares} shares")
            if (s.part or card.traits is not None) and not _admits(card, CardAllocation(), s):
                return Refusal(RefusalReason.CARD_TAKEN, f"{node.name} card {card.uuid} cannot be divided into {s.part}")
            continue
        if (
            s.whole
            or held.cores + s.cores > ALL_CORES
            or held.cores >= ALL_CORES
            or held.memory_mib + s.memory_mib > card.memory_mib
            or held.pods + s.slots > card.shares
            or ((s.part or held.parts or card.traits is not None) and not _admits(card, held, s))
        ):
            return Refusal(RefusalReason.CARD_TAKEN, f"{node.name} card {card.uuid} has too little left")
    return None
