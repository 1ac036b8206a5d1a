"""Trials of pending jobs: whether a job would start in the present state with something different (`explain.changes`).

A trial opens a session of the policy for the job alone, with the rules and plugins of every placement, and takes back all that it did.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hbox_common.model import Job, PodUid, Queue

from ..cluster import Bookings, Columns
from ..cluster.facts import ClusterFacts
from ..explain.changes import Attempt, ChangeLimits, FoundChanges, Knob, Trial, smallest_changes
from ..explain.changes.ofjob import Tier, job_knobs
from ..explain.changes.ofnodes import node_knobs
from ..explain.changes.ofqueues import Rules, queue_knobs
from ..queueing.schedulingqueue import SchedulingQueue
from ..quotas.queues import Queues
from .runner import SessionRunner


class Trials:
    """Implements `explain.changes.Engine` on one scheduler's state."""

    def __init__(
        self,
        *,
        runner: SessionRunner,
        columns: Columns,
        bookings: Bookings,
        queues: Queues,
        queue: SchedulingQueue,
        facts: ClusterFacts,
        leaving: Callable[[], Sequence[PodUid]],
    ) -> None:
        """`leaving`: pods that leave for nominated jobs."""
        self._runner = runner
        self._columns = columns
        self._bookings = bookings
        self._queues = queues
        self._queue = queue
        self._facts = facts
        self._leaving = leaving

    def changes(self, job: Job, limits: ChangeLimits, clock: Callable[[], float]) -> FoundChanges:
        """The smallest changes by which, alone, the job starts now. `clock`: seconds, monotonic."""
        if job.problem:
            return FoundChanges()
        start, facts = Trial(job), self._facts
        tiers = [Tier(number, name) for number, name in sorted({(one.tier, one.tier_name) for one in facts.hypernodes})]
        rules = Rules(self._queues.all(), facts.priority_classes, facts.reservations, facts.now)

        def knobs(attempt: Attempt) -> Iterator[Knob]:
            yield from job_knobs(job, self._columns, tiers, attempt.short)
            yield from queue_knobs(job, rules)
            yield from node_knobs(start, self._columns)

        return smallest_changes(self, start, knobs, limits, clock)

    def attempt(self, trial: Trial) -> Attempt:
        with self._different(trial):
            entry = self._queue.tried(trial.job)
            entry.update_pending(self._bookings)
            if not entry.pending or entry.problem():
                return Attempt(False)
            if self._queues.refusal(trial.job.queue, cards=any(task.cards for task, _ in entry.pending)):
                return Attempt(False)
            starts, short = self._runner.starts(entry, self._queues.all(), self._leaving())
            if not starts and trial.evicts:
                starts = self._runner.makes_room(entry, self._queues.all(), self._leaving())
            return Attempt(starts, short)

    @contextmanager
    def _different(self, trial: Trial) -> Iterator[None]:
        """Nodes and queues as in the trial, and no record of the choices of nodes."""
        columns, tree = self._columns, self._queues.all()
        before: list[Queue] = [tree[one.name] for one in trial.queues]
        choices, columns.choices = columns.choices, None
        try:
            with columns.repaired(trial.repaired):
                for rules in trial.queues:
                    tree[rules.name] = rules
                yield
        finally:
            for rules in before:
                tree[rules.name] = rules
            columns.choices = choices
