"""What queues ask for: what their jobs wait for, beside what their claims hold. Kept only where queues have shares by weight (`weightshares`).

By job-controller's word alone (`records`), never a plan's. A pod that has a claim holds, and waits no more, though its job's news may be older: pods count by
uid. What was taken from a queue counts as asked for by it for a while after its pods are gone (GRACE_S): whoever makes them anew needs a moment, and in it
others would be entitled to more, and give it back a second later.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hbox_common.model import JobDemand, JobId, JobTerms, PodUid, QueueName, Resources, is_host_port, is_offline
from hbox_common.model.resources import add

#: For which what was taken back counts as asked for.
GRACE_S = 30.0


@dataclass(slots=True)
class Demand:
    """`claimed`: whether a pod has a live claim."""

    claimed: Callable[[PodUid], bool]
    version: int = 0  #: rises with every change of `waiting`
    waiting: dict[QueueName, Resources] = field(default_factory=dict)
    _jobs: dict[JobId, tuple[PodUid, ...]] = field(default_factory=dict)
    #: of these jobs, with claims or without; a pod that comes to another job is of the one that was told of last
    _pods: dict[PodUid, tuple[JobId, QueueName, Resources]] = field(default_factory=dict)
    _taken: deque[tuple[float, QueueName, Resources]] = field(default_factory=deque)  #: until when

    def put(self, job: JobTerms) -> None:
        """A job as it is now."""
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
        """It waits for nothing any more."""
        for pod in self._jobs.pop(job, ()):
            if (found := self._pods.get(pod)) is not None and found[0] == job:
                self._forget(pod)

    def _forget(self, pod: PodUid) -> None:
        found = self._pods.pop(pod, None)
        if found is not None and not self.claimed(pod):
            self._count(*found[1:], -1)

    def entered(self, pod: PodUid) -> None:
        """The pod has a claim now, and had none."""
        if (found := self._pods.get(pod)) is not None:
            self._count(*found[1:], -1)

    def left(self, pod: PodUid) -> None:
        """The pod has no claim any more."""
        if (found := self._pods.get(pod)) is not None:
            self._count(*found[1:], 1)

    def taken(self, queue: QueueName, amounts: Resources, now: float) -> None:
        """So much was taken from the queue for others, and is gone."""
        self._taken.append((now + GRACE_S, queue, dict(amounts)))
        self._count(queue, amounts, 1)

    def pass_(self, now: float) -> None:
        """What was taken a while ago is asked for no more, unless somebody does."""
        while self._taken and self._taken[0][0] <= now:
            _, queue, amounts = self._taken.popleft()
            self._count(queue, amounts, -1)

    def with_claims(self, claimed: Callable[[PodUid], bool]) -> "Demand":
        """The same jobs, over other books."""
        fresh = Demand(claimed, self.version + 1, _jobs=self._jobs, _pods=self._pods, _taken=self._taken)
        for pod, (_, queue, amounts) in self._pods.items():
            if not claimed(pod):
                fresh._count(queue, amounts, 1)
        for _, queue, amounts in self._taken:
            fresh._count(queue, amounts, 1)
        return fresh

    def validate(self) -> None:
        """Raises AssertionError where a sum is not what counting gives."""
        counted = self.with_claims(self.claimed).waiting
        assert _solid(counted.items()) == _solid(self.waiting.items())

    def _count(self, queue: QueueName, amounts: Resources, times: int) -> None:
        if times:
            add(self.waiting.setdefault(queue, {}), amounts, times)
            self.version += 1


def _solid(sums: Iterable[tuple[QueueName, Resources]]) -> dict[QueueName, Resources]:
    clean = {queue: {name: units for name, units in amounts.items() if units} for queue, amounts in sums}
    return {queue: amounts for queue, amounts in clean.items() if amounts}
