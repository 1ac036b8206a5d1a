"""Errors of the scheduler's own: whom they are about, and how everybody else goes on being scheduled."""

from .guard import CYCLE_S, Guard, SchedulingFault, TookTooLong
from .quarantine import Quarantine
from .suspects import Kind, Suspect

__all__ = ["CYCLE_S", "Guard", "Kind", "Quarantine", "SchedulingFault", "Suspect", "TookTooLong"]
