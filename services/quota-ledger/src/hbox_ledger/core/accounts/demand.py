"""Demand of queues: what their jobs wait for, in addition to what their claims hold. Counted only if queues have shares by weight (`weightshares`).

Demand comes from job-controller (`records`), never from plans. A pod that has a claim no longer waits, even if its job's last message is older: pods count by
uid. What was reclaimed from a queue counts as its demand for GRACE_S after the pods are gone, because their controller needs a moment to recreate them;
otherwise other queues would be entitled to more, and would give it back a second later.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hbox_common.model import JobDemand, JobId, JobTerms, PodUid, QueueName, Resources, is_host_port, is_offline
from hbox_common.model.resources import add

#: Seconds for which reclaimed amounts count as demand.
GRACE_S = 30.0


@dataclass(slots=True)
class Demand:
    """`claimed`: whether a pod has a live claim."""

    claimed: Callable[[PodUid], bool]
    version: int = 0  #: incremented with every change of `waiting`
    waiting: dict[QueueName, Resources] = field(default_factory=dict)
    _jobs: dict[JobId, tuple[PodUid, ...]] = field(default_factory=dict)
    #: pods of the recorded jobs, with or without claims; a pod that appears in two jobs belongs to the one reported last
    _pods: dict[PodUid, tuple[JobId, QueueName, Resources]] = field(default_factory=dict)
    _taken: deque[tuple[float, QueueName, Resources]] = field(default_factory=deque)  #: with the time of expiry

    def put(self, job: JobTerms) -> None:
        """Record a job's current state."""
        self.drop(job.id)
        if not isinstance(job, JobDemand) or not job.tasks or is_offline(job.priority_class):
            return
        self._jobs[job.id] = tuple(pod.uid for task in job.tasks for pod in task.pods)
        for task in job.tasks:
            amounts = {name: units for name, units in task.requests.items() if units > 0 and not is_host_port(name)}
            waiting = 0
            for pod in task.pods:
                self._forget(pod.uid)
                self._pods[pod.uid] = job.id, job.queue, amounts
                waiting += not self.claimed(pod.uid)
            self._count(job.queue, amounts, waiting)

    def drop(self, job: JobId) -> None:
        """Drop a job that no longer waits."""
        for pod in self._jobs.pop(job, ()):
            if (found := self._pods.get(pod)) is not None and found[0] == job:
                self._forget(pod)

    def _forget(self, pod: PodUid) -> None:
        found = self._pods.pop(pod, None)
        if found is not None and not self.claimed(pod):
            self._count(*found[1:], -1)

    def entered(self, pod: PodUid) -> None:
        """Note that the pod got a claim."""
        if (found := self._pods.get(pod)) is not None:
            self._count(*found[1:], -1)

    def left(self, pod: PodUid) -> None:
        """Note that the pod lost its claim."""
        if (found := self._pods.get(pod)) is not None:
            self._count(*found[1:], 1)

    def taken(self, queue: QueueName, amounts: Resources, now: float) -> None:
        """Count amounts that were reclaimed from the queue for other queues."""
        self._taken.append((now + GRACE_S, queue, dict(amounts)))
        self._count(queue, amounts, 1)

    def pass_(self, now: float) -> None:
        """Expire reclaimed amounts: they no longer count as demand."""
        while self._taken and self._taken[0][0] <= now:
            _, queue, amounts = self._taken.popleft()
            self._count(queue, amounts, -1)

    def with_claims(self, claimed: Callable[[PodUid], bool]) -> "Demand":
        """The same jobs, for other books."""
        fresh = Demand(claimed, self.version + 1, _jobs=self._jobs, _pods=self._pods, _taken=self._taken)
        for pod, (_, queue, amounts) in self._pods.items():
            if not claimed(pod):
                fresh._count(queue, amounts, 1)
        for _, queue, amounts in self._taken:
            fresh._count(queue, amounts, 1)
        return fresh

    def validate(self) -> None:
        """Raises AssertionError if a sum differs from a recount."""
        counted = self.with_claims(self.claimed).waiting
        assert _solid(counted.items()) == _solid(self.waiting.items())

    def _count(self, queue: QueueName, amounts: Resources, times: int) -> None:
        if times:
            add(self.waiting.setdefault(queue, {}), amounts, times)
            self.version += 1


def _solid(sums: Iterable[tuple[QueueName, Resources]]) -> dict[QueueName, Resources]:
    clean = {queue: {name: units for name, units in amounts.items() if units} for queue, amounts in sums}
    return {queue: amounts for queue, amounts in clean.items() if amounts}
