"""Jobs that are placed in a session, as `hbox simulate cycle` places them: those whose pods have constraints about other pods or about each other's places,
and all where the user brought a policy.

The planner's way, equal pods on the columns at once, cannot see affinities between pods, spreading, the fabric, or plugins. A session can, one pod at a time:
jobs that come together share one, and those that found no place are looked at again when anybody came or went, at a pace that slows while that is in vain.
"""

from collections.abc import Iterable, Iterator

from hbox_common.events import JobVerdict
from hbox_common.model import Index, JobId, Neighbour, PodUid, Resources

from ..placement.planner import Attempt, verdict_of
from ..placement.runner import Unplaced
from ..queueing.backoff import Backoff
from ..queueing.equivalence import EquivalenceClasses
from ..queueing.jobs import Entry, JobState
from .context import SchedulerContext
from .nominations import Nominations

#: Pods that are gone are forgotten then: their end is told by their claims.
NEIGHBOURS_KEPT = 100_000


class SessionPlacer:
    """`neighbours`: pods with constraints about other pods, and pods that such constraints select. `user_policy`: all jobs are placed here."""

    def __init__(self, context: SchedulerContext, *, neighbours: dict[PodUid, Neighbour], user_policy: bool) -> None:
        self._runner = context.runner
        self._neighbours = neighbours
        self._planner = context.planner
        self._bookings = context.bookings
        self._queues = context.queues
        self._queue = context.queue
        self._limits = context.limits
        self._user_policy = user_policy
        self._waiting: dict[JobId, None] = {}  #: those that are in no class
        self._leaving: Iterable[PodUid] = ()
        self._classes = EquivalenceClasses(
            context.planner.columns,
            context.bookings,
            context.queue.entries,
            neighbours,
            every_s=context.limits.verdict_every_s,
            reserves_from=lambda: context.runner.reserves_from,
        )
        self._tried: set[JobId] = set()  #: in this cycle, without success
        self._backoff = Backoff(context.limits.session_every_s, context.limits.session_max_s)
        self._tried_at: tuple[Index, int] = (Index(0), 0)
        self._changes = 0  #: count of changes so far

    def update_neighbours(self, neighbours: Iterable[Neighbour]) -> None:
        """Take the present state of pods with constraints about other pods."""
        for neighbour in neighbours:
            if (job := self._classes.of_pod(neighbour.uid)) is not None:
                self.revised(job)
            self._neighbours[neighbour.uid] = neighbour
            self._runner.mark_changed((neighbour.uid,))
            self._changes += 1
        if len(self._neighbours) > NEIGHBOURS_KEPT:
            self._forget_gone()

    def invalidate(self) -> None:
        """Something else changed on which places depend: jobs that wait are tried again."""
        self._changes += 1

    def concerns(self, entry: Entry) -> bool:
        """Whether the job is placed here: its pods have constraints about other pods or each other, or are selected by such constraints."""
        if entry.problem() or not entry.pending:
            return False
        if self._user_policy or entry.job.together:
            return True
        return bool(self._neighbours) and any(
            (neighbour := self._neighbours.get(pod.uid)) is not None and neighbour.has_pod_constraints
            for _, pods in entry.pending
            for pod in pods
        )

    def remove(self, job: JobId) -> None:
        self._waiting.pop(job, None)
        self._classes.remove(job)

    def revised(self, job: JobId) -> None:
        """The job has a new revision: its class is determined when it is tried next."""
        if self._classes.remove(job):
            self._waiting[job] = None

    def next_at(self, index: Index) -> list[float]:
        """When `activate_waiting` or `changed_verdicts` has something next."""
        looks = [self._backoff.next_at] if (self._waiting or self._classes) and self._changed_since(index) else []
        return looks + self._classes.next_at()

    def changed_verdicts(self, now: float) -> Iterator[JobVerdict]:
        """Verdicts of represented jobs, where they differ from those published."""
        return self._classes.changed_verdicts(now)

    def represented(self, job: JobId) -> Iterable[JobId]:
        """The jobs of its class, itself among them; none where it belongs to no class."""
        return self._classes.equals(job)

    def activate_waiting(self, index: Index, now: float) -> None:
        """At the beginning of a cycle: jobs that found no place are activated when the state changed; with a user's policy also when time has passed."""
        self._tried.clear()
        self._classes.begin_cycle()
        if not (self._waiting or self._classes) or not self._changed_since(index) or not self._backoff.due(now):
            return
        self._tried_at = (index, self._changes)
        self._backoff.record(now, success=False)
        self._activate_all()

    def place(self, first: Entry, nominations: Nominations) -> Attempt:
        """The job, and those of its kind right after it, in one session. By a user's policy with those that wait: they count for its plugins."""
        attempt = Attempt()
        self._leaving = nominations
        if self._user_policy:
            self._activate_all()
        entries: list[Entry] = []
        for entry in (first, *self._company()):
            if (verdict := self._classes.verdict_of_equal(entry)) is not None:
                self._wait(attempt, entry, verdict)
            elif why := self._limited_by_guarantees(entry, entry.least()):
                self._fail(attempt, Unplaced(entry, why, None))
            else:
                entries.append(entry)
        represented = self._classes.represented(entries)
        for found in self._runner.place(entries, self._queues.all(), nominations, represented) if entries else ():
            if isinstance(found, Unplaced):
                self._fail(attempt, found)
            elif why := self._limited_by_guarantees(found.entry, found.amounts()):
                self._fail(attempt, Unplaced(found.entry, why, None))
            elif (plan := self._planner.placement_plan(found)) is not None:
                self._classes.remove(found.entry.job.id)
                attempt.proposed.append(found.entry)
                attempt.plans.append(plan)
        if attempt.plans:
            self._backoff.reset()
        return attempt

    def _limited_by_guarantees(self, entry: Entry, amounts: Resources) -> str:
        """Why so much for the job would leave others without what they are guaranteed. Sessions do not check that."""
        kept = self._queues.kept_for_others(entry.job.queue, amounts)
        return kept.message if kept.pods == 0 else ""

    def _fail(self, attempt: Attempt, found: Unplaced) -> None:
        self._wait(attempt, found.entry, verdict_of(found.entry, found.reasons, found.message))

    def _wait(self, attempt: Attempt, entry: Entry, verdict: JobVerdict) -> None:
        attempt.failed.append((entry, verdict))
        if not self._user_policy or not self._classes.add(entry, verdict):
            self._waiting[entry.job.id] = None
            self._tried.add(entry.job.id)

    def _activate_all(self) -> None:
        for representative in list(self._classes.representatives(self._leaving)):
            self._queue.activate(representative)
        activated = [job for job in self._waiting if job not in self._tried]
        for job in activated:
            del self._waiting[job]
            entry = self._queue.entries.get(job)
            if entry is not None and entry.state is JobState.UNSCHEDULABLE:
                self._queue.activate(entry)

    def _changed_since(self, index: Index) -> bool:
        return self._user_policy or self._tried_at != (index, self._changes)

    def _company(self) -> list[Entry]:
        """The jobs right after it that are placed here too. Jobs with nothing to place are passed over."""
        company: list[Entry] = []
        aside: list[Entry] = []
        while len(company) < self._limits.session_jobs - 1 and (entry := self._queue.next()) is not None:
            if self.concerns(entry):
                company.append(entry)
                continue
            aside.append(entry)
            if entry.pending and not entry.problem():
                break
        for entry in aside:
            self._queue.give_back(entry)
        return company

    def _forget_gone(self) -> None:
        """Drop pods that neither have a booking nor wait for a place."""
        entries = self._queue.entries.values()
        waiting = {pod.uid for entry in entries for task in entry.job.tasks for pod in task.pods}
        for uid in [uid for uid in self._neighbours if uid not in waiting and uid not in self._bookings]:
            del self._neighbours[uid]
