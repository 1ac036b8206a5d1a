"""All known jobs, and the order in which they are tried.

Every job is in one state (`jobs.JobState`). Every change that could matter moves it back to ACTIVE, and only jobs in that state cost a cycle
anything.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from heapq import heapify, heappop, heappush

from hbox_common.model import Index, Job, JobId, PlanId, PodGroupTask, Pools, QueueName
from hbox_common.pacing import backoff_s

from ..cluster import Bookings
from ..cluster.task import Task
from ..cluster.tasks import Tasks
from ..protocol.limits import Limits
from ..quotas.classes import ClassQuotas
from ..quotas.queues import Queues, Route
from .groups import Groups
from .jobs import Entry, JobState, Order, WaitKey, entry_of, talks_over_fabric, tasks_of
from .unschedulable import UnschedulableJobs

#: Withdrawn jobs of which late messages are ignored.
_WITHDRAWN_KEPT = 50_000


#: Queues of which no job is left, beyond two for each job there is.
_SPARE_ROUTES = 1024

#: Of jobs in these states no pod counts as waiting: all have places, or are promised some.
_HAVE = (JobState.PROPOSED, JobState.NOMINATED, JobState.SETTLED)


class SchedulingQueue:
    """`entries` by id; `touched` counts the messages about jobs."""

    def __init__(
        self,
        tasks: Tasks,
        bookings: Bookings,
        unschedulable: UnschedulableJobs,
        queues: Queues,
        classes: ClassQuotas,
        *,
        groups: Groups,
        limits: Limits,
    ) -> None:
        self.entries: dict[JobId, Entry] = {}
        self.touched = 0
        #: pods of all jobs that wait for places, but those that are proposed or nominated
        self.waiting: dict[WaitKey, int] = {}
        self._tasks = tasks
        self._bookings = bookings
        self._unschedulable = unschedulable
        self._queues = queues
        self.classes = classes
        self._groups = groups
        self._routes: dict[QueueName, Route] = {}  #: as they were when the first job of each queue was added
        self._lent = False  #: whether a queue lent pools to others when routes were last computed
        self._limits = limits
        self._withdrawn: dict[JobId, int] = {}  #: with the revision
        #: heaps by queue and namespace; an item that differs from its entry is obsolete and does not count
        self._active: dict[tuple[QueueName, str], list[Order]] = {}
        self._of_queue: dict[QueueName, dict[JobId, Entry]] = {}
        self._awaiting: set[JobId] = set()
        self._delayed: list[tuple[float, JobId]] = []

    # Jobs that come, change and go.

    def add(self, job: Job) -> Entry:
        entry = self.entries[job.id] = entry_of(job, self._tasks, self.touched, self._pools(job), self._namespace(job))
        self._of_queue.setdefault(job.queue, {})[job.id] = entry
        entry.blocked_reason = self._blocked_reason(job)
        self.activate(entry)
        self._count(entry, [(task, len(spec.pods)) for task, spec in zip(entry.tasks, job.tasks, strict=True)])
        return entry

    def tried(self, job: Job) -> Entry:
        """The entry that the job would have; nothing is recorded."""
        entry = entry_of(job, self._tasks, self.touched, self._queues.all().reach(job.queue), self._namespace(job))
        entry.blocked_reason = self._blocked_reason(job)
        return entry

    def task_of(self, job: Job, spec: PodGroupTask) -> Task:
        """What these pods of the job ask for, as that of its pods that wait."""
        return self._tasks.of(
            spec, self._pools(job), self._namespace(job), fabric=talks_over_fabric(job), gang=job.min_member > 1
        )

    def update(self, entry: Entry, job: Job) -> None:
        """Take a new revision of a job. An unschedulable job with unchanged requests stays so."""
        before = entry.key
        fresh = entry_of(job, self._tasks, self.touched, self._pools(job), self._namespace(job))
        moved = fresh.order != entry.order
        same_constraints = _constraints(job) == _constraints(entry.job)
        entry.gang = None
        if job.queue != entry.job.queue:
            self._leave_queue(entry)
            self._of_queue.setdefault(job.queue, {})[job.id] = entry
        entry.job, entry.order, entry.tasks, entry.touched = job, fresh.order, fresh.tasks, self.touched
        entry.walltime_class, entry.blocked_reason = fresh.walltime_class, self._blocked_reason(job)
        if entry.state not in _HAVE:
            self._count(entry, [(task, len(spec.pods)) for task, spec in zip(entry.tasks, job.tasks, strict=True)])
        if entry.state in (JobState.PROPOSED, JobState.NOMINATED, JobState.AWAITING_STATE, JobState.DELAYED):
            return  # tried again anyway when that is over
        if entry.state is JobState.UNSCHEDULABLE and before is not None and not moved and same_constraints:
            entry.update_pending(self._bookings)
            if not entry.problem() and before == entry.equivalence_key():
                return
        self.activate(entry)

    def remove(self, entry: Entry) -> None:
        self._count(entry, ())
        self._unschedulable.retry_class(entry)
        self._leave_queue(entry)
        del self.entries[entry.job.id]
        self._awaiting.discard(entry.job.id)

    def of_queue(self, queue: QueueName) -> Iterable[Entry]:
        """Entries of all jobs of the queue."""
        return self._of_queue.get(queue, {}).values()

    def _leave_queue(self, entry: Entry) -> None:
        jobs = self._of_queue[entry.job.queue]
        del jobs[entry.job.id]
        if not jobs:
            del self._of_queue[entry.job.queue]

    def recount(self, entry: Entry) -> None:
        """What of the job waits for places may be another amount than before."""
        waits = entry.state not in _HAVE
        pods = [(task, len(pods)) for task, pods in entry.pending] if waits else []
        if [(task, count) for (_, task), count in entry.counted] != pods:
            self._count(entry, pods)

    def _count(self, entry: Entry, pods: Iterable[tuple[Task, int]]) -> None:
        waiting, queue = self.waiting, entry.job.queue
        for key, count in entry.counted:
            waiting[key] -= count
            if not waiting[key]:
                del waiting[key]
        entry.counted = tuple(((queue, task), count) for task, count in pods)
        for key, count in entry.counted:
            waiting[key] = waiting.get(key, 0) + count

    def unnamed(self, named: Set[JobId], since: int) -> list[Entry]:
        """Jobs that are not among `named`, and of which no message came after the mark `since`."""
        return [entry for entry in self.entries.values() if entry.touched <= since and entry.job.id not in named]

    def by_state(self) -> dict[JobState, int]:
        """How many jobs are in each state."""
        counts = dict.fromkeys(JobState, 0)
        for entry in self.entries.values():
            counts[entry.state] += 1
        return counts

    def oldest(self, state: JobState) -> float | None:
        """When the oldest job in this state was made, in seconds since the epoch; None where there is none."""
        return min((entry.job.created_at for entry in self.entries.values() if entry.state is state), default=None)

    def note_withdrawn(self, job: JobId, revision: int) -> None:
        """The job has nothing left to place, as of this revision."""
        self._withdrawn[job] = revision
        while len(self._withdrawn) > _WITHDRAWN_KEPT:
            del self._withdrawn[next(iter(self._withdrawn))]

    def is_withdrawn(self, job: Job) -> bool:
        """Whether this message is older than the withdrawal of the job."""
        return self._withdrawn.get(job.id, -1) >= job.revision

    # Turns.

    def activate(self, entry: Entry) -> None:
        entry.state, entry.key = JobState.ACTIVE, None
        self._push(entry)

    def _pools(self, job: Job) -> Pools:
        if job.queue not in self._routes:
            if len(self._routes) > 2 * len(self.entries) + _SPARE_ROUTES:  # tenants may name any queue
                named = {entry.job.queue for entry in self.entries.values()}
                self._routes = {name: route for name, route in self._routes.items() if name in named}
            self._routes[job.queue] = self._queues.route(job.queue)
        return self._queues.all().reach(job.queue)

    def reroute(self, changed: set[QueueName]) -> None:
        """The rules of these queues changed: jobs of theirs, and of those below them, may use other pools now, or may or may not be placed at all."""
        lent, self._lent = self._lent, self._queues.all().lends  # what one queue lends others may use
        if not (changed or lent or self._lent):
            return
        moved = {
            name: route
            for name, before in self._routes.items()
            if (lent or self._lent or self._queues.among(name, changed)) and (route := self._queues.route(name)) != before
        }
        self._routes |= moved
        for entry in self.entries.values() if moved else ():
            if entry.job.queue in moved:
                self._resolve(entry)
                waits = entry.state is JobState.UNSCHEDULABLE
                lent = not self._queues.among(entry.job.queue, changed)  # by a queue whose rules changed
                unblocked = bool(entry.blocked_reason)
                entry.blocked_reason = self._blocked_reason(entry.job)
                if waits and (unblocked or lent):
                    self.activate(entry)

    def recheck_blocked(self, entry: Entry) -> bool:
        """The PodGroup was admitted, or waits again. Returns whether the job may be placed now and could not be before."""
        before, entry.blocked_reason = entry.blocked_reason, self._blocked_reason(entry.job)
        opened = bool(before) and not entry.blocked_reason
        if opened and entry.state is JobState.UNSCHEDULABLE:
            self.activate(entry)
        return opened

    def _blocked_reason(self, job: Job) -> str:
        return self._queues.blocked_reason(job) or self.classes.blocked_reason(job) or self._groups.blocked_reason(job.id)

    def recheck_classes(self, namespaces: set[str]) -> None:
        """The class quotas of these namespaces changed, or their usage."""
        for entry in self.entries.values():
            if entry.job.priority_class and entry.job.namespace in namespaces:
                before, entry.blocked_reason = entry.blocked_reason, self._blocked_reason(entry.job)
                if before != entry.blocked_reason and entry.state is JobState.UNSCHEDULABLE:
                    self.activate(entry)  # it may start now, or gets a new reason

    def _namespace(self, job: Job) -> str:
        """The namespace of the job, where quotas limit its cards."""
        return job.namespace if job.namespace in self._bookings.card_quotas else ""

    def _resolve(self, entry: Entry) -> None:
        """What its pods ask for may be another task than before: other pools, another quota, other columns."""
        entry.tasks = tasks_of(entry.job, self._tasks, self._pools(entry.job), self._namespace(entry.job))

    def resolve_again(self) -> Mapping[Task, Task]:
        """The columns of resources have changed: resolve all tasks again, and activate unschedulable jobs. Returns the new task of each former one."""
        self._tasks.anew()
        resolved: dict[Task, Task] = {}
        for entry in self.entries.values():
            before = entry.tasks
            self._resolve(entry)
            resolved.update(zip(before, entry.tasks, strict=True))
            self._count(entry, [(resolved.get(task, task), count) for (_, task), count in entry.counted])
            entry.pending = [(resolved.get(task, task), pods) for task, pods in entry.pending]
            entry.gang = None
            if entry.state is JobState.UNSCHEDULABLE:
                self.activate(entry)
        self._unschedulable.clear()
        return resolved

    def activate_all(self) -> None:
        """All unschedulable jobs are activated: they are judged by another policy now, which may ask for more of their pods."""
        for entry in self.entries.values():
            entry.gang = None
            if entry.state is JobState.UNSCHEDULABLE:
                self.activate(entry)

    def requota(self, namespaces: set[str]) -> None:
        """The quotas of these namespaces changed: unschedulable jobs there are activated."""
        for entry in self.entries.values() if namespaces else ():
            if entry.job.namespace in namespaces:
                self._resolve(entry)
                if entry.state is JobState.UNSCHEDULABLE:
                    self.activate(entry)

    def activate_unschedulable(self, freed: set[QueueName], changed: set[QueueName], quotas_freed: set[str]) -> None:
        """Activate unschedulable jobs that may be able to start, since free amounts of rows rose, or the queues `freed` or the quotas of
        the namespaces `quotas_freed` allow more; all of those whose queues' rules changed."""
        for entry in self._unschedulable.activate(self.entries, freed, changed, quotas_freed):
            self._push(entry)

    def take(
        self,
        most: int,
        *,
        without: Collection[str] = (),
        ahead_of: Order | None = None,
        exhausted: Collection[QueueName] = (),
    ) -> tuple[list[Entry], set[QueueName]]:
        """Active jobs for one session, with their pending pods brought up to date, and the queues of which more are active: whose turn it is, the session
        finds out. Of each queue the first ones, as many as of any other while there are so many; `most` in all, or one of each queue. `without`: namespaces
        whose jobs are skipped; `ahead_of`: take only jobs that precede it in the order; `exhausted`: queues of which the last session had too few, up to
        `most` of each.

        The caller sets their states, or gives them back."""
        lanes: dict[QueueName, list[Order]] = {}  # heaps: of each namespace's jobs in the queue the first one
        for lane in list(self._active):
            order = self._first(lane) if lane[1] not in without else None
            if order is not None and (ahead_of is None or order < ahead_of):
                heappush(lanes.setdefault(lane[0], []), order)
        each = max(most // len(lanes), 1) if lanes else 0
        share = {name: most if name in exhausted else each for name in lanes}
        taken = [entry for name, firsts in lanes.items() for entry in self._pop(name, firsts, share[name], ahead_of)]
        heads = [(firsts[0], name) for name, firsts in lanes.items() if firsts]
        heapify(heads)
        while heads and len(taken) < most:
            _, name = heappop(heads)
            taken += self._pop(name, lanes[name], 1, ahead_of)
            if lanes[name]:
                heappush(heads, (lanes[name][0], name))
        return taken, {name for _, name in heads}

    def _pop(self, name: QueueName, firsts: list[Order], most: int, ahead_of: Order | None) -> Iterator[Entry]:
        while most > 0 and firsts:
            order, most = heappop(firsts), most - 1
            entry = self.entries[order[-1]]
            lane = name, entry.job.namespace
            active = self._active[lane]
            while active and active[0] == order:
                heappop(active)  # it may have been activated more than once
            if (following := self._first(lane)) is not None and (ahead_of is None or following < ahead_of):
                heappush(firsts, following)
            entry.update_pending(self._bookings)
            self.recount(entry)
            yield entry

    def first_active(self) -> Order | None:
        """The order of the active job that precedes all others; None without one."""
        return min((first for first in map(self._first, list(self._active)) if first is not None), default=None)

    def _first(self, lane: tuple[QueueName, str]) -> Order | None:
        """Of the active jobs of a queue and namespace the one that comes first."""
        active = self._active.get(lane, [])
        while active:
            order = active[0]
            entry = self.entries.get(order[-1])
            if entry is not None and entry.state is JobState.ACTIVE and entry.order == order and entry.job.queue == lane[0]:
                return order
            heappop(active)
        self._active.pop(lane, None)
        return None

    @property
    def waits(self) -> bool:
        """Whether any job is active."""
        return any(self._first(lane) is not None for lane in list(self._active))

    def give_back(self, entry: Entry) -> None:
        """The job was not tried: it keeps its place in the order."""
        self._push(entry)

    def _push(self, entry: Entry) -> None:
        heappush(self._active.setdefault((entry.job.queue, entry.job.namespace), []), entry.order)

    # Waiting for answers, for a newer view, for time.

    def plan_answered(self, entry: Entry, plan: PlanId, index: Index, now: float) -> None:
        entry.plans.discard(plan)
        if not entry.plans and entry.state is JobState.PROPOSED:
            self.retry(entry, index, now)

    def retry(self, entry: Entry, index: Index, now: float) -> None:
        """Try a job again: on a view at least as new as its last refusal names, from the second refusal in a row after a backoff."""
        if entry.refusals > 1:
            delay = backoff_s(entry.refusals - 2, base_s=self._limits.backoff_s, cap_s=self._limits.backoff_max_s)
            entry.state = JobState.DELAYED
            heappush(self._delayed, (now + delay, entry.job.id))
        else:
            self._await_or_activate(entry, index)

    def due(self, index: Index, now: float) -> None:
        """Activate jobs whose backoff is over."""
        while self._delayed and self._delayed[0][0] <= now:
            _, job = heappop(self._delayed)
            entry = self.entries.get(job)
            if entry is not None and entry.state is JobState.DELAYED:
                self._await_or_activate(entry, index)

    def reached(self, index: Index) -> None:
        """Activate jobs that waited for a view as new as `index`."""
        for job in [job for job in self._awaiting if self.entries[job].refresh <= index]:
            self._awaiting.discard(job)
            if self.entries[job].state is JobState.AWAITING_STATE:
                self.activate(self.entries[job])

    def next_at(self) -> list[float]:
        """When `due` has something next."""
        return [at for at, _ in self._delayed[:1]]

    def _await_or_activate(self, entry: Entry, index: Index) -> None:
        if entry.refresh > index:
            entry.state = JobState.AWAITING_STATE
            self._awaiting.add(entry.job.id)
        else:
            self.activate(entry)


def _constraints(job: Job) -> tuple[object, ...]:
    """The constraints about the places of its pods together."""
    return (job.topology, job.annotations, job.sub_gangs, job.min_task_member)
