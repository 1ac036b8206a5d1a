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
    """`capability` is the limit: usage of a named resource, including pending claims, never exceeds it; other resources are not limited.

    `deserved` is the amount that the queue can reclaim from borrowers, `guarantee` the amount that is never reclaimed from it; unnamed resources have neither.
    In a tree each amount applies to the queue with all its descendants, and only limits are inherited (`queuetree`).
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
    #: PriorityClasses whose pods are not preempted within the queue's deserved amount; `*` = all; empty = as in the parent queue
    non_preemptible_classes: tuple[str, ...] = ()
    #: those that plugins of a policy read (`QUEUE_POLICY_ANNOTATIONS`)
    annotations: dict[str, str] = field(default_factory=dict)
    #: Volcano's `spec.affinity`: groups of nodes that it must, must not, or prefers (not) to use, by the names of `NODE_GROUP_RULES`; absent = no rule.
    node_groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fault: str = ""  #: why its rules cannot be read; it takes nothing then, and gives nothing
    #: By `capability`, `deserved`, `guarantee`: amounts in other pools than the one that these fields speak of, under `pools.in_pool`'s names.
    pool_amounts: dict[str, Resources] = field(default_factory=dict)
    lent_pools: Pools = ()  #: of the pools that it owns, those that other queues may use while they are idle
    lent_to: tuple[str, ...] = ()  #: which queues, with all below them; none named = all
    unknown_fields: tuple[str, ...] = ()  #: of the spec of its object, and unknown values that are ignored, a sentence each
