"""Places nominated jobs elsewhere than on the places of their victims.

A victim may take long to leave, or may never leave because its node is dead. Therefore the scheduler tries a nominated job on free places whenever capacity
rises on a node where one of its pods fits, before all jobs that follow it in the order. If all of its nominated pods fit on free places, the scheduler proposes
them without victims. The ledger ends the nomination with the new claims, and revokes evictions that are not executed yet and that no other plan needs. Until
then the ledger keeps the nominated places. If the ledger refuses the proposal, the scheduler gives them up.

A victim is overdue if it still runs after its grace period and a margin. Then the scheduler searches for other victims; overdue pods are excluded, and do not
count as leaving. If it finds none, the nomination stays.

Both trials suspend the bookings of the nominated places, so that a gang may combine the places of victims that have left with others, and its queue's limits
count the job once. A trial without success restores them.
"""

from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

from hbox_common.events import Plan
from hbox_common.model import Index, JobId

from ..cluster.arrays import Rows
from ..cluster.task import Task
from ..placement.outcomes import Placed
from ..queueing.backoff import SessionBackoff
from ..queueing.jobs import Entry, JobState
from .context import SchedulerContext
from .nominations import Nomination
from .preemptor import Preemptor

#: Maximum number of nominated jobs that one cycle tries on free places; the next cycle tries the others.
TRIED = 16

#: Maximum number of nominated jobs for which one cycle searches for other victims.
SEARCHED = 4


class Renominations:
    """Acts on the nominations of `preemptor`."""

    def __init__(self, context: SchedulerContext, preemptor: Preemptor) -> None:
        self._runner = context.runner
        self._plans = context.plans
        self._views = context.views
        self._bookings = context.bookings
        self._queues = context.queues
        self._queue = context.queue
        self._flights = context.flights
        self._limits = context.limits
        self._preemptor = preemptor
        self._columns = context.plans.columns
        self._risen = 0  #: position in the log of rows whose free amounts rose
        self._due: dict[JobId, None] = {}  #: jobs to try on free places
        self._backoff = SessionBackoff(context.limits.session_every_s, context.limits.session_max_s)

    @property
    def behind(self) -> bool:
        """Whether jobs are left for the next cycle."""
        return bool(self._due)

    def take_due(self) -> list[Entry]:
        """Up to `TRIED` nominated jobs, in order, with a pod that fits on a node whose free amounts rose since the last call."""
        columns, risen = self._columns, self._risen
        self._risen = columns.risen.end
        self._due = {job: None for job in self._due if self._waits(job)}
        by_task = self._preemptor.nominations.by_task
        if by_task and risen != self._risen:
            rows = columns.risen.since(risen)
            for task, jobs in by_task.items():
                waiting = [job for job in jobs if self._waits(job)]
                if waiting and self._fits(task, slice(0, columns.size) if rows is None else rows):
                    self._due.update(dict.fromkeys(waiting))
        entries = sorted(
            (entry for job in self._due if (entry := self._queue.entries.get(job)) is not None), key=attrgetter("order")
        )
        for entry in entries[:TRIED]:
            del self._due[entry.job.id]
        return entries[:TRIED]

    def postpone(self, entry: Entry) -> None:
        """The job is tried in the next cycle: the jobs ahead of it have not all had their turn."""
        self._due[entry.job.id] = None

    def place(self, entry: Entry, now: float) -> list[Plan]:
        """Plans that place all nominated pods of the job on free places; empty if the nomination stays."""
        nomination = self._preemptor.nominations.get(entry.job.id)
        if nomination is None or nomination.placement is None:
            return []
        tasks = dict.fromkeys(placed.task for placed in nomination.placement.placements)
        if not any(self._fits(task, slice(0, self._columns.size)) for task in tasks):
            return []
        if self._queues.refusal(entry.job.queue, cards=any(task.cards for task in entry.tasks)):
            return []
        suspended = self._bookings.suspend(nomination.plan, nomination.pods)
        entry.update_pending(self._bookings)
        if len(suspended.bookings) != len(nomination.pods) or entry.problem():
            self._bookings.restore(suspended)
            return []
        found = self._runner.place(
            [entry],
            self._queues.all(),
            self._preemptor.nominations,
            {},
            outside=(),
            most=self._limits.placements,
            most_failures=None,
            failure_cost=lambda _: 1,
        )
        for one in found:
            if isinstance(one, Placed):
                if set(nomination.pods) <= {member.uid for member in one.members}:
                    return self._propose(nomination, one, now)
                for member in one.members:
                    self._columns.undo(member.row, member.task.requests, member.slices, aligned=member.task.aligned)
                one.members[0].gang.dissolve()
                entry.gang = None
        self._bookings.restore(suspended)
        return []

    def _propose(self, nomination: Nomination, found: Placed, now: float) -> list[Plan]:
        entry = found.entry
        plans = self._plans.placed(entry, found.members)
        found.members[0].gang.dissolve()
        self._preemptor.moved_on(nomination, plans)
        entry.state = JobState.PROPOSED
        self._queue.recount(entry)
        for plan in plans:
            self._flights.open(plan, now)
        return plans

    def next_at(self, index: Index, now: float) -> list[float]:
        """When `search` is due next (monotonic); empty if never."""
        times = [self._backoff.next_at] if any(True for _ in self._overdue(index, now)) else []
        at = self._preemptor.nominations.next_deadline()
        return times if at is None else [*times, at]

    def search(self, index: Index, now: float) -> list[Plan]:
        """Plans with other victims for jobs whose victims are overdue."""
        nominations = self._preemptor.nominations
        overdue = list(islice(self._overdue(index, now), SEARCHED))
        if not overdue or not self._backoff.due(now) or self._runner.idle:
            return []
        late = {pod for pod in nominations if nominations.is_late(pod, now)}
        self._runner.spare(late, now + self._limits.nomination_s)
        plans: list[Plan] = []
        for nomination in overdue:
            nomination.searched_at = index
            assert nomination.placement is not None
            entry = nomination.placement.entry
            suspended = self._bookings.suspend(nomination.plan, nomination.pods)
            entry.update_pending(self._bookings)
            leaving = [pod for pod in nominations if pod not in late]
            found = [] if entry.problem() else self._runner.preempt([entry], self._queues.all(), leaving)
            if found and set(nomination.pods) <= {placed.uid for placed in found[0].placements}:
                plans.append(self._preemptor.nominate_elsewhere(nomination, found[0], now))
            else:
                self._bookings.restore(suspended)
        self._backoff.record(now, success=bool(plans))
        return plans

    def _overdue(self, index: Index, now: float) -> Iterator[Nomination]:
        """Nominations with an overdue victim for which no search failed on the view at `index`."""
        delayed = self._preemptor.nominations.delayed(now)
        return (one for one in delayed if one.accepted and one.placement is not None and one.searched_at != index)

    def _waits(self, job: JobId) -> bool:
        """Whether the job is known and has an accepted nomination with a victim that still runs."""
        one = self._preemptor.nominations.get(job)
        return one is not None and one.accepted and bool(one.waits_for) and one.placement is not None

    def _fits(self, task: Task, rows: Rows) -> bool:
        """Whether a pod of this shape fits on one of these rows, with the nominated places booked."""
        return bool((self._views.of(task).capacity[rows] > 0).any())
