"""Successions: the place of a pod that its controller replaces stays reserved for the pod that succeeds it (ADR 120).

A rolling update deletes a pod and creates another one. On a full cluster the freed place would go to the longest waiting job, and the update would wait for
ever. Jobs name their succession: the uid of the object whose controller replaces their pods. When a pod of a succession ends, and its controller has created
or is about to create more pods (`MissingPods`) than there are reserved places, the place is booked under a name of its own. The pods of the succession are
tried before all jobs of equal or lower priority, in a session of their own during which its places are free. Jobs of higher priority are tried before them,
on these places too. A place is released when the controller needs no more pods, and after `Limits.successor_s` in any case.

Between two cycles the end of a claim costs no search: the place is reserved if the known jobs of the succession have pods enough, whether these have places or
not. The next cycle counts the pods that have none, once for each succession with places, and releases the places that are too many.

The place of a pod that succeeded, or that HBox evicted for other pods, is not reserved. Nothing is stored: a scheduler that starts knows the successions of
gangs, whose job ids begin with it, and of no other pods that were placed before.
"""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from heapq import nsmallest
from operator import attrgetter

from hbox_common.events import Plan
from hbox_common.model import Claim, ClaimId, Job, JobId, MissingPods, NodeName, PlanId, PodPhase, PodUid

from ..cluster import Booking
from ..placement.outcomes import Placed
from ..queueing.jobs import Entry, EquivalenceKey, JobState, Order
from .context import SchedulerContext
from .moves import _idle, _others
from .nominations import Nominations

#: Maximum number of reserved places of one succession, and of its jobs that one cycle tries.
MOST = 256
#: Seconds for which a created pod still counts as missing: the message about its job may come later than the one about its owner.
MISSING_GRACE_S = 2.0
#: Maximum number of successions that one cycle tries; the next cycle tries the others.
TRIED = 16
#: Jobs without pods whose succession may be remembered, beyond two for each job that has pods.
SPARE = 4096

_WAITS = (JobState.ACTIVE, JobState.UNSCHEDULABLE)


@dataclass(slots=True)
class SuccessorPlace:
    """A reserved place. `booking`: of the pod that ended, under the name of the place."""

    succession: str
    booking: Booking
    until: float


