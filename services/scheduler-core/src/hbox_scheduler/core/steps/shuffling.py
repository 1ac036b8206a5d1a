"""Evictions that the policy demands without a beneficiary: pods on nodes that were lent for a time window, when it ends (`tdm`).

The action `shuffle` scans all running pods, with a backoff while it finds no victims. Plans without placements, one a job, request the evictions; the ledger
accepts them, and the pods' controllers create new pods, which the policy keeps off the old nodes. The plugins limit how many members of a gang may be away at
once: members that leave, or wait for a place, count as away. Between a pod's end and its successor's creation neither is visible: a job is left alone until it
has its former number of pods again, for a minute at most.
"""

from collections import Counter
from collections.abc import Iterable

from hbox_common.events import Plan
from hbox_common.model import ClaimState, JobId, PodUid

from ..cluster import Booking
from ..queueing.backoff import SessionBackoff
from ..queueing.jobs import Entry
from .context import SchedulerContext
from .nominations import Nominations


class Shuffling:
    """`nominations`: pods that leave already."""

    def __init__(self, context: SchedulerContext, *, nominations: Nominations) -> None:
        self._runner = context.runner
        self._plans = context.plans
        self._bookings = context.bookings
        self._queues = context.queues
        self._queue = context.queue
        self._flights = context.flights
        self._nominations = nominations
        self._limits = context.limits
        self._backoff = SessionBackoff(context.limits.session_max_s, context.limits.shuffle_max_s)
        self._asked = 0
        self._slow_from = float("-inf")  #: when plugins are asked again that judge by what is measured
        #: Pods of jobs from which some were evicted, and until when they are waited for.
        self._had: dict[JobId, tuple[int, float]] = {}
        self._refused: dict[PodUid, float] = {}  #: and until when they are not requested again

    def next_at(self) -> list[float]:
        """When `run` has something next."""
        return [self._backoff.next_at] if self._runner.shuffles else []

    def run(self, now: float) -> list[Plan]:
        """Plans that ask for nothing but that their victims leave."""
        if not self._runner.shuffles or not self._backoff.due(now):
            return []
        self._nominations.expire_evicted(now)
        self._refused = {pod: until for pod, until in self._refused.items() if until > now}
        in_part = self._in_part()
        slow = now >= self._slow_from
        found = self._runner.shuffle(in_part, self._queues.all(), self._nominations, slow=slow)
        if slow:
            self._slow_from = now + self._runner.interval_s
        pods = Counter(booking.job for booking in self._bookings.all().values() if booking.pod not in self._nominations)
        pods.update({entry.job.id: sum(len(some) for _, some in entry.pending) for entry in in_part})
        self._had = {job: (had, until) for job, (had, until) in self._had.items() if until > now and pods[job] < had}
        by_job: dict[JobId, list[Booking]] = {}
        for booking in found:
            posted = booking.held is not None and booking.held.state is ClaimState.POSTED
            if posted and booking.job not in self._had and booking.pod not in self._refused:
                by_job.setdefault(booking.job, []).append(booking)
        plans = [self._evict(bookings, now) for bookings in by_job.values()]
        self._had |= {job: (pods[job], now + self._limits.successor_s) for job in by_job}
        self._backoff.record(now, success=bool(plans))
        return plans

    def refused(self, plan: Plan, now: float) -> None:
        """The ledger refused the plan, or does not know it any more."""
        self._nominations.stay(_victims(plan))
        self._refused.update(dict.fromkeys(_victims(plan), now + self._limits.nomination_s))

    def _in_part(self) -> list[Entry]:
        """Jobs of which some pods run and some wait."""
        found = [entry for entry in self._queue.entries.values() if entry.job.bound or entry.held]
        for entry in found:
            entry.update_pending(self._bookings)
        return [entry for entry in found if entry.pending]

    def _evict(self, bookings: list[Booking], now: float) -> Plan:
        self._asked += 1
        plan = self._plans.eviction_plan(bookings, self._asked)
        self._nominations.add_evicted(_victims(plan), now + self._limits.nomination_s)
        self._flights.open(plan, now)
        return plan


def _victims(plan: Plan) -> Iterable[PodUid]:
    return [victim.pod_uid for victim in plan.victims]
