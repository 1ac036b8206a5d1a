"""PodGroups with `minResources`: their states as job-controller published them last, and the admissions decided here.

An admission counts at once in the sums of `enqueue`. The pods may be placed when job-controller publishes the new phase: it is written on the PodGroup, so
that no restart of a service takes it back. The admission is kept until then, whatever older messages say.
"""

from collections.abc import Container, Iterator, Set

from hbox_common.model import GroupPhase, GroupState, JobId

from ..cluster import Columns
from ..cluster.entities import Gang
from ..explain.labels import Label

#: Deleted PodGroups of which late messages are ignored.
_GONE_KEPT = 50_000

_COUNTED = (GroupPhase.PENDING, GroupPhase.INQUEUE, GroupPhase.RUNNING)


class Groups:
    """`enqueues`: whether the policy has the action `enqueue`; without it no PodGroup waits for admission."""

    def __init__(self, columns: Columns) -> None:
        self.enqueues = False
        self._columns = columns
        self._states: dict[JobId, GroupState] = {}
        self._pending: dict[JobId, None] = {}  #: those whose published phase is Pending
        self._touched: dict[JobId, int] = {}
        self._gone: dict[JobId, int] = {}  #: with the revision
        self._admitted: dict[JobId, None] = {}
        self._why: dict[JobId, str] = {}
        self._changes: dict[JobId, None] = {}

    def update(self, group: GroupState, touched: int) -> bool:
        """Take a PodGroup's state. Returns whether it differs; a revision that is not higher than the one known is ignored.

        `touched`: the count of messages about jobs.
        """
        known = self._states.get(group.id)
        if known is not None and group.revision <= known.revision:
            self._touched[group.id] = touched
            return False
        if self._gone.get(group.id, -1) >= group.revision:
            return False
        if group.gone:
            self._drop(group.id, group.revision)
            return True
        self._gone.pop(group.id, None)
        self._states[group.id], self._touched[group.id] = group, touched
        if group.phase is GroupPhase.PENDING:
            self._pending[group.id] = None
        else:
            self._pending.pop(group.id, None)
            self._admitted.pop(group.id, None)
            self._why.pop(group.id, None)
        self._changes[group.id] = None
        return True

    def keep_only(self, named: Set[JobId], since: int) -> list[JobId]:
        """Drop all PodGroups that are not `named` and were not updated after the mark `since`. Returns those that were dropped."""
        gone = [job for job, touched in self._touched.items() if touched <= since and job not in named]
        for job in gone:
            self._drop(job, self._states[job].revision)
        return gone

    def take_changes(self) -> list[JobId]:
        """The PodGroups whose state changed since the last call."""
        changes = list(self._changes)
        self._changes.clear()
        return changes

    def admit(self, job: JobId) -> None:
        """The policy's plugins admit the PodGroup."""
        self._admitted[job] = None
        self._why.pop(job, None)
        self._changes[job] = None

    def reject(self, job: JobId, why: str) -> None:
        """A plugin rejects the PodGroup; `why` names the plugin and its sums."""
        self._why[job] = why

    def get(self, job: JobId) -> GroupState | None:
        return self._states.get(job)

    def __contains__(self, job: JobId) -> bool:
        return job in self._states

    def ids(self) -> list[JobId]:
        return list(self._states)

    def phase(self, job: JobId) -> GroupPhase:
        """The phase in which the PodGroup counts: Inqueue without a minimum, without the action `enqueue`, and once it is admitted."""
        state = self._states.get(job)
        if state is None or (
            state.phase is GroupPhase.PENDING and (not self.enqueues or state.admitted or job in self._admitted)
        ):
            return GroupPhase.INQUEUE
        return state.phase

    def blocked_reason(self, job: JobId) -> str:
        """Why its pods may not be placed yet, or nothing."""
        state = self._states.get(job)
        if not self.enqueues or state is None or state.phase is not GroupPhase.PENDING:
            return ""
        if self.phase(job) is not GroupPhase.PENDING:
            return f"{Label.NOT_ENQUEUED}: the PodGroup is admitted, and about to be Inqueue"
        return f"{Label.NOT_ENQUEUED}: {self._why.get(job, 'the PodGroup has yet to be looked at')}"

    def waiting(self) -> Iterator[GroupState]:
        """PodGroups that are neither admitted nor past the phase Pending."""
        return (self._states[job] for job in self._pending if self.phase(job) is GroupPhase.PENDING)

    def without_pods(self, with_pods: Container[JobId]) -> Iterator[Gang]:
        """Gangs for a session, of all PodGroups but `with_pods`: those that wait for admission, and those whose minimum counts whatever they hold."""
        return (
            Gang(
                id=job,
                namespace=state.namespace,
                name=state.name,
                queue=state.queue,
                priority=state.priority,
                min_member=max(state.min_member, 1),
                created_at=state.created_at,
                phase=self.phase(job),
                min_resources=state.min_resources,
                gated=dict(state.gated),
                annotations=state.annotations,
            )
            for job, state in self._states.items()
            if job not in with_pods and self.phase(job) in _COUNTED
        )

    def unacknowledged(self) -> list[JobId]:
        """PodGroups admitted here whose admission job-controller has not acknowledged."""
        return [job for job in self._admitted if not self._states[job].admitted]

    def _drop(self, job: JobId, revision: int) -> None:
        self._states.pop(job, None)
        self._pending.pop(job, None)
        self._touched.pop(job, None)
        self._admitted.pop(job, None)
        self._why.pop(job, None)
        self._changes[job] = None
        self._gone[job] = revision
        while len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]
