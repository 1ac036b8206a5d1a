"""Pods and PodGroups as this service keeps them: plain values, one for every version that the API shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import attrgetter

from hbox_common.model import (
    NO_CONSTRAINTS,
    CardSlice,
    ClaimId,
    NodeName,
    PodConstraints,
    PodUid,
    QueueName,
    Resources,
    SubGangPolicy,
    TopologyWish,
)
from hbox_common.model.ranks import RankKey
from hbox_common.workloads import OwnerRef, Submitted
from hbox_common.workloads.owner import NO_DEFAULTS, Defaults

from .membership import Membership
from .spec import Shape
from .volumes import VolumeUse

#: The scheduling gate that Volcano's webhook sets where a pod asks for it, and its scheduler alone opens, once the queue has room (alpha, 1.16).
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"


class PodStatus(StrEnum):
    """Kubernetes' pod phases. Unknown (its kubelet is silent) counts as running: it may hold its devices."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        return self is PodStatus.SUCCEEDED or self is PodStatus.FAILED


@dataclass(frozen=True, slots=True)
class PodView:
    """One version of one pod."""

    uid: PodUid
    namespace: str
    name: str
    resource_version: str
    created_at: float  #: seconds since the epoch
    shape: Shape
    node: NodeName = NodeName("")
    status: PodStatus = PodStatus.PENDING
    deleting: bool = False
    ends_at: float = 0.0  #: where it is being deleted: when it was to have ended, in seconds since the epoch
    finalizers: tuple[str, ...] = ()  #: likewise
    gated: bool = False  #: it has scheduling gates: it may not be placed yet
    queue_gate: bool = False  #: one of them is Volcano's own (`QUEUE_GATE`)
    ours: bool = False
    group: str = ""  #: the PodGroup that it names, of its own namespace
    submitted: Submitted | None = None  #: the owner and the declared group that it names; None if it names neither
    member: Membership | None = None  #: the gang that follows from `submitted`, for a pod without PodGroup
    role: str = ""  #: what Volcano's Job controller calls its task
    queue: QueueName = QueueName("")  #: as named on the pod; counts for bare pods only
    priority: int = 0
    condition_message: str | None = (
        None  #: the message of its condition PodScheduled=False; None where there is no such condition
    )
    slices: tuple[CardSlice, ...] = ()
    claim: ClaimId = ClaimId("")
    #: if it has a node and no claim of HBox's, or `slices` by index: by kind of card, the annotation of its device plugin that names its cards by UUID
    allocated: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[VolumeUse, ...] = ()
    preemptable: bool = (
        False  #: `volcano.sh/preemptable: "true"`: others may take from it, whatever its queue says of its class
    )
    priority_class: str = ""  #: as named on it
    labels: Mapping[str, str] = field(default_factory=dict)
    constraints: PodConstraints = NO_CONSTRAINTS
    annotations: Mapping[str, str] = field(default_factory=dict)  #: annotations that policies read
    started_at: float | None = None  #: seconds since the epoch; read where there are notes
    never_preempts: bool = False  #: preemptionPolicy Never
    rank_key: RankKey | None = None  #: of a pod of a gang: by which its rank is found
    foreign_gang_label: str = ""  #: the label by which it names a gang of another scheduler, if it names no PodGroup
    written: int = 0  #: bytes of its labels and annotations above
    traceparent: str = ""  #: trace context of its submitter
    refusal: str = ""  #: reason and message of the kubelet that refused to admit it
    #: when the kubelet admitted or refused it (`status.startTime`), in seconds since the epoch; 0: not yet
    kubelet_at: float = 0.0
    ready: bool = False  #: its condition Ready is true; read of pods with an owner

    @property
    def key(self) -> str:
        """The job that it belongs to: its PodGroup by namespace and name, the gang of its owners, or itself."""
        if self.group:
            return f"{self.namespace}/{self.group}"
        return self.member.key or self.uid if self.member is not None else self.uid

    @property
    def in_gang(self) -> bool:
        """Whether it belongs to a PodGroup, or to the gang of its owners."""
        return bool(self.group or (self.member is not None and self.member.key))

    @property
    def in_role(self) -> str:
        """What its owner, or else Volcano's Job controller, calls its task."""
        return (self.member.role if self.member is not None else "") or self.role

    @property
    def live(self) -> bool:
        """A member of its job: neither finished, nor leaving, nor held back."""
        return not (self.status.terminal or self.deleting or self.gated)

    @property
    def placeable(self) -> bool:
        return self.live and not self.node

    @property
    def evidence(self) -> tuple[object, ...]:
        """The published part of a bound pod: a change of it is published."""
        return (self.node, self.status, self.claim, self.slices, self.allocated, self.shape.key)


#: Fields of a pod's view that do not determine its placement: a change of them alone computes nothing anew.
NOT_CONTENT = frozenset({"resource_version", "condition_message", "kubelet_at", "ready"})
#: What determines its placement. Comparing copies without the other fields takes five times as long.
content = attrgetter(*(each.name for each in fields(PodView) if each.name not in NOT_CONTENT))


class GroupPhase(StrEnum):
    """Volcano's PodGroup phases (sources: volcano-podgroup)."""

    NEW = ""
    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"

    @property
    def is_enqueued(self) -> bool:
        return self not in (GroupPhase.NEW, GroupPhase.PENDING)


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """One condition of a PodGroup; `since` is RFC 3339."""

    type: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The part of a PodGroup's status that HBox writes."""

    phase: GroupPhase = GroupPhase.NEW
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[GroupCondition, ...] = ()

    @property
    def has_started(self) -> bool:
        """Whether its minimum of pods was ever placed: the condition Scheduled exists, with any status."""
        return any(condition.type == "Scheduled" for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class GroupView:
    """One version of one PodGroup, or of a gang by owner (`owner`), which has no PodGroup. `min_member` below 1 counts as 1."""

    uid: str
    namespace: str
    name: str
    created_at: float
    min_member: int = 1
    queue: QueueName = QueueName("")
    priority_class: str = ""
    preemptable: bool = False  #: as on a pod, for all of its pods
    min_task_member: Mapping[str, int] = field(default_factory=dict)  #: by role
    min_resources: Resources = field(default_factory=dict)  #: base units; empty = none named
    topology: TopologyWish | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)  #: annotations that policies read
    sub_gangs: tuple[SubGangPolicy, ...] = ()
    problem: str = ""  #: why it cannot be scheduled as written
    unknown_fields: tuple[str, ...] = ()  #: of its spec, a sentence each
    written: int = 0  #: bytes of its spec, and of its annotations above
    traceparent: str = ""  #: trace context of its submitter
    status: GroupStatus = GroupStatus()
    #: its resourceVersion; 0 if that is no number. Not compared: a status write changes it.
    version: int = field(default=0, compare=False)
    owner: OwnerRef | None = None  #: the object that makes its pods a gang
    gang_key: str = ""  #: the key of a gang by owner
    decides_preemptable: bool = False  #: `preemptable` comes from an owner and overrides that of the pods
    defaults: Defaults = NO_DEFAULTS  #: of a gang by owner: what counts if nothing else sets it
    reasons: tuple[str, ...] = ()  #: of a gang by owner: which field of which object gave each value

    @property
    def key(self) -> str:
        return self.gang_key or f"{self.namespace}/{self.name}"

    @property
    def title(self) -> str:
        """For messages."""
        return f"PodGroup {self.key}" if self.owner is None else f"{self.owner.kind} {self.namespace}/{self.owner.name}"

    @property
    def particular(self) -> bool:
        """Whether it matters which of its pods is which."""
        return bool(self.min_task_member or self.sub_gangs)
