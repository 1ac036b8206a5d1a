"""Headlines of jobs that wait stay true when nothing activates the jobs: no node has to become free for the reason of a wait to change.

Jobs of one class wait for the same thing. One of each class is judged again every REVIEW_S seconds if the state has changed, and the class's other jobs take
its verdict if theirs has another code; the first of them also if its message differs. Jobs that are not tried, for a reason that passes, are judged again one
by one.
"""

from collections import OrderedDict

from hbox_common.events import JobVerdict
from hbox_common.model import JobId

from ..protocol.inflight import Verdicts
from ..queueing.jobs import Entry, JobState
from ..queueing.unschedulable import REVIEW_EVERY_S, REVIEW_S, REVIEWED
from .context import SchedulerContext


class HeadlineReviews:
    """Of one scheduler."""

    def __init__(self, context: SchedulerContext, verdicts: Verdicts) -> None:
        self._queue, self._unschedulable, self._verdicts = context.queue, context.unschedulable, verdicts
        self._reviewed: set[JobId] = set()  #: jobs that are judged again for their class, until the verdict
        #: jobs that are not tried, by their last judgement, the oldest first: when, and in which state of the cluster
        self._blocked: OrderedDict[JobId, tuple[float, tuple[int, ...]]] = OrderedDict()
        self._after = float("-inf")  #: the next review is not before

    def activate(self, now: float, state: tuple[int, ...]) -> None:
        """Activate the jobs that are judged again now."""
        if now < self._after:
            return
        found = self._unschedulable.review(self._queue.entries, now, state)
        self._reviewed.update(entry.job.id for entry in found)
        while len(found) < REVIEWED and (at := self._blocked_at(state)) is not None and at <= now:
            job, _ = self._blocked.popitem(last=False)
            entry = self._queue.entries.get(job)
            if entry is not None and entry.state is JobState.UNSCHEDULABLE:
                found.append(entry)
        for entry in found:
            self._after = now + REVIEW_EVERY_S
            self._queue.activate(entry)

    def next_at(self, state: tuple[int, ...]) -> list[float]:
        """When `activate` has something next."""
        times = (self._unschedulable.review_at(state), self._blocked_at(state))
        return [max(at, self._after) for at in times if at is not None]

    def _blocked_at(self, state: tuple[int, ...]) -> float | None:
        at, last = next(iter(self._blocked.values()), (0.0, state))
        return None if last == state else at + REVIEW_S

    def failed(self, entry: Entry, verdict: JobVerdict, now: float, state: tuple[int, ...]) -> bool:
        """The job waits on, in the class of its equivalence key if it is in one. Returns whether it was tried only for its headline."""
        reviewed = entry.job.id in self._reviewed
        self.left(entry.job.id)
        if entry.state is not JobState.UNSCHEDULABLE or entry.key is None:
            return reviewed
        most = self._unschedulable.judged(entry, verdict.code, verdict.message, now, state, reviewed=reviewed)
        if most != 0:
            for job in self._unschedulable.equals(entry, self._queue.entries, most):
                if most is not None or self._verdicts.code_of(job) != verdict.code:
                    self._verdicts.put(verdict.model_copy(update={"job": job}), now)
        return reviewed

    def blocked(self, entry: Entry, now: float, state: tuple[int, ...]) -> None:
        """The job was not tried."""
        self.left(entry.job.id)
        self._blocked[entry.job.id] = now, state

    def left(self, job: JobId) -> None:
        """The job waits no more."""
        self._reviewed.discard(job)
        self._blocked.pop(job, None)
