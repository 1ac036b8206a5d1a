"""PodGroups with a minimum of resources: as they were told last, and the word that was given here.

A PodGroup is let in by the gate's word, which counts at once in the gate's sums, and its pods may be placed when its phase is told: that is written on the
PodGroup, so that no restart of anybody can take it back. The word is kept until the phase is told, whatever older news says.
"""

from collections.abc import Container, Iterator, Set

from hbox_common.model import GroupPhase, GroupState, JobId

from .explain.labels import Label
from .session import Gang
from .state import Columns

#: Deleted PodGroups of which late news is ignored.
_GONE_KEPT = 50_000

_COUNTED = (GroupPhase.PENDING, GroupPhase.INQUEUE, GroupPhase.RUNNING)


class Groups:
    """`gated`: whether anybody waits at all; a policy without the gate lets everybody in."""

    def __init__(self, columns: Columns) -> None:
        self.gated = False
        self._columns = columns
        self._told: dict[JobId, GroupState] = {}
        self._pending: dict[JobId, None] = {}  #: of them, those told to be so
        self._touched: dict[JobId, int] = {}
        self._gone: dict[JobId, int] = {}  #: with the revision
        self._let_in: dict[JobId, None] = {}
        self._why: dict[JobId, str] = {}
        self._news: dict[JobId, None] = {}

    def tell(self, group: GroupState, touched: int) -> bool:
        """Returns whether it is news. A revision that is not higher than the one known is not. `touched`: the count of messages about jobs."""
        known = self._told.get(group.id)
        if known is not None and group.revision <= known.revision:
            self._touched[group.id] = touched
            return False
        if self._gone.get(group.id, -1) >= group.revision:
            return False
        if group.gone:
            self._drop(group.id, group.revision)
            return True
        self._gone.pop(group.id, None)
        for name in group.min_resources:
            self._columns.resource(name)  # sums over members that run look it up
        self._told[group.id], self._touched[group.id] = group, touched
        if group.phase is GroupPhase.PENDING:
            self._pending[group.id] = None
        else:
            self._pending.pop(group.id, None)
            self._let_in.pop(group.id, None)
            self._why.pop(group.id, None)
        self._news[group.id] = None
        return True

    def only(self, named: Set[JobId], since: int) -> list[JobId]:
        """There are no others than these, but for those told after `since`. Returns those that are gone."""
        gone = [job for job, touched in self._touched.items() if touched <= since and job not in named]
        for job in gone:
            self._drop(job, self._told[job].revision)
        return gone

    def take_news(self) -> list[JobId]:
        """Whose state changed since the last time."""
        news = list(self._news)
        self._news.clear()
        return news

    def let_in(self, job: JobId) -> None:
        """The gate's word."""
        self._let_in[job] = None
        self._why.pop(job, None)
        self._news[job] = None

    def keep_out(self, job: JobId, why: str) -> None:
        """The gate's other word."""
        self._why[job] = why

    def get(self, job: JobId) -> GroupState | None:
        return self._told.get(job)

    def __contains__(self, job: JobId) -> bool:
        return job in self._told

    def ids(self) -> list[JobId]:
        return list(self._told)

    def phase(self, job: JobId) -> GroupPhase:
        """In which it counts. Without a minimum, and without a gate, everybody is in."""
        told = self._told.get(job)
        if told is None or (told.phase is GroupPhase.PENDING and (not self.gated or told.let_in or job in self._let_in)):
            return GroupPhase.INQUEUE
        return told.phase

    def closed(self, job: JobId) -> str:
        """Why its pods may not be placed yet, or nothing."""
        told = self._told.get(job)
        if not self.gated or told is None or told.phase is not GroupPhase.PENDING:
            return ""
        if self.phase(job) is not GroupPhase.PENDING:
            return f"{Label.AT_THE_GATE}: the PodGroup is let in, and about to be Inqueue"
        return f"{Label.AT_THE_GATE}: {self._why.get(job, 'the PodGroup has yet to be looked at')}"

    def outside(self) -> Iterator[GroupState]:
        """Those that wait for the gate's word."""
        return (self._told[job] for job in self._pending if self.phase(job) is GroupPhase.PENDING)

    def without_pods(self, with_pods: Container[JobId]) -> Iterator[Gang]:
        """Gangs for a session, of all others: those that are outside, and those whose minimum counts at the gate whatever they hold."""
        return (
            Gang(
                id=job,
                namespace=told.namespace,
                name=told.name,
                queue=told.queue,
                priority=told.priority,
                min_member=max(told.min_member, 1),
                created_at=told.created_at,
                phase=self.phase(job),
                min_resources=told.min_resources,
                gated=dict(told.gated),
                annotations=told.notes,
            )
            for job, told in self._told.items()
            if job not in with_pods and self.phase(job) in _COUNTED
        )

    def unheard(self) -> list[JobId]:
        """Those that were let in here, of which nobody has said that this was heard."""
        return [job for job in self._let_in if not self._told[job].let_in]

    def _drop(self, job: JobId, revision: int) -> None:
        self._told.pop(job, None)
        self._pending.pop(job, None)
        self._touched.pop(job, None)
        self._let_in.pop(job, None)
        self._why.pop(job, None)
        self._news[job] = None
        self._gone[job] = revision
        while len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]
