"""Actions by their names in volcano-scheduler.conf.

Policy files may contain arguments for other versions of Volcano. An unknown argument of a Volcano action is ignored with a warning.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ..framework.conf import FAILURES_REMEMBERED
from ..framework.session import Session
from ..plugins.arguments import Given
from . import allocate, backfill, consolidate, enqueue, gangpreempt, gangreclaim, preempt, reclaim, revoke, shuffle

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


#: Actions without own arguments -> accepted switches. Actions that place or evict always cache failures, whatever Volcano's switch is set to.
_WITHOUT: Mapping[str, Sequence[str]] = {
    "enqueue": (),
    "allocate": FAILURES_REMEMBERED,
    "backfill": FAILURES_REMEMBERED,
    "reclaim": FAILURES_REMEMBERED,
    "shuffle": (),
}


def run_action(name: str, session: Session) -> None:
    """Run an action of the policy. Raises InvalidRequest if an argument of the action is invalid."""
    if name in _WITHOUT and (arguments := session.arguments(name)):
        given = Given(f"action {name}", arguments)
        for switch in _WITHOUT[name]:
            given.switch(switch, True)
        given.done(warn=session.outcome.warn)
    ACTIONS[name](session)


def run_actions(session: Session) -> None:
    """Run the actions of the session's policy in their order, and `revoke` before the first that evicts pods. Raises InvalidRequest as `run_action`."""
    actions = session.conf.actions
    before = revoke.place_in(actions)
    for action in actions[:before]:
        run_action(action, session)
    revoke.run(session)
    for action in actions[before:]:
        run_action(action, session)
