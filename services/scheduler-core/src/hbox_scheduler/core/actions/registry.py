"""Actions by their names in volcano-scheduler.conf.

Volcano's actions may be given arguments that they do not have: files carry what other versions read. They are told of and passed over.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ..framework.conf import FAILURES_REMEMBERED
from ..framework.session import Session
from ..plugins.arguments import Given
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


#: Actions without arguments of their own. Those that look for places remember what was in vain, whatever Volcano's switch says.
_WITHOUT: Mapping[str, Sequence[str]] = {
    "enqueue": (),
    "allocate": FAILURES_REMEMBERED,
    "backfill": FAILURES_REMEMBERED,
    "reclaim": FAILURES_REMEMBERED,
    "shuffle": (),
}


def run_action(name: str, session: Session) -> None:
    """Raises InvalidRequest for arguments of the action that are wrong."""
    if name in _WITHOUT and (arguments := session.arguments(name)):
        given = Given(f"action {name}", arguments)
        for switch in _WITHOUT[name]:
            given.switch(switch, True)
        given.done(tell=session.outcome.warn)
    ACTIONS[name](session)
