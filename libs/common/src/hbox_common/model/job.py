"""Jobs: the gangs that start whole or not at all, and the pods that they are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar

from .annotations import NETWORK_TOPOLOGY, TOPOLOGY_ANNOTATIONS
from .devices import CardRequest, CardSlice
from .ids import ClaimId, JobId, NodeName, PodUid, QueueName
from .resources import Resources
from .topology import SubGangPolicy, TopologyWish
from .wire import wire_names


class TolerationOperator(StrEnum):
    EQUAL = "Equal"
    EXISTS = "Exists"
    GREATER = "Gt"  #: the taint's value is a larger integer (Kubernetes 1.35)
    LESS = "Lt"  #: the taint's value is a smaller integer


@dataclass(frozen=True, slots=True)
class Toleration:
    """As in Kubernetes: an empty key with Exists tolerates everything, an empty effect every effect."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: str = ""


class MatchOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Match:
    key: str
    operator: MatchOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One nodeSelectorTerm: all of its expressions (labels) and fields (metadata.name) hold. An empty term matches nothing."""

    expressions: tuple[Match, ...] = ()
    fields: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod still to be placed. `resource_version` fences its binding."""

    uid: PodUid
    name: str
    resource_version: str
    rank: int = -1  #: which of its job it is, from 0 on (`ranks`); -1: not known, or a bare pod
    #: its PersistentVolumeClaims that wait for their first consumer: the binder binds them to volumes before it binds the pod
    volume_claims: tuple[str, ...] = ()


#: What the `problem` of a job begins with that only waits for volumes or their claims.
VOLUMES_NOT_READY = "VolumesNotReady"
#: The same of a job whose PodGroup job-controller could not read.
GROUP_NOT_READ = "PodGroupNotRead"
#: The same of a job with an owner that job-controller has not read.
OWNER_NOT_READ = "OwnerNotRead"
#: The same of a pod beyond the number that its owner declares, until its gang has its minimum.
EXTRA_POD = "ExtraPod"


@dataclass(frozen=True, slots=True)
class PodGroupTask:
    """Pods of one job that ask for the same: one placement problem."""

    __pydantic_config__: ClassVar = wire_names(annotations="notes")

    name: str
    requests: (
        Resources  #: base units, of one pod; holds `pods: 1`, a vendor's resource where cards are asked for, and host ports
    )
    pods: tuple[PodRef, ...]
    cards: CardRequest | None = None
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: tuple[NodeTerm, ...] | None = None  #: required: one of the terms; None = no such rule
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    #: of each of its volumes that not every node reaches: one of the terms holds
    volumes: tuple[tuple[NodeTerm, ...], ...] = ()
    labels: dict[str, str] = field(default_factory=dict)  #: those that the job's sub-gangs are formed by
    annotations: dict[str, str] = field(default_factory=dict)  #: the pods' own annotations that policies read
    never_preempts: bool = False  #: preemptionPolicy Never: evicts no other pods
    images: tuple[str, ...] = ()  #: of their containers, as `image_name` writes them
    guaranteed: bool = False  #: QoS class Guaranteed: kubelets may give their containers CPUs alone
    #: what each asks for, sidecars too, where there are several, or `requests` is more than one container asks for
    containers: tuple[Resources, ...] = ()
    init_containers: tuple[Resources, ...] = ()  #: likewise, of those that end before the others run


@dataclass(frozen=True, slots=True)
class Job:
    """A gang as job-controller sees it now: the whole specification, published whenever it changes, with a higher `revision`.

    `members` counts its live pods, of which `bound` have a node; `tasks` holds the pods that have none. A gang may start when the pods
    bound and placed reach `min_member`.
    """

    __pydantic_config__: ClassVar = wire_names(annotations="notes")

    id: JobId
    namespace: str
    name: str
    queue: QueueName
    priority: int
    min_member: int
    members: int
    bound: int
    created_at: float  #: seconds since the epoch
    revision: int
    tasks: tuple[PodGroupTask, ...]
    gang: bool = False  #: False: a bare pod, a gang of one
    #: its tenant made it preemptable, whatever its queue's rules for its class (`volcano.sh/preemptable`)
    preemptable: bool = True
    priority_class: str = ""  #: the PriorityClass that `priority` is the value of; empty = none, or not known
    problem: str = ""  #: why it cannot be scheduled as written (bad annotation, unknown PodGroup); empty = fine
    traceparent: str = ""  #: W3C trace context of its whole way
    topology: TopologyWish | None = None
    annotations: dict[str, str] = field(default_factory=dict)  #: its PodGroup's annotations that policies read
    sub_gangs: tuple[SubGangPolicy, ...] = ()
    min_task_member: dict[str, int] = field(default_factory=dict)  #: by name of the task
    #: the pods that have a node, where it matters which they are: with sub-gangs or minima by task
    standing: tuple[PodGroupTask, ...] = ()
    #: uid of the object whose controller replaces its pods; pods of equal succession take over each other's places (ADR 120). Empty: no pod succeeds another
    succession: str = ""

    @property
    def waits_for_others(self) -> bool:
        """Whether its `problem` ends without a change of the job: its volumes come, or its PodGroup or owner can be read."""
        begins = (f"{VOLUMES_NOT_READY}: ", f"{GROUP_NOT_READ}: ", f"{OWNER_NOT_READ}: ", f"{EXTRA_POD}: ")
        return self.problem.startswith(begins)

    @property
    def together(self) -> bool:
        """Whether the places of its pods depend on each other."""
        if self.topology is not None or self.sub_gangs or self.min_task_member:
            return True
        return bool(self.annotations) and any(key in self.annotations for key in TOPOLOGY_ANNOTATIONS)