class Successions:
    """Reserved places, and the jobs that may take them."""

    def __init__(self, context: SchedulerContext, nominations: Nominations) -> None:
        self._runner = context.runner
        self._plans = context.plans
        self._bookings = context.bookings
        self._queues = context.queues
        self._queue = context.queue
        self._unschedulable = context.unschedulable
        self._flights = context.flights
        self._limits = context.limits
        self._nominations = nominations
        self._places: dict[str, list[SuccessorPlace]] = {}
        self._missing: dict[str, int] = {}
        #: former numbers of missing pods, and until when they count; None: the next cycle sets it
        self._grace: dict[str, tuple[int, float | None]] = {}
        self._jobs: dict[str, dict[JobId, int]] = {}  #: known jobs by succession, with the number of their pods
        self._pods: Counter[str] = Counter()  #: sums of `_jobs`
        self._of: dict[JobId, str] = {}  #: succession of each known job, and of each single pod that has a place
        self._spare_at = SPARE  #: size of `_of` at which jobs without pods are forgotten
        self._due: dict[str, None] = {}  #: successions to try in the next cycle
        #: places that a plan gives to successors, until the ledger has answered
        self._given: dict[PlanId, list[SuccessorPlace]] = {}
        self._suspended: dict[str, list[SuccessorPlace]] = {}  #: places that are free during the present cycle's trials
        self._trials: dict[str, list[Entry]] = {}  #: of each of these the first jobs that wait, in order

    # --- what happens

    def job(self, job: Job) -> None:
        """A message about the job was received."""
        if (before := self._of.get(job.id, "")) and before != job.succession:
            self._leave(before, job.id)
            del self._of[job.id]
        if not job.succession:
            return
        jobs, pods = self._jobs.setdefault(job.succession, {}), sum(len(spec.pods) for spec in job.tasks)
        self._pods[job.succession] += pods - jobs.get(job.id, 0)
        jobs[job.id], self._of[job.id] = pods, job.succession
        if job.succession in self._places:
            self._due[job.succession] = None

    def removed(self, job: Job) -> None:
        """The job was withdrawn. Its pods may have places."""
        if succession := self._of.get(job.id, ""):
            self._leave(succession, job.id)
            if job.gang or not any(pod.uid in self._bookings for spec in job.tasks for pod in spec.pods):
                del self._of[job.id]

    def missing(self, states: Iterable[MissingPods]) -> None:
        """Set how many pods these controllers are about to create."""
        for state in states:
            if (before := self._missing.get(state.succession, 0)) > state.pods:
                self._grace[state.succession] = max(before, self._grace.get(state.succession, (0, None))[0]), None
            if state.pods > 0:
                self._missing[state.succession] = state.pods
            else:
                self._missing.pop(state.succession, None)
            if state.succession in self._places:
                self._due[state.succession] = None

    def forget_missing(self) -> None:
        """Nothing is known of missing pods."""
        self._missing.clear()
        self._due.update(dict.fromkeys(self._places))

    def ended(self, booking: Booking, claim: Claim, now: float) -> None:
        """The claim of this booking ended, and the booking is removed: reserve the place if a successor is expected."""
        succession = self._of.get(booking.job) or booking.job.partition(".")[0]
        if booking.job not in self._jobs.get(succession, ()):
            self._of.pop(booking.job, None)
        if not (succession in self._jobs or succession in self._missing or succession in self._grace):
            return
        if claim.reason == f"its pod is {PodPhase.SUCCEEDED}" or booking.pod in self._nominations:
            return
        if len(self._places.get(succession, ())) >= min(self._needed(succession) + self._pods[succession], MOST):
            return
        place = replace(booking, pod=PodUid(f"{booking.pod}/left"), claim=ClaimId(""), held=None, plan=PlanId(""), waiting=None)
        left = SuccessorPlace(succession, place, now + self._limits.successor_s)
        if self._keep(left):
            self._due[succession] = None

    def answered(self, plan: PlanId, *, accepted: bool) -> None:
        """The ledger answered a plan. If it refused a plan for successors, their places are reserved again."""
        for left in self._given.pop(plan, ()):
            if not accepted and self._keep(left):
                self._due[left.succession] = None

    def cards_given(self, nodes: Set[NodeName]) -> None:
        """Kubelets of these nodes gave pods other cards than planned: those that the pods left are free in place of reserved ones."""
        for succession, places in list(self._places.items()):
            here = [left for left in places if left.booking.node in nodes]
            if here:
                self._places[succession] = [left for left in places if left.booking.node not in nodes]
                for left in here:
                    self._bookings.remove(left.booking.pod)
                for left in here:
                    self._keep(left)
                if not self._places[succession]:
                    del self._places[succession]

    # --- in a cycle

    def release(self, now: float) -> None:
        """Release the places without successors. `begin` follows if the cycle plans."""
        for succession, (pods, until) in list(self._grace.items()):
            if until is None:
                self._grace[succession] = pods, now + MISSING_GRACE_S
            elif until <= now:
                del self._grace[succession]
        if len(self._of) > self._spare_at:
            self._forget()
        for succession, places in list(self._places.items()):
            places[:] = [left for left in places if left.until > now or self._release(left)]
            wanted, active = self._wanted(succession, len(places))
            if active:  # such as after a refused plan
                self._due[succession] = None
            while len(places) > wanted:
                self._release(places.pop())
            if not places:
                del self._places[succession]

    def begin(self) -> None:
        """Free the places that are tried in this cycle. `finish` must follow."""
        if not self._places:
            return
        first = self._queue.first_active()
        for succession, places in self._places.items():
            if first is not None and first < _ahead_of(-places[0].booking.priority):
                self._due[succession] = None
        self._due = {succession: None for succession in self._due if succession in self._places}
        for succession in list(self._due)[:TRIED]:
            self._suspended[succession] = self._places.pop(succession)
            for left in self._suspended[succession]:
                self._bookings.remove(left.booking.pod)
            self._trials[succession] = self._waiting(succession, len(self._suspended[succession]))

    def due(self) -> list[tuple[Order, str]]:
        """Successions to try, each after the active jobs that precede the order with it; the highest priority first."""
        if not self._suspended:
            return []
        found: list[tuple[Order, str]] = []
        for succession, places in self._suspended.items():
            entries = self._trials[succession]
            first = entries[0].order[0] if entries else -places[0].booking.priority
            found.append((_ahead_of(first), succession))
        return sorted(found)

    def place(self, succession: str, now: float) -> list[Plan]:
        """Plans for pods of the succession. Their places are free."""
        plans: list[Plan] = []
        entries = [entry for entry in self._trials[succession] if self._waits(entry) and not self._blocked(entry)]
        if not entries:
            return plans
        found = self._runner.place(
            entries,
            self._queues.all(),
            self._nominations,
            {},
            outside=(),
            most=self._limits.placements,
            most_failures=None,
            failure_cost=lambda _: 1,
        )
        for one in found:
            if isinstance(one, Placed):
                entry = one.entry
                made = self._plans.placed(entry, one.members)
                one.members[0].gang.dissolve()
                self._unschedulable.leave(entry, JobState.PROPOSED)
                self._queue.recount(entry)
                for plan in made:
                    self._flights.open(plan, now)
                    self._given[plan.id] = self._take(succession, plan)
                plans += made
        return plans

    def finish(self) -> None:
        """Reserve the places that are left, before the other jobs are tried."""
        for succession, places in self._suspended.items():
            self._due.pop(succession, None)
            wanted, _ = self._wanted(succession, len(places))
            for left in places[:wanted]:
                self._keep(left)
        self._suspended.clear()
        self._trials.clear()

    def next_at(self) -> list[float]:
        """When the next place is released; at once if successions are left to try."""
        times = [left.until for places in self._places.values() for left in places]
        if self._places:
            times += [until if until is not None else float("-inf") for _, until in self._grace.values()]
        return [float("-inf")] if self._due else [min(times)] if times else []

    # --- details

    def _leave(self, succession: str, job: JobId) -> None:
        """The job is not known any more, or of another succession."""
        jobs = self._jobs.get(succession, {})
        self._pods[succession] -= jobs.pop(job, 0)
        if not jobs:
            self._jobs.pop(succession, None)
            del self._pods[succession]

    def _forget(self) -> None:
        """Forget jobs that are neither known nor have a place: of claims that a snapshot lacks, and of refused plans."""
        placed = {booking.job for booking in self._bookings.all().values()}
        self._of = {job: of for job, of in self._of.items() if job in placed or job in self._jobs.get(of, ())}
        self._spare_at = 2 * len(self._of) + SPARE

    def _waiting(self, succession: str, places: int) -> list[Entry]:
        """The first jobs of the succession with pods that wait for places, in order; of those that wait for the same, as many as there are places."""
        known = filter(None, map(self._queue.entries.get, self._jobs.get(succession, ())))
        first = nsmallest(MOST, (entry for entry in known if entry.state in _WAITS), key=attrgetter("order"))
        per_key: Counter[EquivalenceKey] = Counter()
        found = []
        for entry in first:
            if self._waits(entry) and per_key[key := entry.equivalence_key()] < places:
                per_key[key] += 1
                found.append(entry)
        return found

    def _waits(self, entry: Entry) -> bool:
        """Whether pods of the job wait for places."""
        if entry.state not in _WAITS:
            return False
        entry.update_pending(self._bookings)
        return bool(entry.pending)

    def _blocked(self, entry: Entry) -> bool:
        return bool(entry.problem() or self._queues.refusal(entry.job.queue, cards=any(task.cards for task in entry.tasks)))

    def _needed(self, succession: str) -> int:
        """Pods that are about to be created, or were a moment ago."""
        return max(self._missing.get(succession, 0), self._grace.get(succession, (0, None))[0])

    def _wanted(self, succession: str, limit: int) -> tuple[int, bool]:
        """Pods that wait for places or are about to be created, counted up to the limit at least; whether a job of the succession is active."""
        wanted, active = self._needed(succession), False
        for job in self._jobs.get(succession, ()):
            entry = self._queue.entries.get(job)
            if entry is None or entry.state is JobState.NOMINATED:
                continue
            active = active or entry.state is JobState.ACTIVE
            if wanted < limit:
                wanted += sum(pod.uid not in self._bookings for spec in entry.job.tasks for pod in spec.pods)
            elif active:
                break
        return wanted, active

    def _take(self, succession: str, plan: Plan) -> list[SuccessorPlace]:
        """The places that the plan uses up: those on its nodes and cards first."""
        places, taken = self._suspended[succession], []
        for one in plan.placements:
            cards = {piece.card for piece in one.slices}
            here = max(
                places,
                key=lambda left, node=one.node, cards=cards: (  # type: ignore[misc]
                    left.booking.node == node,
                    len(cards & {piece.card for piece in left.booking.slices}),
                ),
                default=None,
            )
            if here is not None:
                places.remove(here)
                taken.append(here)
        return taken

    def _keep(self, left: SuccessorPlace) -> bool:
        """Book the place, on other cards of its node if a kubelet gave its own ones to another pod; False if it is not free."""
        columns, booking = self._plans.columns, left.booking
        row = columns.row_of.get(booking.node)
        if row is None or not columns.schedulable[row]:
            return False
        if not _idle(columns, row, booking.slices):
            slices = _others(columns, row, booking.task) if booking.task is not None else None
            if slices is None:
                return False
            left.booking = booking = replace(booking, slices=slices)
        for column, units in columns.amount(booking.requests):
            if columns.used[column, row] + units > columns.allocatable[column, row]:
                return False
        self._bookings.put(booking)
        self._places.setdefault(left.succession, []).append(left)
        return True

    def _release(self, left: SuccessorPlace) -> bool:
        self._bookings.remove(left.booking.pod)
        return False


def _ahead_of(first: int) -> Order:
    """Precedes all jobs of this priority; `first`: of their orders."""
    return first, float("-inf"), "", "", JobId("")
