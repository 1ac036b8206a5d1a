"""HBOX_EVENTS and HBOX_DLQ: what integrators and operators read. Keyed, one fact a message, published behind the hot path."""

from enum import StrEnum
from typing import ClassVar

from hbox_common.model import JobId, NodeName, QueueName

from .base import About, Event, Stream, register


class JobPhase(StrEnum):
    PENDING = "pending"
    WAITING = "waiting"  #: cannot be placed now; the message says why
    BOUND = "bound"  #: all of its members have nodes
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"
    DELETED = "deleted"


@register
class JobPhaseChanged(Event):
    about: ClassVar = About(
        "hbox.v1.job.phase.{phase}.{queue}.{job}", Stream.EVENTS, ("job-controller",), ("integrators", "cli")
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
    bad_cards: tuple[int, ...]
    reason: str
    at: float


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
    """A queue has used so many percent (80, 100) of its budget of the month. At 100 it is given no more cards in it."""

    about: ClassVar = About("hbox.v1.quota.budget.{queue}", Stream.EVENTS, ("quota-ledger",), ("integrators", "cli"))
    queue: QueueName
    percent: int
    budget_card_hours: int
    spent: int  #: thousandths of card-seconds
    month: int  #: its first second, since the epoch
    message: str
    at: float


@register
class DeadLetter(Event):
    """A message that a consumer could not use, once, with the reason and the bytes that came."""

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