@dataclass(frozen=True, slots=True)
class MissingPods:
    """Pods that the controller of a workload is about to create: those that it declares and that do not exist."""

    succession: str
    pods: int


def wishes_fabric(topology: TopologyWish | None, annotations: Mapping[str, str], sub_gangs: Sequence[SubGangPolicy]) -> bool:
    """Whether a gang's placement depends on the fabric. HBox's annotation takes precedence."""
    if topology is None and not annotations and not sub_gangs:
        return False
    word = annotations.get(NETWORK_TOPOLOGY)
    if word is not None:
        return word != "none"
    return (
        topology is not None
        or any(policy.topology is not None for policy in sub_gangs)
        or any(key in annotations for key in TOPOLOGY_ANNOTATIONS)
    )


@dataclass(frozen=True, slots=True)
class JobTerms:
    """A job's entitlements, without its pods: the part of a job that the ledger stores and checks plans against."""

    id: JobId
    namespace: str
    queue: QueueName
    priority: int
    min_member: int
    created_at: float  #: seconds since the epoch
    revision: int
    preemptable: bool = True
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class TaskDemand:
    """Pods of one job that wait for a node and ask for the same."""

    requests: Resources  #: base units, of one pod
    pods: tuple[PodRef, ...]


@dataclass(frozen=True, slots=True)
class JobDemand(JobTerms):
    """And what it waits for: where queues have shares by weight."""

    tasks: tuple[TaskDemand, ...] = ()


_TERMS = tuple(each.name for each in fields(JobTerms))


def terms_of(job: Job) -> JobTerms:
    """What the ledger keeps of a job."""
    return JobTerms(**_terms(job))


def demand_of(job: Job) -> JobDemand:
    """What the ledger keeps of a job where weights count."""
    return JobDemand(**_terms(job), tasks=tuple(TaskDemand(task.requests, task.pods) for task in job.tasks))


def _terms(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in _TERMS}


class PodPhase(StrEnum):
    BOUND = "bound"  #: has a node, does not run yet
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"  #: its uid is absent from the API

    @property
    def holds(self) -> bool:
        """Whether a pod in this phase holds its node's resources."""
        return self is PodPhase.RUNNING or self is PodPhase.BOUND


@dataclass(frozen=True, slots=True)
class LeavingPod:
    """A pod on a node with cards that is being deleted: it holds them until the API server reports that it has ended or is gone."""

    namespace: str
    name: str
    node: NodeName
    cards: int
    ends_at: float  #: when it was to have ended, in seconds since the epoch
    finalizers: tuple[str, ...] = ()  #: the controllers that must release it then; a few of them


@dataclass(frozen=True, slots=True)
class PodFact:
    """Kubernetes' state of one pod that has, or had, a node. Evidence for the ledger."""

    uid: PodUid
    namespace: str
    name: str
    phase: PodPhase
    node: NodeName
    job: JobId
    queue: QueueName
    priority: int
    requests: Resources
    cards: int = 0  #: that it asks for, of whichever vendor
    slices: tuple[CardSlice, ...] = ()  #: from its annotation, which any client may have written
    claim: ClaimId = ClaimId("")  #: likewise
    ours: bool = False  #: schedulerName is hbox
    resource_version: str = ""
    min_member: int = 1  #: of its job
    preemptable: bool = True  #: of its job
    priority_class: str = ""  #: of its job
    created_at: float = 0.0  #: of its job
    on_sick: str = ""  #: its job's annotation `hbox.io/on-sick-hardware`
    asks: CardRequest | None = None  #: how much of each card; None = the whole of each
    #: by kind of card, the annotation by which another scheduler allocated cards to the pod (`Vendor.allocated`). Untrusted: any user may write it.
    allocated: dict[str, str] = field(default_factory=dict)
