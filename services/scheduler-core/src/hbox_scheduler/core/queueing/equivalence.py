"""Equivalence classes of jobs that sessions could not place: the first jobs of a class represent the others.

Among jobs that differ only by age, the oldest is served first. If it finds no place, neither does a younger one, since free resources only shrink within a
session. So a session needs as many jobs of a class as all nodes could hold by sums of resources, and one more: that one fails, and its reasons hold for the
rest. The others stay unschedulable, and plugins that sum up pending work count them by `Gang.represented`.

A class has jobs of the same queue, namespace and priority with equal requests, equal minimum numbers of pods and equal annotations, whose pods have no
constraints about other pods. A job with bound pods is in no class.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from hbox_common.events import JobVerdict
from hbox_common.model import Job, JobId, Neighbour, PodUid

from ..cluster import Bookings, Columns
from ..cluster.task import Task
from .jobs import Entry, JobState, Order

#: What its jobs have in common.
SchedulingSignature: TypeAlias = tuple[object, ...]


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """`waiting`: a heap; orders of jobs that are not `members` any more are passed over."""

    tasks: tuple[Task, ...]
    need: int
    waiting: list[Order] = field(default_factory=list)
    members: dict[JobId, Job] = field(default_factory=dict)  #: as they were when they joined
    verdict: JobVerdict | None = None  #: of the first of them that was tried last
    published_at: float = float("-inf")  #: when a verdict of the class was published for all of it
    unpublished: bool = False  #: `verdict` is not published for the others yet
    failed: Order | None = None  #: the first job of the class that failed in this cycle


class EquivalenceClasses:
    """All classes. `reserves_from`: gangs that start with so many pods may have nodes reserved for them alone, and are in no class; None: no plugin
    reserves."""

    def __init__(
        self,
        columns: Columns,
        bookings: Bookings,
        entries: Mapping[JobId, Entry],
        neighbours: Mapping[PodUid, Neighbour],
        *,
        every_s: float,
        reserves_from: Callable[[], int | None],
    ) -> None:
        """`every_s`: between two verdicts for all."""
        self._columns = columns
        self._bookings = bookings
        self._entries = entries
        self._neighbours = neighbours
        self._every_s = every_s
        self._reserves_from = reserves_from
        self._classes: dict[SchedulingSignature, EquivalenceClass] = {}
        self._of: dict[JobId, SchedulingSignature] = {}
        self._pods: dict[PodUid, JobId] = {}
        self._chosen = False

    def __bool__(self) -> bool:
        return bool(self._classes)

    def begin_cycle(self) -> None:
        """At the beginning of a cycle, forget the attempts of the last one."""
        self._chosen = False
        for group in self._classes.values():
            group.failed = None

    # Membership.

    def add(self, entry: Entry, verdict: JobVerdict) -> bool:
        """Take a job that failed, with its verdict. False: it belongs to no class."""
        job, signature = entry.job, self._signature_of(entry)
        if self._of.get(job.id) != signature:
            self.remove(job.id)
        if signature is None:
            return False
        group = self._classes.get(signature)
        if group is None:
            group = self._classes[signature] = EquivalenceClass(tuple(task for task, _ in entry.pending), max(entry.need, 1))
        if job.id not in group.members:
            heappush(group.waiting, entry.order)
            self._of[job.id] = signature
            self._pods.update((pod.uid, job.id) for _, pods in entry.pending for pod in pods)
        group.members[job.id] = job
        if group.failed is None or entry.order < group.failed:
            group.failed = entry.order
            if group.verdict is None or not _same_message(group.verdict, verdict):
                group.unpublished = group.verdict is not None
                group.verdict = verdict
        return True

    def remove(self, job: JobId) -> bool:
        """Whether it was in a class."""
        signature = self._of.pop(job, None)
        if signature is None:
            return False
        group = self._classes[signature]
        left = group.members.pop(job)
        for spec in left.tasks:
            for pod in spec.pods:
                self._pods.pop(pod.uid, None)
        if not group.members:
            del self._classes[signature]
        return True

    def jobs(self) -> list[JobId]:
        """All jobs that are in a class."""
        return list(self._of)

    def of_pod(self, pod: PodUid) -> JobId | None:
        """Whose pod this is, if the job is in a class."""
        return self._pods.get(pod)

    # Representatives.

    def representatives(self, leaving: Iterable[PodUid]) -> Iterator[Entry]:
        """The first jobs of each class, once a cycle: those that have to be tried. `leaving`: pods that will have left."""
        if self._chosen:
            return
        self._chosen = True
        bound = CapacityBound(self._columns, self._bookings, leaving)
        for group in list(self._classes.values()):
            if group.failed is None:
                yield from self._first(group, bound)

    def verdict_of_equal(self, entry: Entry) -> JobVerdict | None:
        """The verdict of an equal job that comes before this one and failed in this cycle; None: the job has to be tried."""
        if not self._classes or (signature := self._signature_of(entry)) is None:
            return None
        group = self._classes.get(signature)
        if group is None or group.failed is None or group.verdict is None or not group.failed < entry.order:
            return None
        return group.verdict.model_copy(update={"job": entry.job.id})

    def represented(self, tried: Iterable[Entry]) -> dict[JobId, Sequence[float]]:
        """For one tried job of each class, the creation times of the jobs of the class that are not tried."""
        shown: dict[SchedulingSignature, list[JobId]] = {}
        for entry in tried:
            if (signature := self._of.get(entry.job.id)) is not None:
                shown.setdefault(signature, []).append(entry.job.id)
        found: dict[JobId, Sequence[float]] = {}
        for signature, jobs in shown.items():
            members = self._classes[signature].members
            if len(jobs) < len(members):
                seen = set(jobs)
                found[jobs[0]] = [job.created_at for id, job in members.items() if id not in seen]
        return found

    def equals(self, job: JobId) -> Iterable[JobId]:
        """All of its class."""
        signature = self._of.get(job)
        return self._classes[signature].members if signature is not None else ()

    # Verdicts.

    def changed_verdicts(self, now: float) -> Iterator[JobVerdict]:
        """Verdicts for jobs that were represented, where the verdict of their class has changed."""
        for group in self._classes.values():
            if group.unpublished and group.verdict is not None and now >= group.published_at + self._every_s:
                group.unpublished, group.published_at = False, now
                verdict = group.verdict
                entries = [self._entries.get(job) for job in group.members]
                unschedulable = [
                    entry.job.id for entry in entries if entry is not None and entry.state is JobState.UNSCHEDULABLE
                ]
                yield from [verdict.model_copy(update={"job": job}) for job in unschedulable]

    def next_at(self) -> list[float]:
        """When `changed_verdicts` has something next."""
        return [group.published_at + self._every_s for group in self._classes.values() if group.unpublished]

    def _first(self, group: EquivalenceClass, bound: "CapacityBound") -> list[Entry]:
        count = 1 if len(group.members) == 1 else sum(map(bound.pods, group.tasks)) // group.need + 1
        found: list[Entry] = []
        while group.waiting and len(found) < count:
            order = heappop(group.waiting)
            entry = self._entries.get(order[-1])
            if order[-1] not in group.members or entry is None or entry.order != order or (found and found[-1] is entry):
                continue
            if entry.state in _WAITING:
                found.append(entry)
            else:  # it has a place, or is nominated one, or waits for an answer
                self.remove(entry.job.id)
        for entry in found:
            heappush(group.waiting, entry.order)
        return [entry for entry in found if entry.state is JobState.UNSCHEDULABLE]

    def _signature_of(self, entry: Entry) -> SchedulingSignature | None:
        """The signature of an examined job; None if it may be unlike any other."""
        job, known = entry.job, self._neighbours
        if job.bound or entry.held or job.together or entry.problem():
            return None
        if (reserving := self._reserves_from()) is not None and entry.need >= reserving:
            return None
        if known and any(pod.uid in known for _, pods in entry.pending for pod in pods):
            return None
        annotations = [(spec.name, tuple(sorted(spec.annotations.items()))) for spec in job.tasks if spec.annotations]
        return (
            job.queue,
            job.namespace,
            job.priority,
            job.priority_class,
            job.preemptable,
            entry.need,
            tuple((task, len(pods)) for task, pods in entry.pending),
            tuple(sorted(job.annotations.items())),
            tuple(annotations),
        )


class CapacityBound:
    """Upper bound of the pods of a task that fit, by sums of resources, once all that leaves has left."""

    def __init__(self, columns: Columns, bookings: Bookings, leaving: Iterable[PodUid]) -> None:
        self._columns = columns
        self._free = columns.allocatable[:, : columns.size] - columns.used[:, : columns.size]
        for pod in leaving:
            booking = bookings.get(pod)
            row = columns.row_of.get(booking.node) if booking is not None else None
            if booking is not None and row is not None:
                for name, units in booking.requests.items():
                    if name in columns.resources:
                        self._free[columns.resources[name], row] += units
        self._known: dict[Task, int] = {}

    def pods(self, task: Task) -> int:
        found = self._known.get(task)
        if found is None:
            columns = self._columns
            least = np.full(columns.size, _NO_LIMIT, dtype=np.int64)
            for column, units in task.amount:
                np.minimum(least, self._free[column] // units, out=least)
            found = self._known[task] = int(np.maximum(least, 0)[columns.alive[: columns.size]].sum())
        return found


_WAITING = (JobState.UNSCHEDULABLE, JobState.ACTIVE)

#: What a node takes of pods that ask for nothing.
_NO_LIMIT = 1 << 30


def _same_message(one: JobVerdict, other: JobVerdict) -> bool:
    return one.model_copy(update={"job": other.job}) == other
