"""Trials of pending jobs: whether a job would start in the present state with something different (`explain.changes`).

A trial opens a session of the policy for the job alone, with the rules and plugins of every placement, and takes back all that it did.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hbox_common.model import Job, PodUid, Queue
from hbox_common.model.consolidation import Mode
from hbox_common.model.explanation import Change, ChangeKind, Owner

from ..cluster import Bookings, Columns
from ..cluster.facts import ClusterFacts
from ..explain.changes import Attempt, ChangeLimits, FoundChanges, Knob, Trial, smallest_changes
from ..explain.changes.ofjob import Tier, job_knobs
from ..explain.changes.ofnodes import node_knobs
from ..explain.changes.ofqueues import Rules, queue_knobs
from ..queueing.jobs import Entry
from ..queueing.schedulingqueue import SchedulingQueue
from ..quotas.queues import Queues
from .runner import SessionRunner

#: The largest gang for which evictions are tried: with 10,000 cards a search takes 40 ms, and 5 ms for each pod.
MOST_EVICTING = 16

#: The largest gang for which moves are sought: with 10,000 cards that takes 0.1 s for 8 pods, and seconds for 40. So half of the time has to be left.
MOST_MOVING = 8


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

        began = clock()
        found = smallest_changes(self, start, knobs, limits, clock)
        if found.starts or not found.complete or found.probes >= limits.probes or clock() - began >= limits.seconds / 2:
            return found
        moves = self._moves(job)
        return replace(found, changes=(*found.changes, *moves), probes=found.probes + 1)

    def _moves(self, job: Job) -> Iterator[Change]:
        """Moves of running pods that pay, where the policy does not make them by itself."""
        if self._runner.moves_mode is Mode.ON or job.min_member - job.bound > MOST_MOVING:
            return
        entry = self._queue.tried(job)
        found = self._runner.preview_moves(entry, self._queues.all(), self._leaving(), self._facts.now, set())
        if found is not None and found.terms.pays:
            yield Change(ChangeKind.MOVES, Owner.OPERATOR, {"count": found.terms.pods_moved}, "hbox defrag -o wide")

    def attempt(self, trial: Trial) -> Attempt:
        with self._different(trial):
            entry = self._entry(trial.job)
            return Attempt(*self._runner.starts(entry, self._queues.all(), self._leaving())) if entry else Attempt(False)

    def makes_room(self, trial: Trial) -> bool | None:
        if self._runner.idle:
            return None
        with self._different(trial):
            entry = self._entry(trial.job)
            if entry is None or entry.need > MOST_EVICTING or not self._runner.may_preempt(entry, self._queues.all()):
                return None
            return self._runner.makes_room(entry, self._queues.all(), self._leaving())

    def _entry(self, job: Job) -> Entry | None:
        """The job as a session takes it; None: its queue, its PodGroup or its own state admits no placement."""
        entry = self._queue.tried(job)
        entry.update_pending(self._bookings)
        cards = any(task.cards for task, _ in entry.pending)
        refused = not entry.pending or entry.problem() or self._queues.refusal(job.queue, cards=cards)
        return None if refused else entry

    @contextmanager
    def _different(self, trial: Trial) -> Iterator[None]:
        """Nodes and queues as in the trial, and no record of the choices of nodes."""
        columns, tree = self._columns, self._queues.all()
        before: list[Queue] = [tree[one.name] for one in trial.queues]
        choices, columns.choices = columns.choices, None
        changes = columns.changes.end
        try:
            with columns.repaired(trial.repaired):
                self._count_lent(trial.repaired)
                for rules in trial.queues:
                    tree[rules.name] = rules
                yield
        finally:
            for rules in before:
                tree[rules.name] = rules
            self._count_lent(trial.repaired)
            columns.choices = choices
            columns.undone += columns.changes.end - changes

    def _count_lent(self, rows: Iterable[int]) -> None:
        """What nodes of these rows have for guarantees, as they are described now."""
        columns, lending = self._columns, self._bookings.lending
        with lending.uneased():
            for row in rows:
                if (state := columns.states[row]) is not None:
                    lending.node(state, columns.verdicts.get(state.name))
