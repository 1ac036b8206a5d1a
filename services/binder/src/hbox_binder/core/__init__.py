"""What the binder decides, with no I/O: which call is made when, and what its answer means."""

from .allocation import Allocation, NodeCards
from .binder import (
    LONGEST_MESSAGE,
    Acknowledge,
    Answered,
    Binder,
    Breaker,
    CardsChanged,
    Decided,
    Effect,
    Event,
    LockStands,
    Report,
    Ruled,
    Start,
    Ticked,
    Unlock,
    Unlocked,
)
from .calls import Answer, Call, Finding, Verb
from .fence import fence_value, fences_off
from .pace import Limits
from .volumes import Need, VolumeClaim, need_of

__all__ = [
    "LONGEST_MESSAGE",
    "Acknowledge",
    "Allocation",
    "Answer",
    "Answered",
    "Binder",
    "Breaker",
    "Call",
    "CardsChanged",
    "Decided",
    "Effect",
    "Event",
    "Finding",
    "Limits",
    "LockStands",
    "Need",
    "NodeCards",
    "Report",
    "Ruled",
    "Start",
    "Ticked",
    "Unlock",
    "Unlocked",
    "Verb",
    "VolumeClaim",
    "fence_value",
    "fences_off",
    "need_of",
]
