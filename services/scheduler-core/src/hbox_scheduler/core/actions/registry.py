"""Actions by their names in volcano-scheduler.conf."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..session.session import Session
from . import allocate, backfill, consolidate, enqueue, gangpreempt, gangreclaim, preempt, reclaim, shuffle

Action: TypeAlias = Callable[[Session], None]

ACTIONS: Mapping[str, Action] = {
    "enqueue": enqueue.run,
    "allocate": allocate.run,
    "backfill": backfill.run,
    "preempt": preempt.run,
    "reclaim": reclaim.run,
    "shuffle": shuffle.run,
    "gangpreempt": gangpreempt.run,
    "gangreclaim": gangreclaim.run,
    "consolidate": consolidate.run,
}


def run_action(name: str, session: Session) -> None:
    ACTIONS[name](session)
