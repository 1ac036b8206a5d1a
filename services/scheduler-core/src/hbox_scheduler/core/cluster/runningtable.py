"""Running pods of all cached gangs in arrays, one slot a pod.

A cluster runs tens of thousands of pods, and a victim search or a pass of reservations needs few of them as objects. `RunningGangs` therefore enters each pod
that it counts into this table, whether or not the pod's gang exists as an object: the slots are exactly the pods of `RunningGangs.jobs`. Readers select slots
by array operations and build gangs (`RunningGangs.gang_of`) for the selected ones only.

A job's slots are replaced as a whole whenever anything about the job changes, so a slot is never edited. A pod that leaves frees its slot for the next one:
slot numbers have no order and no meaning beyond the table. Queues, pools and tasks are codes; a code is free again when its last slot is.

Sessions change members (evict, nominate) without changing the table: `RunningJobs` enters such jobs again before the next session.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import nan
from typing import Generic, TypeVar

import numpy as np

from hbox_common.model import CardSlice, JobId, PodUid, QueueName
from hbox_common.model.annotations import CHECKPOINT_EVERY, CHECKPOINT_INTERVAL, CHECKPOINTED_AT

from .arrays import Bools, Floats, Ints
from .interning import grown
from .task import Task

_T = TypeVar("_T")

#: Slots of an empty table.
_SLOTS = 64

_NOTHING_WRITTEN: Mapping[str, str] = {}

#: Annotations of a pod, or its PodGroup, about when it writes checkpoints.
CHECKPOINT_ANNOTATIONS = (CHECKPOINTED_AT, CHECKPOINT_INTERVAL, CHECKPOINT_EVERY)


@dataclass(slots=True)
class RunningPod:
    """One pod of a job, as it is entered."""

    uid: PodUid
    task: Task
    row: int
    slices: tuple[CardSlice, ...]
    claimed: bool  #: whether the ledger has claimed its placement; a proposed placement cannot be evicted
    preemptable: bool
    movable: bool  #: as `Member.movable`
    protected_until: float  #: seconds since the epoch; 0 = not protected
    started_at: float | None  #: seconds since the epoch, as `Member.started_at`; None = unknown
    pool: str = ""
    #: the pod's own over those of its PodGroup
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING_WRITTEN)
    namespace: str = ""


@dataclass(slots=True)
class RunningJob:
    """What the pods of a job have in common, as `Gang`."""

    id: JobId
    namespace: str
    name: str
    queue: QueueName
    priority: int
    min_member: int
    created_at: float
    #: whether the gang has no roles, sub-gangs or minimum resources, so that its number of pods alone decides whether it is ready
    plain: bool = True


class Codes(Generic[_T]):
    """Numbers for values while slots refer to them."""

    def __init__(self) -> None:
        self.values: list[_T | None] = []
        self._counts: list[int] = []
        self._code_of: dict[object, int] = {}
        self._vacant: list[int] = []

    def of(self, key: object) -> int | None:
        return self._code_of.get(key)

    def take(self, key: object, value: _T) -> tuple[int, bool]:
        """The value's code, and whether it is new."""
        code = self._code_of.get(key)
        if code is not None:
            self._counts[code] += 1
            return code, False
        if self._vacant:
            code = self._vacant.pop()
            self.values[code], self._counts[code] = value, 1
        else:
            code = len(self.values)
            self.values.append(value)
            self._counts.append(1)
        self._code_of[key] = code
        return code, True

    def leave(self, key: object, code: int) -> None:
        self._counts[code] -= 1
        if not self._counts[code]:
            del self._code_of[key]
            self.values[code] = None
            self._vacant.append(code)


