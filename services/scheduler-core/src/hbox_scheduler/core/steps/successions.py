"""Successions: the place of a pod that its controller replaces stays reserved for the pod that succeeds it (ADR 120).

A rolling update deletes a pod and creates another one. On a full cluster the freed place would go to the longest waiting job, and the update would wait for
ever. Jobs name their succession: the uid of the object whose controller replaces their pods. When a pod of a succession ends, and its controller has created
or is about to create more pods (`MissingPods`) than there are reserved places, the place is booked under a name of its own. The pods of the succession are
tried before all jobs of equal or lower priority, in a session of their own during which its places are free. Jobs of higher priority are tried before them,
on these places too. A place is released when the controller needs no more pods, and after `Limits.successor_s` in any case.

The place of a pod that succeeded, or that HBox evicted for other pods, is not reserved. Nothing is stored: a scheduler that starts knows the successions of
gangs, whose job ids begin with it, and of no other pods that were placed before.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

from hbox_common.events import Plan
from hbox_common.model import Claim, ClaimId, Job, JobId, MissingPods, PlanId, PodPhase, PodUid

from ..cluster import Booking
from ..placement.outcomes import Placed
from ..queueing.jobs import Entry, JobState, Order
from .context import SchedulerContext
from .moves import _idle
from .nominations import Nominations

#: Maximum number of reserved places of one succession.
MOST = 256
#: Seconds for which a created pod still counts as missing: the message about its job may come later than the one about its owner.
FADES_S = 2.0
#: Maximum number of successions that one cycle tries; the next cycle tries the others.
TRIED = 16


@dataclass(slots=True)
class LeftPlace:
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
        self._places: dict[str, list[LeftPlace]] = {}
        self._missing: dict[str, int] = {}
        #: former numbers of missing pods, and until when they count; None: the next cycle sets it
        self._faded: dict[str, tuple[int, float | None]] = {}
        self._jobs: defaultdict[str, dict[JobId, None]] = defaultdict(dict)  #: known jobs by succession
        self._of: dict[JobId, str] = {}  #: succession of each single pod that waits or has a place
        self._due: dict[str, None] = {}  #: successions to try in the next cycle
        #: places that a plan gives to successors, until the ledger has answered
        self._given: dict[PlanId, list[LeftPlace]] = {}
        self._suspended: dict[str, list[LeftPlace]] = {}  #: places that are free during the present cycle's trials

    # --- what happens

    def job(self, job: Job) -> None:
        """A message about the job was received."""
        if job.succession:
            self._jobs[job.succession][job.id] = None
            if not job.gang:
                self._of[job.id] = job.succession
            if job.succession in self._places:
                self._due[job.succession] = None

    def removed(self, job: Job) -> None:
        """The job was withdrawn. Its pods may have places."""
        if job.succession:
            jobs = self._jobs[job.succession]
            jobs.pop(job.id, None)
            if not jobs:
                del self._jobs[job.succession]
            if not job.gang and not any(pod.uid in self._bookings for spec in job.tasks for pod in spec.pods):
                self._of.pop(job.id, None)

    def missing(self, states: Iterable[MissingPods]) -> None:
        """Set how many pods these controllers are about to create."""
        for state in states:
            if (before := self._missing.get(state.succession, 0)) > state.pods:
                self._faded[state.succession] = max(before, self._faded.get(state.succession, (0, None))[0]), None
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
        succession = self._of.pop(booking.job, "") or booking.job.partition(".")[0]
        if not (succession in self._jobs or succession in self._missing or succession in self._faded):
            return
        if claim.reason == f"its pod is {PodPhase.SUCCEEDED}" or booking.pod in self._nominations:
            return
        kept = self._places.get(succession, [])
        if len(kept) >= min(self._wanted(succession), MOST):
            return
        place = replace(booking, pod=PodUid(f"{booking.pod}/left"), claim=ClaimId(""), held=None, plan=PlanId(""), waiting=None)
        left = LeftPlace(succession, place, now + self._limits.successor_s)
        if self._keep(left):
            self._due[succession] = None

    def answered(self, plan: PlanId, *, accepted: bool) -> None:
        """The ledger answered a plan. If it refused a plan for successors, their places are reserved again."""
        for left in self._given.pop(plan, ()):
            if not accepted and self._keep(left):
                self._due[left.succession] = None

    # --- in a cycle

    def begin(self, now: float) -> None:
        """Release places without successors, and free those that are tried in this cycle. `finish` must follow."""
        for succession, (pods, until) in list(self._faded.items()):
            if until is None:
                self._faded[succession] = pods, now + FADES_S
            elif until <= now:
                del self._faded[succession]
        if not self._places:
            return
        for succession, places in list(self._places.items()):
            if self._is_active(succession) or self._queue.precedes(_ahead_of(-places[0].booking.priority)):
                self._due[succession] = None
            wanted = self._wanted(succession)
            places[:] = [left for left in places if left.until > now or self._release(left)]
            while len(places) > wanted:
                self._release(places.pop())
            if not places:
                del self._places[succession]
        self._due = {succession: None for succession in self._due if succession in self._places}
        for succession in list(self._due)[:TRIED]:
            self._suspended[succession] = self._places.pop(succession)
            for left in self._suspended[succession]:
                self._bookings.remove(left.booking.pod)

    def due(self) -> list[tuple[Order, str]]:
        """Successions to try, each after the active jobs that precede the order with it; the highest priority first."""
        if not self._suspended:
            return []
        found: list[tuple[Order, str]] = []
        for succession, places in self._suspended.items():
            entries = self._waiting(succession)
            first = entries[0].order[0] if entries else -places[0].booking.priority
            found.append((_ahead_of(first), succession))
        return sorted(found)

    def place(self, succession: str, now: float) -> list[Plan]:
        """Plans for pods of the succession. Their places are free."""
        plans: list[Plan] = []
        entries = [entry for entry in self._waiting(succession) if not self._blocked(entry)]
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
            wanted = self._wanted(succession)
            for left in places[:wanted]:
                self._keep(left)
        self._suspended.clear()

    def next_at(self) -> list[float]:
        """When the next place is released; at once if successions are left to try."""
        times = [left.until for places in self._places.values() for left in places]
        if self._places:
            times += [until if until is not None else float("-inf") for _, until in self._faded.values()]
        return [float("-inf")] if self._due else [min(times)] if times else []

    # --- details

    def _waiting(self, succession: str) -> list[Entry]:
        """Jobs of the succession with pods that wait for places, in order."""
        entries = []
        for job in self._jobs.get(succession, ()):
            entry = self._queue.entries.get(job)
            if entry is not None and entry.state in (JobState.ACTIVE, JobState.UNSCHEDULABLE):
                entry.update_pending(self._bookings)
                if entry.pending:
                    entries.append(entry)
        return sorted(entries, key=attrgetter("order"))

    def _is_active(self, succession: str) -> bool:
        """Whether a job of the succession is active, such as after a refused plan."""
        entries = map(self._queue.entries.get, self._jobs.get(succession, ()))
        return any(entry is not None and entry.state is JobState.ACTIVE for entry in entries)

    def _blocked(self, entry: Entry) -> bool:
        return bool(entry.problem() or self._queues.refusal(entry.job.queue, cards=any(task.cards for task in entry.tasks)))

    def _wanted(self, succession: str) -> int:
        """Pods that wait for places or are about to be created."""
        wanted = max(self._missing.get(succession, 0), self._faded.get(succession, (0, None))[0])
        for job in self._jobs.get(succession, ()):
            entry = self._queue.entries.get(job)
            if entry is not None and entry.state is not JobState.NOMINATED:
                wanted += sum(pod.uid not in self._bookings for spec in entry.job.tasks for pod in spec.pods)
        return wanted

    def _take(self, succession: str, plan: Plan) -> list[LeftPlace]:
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

    def _keep(self, left: LeftPlace) -> bool:
        """Book the place, if it is still free."""
        columns, booking = self._plans.columns, left.booking
        row = columns.row_of.get(booking.node)
        if row is None or not columns.schedulable[row] or not _idle(columns, row, booking.slices):
            return False
        for column, units in columns.amount(booking.requests):
            if columns.used[column, row] + units > columns.allocatable[column, row]:
                return False
        self._bookings.put(booking)
        self._places.setdefault(left.succession, []).append(left)
        return True

    def _release(self, left: LeftPlace) -> bool:
        self._bookings.remove(left.booking.pod)
        return False


def _ahead_of(first: int) -> Order:
    """Precedes all jobs of this priority; `first`: of their orders."""
    return first, float("-inf"), "", "", JobId("")
