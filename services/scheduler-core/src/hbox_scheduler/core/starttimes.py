"""Start estimates of pending jobs: projections in a session, corrected by recorded outcomes (`explain.startestimates`)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from hbox_common.model import JobId, PodUid
from hbox_common.model.explanation import StartEstimate

from .cluster import Bookings
from .explain.startestimates import MOST_OPEN, StartEstimates
from .placement.runner import SessionRunner
from .placement.startprojection import Projection
from .queueing.jobs import Entry, JobState
from .queueing.schedulingqueue import SchedulingQueue
from .quotas.queues import Queues

#: Jobs whose projections one sample records.
SAMPLED = 8
#: Jobs that one sample visits, and jobs by which the demand ahead of a job is counted.
SCANNED, COUNTED = 512, 4096
#: Seconds between the first and the second record of a job.
FIRST_S = 600.0
#: Added to each projection: the time that the platform takes, and the time that the job has waited, times a factor: long waits have causes that last.
LEAST_S, WAITED = 60.0, 1.0
#: Most seconds by which the known ends of running pods are old where one job's estimate is asked for: a sample, each half of that time, finds them anew.
AGE_S = 60.0
METHOD = "ends of running jobs by walltimes and earlier run times, corrected by recent outcomes"

_WAITS = (JobState.ACTIVE, JobState.UNSCHEDULABLE, JobState.DELAYED, JobState.AWAITING_STATE, JobState.NOMINATED)


@dataclass(slots=True)
class _Recorded:
    """`pod`: one that waits; `due`: when the next record of the job is due."""

    pod: PodUid
    due: float
    times: int


class StartTimes:
    """Of one scheduler. Changes no decision. `wall`: seconds since the epoch."""

    def __init__(
        self,
        *,
        runner: SessionRunner,
        queue: SchedulingQueue,
        queues: Queues,
        bookings: Bookings,
        leaving: Callable[[], Iterable[PodUid]],
        frozen: Callable[[], bool],
    ) -> None:
        self._runner, self._queue, self._queues, self._bookings = runner, queue, queues, bookings
        self._leaving, self._frozen = leaving, frozen
        self.estimates = StartEstimates()  #: what was learned of earlier projections
        self._recorded: dict[JobId, _Recorded] = {}
        self._turn = 0  #: position among all jobs

    def estimate(self, job: JobId, wall: float) -> StartEstimate | None:
        """Seconds until the job starts; None for a job that does not wait or has no known start, or while coverage is not measured or too low."""
        entry = self._queue.entries.get(job)
        if entry is None or entry.state not in _WAITS or self._frozen():
            return None
        if not self.estimates.given:
            return None
        found = self._projections([entry], wall, age_s=AGE_S).get(job)
        if found is None:
            return None
        interval = self.estimates.interval(_base_s(entry, found, wall), wall)
        return None if interval is None else StartEstimate(*interval, method=METHOD, driver=found.driver)

    def sample(self, wall: float) -> None:
        """Record projections of a few waiting jobs, in turns, and the outcomes of earlier ones."""
        if self._frozen():
            return
        self._outcomes(wall)
        waiting = self._next(wall)
        found = self._projections(waiting, wall) if waiting else {}
        for entry in waiting:
            job, known = entry.job.id, self._recorded.get(entry.job.id)
            times = 0 if known is None else known.times + 1
            self._recorded[job] = _Recorded(entry.pending[0][1][0].uid, wall + FIRST_S * 2**times, times)
            if (one := found.get(job)) is not None:
                self.estimates.record(job, _base_s(entry, one, wall), wall)

    def coverage(self) -> tuple[int, int]:
        """Recent starts before the 90th percentile, and all recent outcomes."""
        return self.estimates.coverage()

    def _outcomes(self, wall: float) -> None:
        for job, known in list(self._recorded.items()):
            entry = self._queue.entries.get(job)
            if entry is not None and self._short(entry):
                continue
            del self._recorded[job]
            if entry is None and known.pod not in self._bookings:
                self.estimates.gone(job)
            else:
                self.estimates.started(job, wall)
        self.estimates.pass_time(wall)

    def _short(self, entry: Entry) -> bool:
        """Whether the job still lacks places for its minimum."""
        entry.update_pending(self._bookings)
        return bool(entry.pending) and entry.need > 0

    def _next(self, wall: float) -> list[Entry]:
        """The next waiting jobs that are due for a record, in turns over all jobs: at first, and then after twice as long each time."""
        entries, chosen = self._queue.entries, []
        if self._turn >= len(entries):
            self._turn = 0
        for entry in islice(entries.values(), self._turn, self._turn + SCANNED):
            self._turn += 1
            known = self._recorded.get(entry.job.id)
            if entry.state not in _WAITS or entry.problem() or not self._short(entry):
                continue
            if len(self._recorded) < MOST_OPEN if known is None else wall >= known.due:
                chosen.append(entry)
                if len(chosen) == SAMPLED:
                    break
        return chosen

    def _projections(self, entries: Sequence[Entry], wall: float, *, age_s: float = 0.0) -> dict[JobId, Projection]:
        ahead = {entry.job.id: self._ahead(entry) for entry in entries}
        return self._runner.projections(ahead, entries, self._queues.all(), self._leaving(), wall, age_s=age_s)

    def _ahead(self, entry: Entry) -> int:
        """Cards requested by waiting jobs that precede it in its queue, or have a higher priority. Of many jobs each n-th is counted, n times."""
        queue, entries = entry.job.queue, self._queue.entries
        step = len(entries) // COUNTED + 1
        return step * sum(
            _cards(other)
            for other in islice(entries.values(), 0, None, step)
            if other.state in _WAITS
            and other.order < entry.order
            and (other.job.queue == queue or other.job.priority > entry.job.priority)
        )


def _base_s(entry: Entry, found: Projection, wall: float) -> float:
    return found.wait_s + LEAST_S + WAITED * max(0.0, wall - entry.job.created_at)


def _cards(entry: Entry) -> int:
    return sum(len(pods) * task.cards.count for task, pods in entry.pending if task.cards is not None)
