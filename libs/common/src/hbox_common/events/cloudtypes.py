"""The public events (`cloud`). They carry codes instead of sentences, and no name of another tenant: readers of a queue receive the events of that queue."""

from enum import StrEnum

from hbox_common.model import JobId, NodeName, PlanId, QueueName, RefusalReason, Resources

from .cloud import CloudEvent, Data, Places, public
from .public import EvictionRule


class JobPlacement(Places):
    """A job and the pods that it has on nodes."""

    job: JobId
    namespace: str
    name: str
    queue: QueueName
    attempt: int  #: 1 for the first placement; an eviction or a loss of pods ends an attempt


@public("job.placed", "job-controller")
class JobPlaced(CloudEvent):
    """All members of a job have nodes."""

    data: JobPlacement


@public("job.started", "job-controller")
class JobStarted(CloudEvent):
    """The minimum of a job's pods runs."""

    data: JobPlacement


class JobEnd(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"


class JobEnding(JobPlacement):
    """`attempt` 0: the job ended without a place."""

    code: JobEnd


@public("job.finished", "job-controller")
class JobFinished(CloudEvent):
    """A job ended: its pods succeeded or failed, or its objects were deleted."""

    data: JobEnding


class JobRejection(Data):
    """A job that cannot start as it is written, for the reason `code`."""

    job: JobId
    namespace: str
    name: str
    queue: QueueName
    code: str
    message: str  #: about the job's own objects; MOST_TEXT characters at most


@public("job.rejected", "job-controller")
class JobRejected(CloudEvent):
    """A job cannot start as it is written, whatever becomes free. It is published once per job and code."""

    data: JobRejection


class JobEviction(Places):
    """Evicted pods of a job: their nodes and cards."""

    job: JobId
    namespace: str
    queue: QueueName
    code: EvictionRule
    plan: PlanId = PlanId("")  #: the same in the `queue.reclaimed` of the beneficiary; empty: no plan
    pods: tuple[str, ...]  #: names; MOST_NODES at most
    pods_kept: int  #: pods of the job that stay
    cards_kept: int  #: whole cards and shares of cards that these hold
    notice_s: int = -1  #: seconds that each pod has at most after its eviction notice; -1: as long as it requests


@public("job.evicted", "quota-ledger")
class JobEvicted(CloudEvent):
    """Pods of a job are being evicted. It is published with the decision, before the pods stop."""

    data: JobEviction


class Reclaim(Places):
    """Nodes and cards that a job of the queue takes back from other queues."""

    queue: QueueName
    job: JobId
    namespace: str
    name: str
    plan: PlanId


@public("queue.reclaimed", "quota-ledger")
class QueueReclaimed(CloudEvent):
    """A queue takes back resources from other queues: the evictions are decided."""

    data: Reclaim


class QueueQuota(Data):
    """A queue's amounts in base units: `cpu` in thousandths of a core, memory in bytes, cards counted. MOST_RESOURCES of each at most."""

    guarantee: Resources
    deserved: Resources
    capability: Resources
    weight: int
    budget_card_hours: int | None = None  #: of a calendar month (UTC); null: no limit


class QuotaChange(Data):
    """`old` is null for a new queue, `new` for a deleted queue."""

    queue: QueueName
    old: QueueQuota | None = None
    new: QueueQuota | None = None


@public("queue.quota_changed", "quota-ledger")
class QuotaChanged(CloudEvent):
    """The amounts of a queue changed, or the queue was created or deleted. The ledger applies the new amounts from then on."""

    data: QuotaChange


class PlanRefusal(Data):
    queue: QueueName
    job: JobId
    code: RefusalReason


@public("queue.refused", "quota-ledger")
class PlanRefused(CloudEvent):
    """The ledger refused a plan for a job of the queue."""

    data: PlanRefusal


class NodeDrain(Data):
    node: NodeName
    uid: str
    cordoned_by: str = ""  #: as written on the node; empty: unknown
    reason: str = ""  #: likewise; MOST_TEXT characters at most


@public("node.drained", "quota-ledger", "_.{node}")
class NodeDrained(CloudEvent):
    """The last pod of a cordoned node ended that HBox placed or that holds cards."""

    data: NodeDrain
