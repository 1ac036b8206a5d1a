"""Jobs that wait in vain and are all alike: the first of them stand for the others.

Of jobs that no rule tells apart but by their age, the oldest is served first, and while one of them finds no place none of the younger ones does: within one
look places only become fewer. So a look at a crowd needs as many of its jobs as all nodes could hold by sums of resources, and one more: that one fails, and
its reasons are everybody's. The others stay where they are, and are counted where what waits is summed up (`Gang.behind`).

Of a crowd are jobs of the same queue, namespace and priority that ask for the same, start with as many pods, say the same in notes, and whose pods
have nothing to do with others'. A job with places of its own is in no crowd.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from hbox_common.events import JobVerdict
from hbox_common.model import Job, JobId, Neighbour, PodUid

from .jobs import Entry, JobState, Order
from .state import Bookings, Columns
from .task import Task

#: What its jobs have in common.
Likeness: TypeAlias = tuple[object, ...]


@dataclass(slots=True, eq=False)
class Crowd:
    """`waiting`: a heap; orders of jobs that are not `members` any more are passed over."""

    tasks: tuple[Task, ...]
    need: int
    waiting: list[Order] = field(default_factory=list)
    members: dict[JobId, Job] = field(default_factory=dict)  #: as they were when they joined
    verdict: JobVerdict | None = None  #: of the first of them that was tried last
    told_at: float = float("-inf")  #: when all others were told a verdict
    untold: bool = False  #: the others have not been told this one
    failed: Order | None = None  #: who was tried in vain in this cycle, the first of them


class Crowds:
    """All of one scheduler. `reserves_from`: gangs that start with so many pods may have nodes set aside for them, and for nobody like them; None: none may."""

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
        self._crowds: dict[Likeness, Crowd] = {}
        self._of: dict[JobId, Likeness] = {}
        self._pods: dict[PodUid, JobId] = {}
        self._looked = False

    def __bool__(self) -> bool:
        return bool(self._crowds)

    def begin(self) -> None:
        """A cycle begins: nobody was tried in it."""
        self._looked = False
        for crowd in self._crowds.values():
            crowd.failed = None

    # Joining and leaving.

    def join(self, entry: Entry, verdict: JobVerdict) -> bool:
        """The job was tried in vain. False: no other can be like it."""
        job, likeness = entry.job, self._likeness(entry)
        if self._of.get(job.id) != likeness:
            self.leave(job.id)
        if likeness is None:
            return False
        crowd = self._crowds.get(likeness)
        if crowd is None:
            crowd = self._crowds[likeness] = Crowd(tuple(task for task, _ in entry.pending), max(entry.need, 1))
        if job.id not in crowd.members:
            heappush(crowd.waiting, entry.order)
            self._of[job.id] = likeness
            self._pods.update((pod.uid, job.id) for _, pods in entry.pending for pod in pods)
        crowd.members[job.id] = job
        if crowd.failed is None or entry.order < crowd.failed:
            crowd.failed = entry.order
            if crowd.verdict is None or not _says_the_same(crowd.verdict, verdict):
                crowd.untold = crowd.verdict is not None
                crowd.verdict = verdict
        return True

    def leave(self, job: JobId) -> bool:
        """Whether it was in a crowd."""
        likeness = self._of.pop(job, None)
        if likeness is None:
            return False
        crowd = self._crowds[likeness]
        left = crowd.members.pop(job)
        for spec in left.tasks:
            for pod in spec.pods:
                self._pods.pop(pod.uid, None)
        if not crowd.members:
            del self._crowds[likeness]
        return True

    def of_pod(self, pod: PodUid) -> JobId | None:
        """Whose pod this is, if the job is in a crowd."""
        return self._pods.get(pod)

    # Looks.

    def stand_ins(self, leaving: Iterable[PodUid]) -> Iterator[Entry]:
        """Who is to be looked at in this cycle, once: of each crowd the first ones. `leaving`: pods that go."""
        if self._looked:
            return
        self._looked = True
        room = _Room(self._columns, self._bookings, leaving)
        for crowd in list(self._crowds.values()):
            if crowd.failed is None:
                yield from self._first(crowd, room)

    def vain(self, entry: Entry) -> JobVerdict | None:
        """Why the job would be tried in vain: one that is like it and comes before it was, in this cycle."""
        if not self._crowds or (likeness := self._likeness(entry)) is None:
            return None
        crowd = self._crowds.get(likeness)
        if crowd is None or crowd.failed is None or crowd.verdict is None or not crowd.failed < entry.order:
            return None
        return crowd.verdict.model_copy(update={"job": entry.job.id})

    def behind(self, tried: Iterable[Entry]) -> dict[JobId, Sequence[float]]:
        """For one job of each crowd among those that are tried, when the others of its crowd were made that are not."""
        shown: dict[Likeness, list[JobId]] = {}
        for entry in tried:
            if (likeness := self._of.get(entry.job.id)) is not None:
                shown.setdefault(likeness, []).append(entry.job.id)
        found: dict[JobId, Sequence[float]] = {}
        for likeness, jobs in shown.items():
            members = self._crowds[likeness].members
            if len(jobs) < len(members):
                seen = set(jobs)
                found[jobs[0]] = [job.created_at for id, job in members.items() if id not in seen]
        return found

    def like(self, job: JobId) -> Iterable[JobId]:
        """All of its crowd."""
        likeness = self._of.get(job)
        return self._crowds[likeness].members if likeness is not None else ()

    # Telling.

    def news(self, now: float) -> Iterator[JobVerdict]:
        """Verdicts for those who were not tried, where their crowd's has changed."""
        for crowd in self._crowds.values():
            if crowd.untold and crowd.verdict is not None and now >= crowd.told_at + self._every_s:
                crowd.untold, crowd.told_at = False, now
                said = crowd.verdict
                entries = [self._entries.get(job) for job in crowd.members]
                parked = [entry.job.id for entry in entries if entry is not None and entry.state is JobState.PARKED]
                yield from [said.model_copy(update={"job": job}) for job in parked]

    def next_at(self) -> list[float]:
        """When there is `news`."""
        return [crowd.told_at + self._every_s for crowd in self._crowds.values() if crowd.untold]

    def _first(self, crowd: Crowd, room: "_Room") -> list[Entry]:
        count = 1 if len(crowd.members) == 1 else sum(map(room.pods, crowd.tasks)) // crowd.need + 1
        found: list[Entry] = []
        while crowd.waiting and len(found) < count:
            order = heappop(crowd.waiting)
            entry = self._entries.get(order[2])
            if order[2] not in crowd.members or entry is None or entry.order != order or (found and found[-1] is entry):
                continue
            if entry.state in _WAITING:
                found.append(entry)
            else:  # it has a place, or is promised one, or waits for an answer
                self.leave(entry.job.id)
        for entry in found:
            heappush(crowd.waiting, entry.order)
        return [entry for entry in found if entry.state is JobState.PARKED]

    def _likeness(self, entry: Entry) -> Likeness | None:
        """Of a job that was looked at; None where it may be like no other."""
        job, known = entry.job, self._neighbours
        if job.bound or entry.held or job.together or entry.problem():
            return None
        if (reserving := self._reserves_from()) is not None and entry.need >= reserving:
            return None
        if known and any(pod.uid in known for _, pods in entry.pending for pod in pods):
            return None
        notes = [(spec.name, tuple(sorted(spec.notes.items()))) for spec in job.tasks if spec.notes]
        return (
            job.queue,
            job.namespace,
            job.priority,
            job.preemptable,
            entry.need,
            tuple((task, len(pods)) for task, pods in entry.pending),
            tuple(sorted(job.notes.items())),
            tuple(notes),
        )


class _Room:
    """No more pods than these have places, by sums of resources, once all that leaves has left."""

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


_WAITING = (JobState.PARKED, JobState.EAGER)

#: What a node takes of pods that ask for nothing.
_NO_LIMIT = 1 << 30


def _says_the_same(one: JobVerdict, other: JobVerdict) -> bool:
    return (one.message, one.nodes, one.reasons, one.sole) == (other.message, other.nodes, other.reasons, other.sole)
