"""All jobs that are known, and whose turn it is.

Every job is in one state (`jobs.JobState`). Every change that could matter moves it back to EAGER, and only eager jobs cost a cycle anything.
"""

from collections.abc import Set
from heapq import heappop, heappush

from hbox_common.model import Index, Job, JobId, PlanId, Pools, QueueName

from .groups import Groups
from .jobs import Entry, JobState, Order, entry_of
from .limits import Limits
from .parking import Parking
from .queues import Queues, Route
from .state import Bookings
from .task import Tasks

#: Withdrawn jobs of which late news is ignored.
_WITHDRAWN_KEPT = 50_000


class Lineup:
    """`entries` by id; `touched` counts the messages about jobs."""

    def __init__(
        self, tasks: Tasks, bookings: Bookings, parking: Parking, queues: Queues, *, groups: Groups, limits: Limits
    ) -> None:
        self.entries: dict[JobId, Entry] = {}
        self.touched = 0
        self._tasks = tasks
        self._bookings = bookings
        self._parking = parking
        self._queues = queues
        self._groups = groups
        self._routes: dict[QueueName, Route] = {}  #: by which the first job of each queue was taken in
        self._limits = limits
        self._withdrawn: dict[JobId, int] = {}  #: with the revision
        self._eager: list[Order] = []
        self._held: set[JobId] = set()
        self._delayed: list[tuple[float, JobId]] = []

    # Coming and going.

    def welcome(self, job: Job) -> Entry:
        entry = self.entries[job.id] = entry_of(job, self._tasks, self.touched, self._pools(job), self._space(job))
        entry.barred = self._bars(job)
        self.wake(entry)
        return entry

    def revise(self, entry: Entry, job: Job) -> None:
        """A new revision. What waits and asks for the same as before goes on waiting."""
        before = entry.kind
        fresh = entry_of(job, self._tasks, self.touched, self._pools(job), self._space(job))
        moved = fresh.order != entry.order
        alike = _wish(job) == _wish(entry.job)
        entry.job, entry.order, entry.tasks, entry.touched = job, fresh.order, fresh.tasks, self.touched
        entry.barred = self._bars(job)
        if entry.state in (JobState.PROPOSED, JobState.PROMISED, JobState.HELD, JobState.DELAYED):
            return  # looked at again anyway when that is over
        if entry.state is JobState.PARKED and before is not None and not moved and alike:
            entry.look(self._bookings)
            if not entry.problem() and before == entry.kind_of():
                return
        self.wake(entry)

    def forget(self, entry: Entry) -> None:
        self._parking.recheck(entry)
        del self.entries[entry.job.id]
        self._held.discard(entry.job.id)

    def missing(self, named: Set[JobId], since: int) -> list[Entry]:
        """Those that are not among `named`, and were not heard of after the mark `since`."""
        return [entry for entry in self.entries.values() if entry.touched <= since and entry.job.id not in named]

    def by_state(self) -> dict[JobState, int]:
        """How many there are in each."""
        counts = dict.fromkeys(JobState, 0)
        for entry in self.entries.values():
            counts[entry.state] += 1
        return counts

    def withdrawn(self, job: JobId, revision: int) -> None:
        """It has nothing left to place, as of this revision."""
        self._withdrawn[job] = revision
        while len(self._withdrawn) > _WITHDRAWN_KEPT:
            del self._withdrawn[next(iter(self._withdrawn))]

    def was_withdrawn(self, job: Job) -> bool:
        """Whether this is old news of a job that has nothing left to place."""
        return self._withdrawn.get(job.id, -1) >= job.revision

    # Turns.

    def wake(self, entry: Entry) -> None:
        entry.state, entry.kind = JobState.EAGER, None
        heappush(self._eager, entry.order)

    def _pools(self, job: Job) -> Pools:
        if job.queue not in self._routes:
            self._routes[job.queue] = self._queues.route(job.queue)
        return self._queues.all().pools(job.queue)

    def reroute(self, changed: set[QueueName]) -> None:
        """The rules of these queues changed: jobs of theirs, and of those below them, may use other pools now, or be let in, or not any more."""
        moved = {
            name: route
            for name, before in self._routes.items()
            if self._queues.among(name, changed) and (route := self._queues.route(name)) != before
        }
        self._routes |= moved
        for entry in self.entries.values() if moved else ():
            if entry.job.queue in moved:
                pools = self._pools(entry.job)
                entry.tasks = tuple(self._tasks.of(spec, pools, self._space(entry.job)) for spec in entry.job.tasks)
                let_in = bool(entry.barred) and entry.state is JobState.PARKED
                entry.barred = self._bars(entry.job)
                if let_in:
                    self.wake(entry)

    def bar(self, entry: Entry) -> bool:
        """The gate opened or closed for it. Returns whether it may have places now and might not before."""
        before, entry.barred = entry.barred, self._bars(entry.job)
        opened = bool(before) and not entry.barred
        if opened and entry.state is JobState.PARKED:
            self.wake(entry)
        return opened

    def _bars(self, job: Job) -> str:
        return self._queues.barred(job) or self._groups.closed(job.id)

    def _space(self, job: Job) -> str:
        return job.namespace if job.namespace in self._bookings.card_quotas else ""

    def resolve_anew(self) -> None:
        """Columns of resources are others than before. What waits may fit now."""
        self._tasks.anew()
        for entry in self.entries.values():
            pools = self._pools(entry.job)
            entry.tasks = tuple(self._tasks.of(spec, pools, self._space(entry.job)) for spec in entry.job.tasks)
            if entry.state is JobState.PARKED:
                self.wake(entry)

    def requote(self, namespaces: set[str]) -> None:
        """The quotas of these namespaces changed: what waits there may be paid for now, or for another reason than before."""
        for entry in self.entries.values() if namespaces else ():
            if entry.job.namespace in namespaces:
                pools = self._pools(entry.job)
                entry.tasks = tuple(self._tasks.of(spec, pools, self._space(entry.job)) for spec in entry.job.tasks)
                if entry.state is JobState.PARKED:
                    self.wake(entry)

    def unpark(self, freed: set[QueueName], changed: set[QueueName], paid: set[str]) -> None:
        """Those that may be able to start, since rows rose, or the queues `freed` or the quotas of the namespaces `paid` allow more; all of those whose queues'
        rules changed."""
        for entry in self._parking.wake(self.entries, freed, changed, paid):
            heappush(self._eager, entry.order)

    def next(self) -> Entry | None:
        """The eager job whose turn it is, looked at afresh; who takes it settles its state or gives it back."""
        while self._eager:
            order = heappop(self._eager)
            while self._eager and self._eager[0] == order:
                heappop(self._eager)  # it was woken more than once
            entry = self.entries.get(order[2])
            if entry is not None and entry.state is JobState.EAGER and entry.order == order:
                entry.look(self._bookings)
                return entry
        return None

    def give_back(self, entry: Entry) -> None:
        """It is not its turn after all."""
        heappush(self._eager, entry.order)

    def run(self, first: Entry, most: int) -> list[Entry]:
        """The job, and those after it that ask for the same: each one pod of the same task in the same queue."""
        run = [first]
        task = first.lone
        if task is None or first.job.problem:
            return run
        while len(run) < most and (entry := self.next()) is not None:
            one, other = entry.job, first.job
            if entry.lone is not task or (one.queue, one.preemptable) != (other.queue, other.preemptable) or one.problem:
                self.give_back(entry)
                break
            run.append(entry)
        return run

    # Waiting for answers, for a newer view, for time.

    def answered(self, entry: Entry, plan: PlanId, index: Index, now: float) -> None:
        entry.plans.discard(plan)
        if not entry.plans and entry.state is JobState.PROPOSED:
            self.again(entry, index, now)

    def again(self, entry: Entry, index: Index, now: float) -> None:
        """Look at a job again: on the view that explains its last refusal, and the later the more often in a row it met one."""
        if entry.refusals > 1:
            delay = min(self._limits.backoff_s * 2.0 ** min(entry.refusals - 2, 16), self._limits.backoff_max_s)
            entry.state = JobState.DELAYED
            heappush(self._delayed, (now + delay, entry.job.id))
        else:
            self._hold_or_wake(entry, index)

    def due(self, index: Index, now: float) -> None:
        """Those whose back-off is over."""
        while self._delayed and self._delayed[0][0] <= now:
            _, job = heappop(self._delayed)
            entry = self.entries.get(job)
            if entry is not None and entry.state is JobState.DELAYED:
                self._hold_or_wake(entry, index)

    def reached(self, index: Index) -> None:
        """Those that waited for a view as new."""
        for job in [job for job in self._held if self.entries[job].refresh <= index]:
            self._held.discard(job)
            if self.entries[job].state is JobState.HELD:
                self.wake(self.entries[job])

    def next_at(self) -> list[float]:
        """When `due` has something next."""
        return [at for at, _ in self._delayed[:1]]

    def _hold_or_wake(self, entry: Entry, index: Index) -> None:
        if entry.refresh > index:
            entry.state = JobState.HELD
            self._held.add(entry.job.id)
        else:
            self.wake(entry)


def _wish(job: Job) -> tuple[object, ...]:
    """What it wants of the places of its pods together."""
    return (job.topology, job.notes, job.sub_gangs, job.min_task_member)
