"""The pure core of scheduler-core: state in columns, plans out. No I/O, no clock, no randomness."""

from .scheduler import Limits, Proposals, Scheduler

__all__ = ["Limits", "Proposals", "Scheduler"]