class RunningTable:
    """S slots, of which those with `used` are pods; arrays have room for more than `size` slots: read `[:size]` of them. Callers must not write to them."""

    def __init__(self, resources: int) -> None:
        """`resources`: number of resource columns."""
        self.size = 0  #: slots that are or were in use; all others are beyond
        self.used: Bools = np.zeros(_SLOTS, dtype=np.bool_)
        self.row: Ints = np.zeros(_SLOTS, dtype=np.int64)  #: the node's row in `Columns`; >= 0
        self.queue: Ints = np.zeros(_SLOTS, dtype=np.int64)  #: code: `queue_name`
        self.pool: Ints = np.zeros(_SLOTS, dtype=np.int64)  #: code of the pool in which the pod counts: `pool_name`
        self.task: Ints = np.zeros(_SLOTS, dtype=np.int64)  #: code: `task_of`, `amounts`
        self.priority: Ints = np.zeros(_SLOTS, dtype=np.int64)  #: of the job
        self.min_member: Ints = np.zeros(_SLOTS, dtype=np.int64)  #: of the job
        self.cards: Ints = np.zeros(_SLOTS, dtype=np.int64)  #: number of card slices
        self.created_at: Floats = np.zeros(_SLOTS)  #: of the job, seconds since the epoch
        self.started_at: Floats = np.zeros(_SLOTS)  #: of the pod, seconds since the epoch; nan = unknown
        self.protected_until: Floats = np.zeros(_SLOTS)  #: seconds since the epoch; 0 = not protected
        self.claimed: Bools = np.zeros(_SLOTS, dtype=np.bool_)  #: bound or running, not only proposed
        self.preemptable: Bools = np.zeros(_SLOTS, dtype=np.bool_)  #: of the pod
        self.movable: Bools = np.zeros(_SLOTS, dtype=np.bool_)  #: as `Member.movable`
        self.offline: Bools = np.zeros(_SLOTS, dtype=np.bool_)  #: whether the job is offline work (`Gang.offline`)
        self.lone: Bools = np.zeros(_SLOTS, dtype=np.bool_)  #: the only pod of a plain job: the slot has all that orders need
        self.checkpointed: Bools = np.zeros(_SLOTS, dtype=np.bool_)  #: has one of `CHECKPOINT_ANNOTATIONS`
        self.uids: list[PodUid] = []  #: by slot; stale for free slots, as the lists below
        self.jobs: list[JobId] = []
        self.slices: list[tuple[CardSlice, ...]] = []
        self.pod_namespaces: list[str] = []
        self.namespaces: list[str] = []  #: of the job
        self.names: list[str] = []  #: of the job
        self.annotations: dict[int, Mapping[str, str]] = {}  #: by slot, of pods that have any
        #: `[T, R]`, by task code: requested base units by resource column
        self.amounts: Ints = np.zeros((8, resources), dtype=np.int64)
        self.versions: list[int] = []  #: by queue code: increases with each pod that enters or leaves
        #: caches of readers that are valid while the queue's version is: by the reader's key and queue code
        self.orders: dict[object, dict[int, tuple[int, Ints]]] = {}
        self._queues: Codes[QueueName] = Codes()
        self._pools: Codes[str] = Codes()
        self._tasks: Codes[Task] = Codes()
        self._free: list[int] = []
        self._changes: dict[int, None] = {}  #: slots that were entered or freed since the last `take_changes`
        self._slots_of: dict[JobId, int | list[int]] = {}  #: a number for jobs of one pod, most jobs of most clusters
        self._in_queue: list[set[int]] = []  #: slots by queue code
        self._on_row: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """Number of pods."""
        return self.size - len(self._free)

    def slots(self) -> Ints:
        """`[n]`: the slots in use."""
        return np.flatnonzero(self.used[: self.size])

    def queue_name(self, code: int) -> QueueName:
        name = self._queues.values[code]
        assert name is not None
        return name

    def queue_names(self) -> list[QueueName | None]:
        """By code; None = the code is free."""
        return self._queues.values

    def queue_code(self, name: QueueName) -> int | None:
        """None if no pod of the queue runs."""
        return self._queues.of(name)

    def pool_names(self) -> list[str | None]:
        """By code; None = the code is free."""
        return self._pools.values

    def task_of(self, code: int) -> Task:
        task = self._tasks.values[code]
        assert task is not None
        return task

    def tasks(self) -> list[Task | None]:
        """By code; None = the code is free."""
        return self._tasks.values

    def in_queue(self, code: int) -> Ints:
        """`[n]`: the queue's slots, in ascending order."""
        mine = self._in_queue[code]
        slots = np.fromiter(mine, dtype=np.int64, count=len(mine))
        slots.sort()
        return slots

    def on_row(self, row: int) -> Sequence[int]:
        """Slots of the pods on a node."""
        return self._on_row.get(row, ())

    def of(self, job: JobId) -> Sequence[int]:
        """Slots of the job's pods, in the order of its gang's members."""
        found = self._slots_of.get(job)
        return () if found is None else (found,) if isinstance(found, int) else found

    def take_changes(self, most: int | None = None) -> list[int]:
        """Slots that were entered or freed since they were last returned, all or up to `most`; for one reader."""
        if most is None or len(self._changes) <= most:
            changes, self._changes = self._changes, {}
            return list(changes)
        first = list(islice(self._changes, most))
        for slot in first:
            del self._changes[slot]
        return first

    @property
    def changes(self) -> int:
        """Number of slots that `take_changes` would return."""
        return len(self._changes)

    def enter(self, job: RunningJob, pods: Iterable[RunningPod]) -> None:
        """Add a job that has no slots, with all of its pods, at least one."""
        entered = list(pods)
        assert entered, "a running job has a pod"
        assert job.id not in self._slots_of, "a job is entered once"
        offline = entered[0].task.offline
        lone = job.plain and len(entered) == 1
        slots = [self._enter(job, pod, offline=offline, lone=lone) for pod in entered]
        self._slots_of[job.id] = slots[0] if len(slots) == 1 else slots

    def leave(self, job: JobId) -> None:
        """Free the job's slots, if it has any."""
        for slot in self.of(job):
            self._leave(slot)
        self._slots_of.pop(job, None)

    def _enter(self, job: RunningJob, pod: RunningPod, *, offline: bool, lone: bool) -> int:
        slot = self._slot()
        queue, new_queue = self._queues.take(job.queue, job.queue)
        if new_queue and queue == len(self._in_queue):
            self._in_queue.append(set())
            self.versions.append(0)
        task, new_task = self._tasks.take(id(pod.task), pod.task)
        if new_task:
            self._resolve(task, pod.task)
        self.used[slot] = True
        self.row[slot] = pod.row
        self.queue[slot] = queue
        self.pool[slot] = self._pools.take(pod.pool, pod.pool)[0]
        self.task[slot] = task
        self.priority[slot] = job.priority
        self.min_member[slot] = job.min_member
        self.cards[slot] = len(pod.slices)
        self.slices[slot], self.pod_namespaces[slot] = pod.slices, pod.namespace
        self._changes[slot] = None
        self.created_at[slot] = job.created_at
        self.started_at[slot] = nan if pod.started_at is None else pod.started_at
        self.protected_until[slot] = pod.protected_until
        self.claimed[slot] = pod.claimed
        self.preemptable[slot] = pod.preemptable
        self.movable[slot] = pod.movable
        self.offline[slot] = offline
        self.lone[slot] = lone
        self.checkpointed[slot] = bool(pod.annotations) and any(key in pod.annotations for key in CHECKPOINT_ANNOTATIONS)
        self.uids[slot], self.jobs[slot], self.namespaces[slot], self.names[slot] = pod.uid, job.id, job.namespace, job.name
        if pod.annotations:
            self.annotations[slot] = pod.annotations
        self._in_queue[queue].add(slot)
        self._on_row.setdefault(pod.row, []).append(slot)
        self.versions[queue] += 1
        return slot

    def _leave(self, slot: int) -> None:
        queue, row, task, pool = int(self.queue[slot]), int(self.row[slot]), int(self.task[slot]), int(self.pool[slot])
        self.used[slot] = self.lone[slot] = self.claimed[slot] = self.checkpointed[slot] = False
        self.annotations.pop(slot, None)
        self._in_queue[queue].discard(slot)
        there = self._on_row[row]
        there.remove(slot)
        if not there:
            del self._on_row[row]
        self.versions[queue] += 1
        self._queues.leave(self._queues.values[queue], queue)
        self._pools.leave(self._pools.values[pool], pool)
        self._tasks.leave(id(self._tasks.values[task]), task)
        self._free.append(slot)
        self._changes[slot] = None

    def _slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = self.size
        if slot == len(self.used):
            more = slot + max(slot // 4, _SLOTS)
            for name in _ARRAYS:
                setattr(self, name, grown(getattr(self, name), 0, more))
        self.size += 1
        self.uids.append(PodUid(""))
        self.jobs.append(JobId(""))
        self.slices.append(())
        self.pod_namespaces.append("")
        self.namespaces.append("")
        self.names.append("")
        return slot

    def _resolve(self, code: int, task: Task) -> None:
        if code == len(self.amounts):
            self.amounts = grown(self.amounts, 0, 2 * code)
        self.amounts[code] = 0
        for column, units in task.amount:
            self.amounts[code, column] = units


#: Attributes that are arrays by slot.
_ARRAYS = tuple(name for name, value in vars(RunningTable(0)).items() if isinstance(value, np.ndarray) and name != "amounts")
