"""Placement of active jobs on free resources, one session at a time.

A job that finds no place waits in one of two ways. If the policy judges by shape, and the queue's limits depend only on what the queue holds, a job is tried
again when something that it waits for changed: free resources of nodes, what its queue holds, rules (`queueing.unschedulable`). Other jobs are tried again when
any pod arrived or left, with a backoff while attempts fail: jobs whose pods have constraints about other pods or about each other's places, and, under policies
that judge by more, all jobs. The first jobs of an equivalence class represent the others (`queueing.equivalence`).

A failed attempt delays all jobs that wait for the cycle, and tenants decide how many such jobs there are. So a cycle ends after a number of failures, fewer the
more each costs; a namespace with many failures gets its next turn after the others; and of the jobs that wait for any change a few are tried at a time, by
turns of their namespaces (`queueing.retries`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hbox_common.events import JobVerdict, Plan
from hbox_common.model import Index, JobId, Neighbour, PodUid, QueueName
from hbox_common.model.annotations import WALLTIME
from hbox_common.model.explanation import Outcome

from ..explain.labels import Label
from ..explain.outcomes import headline_of
from ..placement.gangs import waiting_id
from ..placement.outcomes import Placed, Unplaced, Untried
from ..placement.plans import verdict_of
from ..plugins.walltimes import not_longer
from ..queueing.backoff import SessionBackoff
from ..queueing.equivalence import EquivalenceClasses
from ..queueing.jobs import Entry, JobState, Order
from ..queueing.retries import Retries
from .context import SchedulerContext
from .nominations import Nominations

#: Jobs of a small session: as many as may fail in one, where each counts for one or where it counts for more.
LEAST_JOBS, LEAST_COSTLY = 64, 16

#: Of `Limits.session_failures`, what a job counts for that found no place: one by its shape alone, one with constraints about other pods, a gang whose places
#: depend on each other, and one that wishes certain cards. By what one costs that is like no other, on 100 nodes: 0.1, 1, 5 and 50 ms.
BY_SHAPE, BY_OTHERS, TOGETHER, BY_CARDS = 1, 4, 16, 64

#: Jobs that wait for any change, of those that are tried again at a time.
RETRIED = 16

#: Beyond this number, pods that are gone are dropped at once: their claims report their end.
NEIGHBOURS_KEPT = 100_000

#: Seconds between two searches for pods that are gone. A pod is dropped if two searches in a row find neither a claim nor a job of it: messages about one pod
#: arrive on several streams.
GONE_EVERY_S = 60.0


@dataclass(slots=True)
class Attempt:
    """The result of a session, job by job."""

    plans: list[Plan] = field(default_factory=list)
    proposed: list[Entry] = field(default_factory=list)
    settled: list[Entry] = field(default_factory=list)  #: nothing left to place
    failed: list[tuple[Entry, JobVerdict]] = field(default_factory=list)
    blocked: list[Entry] = field(default_factory=list)  #: of these, not tried for a reason that passes
    failures: int = 0  #: the failed ones, by what they cost
    examined: int = 0  #: jobs of the session, also those that it did not come to

    @property
    def placements(self) -> int:
        return sum(len(plan.placements) for plan in self.plans)


class Placer:
    """`neighbours`: pods with constraints about other pods, and pods that such constraints select."""

    def __init__(self, context: SchedulerContext, *, neighbours: dict[PodUid, Neighbour]) -> None:
        self._sessions = context.sessions
        self._runner = context.runner
        self._neighbours = neighbours
        self._plans = context.plans
        self._bookings = context.bookings
        self._queues = context.queues
        self._queue = context.queue
        self._limits = context.limits
        self._gone: set[PodUid] = set()  #: pods with neither a booking nor a job, as of the last search
        self._search_gone_at = float("-inf")
        self._waiting = Retries()  #: those that are tried again when anything changed, and are in no class
        self._failures: Counter[str] = Counter()  #: by namespace, as in `_failure_cost`, since all had turns
        self._leaving: Iterable[PodUid] = ()
        self._classes = EquivalenceClasses(
            context.plans.columns,
            context.bookings,
            context.queue.entries,
            neighbours,
            every_s=context.limits.verdict_every_s,
            reserves_from=lambda: context.runner.reservations.reserves_from,
        )
        self._let_in: set[PodUid] = set()  #: on nodes that were set aside for others
        self._tried: set[JobId] = set()  #: in this cycle, without success
        self._backoff = SessionBackoff(context.limits.session_every_s, context.limits.session_max_s)
        self._mark: tuple[int, ...] = ()  #: the state as of this cycle's beginning
        self._columns = context.plans.columns
        self._most_jobs = context.limits.session_jobs  #: of the next session
        #: queues whose next job was not part of the last session, which ended for it: jobs of other queues were left
        self._exhausted: set[QueueName] = set()
        self._changes = 0  #: count of changes so far
        self._refusals: dict[tuple[QueueName, bool], str] = {}  #: by the rules of queues, which do not change within a session

    def update_neighbours(self, neighbours: Iterable[Neighbour]) -> None:
        """Take the present state of pods with constraints about other pods."""
        for neighbour in neighbours:
            if (job := self._classes.of_pod(neighbour.uid)) is not None:
                self.revised(job)
            self._neighbours[neighbour.uid] = self._with_its_walltime(neighbour)
            self._sessions.mark_changed((neighbour.uid,))
            self._changes += 1
        if len(self._neighbours) > NEIGHBOURS_KEPT:
            self._drop_neighbours(self._gone_neighbours())

    def planned(self, plan: Plan) -> None:
        """Record the pods that were placed on nodes reserved for others."""
        reservations = self._runner.reservations.reservations
        if not reservations or any(one.gang == waiting_id(plan.job) for one in reservations):
            return
        rows = self._columns.row_of
        self._let_in.update(one.pod_uid for one in plan.placements if self._columns.reserved[rows[one.node]])
        if len(self._let_in) > NEIGHBOURS_KEPT:
            self._let_in = {uid for uid in self._let_in if uid in self._bookings}

    def _with_its_walltime(self, neighbour: Neighbour) -> Neighbour:
        """A pod on a reserved node keeps the walltime with which it was placed there, even if its tenant writes a longer one later."""
        if neighbour.uid not in self._let_in:
            return neighbour
        before, booking = self._neighbours.get(neighbour.uid), self._bookings.get(neighbour.uid)
        if before is None or booking is None or before.annotations.get(WALLTIME) == neighbour.annotations.get(WALLTIME):
            return neighbour
        queue = self._bookings.queues.get(booking.queue)
        rules = queue.annotations if queue is not None else {}
        return replace(neighbour, annotations=dict(not_longer(neighbour.annotations, before.annotations, rules)))

    def resolve_again(self) -> None:
        """Determine the classes of all jobs again, after `Columns` assigned resources to other columns."""
        for job in self._classes.jobs():
            self.revised(job)

    def invalidate(self) -> None:
        """Something else changed on which places depend: jobs that wait are tried again."""
        self._changes += 1

    def remove(self, job: JobId) -> None:
        self._waiting.remove(job)
        self._classes.remove(job)

    def revised(self, job: JobId) -> None:
        """The job has a new revision: its class is determined when it is tried next."""
        if self._classes.remove(job):
            self._waiting.add(job, self._queue.entries[job].job.namespace, None)

    def retries(self, job: JobId) -> bool:
        """Whether the job is tried again after any change, by turns: no hint activates it."""
        return self._sessions.by_shape and job in self._waiting

    def next_at(self, index: Index) -> list[float]:
        """When `activate_waiting` or `changed_verdicts` has something next."""
        looks = [self._backoff.next_at] if self._is_due(index) else []
        return looks + self._classes.next_at()

    def changed_verdicts(self, now: float) -> Iterator[JobVerdict]:
        """Verdicts of represented jobs, where they differ from those published."""
        return self._classes.changed_verdicts(now)

    def represented(self, job: JobId) -> Iterable[JobId]:
        """The jobs of its class, itself among them; none where it belongs to no class."""
        return self._classes.equals(job)

    def activate_waiting(self, index: Index, now: float) -> None:
        """At the beginning of a cycle, activate some of the jobs that wait for any change, if the state changed since they were tried; under policies that do
        not judge by shape, all of them, also if only time has passed."""
        self._tried.clear()
        self._classes.begin_cycle()
        if self._neighbours and now >= self._search_gone_at:
            self._search_gone_at = now + GONE_EVERY_S
            gone = self._gone_neighbours()
            self._drop_neighbours(gone & self._gone)
            self._gone = gone - self._gone
        self._mark = self.state(index)
        if not self._is_due(index) or not self._backoff.due(now):
            return
        if self._sessions.by_shape:
            self._activate(self._waiting.take(RETRIED, self._mark))
            self._backoff.record(now, success=self._waiting.due(self._mark))
            return
        self._backoff.record(now, success=False)
        self._activate_all()

    def place(
        self, nominations: Nominations, most: int, *, after_others: bool = False, ahead_of: Order | None = None
    ) -> Attempt | None:
        """Run one session for jobs of all queues; None if no job is active. `most`: number of placed pods after which the session ends. `after_others`: this
        cycle has placed pods already; then namespaces with many failures get no session. `ahead_of`: only jobs that precede it in the order."""
        self._leaving = nominations
        taken, outside = self._take(after_others=after_others, ahead_of=ahead_of)
        if not taken:
            return None
        if not self._sessions.by_shape and any(entry.pending for entry in taken):
            self._activate_all()  # those that wait count for the policy's plugins
            for entry in taken:
                self._queue.give_back(entry)
            taken, outside = self._queue.take(self._most_jobs, ahead_of=ahead_of)
        attempt = Attempt(examined=len(taken))
        self._refusals.clear()
        blocked: list[tuple[Entry, str]] = []
        entries = [entry for entry in taken if self._is_tried(attempt, entry, blocked)]
        self._judge_blocked(attempt, blocked)
        represented = self._classes.represented(entries)
        found = (
            self._runner.place(
                entries,
                self._queues.all(),
                nominations,
                represented,
                outside=outside,
                most=most,
                most_failures=self._limits.session_failures if self._sessions.by_shape else None,
                failure_cost=self._failure_cost,
            )
            if entries
            else ()
        )
        untried: list[Entry] = []
        for one in found:
            match one:
                case Placed(entry):
                    self._book(attempt, one)
                case Unplaced(entry, message, reasons, headline, lacks_room):
                    self._wait(attempt, entry, verdict_of(entry, reasons, message, headline), lacks_room=lacks_room)
                case Untried(entry):
                    self._queue.give_back(entry)
                    untried.append(entry)
        for entry, _ in attempt.failed:
            self._failures[entry.job.namespace] += (cost := self._failure_cost(entry))
            attempt.failures += cost
        self._exhausted = outside - {entry.job.queue for entry in untried} if untried else set()
        self._adapt(len(taken), untried=len(untried), failed=len(attempt.failed))
        if attempt.plans:
            self._backoff.reset()
        return attempt

    def _take(self, *, after_others: bool, ahead_of: Order | None) -> tuple[list[Entry], set[QueueName]]:
        """Jobs of the next session; those of namespaces with many failures only if no other job is active, and in a cycle of their own."""
        over = {name for name, failures in self._failures.items() if failures >= self._limits.session_failures // 2}
        if self._sessions.by_shape and over:
            taken, outside = self._queue.take(self._most_jobs, without=over, ahead_of=ahead_of, exhausted=self._exhausted)
            if taken or after_others:
                return taken, outside
        self._failures.clear()
        return self._queue.take(self._most_jobs, ahead_of=ahead_of, exhausted=self._exhausted)

    def _failure_cost(self, entry: Entry) -> int:
        """What it counts for if it finds no place."""
        if entry.wishes_certain_cards:
            return BY_CARDS
        if entry.job.together:
            return TOGETHER
        return BY_OTHERS if self._has_pod_constraints(entry) else BY_SHAPE

    def _adapt(self, taken: int, *, untried: int, failed: int) -> None:
        """How many jobs the next session has. A session is made for all of its jobs, and for those that it did not come to the next one is made again: of a
        flood that finds no place it comes to LEAST_JOBS at most, of gangs to as many as fill a cycle."""
        if not self._sessions.by_shape:
            return  # those that wait count for the policy's plugins, all of them
        if untried > taken // 2:
            self._most_jobs = max(LEAST_COSTLY, taken - untried)
        elif taken >= self._most_jobs and untried == 0 and (failed <= taken // 2 or taken < LEAST_JOBS):
            self._most_jobs = min(self._limits.session_jobs, 2 * self._most_jobs)

    def _is_tried(self, attempt: Attempt, entry: Entry, blocked: list[tuple[Entry, str]]) -> bool:
        """Whether a session is needed to say what becomes of the job. `blocked`: jobs that are not tried, with the reason."""
        if not entry.pending:
            attempt.settled.append(entry)
        elif problem := entry.problem():
            blocked.append((entry, problem))
        elif why := self._refusal(entry):
            self._wait(attempt, entry, verdict_of(entry, None, why), lacks_room=True)
        elif (verdict := self._classes.verdict_of_equal(entry)) is not None:
            self._wait(attempt, entry, verdict)
        else:
            return True
        return False

    def _judge_blocked(self, attempt: Attempt, blocked: Sequence[tuple[Entry, str]]) -> None:
        """A reason that passes is the headline only of a job that can start after that. Admission publishes the reasons of PodGroups."""
        passing = [
            (entry, why)
            for entry, why in blocked
            if (head := headline_of(why)) is not None and head.outcome is Outcome.WAIT and head.code != Label.NOT_ENQUEUED
        ]
        attempt.blocked += [entry for entry, _ in passing]
        found = self._runner.blocked(passing, self._queues.all(), self._leaving) if passing else ()
        headlines = {entry.job.id: headline for (entry, _), headline in zip(passing, found, strict=True)}
        for entry, problem in blocked:
            attempt.failed.append((entry, verdict_of(entry, None, problem, headlines.get(entry.job.id))))

    def _book(self, attempt: Attempt, found: Placed) -> None:
        entry = found.entry
        self.remove(entry.job.id)
        attempt.proposed.append(entry)
        attempt.plans += self._plans.placed(entry, found.members)
        found.members[0].gang.dissolve()

    def _refusal(self, entry: Entry) -> str:
        """Why the queue admits no work, or no work with cards."""
        key = entry.job.queue, any(task.cards for task, _ in entry.pending)
        if key not in self._refusals:
            self._refusals[key] = self._queues.refusal(key[0], cards=key[1])
        return self._refusals[key]

    def _wait(self, attempt: Attempt, entry: Entry, verdict: JobVerdict, *, lacks_room: bool = False) -> None:
        attempt.failed.append((entry, verdict))
        if self._waits_for_hints(entry, lacks_room=lacks_room):
            self.remove(entry.job.id)
        elif self._sessions.by_shape or not self._classes.add(entry, verdict):
            self._waiting.add(entry.job.id, entry.job.namespace, self._mark)
            self._tried.add(entry.job.id)

    def _waits_for_hints(self, entry: Entry, *, lacks_room: bool) -> bool:
        """Whether what the job waits for is among what `queueing.unschedulable` watches."""
        if not self._sessions.by_shape or entry.job.together or not (lacks_room or self._sessions.shares_by_use):
            return False
        return not self._has_pod_constraints(entry)

    def _has_pod_constraints(self, entry: Entry) -> bool:
        return bool(self._neighbours) and any(
            (neighbour := self._neighbours.get(pod.uid)) is not None and neighbour.has_pod_constraints
            for _, pods in entry.pending
            for pod in pods
        )

    def _activate_all(self) -> None:
        for representative in list(self._classes.representatives(self._leaving)):
            self._queue.activate(representative)
        activated = [job for job in self._waiting.all() if job not in self._tried]
        for job in activated:
            self._waiting.remove(job)
        self._activate(activated)

    def _activate(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            entry = self._queue.entries.get(job)
            if entry is not None and entry.state is JobState.UNSCHEDULABLE:
                self._queue.activate(entry)

    def state(self, index: Index) -> tuple[int, ...]:
        """What places depend on, by counts of its changes."""
        columns = self._columns
        return index, self._changes, columns.changes.end - columns.undone, columns.risen.end

    def _is_due(self, index: Index) -> bool:
        """Whether a job waits for any change, and there was one since it was tried."""
        if self._sessions.by_shape:
            return self._waiting.due(self.state(index))
        return bool(self._waiting or self._classes)

    def _gone_neighbours(self) -> set[PodUid]:
        """Pods that neither have a booking nor wait for a place."""
        entries = self._queue.entries.values()
        waiting = {pod.uid for entry in entries for task in entry.job.tasks for pod in task.pods}
        return {uid for uid in self._neighbours if uid not in waiting and uid not in self._bookings}

    def _drop_neighbours(self, pods: Iterable[PodUid]) -> None:
        for uid in pods:
            del self._neighbours[uid]
            self._let_in.discard(uid)
