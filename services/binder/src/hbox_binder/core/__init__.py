"""What the binder decides, with no I/O: which call is made when, and what its answer means."""

from .binder import (
    LONGEST_MESSAGE,
    Acknowledge,
    Answered,
    Binder,
    Breaker,
    Decided,
    Effect,
    Event,
    Report,
    Ruled,
    Start,
    Ticked,
)
from .calls import Answer, Call, Finding, Verb
from .fence import fence_value, fences_off
from .pace import Limits

__all__ = [
    "LONGEST_MESSAGE",
    "Acknowledge",
    "Answer",
    "Answered",
    "Binder",
    "Breaker",
    "Call",
    "Decided",
    "Effect",
    "Event",
    "Finding",
    "Limits",
    "Report",
    "Ruled",
    "Start",
    "Ticked",
    "Verb",
    "fence_value",
    "fences_off",
]
