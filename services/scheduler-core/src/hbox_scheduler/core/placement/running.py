"""The ledger's claims as members of sessions, kept from session to session and brought up to date by what changed.

After a start every claim is a change: 91,000 take a second. So the caller counts them in slices while they arrive (`advance`); a session counts what is left.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np

from hbox_common.model import NO_CONSTRAINTS, OFFLINE, Claim, ClaimState, JobId, Neighbour, PodGroupTask, PodUid
from hbox_common.model.resources import PODS

from ..cluster import Booking, Bookings, Columns
from ..cluster.amounts import Asked
from ..cluster.arrays import Ints
from ..cluster.entities import Gang, Member, Status
from ..cluster.running import Counted, Kind, KindKey, RunningGangs
from ..cluster.runningtable import RunningJob, RunningPod
from ..cluster.task import Task
from ..cluster.tasks import Tasks
from ..framework import GroupPhase
from ..queueing.groups import Groups

#: Different requests of which the vectors are kept.
_SHAPES = 4096
#: More pods than there are.
_ALL = 1 << 60

_NOTHING: Mapping[str, str] = {}


class RunningJobs:
    """Members for all bookings on known nodes. Pods without a queue, mostly of other schedulers, are on the columns only; those that inter-pod terms may
    concern are also members outside the gangs."""

    def __init__(
        self, columns: Columns, bookings: Bookings, tasks: Tasks, neighbours: Mapping[PodUid, Neighbour], groups: Groups
    ) -> None:
        self._columns = columns
        self._bookings = bookings
        self._tasks = tasks
        self._neighbours = neighbours
        self._groups = groups
        self._begin()

    def current(self) -> RunningGangs:
        """The current members, in gangs by job id."""
        while self.advance(_ALL):
            pass
        self._gangs.constrained = bool(self._neighbours)
        left = self._bookings.domains_left
        self._bookings.in_domains -= {job for job in left if job not in self._pods_of}
        left.clear()
        return self._gangs

    def advance(self, limit: int) -> bool:
        """Count up to `limit` of the pods that changed, so that `current` has less to do. Returns whether some are left."""
        changed = self._bookings.changed.take()
        if changed is None or self._size != len(self._columns.allocatable):
            self._begin()
            changed = list(self._bookings.all())
        self._pending.update(dict.fromkeys(changed))
        self._pending.update(self._marked)
        self._marked.clear()
        changed_jobs = dict.fromkeys(job for job in self._groups.take_changes() if job in self._pods_of)
        booked, job_of = self._bookings.all(), self._job_of
        for pod in self._next(limit):
            before, booking = job_of.get(pod), booked.get(pod)
            if booking is not None and not self._concerns(booking):
                booking = None
            if before is None and booking is None:
                continue  # booked and removed between two calls, or of no concern
            if before is not None:
                changed_jobs[before] = None
                if booking is None or booking.job != before:
                    del self._job_of[pod], self._pods_of[before][pod]
            if booking is not None:
                changed_jobs[booking.job] = None
                self._job_of[pod] = booking.job
                self._pods_of.setdefault(booking.job, {})[pod] = None
        for job in changed_jobs:
            self._renew(job)
        self._gangs.placed.advance(limit)
        # A model may have got the first column of more than there was room for.
        return bool(self._pending) or self._size != len(self._columns.allocatable)

    def _concerns(self, booking: Booking) -> bool:
        """Whether sessions have members for it. Not for pods on nodes that are not known, as those of other shards, nor for foreign pods without
        inter-pod terms. `Bookings.moved` notes the pods of a node that becomes known."""
        return booking.node in self._columns.row_of and (bool(booking.queue) or booking.pod in self._neighbours)

    def _next(self, limit: int) -> Sequence[PodUid]:
        """Remove and return the first pending pods."""
        if len(self._pending) <= limit:
            pods = [*self._pending]
            self._pending.clear()
            return pods
        pods = list(islice(self._pending, limit))
        for pod in pods:
            del self._pending[pod]
        return pods

    def lend(self, jobs: Iterable[JobId]) -> list[Gang]:
        """The gangs of these jobs, for one session that may do with them what it likes."""
        lent = []
        for job in jobs:
            if (gang := self._gangs.take(job)) is not None:
                lent.append(gang)
                self.mark_changed(self._pods_of[job])
        return lent

    def lend_with(self, pods: Iterable[PodUid]) -> list[Gang]:
        """As `lend`, the gangs of which these pods are."""
        return self.lend(dict.fromkeys(job for pod in pods if (job := self._job_of.get(pod)) is not None))

    def mark_changed(self, pods: Iterable[PodUid]) -> None:
        """These pods changed otherwise than by their bookings, or a session changed them."""
        self._marked.update(dict.fromkeys(pods))

    def resolve_again(self) -> None:
        """Build all running gangs again, after `Columns` assigned resources to other columns."""
        self._bookings.changed.begin()

    def _begin(self) -> None:
        self._gangs = RunningGangs(self._columns, lambda job: self._gang(self._placed(job)))
        self._job_of: dict[PodUid, JobId] = {}
        self._pods_of: dict[JobId, dict[PodUid, None]] = {}
        self._marked: dict[PodUid, None] = {}
        self._pending: dict[PodUid, None] = {}  #: changed pods that are not counted yet
        self._shapes: dict[tuple[tuple[tuple[str, int], ...], bool], tuple[Task, Ints]] = {}
        self._models: dict[tuple[tuple[str, int], ...], Asked] = {}
        self._lone: dict[KindKey, Counted] = {}  #: what jobs of one pod count
        self._size = len(self._columns.allocatable)

    def _renew(self, job: JobId) -> None:
        self._gangs.drop(job)
        if not self._pods_of.get(job):
            self._pods_of.pop(job, None)
            return
        if not (placed := self._placed(job)):
            return
        group = self._groups.get(job)
        if not placed[0].queue:
            self._gangs.expect_unqueued(job)
        elif group is not None and group.min_resources is not None:
            self._gangs.put(self._gang(placed))
        else:
            self._gangs.expect(*self._as_running(placed), self._counted(placed))

    def _placed(self, job: JobId) -> list[Booking]:
        """The job's bookings on known nodes."""
        row_of = self._columns.row_of
        found = map(self._bookings.get, self._pods_of[job])
        return [booking for booking in found if booking is not None and booking.node in row_of]

    def _as_running(self, placed: Sequence[Booking]) -> tuple[RunningJob, list[RunningPod]]:
        """The job and its pods as its gang and members would be (`_gang`, `_member`). The group has no minimum resources."""
        first, row_of = placed[0], self._columns.row_of
        claim, neighbours, pods = first.held, self._neighbours, list[RunningPod]()
        plain, min_member = True, None
        for booking in placed:
            held, neighbour = booking.held, neighbours.get(booking.pod) if neighbours else None
            task = booking.task
            if task is None or task.offline != (booking.pool == OFFLINE):
                task = self._shape(booking)[0]
            if held is not None and (min_member is None or held.min_member > min_member):
                min_member = held.min_member
            plain = plain and (neighbour is None or neighbour.part is None)
            pods.append(
                RunningPod(
                    booking.pod,
                    task,
                    row_of[booking.node],
                    booking.slices,
                    held is not None,
                    held is not None and held.preemptable,
                    self._movable(booking),
                    held.protected_until if held is not None else 0.0,
                    _started(held, neighbour),
                    booking.pool,
                    neighbour.annotations if neighbour is not None else _NOTHING,
                    held.namespace if held is not None else neighbour.namespace if neighbour is not None else "",
                )
            )
        job = RunningJob(
            first.job,
            claim.namespace if claim is not None else "",
            first.job,
            first.queue,
            first.priority,
            1 if min_member is None else min_member,
            claim.created_at if claim is not None else 0.0,
            plain=plain,
        )
        return job, pods

    def _counted(self, placed: Sequence[Booking]) -> Counted:
        """What their gang counts, which has no minimum."""
        queue, kinds = placed[0].queue, dict[KindKey, tuple[Kind, int]]()
        for booking in placed:
            claim = booking.held
            task = booking.task
            if task is None or task.offline != (booking.pool == OFFLINE):
                task = self._shape(booking)[0]
            preemptable = claim is not None and claim.preemptable
            models = self._models_of(booking) if booking.models else ()
            key = queue, id(task), preemptable, False, models, booking.pool
            if len(placed) == 1 and (known := self._lone.get(key)) is not None:
                return known
            kind, count = kinds.get(key) or (
                Kind(queue, task, self._shape(booking)[1], preemptable, False, models, booking.pool),
                0,
            )
            kinds[key] = kind, count + 1
        counted = Counted(queue, kinds)
        if len(placed) == 1:
            if len(self._lone) >= _SHAPES:
                self._lone.clear()
            self._lone[key] = counted
        return counted

    def _gang(self, bookings: Sequence[Booking]) -> Gang:
        """Of one job."""
        first, claim = bookings[0], bookings[0].held
        group = self._groups.get(first.job)
        known = (self._neighbours.get(booking.pod) for booking in bookings)
        part = next((neighbour.part for neighbour in known if neighbour is not None and neighbour.part is not None), None)
        phase = self._groups.phase(first.job) if group is not None else GroupPhase.RUNNING
        gang = Gang(
            id=first.job,
            namespace=claim.namespace if claim is not None else "",
            name=first.job,
            queue=first.queue,
            priority=first.priority,
            min_member=max((booking.held.min_member for booking in bookings if booking.held is not None), default=1),
            created_at=claim.created_at if claim is not None else 0.0,
            phase=GroupPhase.RUNNING if phase is GroupPhase.PENDING else phase,
            min_resources=group.min_resources if group is not None else None,
            gated=dict(group.gated) if group is not None else {},
            preemptable=any(booking.held is not None and booking.held.preemptable for booking in bookings),
            min_task_member=part.min_task_member if part is not None else {},
            sub_gang_policies=part.sub_gangs if part is not None else (),
        )
        gang.members = [self._member(gang, booking) for booking in bookings]
        return gang

    def _member(self, gang: Gang, booking: Booking) -> Member:
        claim, neighbour = booking.held, self._neighbours.get(booking.pod)
        part = neighbour.part if neighbour is not None else None
        task, vector = self._shape(booking)
        return Member(
            uid=booking.pod,
            namespace=claim.namespace if claim is not None else neighbour.namespace if neighbour is not None else "",
            name=claim.pod if claim is not None else booking.pod,
            gang=gang,
            role=part.role if part is not None else "",
            task=task,
            request=vector,
            created_at=claim.created_at if claim is not None else 0.0,
            priority=booking.priority,
            status=Status.ALLOCATED if claim is None else Status.RUNNING,
            movable=self._movable(booking),
            row=self._columns.row_of[booking.node],
            slices=booking.slices,
            models=self._models_of(booking),
            pool=booking.pool,
            preemptable=claim is not None and claim.preemptable,
            protected_until=claim.protected_until if claim is not None else 0.0,
            labels=_labels(neighbour),
            annotations=neighbour.annotations if neighbour is not None else {},
            placed_at=claim.claimed_at if claim is not None else None,
            started_at=_started(claim, neighbour),
            constraints=neighbour.constraints if neighbour is not None else NO_CONSTRAINTS,
            budgets=neighbour.budgets if neighbour is not None else (),
            leaving=neighbour is not None and neighbour.leaving,
        )

    def _movable(self, booking: Booking) -> bool:
        """Whether the pod may be placed on another node: its requests are known, and nothing binds it to its nodes."""
        return _movable(booking.task) and booking.pool != OFFLINE and booking.job not in self._bookings.in_domains

    def _models_of(self, booking: Booking) -> Asked:
        """Cards by model, by column: equal ones are one object."""
        if not booking.models:
            return ()
        models = tuple(booking.models.items())
        found = self._models.get(models)
        if found is None:
            found = self._models[models] = tuple((self._columns.column(name), cards) for name, cards in models)
        return found

    def _shape(self, booking: Booking) -> tuple[Task, Ints]:
        key = tuple(booking.requests.items()), booking.pool == OFFLINE
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
            task = self._tasks.of(PodGroupTask(name="", requests=booking.requests, pods=()), offline=key[1])
            shape = self._shapes[key] = task, vector_of(task, self._columns)
        if booking.task is None or booking.task.offline != key[1]:  # its class is another now than when it got its place
            return shape
        return booking.task, shape[1]


def _labels(neighbour: Neighbour | None) -> Mapping[str, str]:
    """The labels that selectors read, and the labels that form the sub-groups of its gang."""
    if neighbour is None:
        return {}
    return neighbour.labels if neighbour.part is None else {**neighbour.labels, **neighbour.part.labels}


def vector_of(task: Task, columns: Columns) -> Ints:
    """`[R]`: requests in base units, without `pods`, so that a best-effort pod has a zero vector (`Member.request`)."""
    vector = np.zeros(len(columns.allocatable), dtype=np.int64)
    counted = columns.resources.get(PODS)
    for column, units in task.amount:
        if column != counted:
            vector[column] = units
    return vector


def _started(claim: Claim | None, neighbour: Neighbour | None) -> float | None:
    """Start time of the pod; if unknown, the time of its claim."""
    if neighbour is not None and neighbour.started_at is not None:
        return neighbour.started_at
    return claim.claimed_at if claim is not None and claim.state is ClaimState.POSTED else None


def _movable(task: Task | None) -> bool:
    """Whether the pod's requests are known well enough to place it on another node. A pod with card requests by container is not movable, because the
    nomination of its successor does not record containers."""
    return task is not None and (task.cards is None or task.cards.devices is None)
