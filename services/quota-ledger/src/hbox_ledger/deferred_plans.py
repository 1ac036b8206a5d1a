"""Plans that arrive before the message about their job.

A job and its plan are in different streams, and the scheduler receives the job at the same time as the ledger: a plan may arrive first. Such plans wait here
for at most WAIT_S, while others are judged; then they are judged by the recorded jobs. They are acknowledged when they begin to wait: plans lost in a crash
are proposed again, like every plan without an answer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from hbox_common.clock import monotonic_s
from hbox_common.errors import Unavailable
from hbox_common.events import Plan, PlansProposed
from hbox_common.model import SchedulerId

log = logging.getLogger(__name__)

#: A scheduler plans within a few milliseconds; a busy ledger is a tenth of a second behind.
WAIT_S = 0.25
#: Maximum number of waiting plans: no correct scheduler exceeds it, and further plans are judged at once.
MOST = 4_096
AGAIN_S = 0.5


class DeferredPlans:
    """Plans that wait for the message about their job. `sound`: whether a scheduler's plan agrees with the recorded job."""

    def __init__(
        self, sound: Callable[[Plan, SchedulerId], bool], propose: Callable[[Sequence[PlansProposed]], Awaitable[None]]
    ) -> None:
        self._sound, self._propose = sound, propose
        self._waiting: deque[tuple[float, PlansProposed]] = deque()  #: each with one plan, and until when
        self._some = asyncio.Event()

    def take_out(self, proposed: PlansProposed) -> PlansProposed:
        """The message without the plans that begin to wait. Plans that the message gives up stop waiting: judged afterwards, they would evict for no pod."""
        if self._waiting and (ended := {(one.plan, proposed.scheduler) for one in proposed.given_up}):
            self._waiting = deque((until, one) for until, one in self._waiting if (one.plans[0].id, one.scheduler) not in ended)
        early = [plan for plan in proposed.plans if not self._sound(plan, proposed.scheduler)]
        if not early or len(self._waiting) + len(early) > MOST:
            return proposed
        until = monotonic_s() + WAIT_S
        self._waiting.extend((until, proposed.model_copy(update={"plans": (plan,), "given_up": ()})) for plan in early)
        self._some.set()
        waiting = {plan.id for plan in early}
        return proposed.model_copy(update={"plans": tuple(plan for plan in proposed.plans if plan.id not in waiting)})

    def jobs_changed(self) -> None:
        """Judge the waiting plans again: records of jobs changed."""
        if self._waiting:
            self._some.set()

    async def run(self) -> NoReturn:
        """Judge waiting plans when their jobs are recorded or their time is up, until cancelled."""
        while True:
            wait_s = max(0.0, self._waiting[0][0] - monotonic_s()) if self._waiting else None
            try:
                async with asyncio.timeout(wait_s):
                    await self._some.wait()
            except TimeoutError:
                pass  # the first plan has waited for WAIT_S
            self._some.clear()
            now = monotonic_s()
            due = [one for until, one in self._waiting if until <= now or self._sound(one.plans[0], one.scheduler)]
            taken = {id(one) for one in due}
            self._waiting = deque((until, one) for until, one in self._waiting if id(one) not in taken)
            if due:
                await self._judge(due)

    async def _judge(self, due: Sequence[PlansProposed]) -> None:
        while True:
            try:
                return await self._propose(due)
            except Unavailable as e:
                log.warning("%d plans wait: %s", len(due), e)
                await asyncio.sleep(AGAIN_S)
