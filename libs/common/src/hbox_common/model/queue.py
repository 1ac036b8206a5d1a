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
    """`capability` is the wall: what is named there may never be exceeded, pending claims included; what is not named is not limited."""

    name: QueueName
    phase: QueuePhase = QueuePhase.OPEN
    capability: Resources = field(default_factory=dict)
    weight: int = 1
    priority: int = 0
