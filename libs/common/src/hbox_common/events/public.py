"""HBOX_EVENTS and HBOX_DLQ: messages for integrators and operators. One keyed fact per message, published after the decisions that it reports."""

from enum import StrEnum
from typing import ClassVar

from hbox_common.model import CardId, JobId, NodeName, PlanId, PodUid, QueueName

from .base import About, Event, Stream, register


class JobPhase(StrEnum):
    PENDING = "pending"
    WAITING = "waiting"  #: cannot be placed now; the message gives the reason
    BOUND = "bound"  #: all of its members have nodes
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"
    DELETED = "deleted"


@register
class JobPhaseChanged(Event):
    about: ClassVar = About(
        "hbox.v1.job.phase.{phase}.{queue}.{job}", Stream.EVENTS, ("job-controller",), ("integrators", "cli", "console")
    )
    job: JobId
    namespace: str
    name: str
    queue: QueueName
    phase: JobPhase
    members: int
    bound: int
    message: str = ""
    at: float = 0.0


@register
class HealthChanged(Event):
    about: ClassVar = About("hbox.v1.health.event.{node}", Stream.EVENTS, ("health-monitor",), ("integrators", "cli"))
    node: NodeName
    healthy: bool
    bad_cards: tuple[int, ...]  #: indices of unhealthy cards, as of `at`
    reason: str
    at: float
    cards: tuple[CardId, ...] = ()  #: ids of unhealthy cards, in the order of `bad_cards`


@register
class QueueRefused(Event):
    """A plan was refused by the ledger."""

    about: ClassVar = About("hbox.v1.quota.refused.{queue}", Stream.EVENTS, ("quota-ledger",), ("integrators", "cli"))
    queue: QueueName
    job: JobId
    reason: str
    message: str
    at: float


@register
class BudgetUsed(Event):
    """A queue has used this many percent (80, 100) of its monthly budget. At 100 it gets no more cards in this month."""

    about: ClassVar = About("hbox.v1.quota.budget.{queue}", Stream.EVENTS, ("quota-ledger",), ("integrators", "cli"))
    queue: QueueName
    percent: int
    budget_card_hours: int
    spent: int  #: thousandths of card-seconds
    month: int  #: its first second, since the epoch
    message: str
    at: float


class EvictionRule(StrEnum):
    """The rule by which pods are evicted."""

    RECLAIM = "reclaim"  #: a queue takes back what it deserves
    PREEMPT = "preempt"  #: a job of higher priority, of the same queue
    CONSOLIDATE = "consolidate"  #: moved, so that a larger job has room
    SHUFFLE = "shuffle"  #: the policy wants them elsewhere
    GANG_DEADLINE = "gang-deadline"  #: their gang did not start whole in time
    HEALTH = "health"  #: their hardware is sick


class EvictedPod(Event):
    pod: str
    pod_uid: PodUid
    node: NodeName
    to: NodeName = NodeName("")  #: of one that moves: where the place of its successor is kept


@register
class EvictionReceipt(Event):
    """Notice to the owner of one job's evicted pods: the preemptor, the rule, what the job keeps, and when the pods may return. Published with the decision,
    before the pods are evicted."""

    about: ClassVar = About(
        "hbox.v1.quota.evicted.{queue}.{job}",
        Stream.EVENTS,
        ("quota-ledger",),
        ("job-controller", "integrators", "cli", "console"),
        2**20,
        items=("pods",),
    )
    job: JobId
    namespace: str
    queue: QueueName
    rule: EvictionRule
    pods: tuple[EvictedPod, ...]
    plan: PlanId = PlanId("")  #: plan of the preemptor; empty if there is none
    for_job: JobId = JobId("")
    for_namespace: str = ""
    for_name: str = ""
    for_queue: QueueName = QueueName("")
    pods_kept: int  #: of the job, that stay
    cards_kept: int  #: whole cards and shares of cards that these hold
    message: str  #: the preemptor and the reason
    returns: str  #: when they may come back
    at: float  #: seconds since the epoch
    notice_s: int = -1  #: seconds that each pod has at most after its eviction notice; -1: as long as it requests


@register
class DeadLetter(Event):
    """A message that a consumer could not process, stored once with the reason and its bytes."""

    about: ClassVar = About("hbox.v1.dead.{domain}", Stream.DEAD, ("all",), ("operators",), 2**20)
    consumer: str
    on: str  #: the subject that it came on
    stream: str
    sequence: int
    deliveries: int
    message_id: str
    type: str
    reason: str
    at: float
    size: int
    body: bytes  #: the first 64 KiB
