"""Headlines of jobs that wait stay true when nothing activates the jobs: no node has to become free for the reason of a wait to change.

Jobs of one class wait for the same thing. One of each class is judged again every REVIEW_S seconds if the state has changed; if its code is another one than
before, the class's other jobs with the former code take its verdict.
"""

from hbox_common.events import JobVerdict
from hbox_common.model import JobId

from ..protocol.inflight import Verdicts
from ..queueing.jobs import Entry, JobState
from ..queueing.unschedulable import REVIEW_EVERY_S
from .context import SchedulerContext


class HeadlineReviews:
    """Of one scheduler."""

    def __init__(self, context: SchedulerContext, verdicts: Verdicts) -> None:
        self._queue, self._unschedulable, self._verdicts = context.queue, context.unschedulable, verdicts
        self._codes: dict[JobId, str] = {}  #: of jobs that are judged again: what was published
        self._after = float("-inf")  #: the next review is not before

    def activate(self, now: float, state: tuple[int, ...]) -> None:
        """Activate the jobs that are judged again now."""
        if now < self._after:
            return
        for entry in self._unschedulable.review(self._queue.entries, now, state):
            self._after = now + REVIEW_EVERY_S
            if (code := self._verdicts.code_of(entry.job.id)) is not None:
                self._codes[entry.job.id] = code
            self._queue.activate(entry)

    def next_at(self, state: tuple[int, ...]) -> list[float]:
        """When `activate` has something next."""
        at = self._unschedulable.review_at(state)
        return [] if at is None else [max(at, self._after)]

    def failed(self, entry: Entry, verdict: JobVerdict, now: float, state: tuple[int, ...]) -> bool:
        """The job waits on, in the class of its equivalence key if it is in one. Returns whether it was tried only for its headline."""
        reviewed = entry.job.id in self._codes
        before = self._codes.pop(entry.job.id, verdict.code)
        if entry.state is not JobState.UNSCHEDULABLE or entry.key is None:
            return reviewed
        self._unschedulable.judged(entry, now, state)
        if verdict.code != before:
            for job in self._unschedulable.equals(entry, self._queue.entries):
                if self._verdicts.code_of(job) == before:
                    self._verdicts.put(verdict.model_copy(update={"job": job}), now)
        return reviewed

    def left(self, job: JobId) -> None:
        """The job waits no more."""
        self._codes.pop(job, None)
