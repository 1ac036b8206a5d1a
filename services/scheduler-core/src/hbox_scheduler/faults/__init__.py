"""Internal errors of the scheduler: finding the job or node that causes them, and scheduling all others meanwhile."""

from .guard import CYCLE_S, Guard, SchedulingFault, TookTooLong
from .quarantine import Quarantine
from .suspects import Kind, Suspect

__all__ = ["CYCLE_S", "Guard", "Kind", "Quarantine", "SchedulingFault", "Suspect", "TookTooLong"]
