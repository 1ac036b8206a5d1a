"""HBOX_DECISIONS and HBOX_OUTCOMES: decisions for the binder, and their outcomes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from hbox_common.model import CardSlice, ClaimId, DecisionId, Index, JobId, NodeName, PlanId, PodUid, QueueName

from .base import About, Event, SaidEpoch, SaidIndex, Stream, register


@dataclass(slots=True)
class Bind:
    """Bind one pod. `generation` counts the decisions on this claim; `deadline` is absolute: after it the bind is not started."""

    id: DecisionId
    claim: ClaimId
    generation: int
    plan: PlanId
    job: JobId
    queue: QueueName
    namespace: str
    pod: str
    pod_uid: PodUid
    resource_version: str
    node: NodeName
    slices: tuple[CardSlice, ...] = ()
    deadline: float = 0.0  #: seconds since the epoch; 0 = none
    traceparent: str = ""
    rank: int = -1  #: of the pod in its job, to be written on it; -1: none
    layout: str = ""  #: which container has which of `slices` (`hbox_common.model.devices.layout`); empty: the pod's only container has all
    volume_claims: tuple[
        str, ...
    ] = ()  #: PersistentVolumeClaims of the pod to be bound to volumes for the node, before the pod is bound


@register
class BindDecided(Event):
    about: ClassVar = About(
        "hbox.v1.decision.bind.{shard}",
        Stream.DECISIONS,
        ("quota-ledger",),
        ("binder", "job-controller"),
        8 * 2**20,
        items=("binds",),
    )
    epoch: SaidEpoch
    binds: tuple[Bind, ...]
    #: ledger index of the decision: a ledger with a lower index was restored from a backup and has to process it
    index: SaidIndex = Index(0)


class EvictKind(StrEnum):
    EVICT = "evict"  #: a running or bound pod has to go, by the Eviction API
    REVOKE = "revoke"  #: a binding that may be in flight must not happen any more: fenced on the pod itself


class Evict(Event):
    id: DecisionId
    kind: EvictKind
    claim: ClaimId
    generation: int
    job: JobId
    namespace: str
    pod: str
    pod_uid: PodUid
    reason: str
    beneficiary: PlanId = PlanId("")
    traceparent: str = ""
    #: the pod gets the time that it declares for a checkpoint, at most so many seconds; -1: only its own grace period
    notice_s: int = -1


@register
class EvictDecided(Event):
    about: ClassVar = About(
        "hbox.v1.decision.evict.{shard}", Stream.DECISIONS, ("quota-ledger",), ("binder",), 2 * 2**20, items=("evictions",)
    )
    epoch: SaidEpoch
    evictions: tuple[Evict, ...]


class NodeAction(StrEnum):
    CORDON = "cordon"
    UNCORDON = "uncordon"
    TAINT = "taint"  #: `hbox.io/health=<value>:PreferNoSchedule`: other schedulers choose other nodes first
    UNTAINT = "untaint"


@register
class NodeDecided(Event):
    """Cordon a node or taint it, or take back a cordon or a taint of one's own."""

    about: ClassVar = About("hbox.v1.decision.node.{node}", Stream.DECISIONS, ("health-monitor",), ("binder",))
    id: DecisionId
    node: NodeName
    action: NodeAction
    owner: str
    reason: str
    taint: str = ""  #: the value of the taint

    @property
    def key(self) -> str:
        """The key of its subject. Cordons and taints of a node have different keys: the last message of each is in force. No node has a name with a slash."""
        return f"{self.node}/taint" if self.action in (NodeAction.TAINT, NodeAction.UNTAINT) else self.node


class BindOutcome(StrEnum):
    """Outcome of a bind, an eviction or a revocation. UNKNOWN settles nothing and keeps the claim: the binder retries until the outcome is known."""

    BOUND = "bound"
    CONFLICT = "conflict"  #: the pod is bound elsewhere
    GONE = "gone"  #: the uid is absent or being deleted
    REJECTED = "rejected"  #: the API server will never accept it
    EXPIRED = "expired"  #: the deadline passed; the pod is unbound, and fenced against this decision
    REVOKED = "revoked"  #: the pod is unbound, and fenced against this claim's bindings
    EVICTED = "evicted"  #: the eviction was accepted; gone only when the uid is absent
    UNKNOWN = "unknown"


class Outcome(Event):
    decision: DecisionId
    claim: ClaimId
    generation: int
    job: JobId
    pod_uid: PodUid
    outcome: BindOutcome
    node: NodeName = NodeName("")  #: where the pod is, if it is bound
    message: str = ""
    #: an UNKNOWN eviction: a disruption budget, or another rule of the cluster, does not let the pod be evicted now
    blocked: bool = False
    grace_s: int = -1  #: of an EVICTED: the pod's grace period in seconds; -1 = unknown
    reason: str = ""  #: of an eviction or a revocation: the reason of the decision
    at: float = 0.0  #: seconds since the epoch
    traceparent: str = ""


@register
class OutcomesObserved(Event):
    about: ClassVar = About(
        "hbox.v1.binding.result.{shard}",
        Stream.OUTCOMES,
        ("binder",),
        ("quota-ledger", "job-controller"),
        2 * 2**20,
        items=("outcomes",),
    )
    epoch: SaidEpoch
    outcomes: tuple[Outcome, ...]


class NodeOutcome(StrEnum):
    DONE = "done"
    NOT_OURS = "not-ours"  #: another client cordoned it
    GONE = "gone"
    REJECTED = "rejected"


@register
class NodeObserved(Event):
    about: ClassVar = About("hbox.v1.node.result.{node}", Stream.OUTCOMES, ("binder",), ("health-monitor",))
    decision: DecisionId
    node: NodeName
    action: NodeAction
    outcome: NodeOutcome
    message: str = ""
