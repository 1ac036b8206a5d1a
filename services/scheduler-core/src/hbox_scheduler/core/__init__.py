"""The pure core of scheduler-core: state in columns, plans out. No I/O, no clock, no randomness."""

from .protocol.limits import Limits, Proposals
from .scheduler import Scheduler

__all__ = ["Limits", "Proposals", "Scheduler"]
