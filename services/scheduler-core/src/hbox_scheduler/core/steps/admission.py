"""Admission of PodGroups by the action `enqueue`: those with `minResources` wait, with pods or without, until the policy's plugins admit them.

The action runs in a session over all that runs, all that was admitted, and the jobs that wait: the same code as `hbox simulate cycle`. Admissions are
published to job-controller, and again until it acknowledges them.
"""

from collections.abc import Iterable

from hbox_common.events import JobVerdict
from hbox_common.model import GroupState, JobId

from ..protocol.inflight import Verdicts
from ..queueing.backoff import SessionBackoff
from ..queueing.groups import Groups
from ..queueing.jobs import Entry, JobState
from .context import SchedulerContext
from .nominations import Nominations


class Admission:
    """`groups`: the states of PodGroups; `nominations`: pods that leave already."""

    def __init__(self, context: SchedulerContext, *, groups: Groups, verdicts: Verdicts, nominations: Nominations) -> None:
        self._groups = groups
        self._verdicts = verdicts
        self._nominations = nominations
        self._runner = context.runner
        self._bookings = context.bookings
        self._queue = context.queue
        self._queues = context.queues
        self._limits = context.limits
        self._backoff = SessionBackoff(context.limits.session_every_s, context.limits.session_max_s)
        self._publish_at: dict[JobId, float] = {}  #: admissions to publish, and when

    @property
    def on(self) -> bool:
        """Whether the policy has the action `enqueue`."""
        return self._groups.enqueues

    def update(self, groups: Iterable[GroupState], touched: int) -> None:
        """Take states of PodGroups. `touched`: the count of messages about jobs."""
        for group in groups:
            if self._groups.update(group, touched):
                self._settle(group.id)

    def keep_only(self, named: Iterable[JobId], since: int) -> None:
        """Drop all PodGroups but `named` and those updated after the mark `since`."""
        for job in self._groups.keep_only(set(named), since):
            self._settle(job)
        self._publish_at.update(dict.fromkeys(self._groups.unacknowledged(), float("-inf")))

    def invalidate(self) -> None:
        """Something changed by which a PodGroup may be admitted now."""
        self._backoff.retry_soon()

    def follow(self, *, enqueues: bool) -> None:
        """Whether the policy has the action `enqueue` from now on."""
        if self._groups.enqueues is not enqueues:
            self._groups.enqueues = enqueues
            for job in self._groups.ids():
                self._settle(job)
        self.invalidate()

    def run(self, now: float) -> tuple[list[JobId], bool]:
        """At the beginning of a cycle: the admissions to publish, and whether some of them were published before and not acknowledged."""
        if not self._groups.enqueues:
            return [], False
        if self._backoff.due(now) and (waiting := list(self._groups.waiting())):
            times = max(1.0, len(waiting) / self._limits.session_jobs)
            self._backoff.least_s, self._backoff.most_s = (
                times * self._limits.session_every_s,
                times * self._limits.session_max_s,
            )
            self._backoff.record(now, success=self._judge(waiting, now))
        due = [job for job, at in self._publish_at.items() if at <= now]
        again = any(self._publish_at[job] > float("-inf") for job in due)
        self._publish_at.update(dict.fromkeys(due, now + self._limits.resend_after_s))
        return due, again

    def next_at(self) -> list[float]:
        """When `run` has something next."""
        if not self._groups.enqueues:
            return []
        return [*([self._backoff.next_at] if any(self._groups.waiting()) else []), *self._publish_at.values()]

    def _judge(self, waiting: list[GroupState], now: float) -> bool:
        """Judge the PodGroups that wait. Returns whether one is admitted."""
        success = False
        judged = {group.id: self._queues.closed(group.queue, group.namespace) for group in waiting}
        asking = [group.id for group in waiting if not judged[group.id]]
        if asking:
            judged |= self._runner.enqueue(asking, self._entries(set(judged)), self._queues.all(), self._nominations)
        for job, why in judged.items():
            if why:
                self._groups.reject(job, why)
                self._verdicts.put(JobVerdict(job=job, message=self._groups.blocked_reason(job)), now)
            else:
                self._groups.admit(job)
                self._verdicts.drop(job)
                self._publish_at[job] = float("-inf")
                success = True
            if (entry := self._queue.entries.get(job)) is not None:
                self._queue.recheck_blocked(entry)
        return success

    def _entries(self, outside: set[JobId]) -> list[Entry]:
        """Jobs with pending pods: those that wait for admission, and the first of the others; `Limits.session_jobs` at most."""
        entries = [entry for entry in self._queue.entries.values() if entry.state in (JobState.ACTIVE, JobState.UNSCHEDULABLE)]
        entries.sort(key=lambda entry: (entry.job.id not in outside, entry.order))
        chosen: list[Entry] = []
        for entry in entries:
            entry.update_pending(self._bookings)
            if entry.pending and (entry.job.id in outside or not entry.problem()):
                chosen.append(entry)
            if len(chosen) >= self._limits.session_jobs:
                break
        return chosen

    def _settle(self, job: JobId) -> None:
        """The state of the PodGroup changed."""
        if job in self._groups.unacknowledged():
            self._publish_at[job] = float("-inf")
        else:
            self._publish_at.pop(job, None)
        entry = self._queue.entries.get(job)
        admitted = not self._groups.blocked_reason(job) if entry is None else self._queue.recheck_blocked(entry)
        if admitted:
            self._verdicts.drop(job)
        elif entry is None:
            self._verdicts.republish(job)
        self.invalidate()
