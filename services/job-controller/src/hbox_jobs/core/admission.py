"""Admission by `enqueue`: which PodGroups with minimum resources are published to the scheduler, and which scheduler may admit them.

The phase of the PodGroup is the truth: the scheduler decides, and this service writes its decision there. A decision counts at once (`admitted`), since the
next one must not use the same resources; pods are placed once the phase is published. After a scheduler has requested all jobs, decisions of other schedulers,
also those still in transit, are ignored: they may be based on another state of the cluster.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from hbox_common.model import GroupPhase, GroupState, Job, JobId, SchedulerId
from hbox_common.model.shards import shard_of

from .job import Record, Tally
from .views import GroupPhase as Written
from .views import GroupView


class Admission:
    """`admitting_schedulers`: by shard, the only scheduler whose decisions count; none = any scheduler of the shard."""

    def __init__(self) -> None:
        self.admitting_schedulers: dict[str, SchedulerId] = {}
        self._on: dict[str, bool] = {}  #: by shard
        self._states: dict[JobId, GroupState] = {}  #: of all PodGroups with a minimum, as last worked out
        self._admitted: set[JobId] = set()
        self._due: dict[JobId, GroupState] = {}

    def is_on(self, shard: str) -> bool | None:
        """Whether the shard's policy has the action `enqueue`; None = unknown, and no PodGroup is enqueued."""
        return self._on.get(shard)

    def gated(self, shard: str, *, on: bool) -> bool:
        """Apply a published policy. Returns whether the action was added or removed."""
        before, self._on[shard] = self._on.get(shard), on
        return before is not on

    def leave(self, job: JobId, revision: Callable[[], int]) -> GroupState | None:
        """Move the job to another shard. Returns the last state of its PodGroup for the old shard; the new shard gets it anew."""
        known = self._states.pop(job, None)
        self._due.pop(job, None)
        return replace(known, revision=revision(), gone=True) if known is not None else None

    def settle(self, record: Record, job: Job, tally: Tally, revision: Callable[[], int]) -> None:
        """`job` is the new state of the record's job."""
        group = record.group
        if group is None or not group.min_resources or record.foreign:
            self.gone(job.id, revision)
            return
        if not record.pods and (record.had_pods or group.status.has_started):
            # All its pods were deleted: the reservation ends, and new pods are admitted like those of a new job.
            self.gone(job.id, revision)
            return
        phase = GroupPhase.PENDING if group.status.phase is Written.NEW else GroupPhase(group.status.phase.value)
        if phase is GroupPhase.PENDING and tally.bound:
            phase = GroupPhase.INQUEUE
        if phase is GroupPhase.PENDING and job.problem and job.id not in self._admitted:
            self.gone(job.id, revision)  # it waits for its user to fix it, and requests nothing until then
            return
        known = self._states.get(job.id)
        state = GroupState(
            id=job.id,
            namespace=job.namespace,
            name=job.name,
            queue=job.queue,
            priority=job.priority,
            min_member=record.min_member,
            created_at=group.created_at,
            min_resources=dict(group.min_resources),
            revision=known.revision if known is not None else 0,
            phase=phase,
            gated={name: min(units, held) for name, units in group.min_resources.items() if (held := tally.gated.get(name, 0))},
            admitted=job.id in self._admitted,
            annotations=dict(group.annotations),
        )
        if state != known:
            self._states[job.id] = self._due[job.id] = replace(state, revision=revision())

    def gone(self, job: JobId, revision: Callable[[], int]) -> None:
        """It asks for nothing any more."""
        self._admitted.discard(job)
        known = self._states.pop(job, None)
        if known is not None:
            self._due[job] = replace(known, revision=revision(), gone=True)

    def admit(self, scheduler: SchedulerId, jobs: Iterable[JobId]) -> list[JobId]:
        """Returns those that are let in now, and were not before."""
        if scheduler != self.admitting_schedulers.get(shard_of(scheduler), scheduler):
            return []
        fresh = [job for job in jobs if job in self._states and job not in self._admitted]
        self._admitted.update(fresh)
        return fresh

    def may_enqueue(self, record: Record) -> bool:
        """Whether the job's PodGroup may be Inqueue. Without `enqueue` in the policy, or a minimum, it is so as soon as it is seen, since
        quota is decided for whole plans; one that cannot be placed as it is written stays Pending."""
        group = record.group
        if group is None or group.status.phase.is_enqueued or record.id in self._admitted:
            return True
        if record.job is not None and record.job.problem:
            return False
        state = self._states.get(record.id)
        return (
            self.is_on(record.shard) is False
            or not group.min_resources
            or (state is not None and state.phase is not GroupPhase.PENDING)
        )

    def entering(self, record: Record) -> bool:
        """Whether it is let in, and that is not written yet."""
        return record.id in self._admitted and record.group is not None and not record.group.status.phase.is_enqueued

    def waits(self, record: Record) -> bool:
        """Whether it waits to be enqueued, with pods or without."""
        return record.id in self._states and not self.may_enqueue(record)

    def opened(self, old: GroupView, new: GroupView, shard: str) -> bool:
        """Whether the shard's scheduler waits for this news: the PodGroup is enqueued now."""
        past = new.status.phase.is_enqueued and not old.status.phase.is_enqueued
        return past and bool(new.min_resources) and self.is_on(shard) is not False

    def take(self) -> tuple[GroupState, ...]:
        """News since the last time."""
        taken, self._due = tuple(self._due.values()), {}
        return taken

    def repeat_all(self) -> None:
        """All of it is news again."""
        self._due.update(self._states)

    def all(self) -> Iterator[GroupState]:
        """Current states: a received decision counts even if its job was not computed since."""
        return (replace(state, admitted=state.id in self._admitted) for state in self._states.values())
