"""Cache of fully placed gangs across sessions, with sums over their members for plugins.

The service opens many sessions per second over all running pods, and few pods change in between. A cached gang is divided into sub-gangs and counted once; it
is part of `Session.gangs`, and sessions read its sums. A gang that a session may change other than by operations reported to the owner is not cached: the
session receives it like a pending one.

Placement reads only the sums, and most gangs are never inspected. So `expect` counts a gang when it arrives, and the first access builds it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from hbox_common.model import OFFLINE, JobId, QueueName, Resources
from hbox_common.model.resources import add

from .amounts import Asked
from .arrays import Ints
from .columns import Columns
from .entities import EVICTABLE, Gang, form_sub_gangs
from .placedpods import PlacedOrder
from .population import Population
from .runningtable import RunningJob, RunningPod, RunningTable
from .task import Task

#: Of members that count equally in every sum: as `Kind`, the task by identity.
KindKey: TypeAlias = tuple[QueueName, int, bool, bool, Asked, str]


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """The common attributes of members that count equally in every sum. It holds no member, because sessions modify members that are lent to them."""

    queue: QueueName
    task: Task
    request: Ints  #: `[R]`, as of `Member`
    preemptable: bool
    counts_minimum: bool  #: whether `enqueue` counts their gang with its minimum
    models: Asked  #: cards by model
    pool: str = ""  #: in which they count

    @property
    def account(self) -> str:
        """As of `Member`."""
        return OFFLINE if self.task.offline else self.pool


class Watcher(Protocol):
    """A plugin's state over these gangs that outlives a session."""

    def counted(self, kind: Kind, count: int) -> None:
        """`count` members of this kind were added; negative: removed."""
        ...

    def promised(self, queue: QueueName, minimum: Resources, times: int) -> None:
        """A gang that counts with its minimum was added (`times=1`) or removed (-1)."""
        ...


class RunningGangs:
    """Fully placed gangs. Callers must not change them during a session; a session publishes pending changes (`publish_changes`) when it opens."""

    def __init__(self, columns: Columns, make: Callable[[JobId], Gang] | None = None) -> None:
        """`make`: the gang of an expected job, as it is now."""
        self._gangs: dict[JobId, Gang] = {}
        self._expected: dict[JobId, None] = {}  #: counted, and not made yet
        self._make = make
        self._unqueued: dict[JobId, Gang | None] = {}
        self._expected_unqueued: dict[JobId, None] = {}  #: of them, those not made yet
        self._population = Population(columns, {})
        self.constrained = False  #: whether any member may want something of others
        self.minimums: dict[QueueName, Resources] = {}  #: sums of minimums, of gangs that count with them
        self.unmet: Resources = {}  #: what such gangs have less than their minimums, resource by resource
        self.watchers: dict[str, Watcher] = {}  #: by the plugin's name
        self._columns = columns
        self.requested: Ints = np.zeros(len(columns.allocatable), dtype=np.int64)  #: `[R]`, by all members
        self._by_kind: dict[KindKey, tuple[Kind, int]] = {}
        self._unpublished: dict[KindKey, tuple[Kind, int]] = {}  #: changes not yet published by `publish_changes`
        self._counted: dict[JobId, Counted] = {}
        self.queues: dict[QueueName, int] = {}  #: number of kinds by queue, of queues with members
        self.queues_changed: set[QueueName] = set()  #: those that joined `queues` or left it; the reader clears it
        self.table = RunningTable(len(columns.allocatable))  #: the pods of all cached gangs
        self.placed = PlacedOrder(columns, self.table)  #: the same in order of nodes

    @property
    def jobs(self) -> Set[JobId]:
        """The jobs of the cached gangs."""
        return self._counted.keys()

    @property
    def gangs(self) -> Mapping[JobId, Gang]:
        """All cached gangs; builds the expected ones."""
        for job in self._expected:
            assert self._make is not None
            self._enter(self._make(job))
        self._expected.clear()
        return self._gangs

    @property
    def population(self) -> Population:
        """All members of the gangs, and the pods outside them (`expect_unqueued`)."""
        self.gangs  # noqa: B018  # builds the expected gangs
        if self._expected_unqueued:
            assert self._make is not None
            for job in self._expected_unqueued:
                gang = self._unqueued[job] = self._make(job)
                self._population.put_all(gang.members)
            self._expected_unqueued.clear()
        return self._population

    def put(self, gang: Gang) -> None:
        """Add an admitted gang with a new id whose members are all placed. Every resource of its minimum must have a column."""
        assert gang.id not in self._counted
        self._enter(gang)
        self.constrained = self.constrained or any(member.constraints for member in gang.members)
        counted = self._counted[gang.id] = _counted(gang, self._columns)
        self._count(counted, 1)
        self.table.enter(*_as_running(gang))

    def expect(self, job: RunningJob, pods: Sequence[RunningPod], counted: "Counted") -> None:
        """As `put`, for a gang without minimum resources that is built later; `counted`: its sums."""
        self._expected[job.id] = None
        self._counted[job.id] = counted
        self._count(counted, 1)
        self.table.enter(job, pods)

    def gang_of(self, job: JobId) -> Gang:
        """The gang of one cached job; builds it if it is expected."""
        if job in self._expected:
            assert self._make is not None
            del self._expected[job]
            self._enter(self._make(job))
        return self._gangs[job]

    def built(self, job: JobId) -> Gang | None:
        """The gang of a cached job; None if there is none, or it was not built yet."""
        return self._gangs.get(job)

    def expect_unqueued(self, job: JobId) -> None:
        """Add a job without a queue: only inter-pod terms see its pods, and they are never evicted."""
        self._unqueued[job] = None
        self._expected_unqueued[job] = None

    def _enter(self, gang: Gang) -> None:
        form_sub_gangs(gang)
        gang.tally()
        self._gangs[gang.id] = gang
        self._population.put_all(gang.members)

    def take(self, job: JobId) -> Gang | None:
        """Remove the job's gang and return it; None if there is none."""
        expected = job in self._expected
        gang = self._leave(job)
        if expected:
            assert self._make is not None
            gang = self._make(job)
        return gang

    def drop(self, job: JobId) -> None:
        """As `take`, for a gang that is no longer needed, or for a job without a queue."""
        if (gang := self._leave(job)) is not None:
            gang.dissolve()
        self._expected_unqueued.pop(job, None)
        if (gang := self._unqueued.pop(job, None)) is not None:
            self._population.take_all(gang.members)
            gang.dissolve()

    def _leave(self, job: JobId) -> Gang | None:
        if (counted := self._counted.pop(job, None)) is None:
            return None
        self._count(counted, -1)
        self.table.leave(job)
        self._expected.pop(job, None)
        gang = self._gangs.pop(job, None)
        if gang is not None:
            self._population.take_all(gang.members)
        return gang

    def publish_changes(self) -> None:
        """Update the sums and the watchers with the members added and removed since the last call, once per kind."""
        for kind, more in self._unpublished.values():
            if more:
                self.requested += more * kind.request
                for watcher in self.watchers.values():
                    watcher.counted(kind, more)
        self._unpublished.clear()

    def by_kind(self) -> Iterator[tuple[Kind, int]]:
        """Each kind of members with their number."""
        return iter(self._by_kind.values())

    def _count_queue(self, queue: QueueName, times: int) -> None:
        kinds = self.queues.get(queue, 0) + times
        if kinds in (0, times):
            self.queues_changed.add(queue)
        if kinds:
            self.queues[queue] = kinds
        else:
            del self.queues[queue]

    def _count(self, counted: "Counted", times: int) -> None:
        by_kind = self._by_kind
        for key, (kind, count) in counted.kinds.items():
            first, before = by_kind.get(key, (kind, 0))
            more = times * count
            if before + more:
                by_kind[key] = first, before + more
                if not before:
                    self._count_queue(kind.queue, 1)
            else:
                del by_kind[key]
                self._count_queue(kind.queue, -1)
            _, more_unpublished = self._unpublished.get(key, (kind, 0))
            self._unpublished[key] = kind, more_unpublished + more
        if counted.minimum is None:
            return
        sums = self.minimums.setdefault(counted.queue, {})
        for into, amounts in ((sums, counted.minimum), (self.unmet, counted.unmet)):
            add(into, {name: units for name, units in amounts.items() if units > 0}, times)
            for name in [name for name, units in into.items() if not units]:
                del into[name]
        if not sums:
            del self.minimums[counted.queue]
        for watcher in self.watchers.values():
            watcher.promised(counted.queue, counted.minimum, times)


