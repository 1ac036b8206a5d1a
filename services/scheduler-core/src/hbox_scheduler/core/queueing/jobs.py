"""What the scheduler remembers of a job between cycles."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import log2
from typing import TypeAlias

from hbox_common.model import Index, Job, JobId, PlanId, PodRef, Pools, QueueName, is_offline
from hbox_common.model.job import wishes_fabric

from ..cluster import Bookings
from ..cluster.entities import Gang
from ..cluster.task import Task
from ..cluster.tasks import Tasks
from ..cluster.walltimes import walltime_in
from ..explain.labels import Label


class JobState(StrEnum):
    """What a job waits for."""

    ACTIVE = "active"  #: its turn in the next cycle
    UNSCHEDULABLE = "unschedulable"  #: room on nodes or in its queue (`unschedulable`), or a new revision
    PROPOSED = "proposed"  #: the ledger's answers
    AWAITING_STATE = "awaiting-state"  #: a view of the ledger at least as new as the refusal names
    DELAYED = "delayed"  #: its back-off
    NOMINATED = "nominated"  #: others that leave for it
    SETTLED = "settled"  #: nothing: all of its pods have places


#: Higher priority first, then older, then by namespace and name (times have whole seconds), as `Session.gang_key`; the id is last.
Order: TypeAlias = tuple[int, float, str, str, JobId]

#: In place of a priority: offline work comes after all else, whatever the value of its class.
_LAST = 1 << 40

#: Jobs that wait for the same: the queue, for each task what its pods ask for, how many of them it takes to start, and whether they may be preempted.
#: The last one is the order of magnitude of their walltimes: how soon they end decides which reserved nodes they may use.
EquivalenceKey: TypeAlias = tuple[QueueName, tuple[Task, ...], int, int]


#: Pods that wait: their queue, and what they ask for.
WaitKey: TypeAlias = tuple[QueueName, Task]


@dataclass(slots=True)
class Entry:
    """A job. `pending` holds the pods without a booking, by task, as of the last `update_pending`; `need` of them have to start together."""

    job: Job
    order: Order
    tasks: tuple[Task, ...]
    touched: int  #: the core's count of job messages at this job's last one
    state: JobState = JobState.ACTIVE
    plans: set[PlanId] = field(default_factory=set)
    since: int = 0  #: the revision under which it came: of a job that was withdrawn and is back, another one than before
    counter: int = 0  #: of plans made since then
    refusals: int = 0  #: in a row, for the back-off
    refresh: Index = Index(0)
    key: EquivalenceKey | None = None  #: while unschedulable: its class
    activated_from: EquivalenceKey | None = None  #: the key of the class for whose room it was activated
    pending: list[tuple[Task, list[PodRef]]] = field(default_factory=list)
    held: int = 0  #: pods of its tasks that have a booking
    need: int = 0
    counted: tuple[tuple[WaitKey, int], ...] = ()  #: of its pods, what counts as waiting in its queue
    gang: Gang | None = None  #: of `pending`, kept where it depends on these pods alone
    walltime_class: int = -1  #: the logarithm of the longest walltime that is written for its pods, -1 where none is
    blocked_reason: str = ""  #: why it may not have places: its queue is not for it, or its PodGroup is not enqueued

    def update_pending(self, bookings: Bookings) -> None:
        """Bring `pending`, `held` and `need` up to date with the bookings."""
        tasks, before, booked = self.job.tasks, self.pending, bookings.all()
        if len(tasks) == 1 and len(tasks[0].pods) == 1:  # most jobs by far
            spec = tasks[0]
            free = spec.pods[0].uid not in booked
            self.pending = [(self.tasks[0], list(spec.pods))] if free else []
            self.held = 0 if free else 1
        else:
            self.pending, self.held = [], 0
            for task, spec in zip(self.tasks, tasks, strict=True):
                pods = [pod for pod in spec.pods if pod.uid not in booked]
                self.held += len(spec.pods) - len(pods)
                if pods:
                    self.pending.append((task, pods))
        self.need = max(self.job.min_member - self.job.bound - self.held, 0)
        if self.gang is not None and self.pending != before:
            self.gang = None

    def equivalence_key(self) -> EquivalenceKey:
        """What it waits for, as of the last `update_pending`."""
        return (self.job.queue, tuple(task for task, _ in self.pending), self.need, self.walltime_class)

    @property
    def offline(self) -> bool:
        """Whether it is offline work."""
        return is_offline(self.job.priority_class)

    @property
    def wishes_certain_cards(self) -> bool:
        """Whether notes of its pods say which cards they take, by ids or types."""
        return any(
            task.cards is not None and task.cards.devices is not None and task.cards.devices.wishes for task in self.tasks
        )

    @property
    def lone(self) -> Task | None:
        """The task of a job whose only pending pod may start by itself; else None."""
        if len(self.pending) == 1 and len(self.pending[0][1]) == 1 and self.need <= 1 and not self.blocked_reason:
            return self.pending[0][0]
        return None

    def problem(self) -> str:
        """Why no change of nodes can start the job, or ""."""
        if self.job.problem or self.blocked_reason:
            return self.job.problem or self.blocked_reason
        there = sum(len(pods) for _, pods in self.pending)
        if self.need > there:
            return (
                f"{Label.GANG_INCOMPLETE}: the gang needs {self.job.min_member} pods and {self.job.bound + self.held + there} exist; "
                "create the missing ones or lower minMember"
            )
        return ""


def talks_over_fabric(job: Job) -> bool:
    """Whether its pods are a gang of several to which the fabric matters."""
    return job.min_member > 1 and wishes_fabric(job.topology, job.annotations, job.sub_gangs)


def tasks_of(job: Job, tasks: Tasks, pools: Pools | None, namespace: str) -> tuple[Task, ...]:
    """What its pods ask for. pools, namespace: as of `entry_of`."""
    offline = is_offline(job.priority_class)
    fabric, gang = talks_over_fabric(job), job.min_member > 1
    return tuple(tasks.of(spec, pools, namespace, offline=offline, fabric=fabric, gang=gang) for spec in job.tasks)


def entry_of(job: Job, tasks: Tasks, touched: int, pools: Pools | None, namespace: str) -> Entry:
    """`pools`: that its queue may use; `namespace`: where quotas limit cards."""
    return Entry(
        job=job,
        order=(_LAST if is_offline(job.priority_class) else -job.priority, job.created_at, job.namespace, job.name, job.id),
        tasks=tasks_of(job, tasks, pools, namespace),
        touched=touched,
        since=job.revision,
        walltime_class=walltime_class_of(job),
    )


def walltime_class_of(job: Job) -> int:
    """As `Entry.walltime_class`."""
    if not job.annotations and not any(spec.annotations for spec in job.tasks):
        return -1
    written = [walltime_in(spec.annotations, job.annotations) for spec in job.tasks]
    known = [walltime_s for walltime_s in written if walltime_s is not None]
    return int(log2(max(*known, 1.0))) if known and len(known) == len(written) else -1
