"""Queues: who may use how much."""

from dataclasses import dataclass, field
from enum import StrEnum

from .ids import QueueName
from .pools import Pools
from .resources import Resources


class QueuePhase(StrEnum):
    """Volcano's states of a queue."""

    OPEN = "Open"
    CLOSING = "Closing"  #: takes nothing new; pods are left
    CLOSED = "Closed"


#: In a queue's list of PriorityClasses: all of them, and pods without one. In that of namespaces: every namespace.
ANY = "*"
#: In a queue's list of allowed PriorityClasses: jobs without a class. No PriorityClass can have this name.
NO_CLASS = "~none"

#: What `spec.affinity` of a Queue can say of groups of nodes.
REQUIRED_GROUPS, PREFERRED_GROUPS, FORBIDDEN_GROUPS, AVOIDED_GROUPS = NODE_GROUP_RULES = (
    "requiredAffinity",
    "preferredAffinity",
    "requiredAntiAffinity",
    "preferredAntiAffinity",
)


@dataclass(frozen=True, slots=True)
class Queue:
    """`capability` is the limit: what is named there may never be exceeded, pending claims included; what is not named is not limited.

    `deserved` is what the queue gets back when others have borrowed it, `guarantee` what is never taken from it; nothing named = nothing promised.
    In a tree each amount holds for the queue together with all below it, and nothing is inherited but the limits above (`queuetree`).
    """

    name: QueueName
    phase: QueuePhase = QueuePhase.OPEN
    capability: Resources = field(default_factory=dict)
    weight: int = 1
    priority: int = 0
    deserved: Resources = field(default_factory=dict)
    guarantee: Resources = field(default_factory=dict)
    reclaimable: bool = True  #: whether others may take back what it has beyond its deserved share
    parent: str = ""
    budget_card_hours: int | None = None  #: of a calendar month (UTC); None = no limit
    stopped: str = ""  #: why it is given no cards now although it is open: the ledger's word, not a rule
    created_at: float = 0.0  #: seconds since the epoch
    pools: Pools = ()  #: that it may use, with all below it (`pools`); none named = as the queue above it, or `pooled`
    namespaces: tuple[str, ...] = ()  #: whose pods may use it, and all below it; `*` = any
    #: no namespace may use it that neither it nor a queue above it names; False: where none is named any may
    bound: bool = False
    #: of one of which its jobs have to be, and those of all below it; none named = any, or none
    priority_classes: tuple[str, ...] = ()
    #: PriorityClasses whose pods nobody takes from, within what the queue deserves; `*` = all; none named = as the queue above it
    non_preemptible_classes: tuple[str, ...] = ()
    #: those that plugins of a policy read (`QUEUE_POLICY_ANNOTATIONS`)
    annotations: dict[str, str] = field(default_factory=dict)
    #: Volcano's `spec.affinity`: groups of nodes that it may, must not, or would rather use, by the names of `NODE_GROUP_RULES`; absent = nothing said.
    node_groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fault: str = ""  #: why its rules cannot be read; it takes nothing then, and gives nothing
    #: By `capability`, `deserved`, `guarantee`: amounts in other pools than the one that these fields speak of, under `pools.in_pool`'s names.
    pool_amounts: dict[str, Resources] = field(default_factory=dict)
    lent_pools: Pools = ()  #: of those that it owns: others may use them while they are idle
    lent_to: tuple[str, ...] = ()  #: which queues, with all below them; none named = all
    unknown_fields: tuple[str, ...] = ()  #: of the spec of its object, a sentence each