@dataclass(frozen=True, slots=True)
class Counted:
    """What a gang counted when it came: what a session does to it meanwhile, to evict members for instance, is not to be taken out again."""

    queue: QueueName
    kinds: Mapping[KindKey, tuple[Kind, int]]
    minimum: Resources | None = None  #: None: it does not count with one
    unmet: Resources = field(default_factory=dict)


def _as_running(gang: Gang) -> tuple[RunningJob, list[RunningPod]]:
    plain = gang.min_resources is None and not gang.min_task_member and not gang.sub_gang_policies and not gang.annotations
    job = RunningJob(
        gang.id, gang.namespace, gang.name, gang.queue, gang.priority, gang.min_member, gang.created_at, plain=plain
    )
    return job, [
        RunningPod(
            member.uid,
            member.task,
            member.row,
            member.slices,
            member.status in EVICTABLE,
            member.preemptable and gang.preemptable,
            member.movable,
            member.protected_until,
            member.started_at,
            member.pool,
            {**gang.annotations, **member.annotations} if gang.annotations else member.annotations,
            member.namespace,
        )
        for member in gang.members
    ]


def _counted(gang: Gang, columns: Columns) -> Counted:
    counts_minimum = gang.counts_minimum
    kinds: dict[KindKey, tuple[Kind, int]] = {}
    for member in gang.members:
        key = gang.queue, id(member.task), member.preemptable, counts_minimum, member.models, member.pool
        found = kinds.get(key)
        if found is None:
            found = (
                Kind(gang.queue, member.task, member.request, member.preemptable, counts_minimum, member.models, member.pool),
                0,
            )
        kinds[key] = found[0], found[1] + 1
    if not counts_minimum:
        return Counted(gang.queue, kinds)
    held = np.sum([member.request for member in gang.members], axis=0)
    minimum = gang.counted_minimum
    return Counted(
        gang.queue, kinds, minimum, {name: units - int(held[columns.resource(name)]) for name, units in minimum.items()}
    )
