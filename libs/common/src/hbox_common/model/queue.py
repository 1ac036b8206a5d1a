"""Queues: who may use how much."""

from dataclasses import dataclass, field
from enum import StrEnum

from .ids import QueueName
from .resources import Resources


class QueuePhase(StrEnum):
    """Volcano's queue states that the spine knows."""

    OPEN = "Open"
    CLOSED = "Closed"


@dataclass(frozen=True, slots=True)
class Queue:
    """`capability` is the wall: what is named there may never be exceeded, pending claims included; what is not named is not limited.

    `deserved` is what the queue gets back when others have borrowed it, `guarantee` what is never taken from it; nothing named = nothing promised.
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
