"""Pods that move so that others get room in one piece (`consolidate`): their new places are kept for their successors.

A pod cannot move: it is evicted, and whoever made it makes another. From the plan on the new place is booked under a name of its own, so that nobody else
gets it. Once the pod is gone its successor is waited for: another pod of the same job, or, for a pod without a gang, any of its namespace and queue that
asks for the same: nobody tells whose successor it is. It is given the place before anybody else's turn. Who has none within a minute loses it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hbox_common.events import Plan
from hbox_common.model import JobId, PlanId, PodUid

from ..cluster import Booking
from ..placement.runner import JobPlacement, Move, PodPlacement
from ..queueing.jobs import Entry, JobState
from .context import SchedulerContext


@dataclass(slots=True)
class ReservedPlace:
    """A place reserved for the successor of a pod that moves."""

    plan: PlanId
    move: Move
    place: PodUid  #: under which it is booked
    until: float | None = None  #: None while the pod is still there


class Moves:
    """Reserved places, by the pods that leave for them."""

    def __init__(self, context: SchedulerContext) -> None:
        self._bookings = context.bookings
        self._planner = context.planner
        self._queue = context.queue
        self._unschedulable = context.unschedulable
        self._flights = context.flights
        self._limits = context.limits
        self._kept: dict[PodUid, ReservedPlace] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, plan: PlanId, moves: Iterable[Move]) -> None:
        """Reserve these places. The plan asks that their pods leave."""
        for move in moves:
            old = move.leaves
            self._release(old.pod)
            place = PodUid(f"{old.pod}/moved")
            node = self._planner.columns.names[move.row]
            self._bookings.put(
                Booking(
                    place,
                    old.job,
                    old.queue,
                    node,
                    old.requests,
                    move.slices,
                    plan,
                    priority=old.priority,
                    task=move.task,
                    gang=old.gang,
                    namespace=old.namespace,
                )
            )
            self._kept[old.pod] = ReservedPlace(plan, move, place)

    def cancel(self, plan: PlanId) -> None:
        """The plan was refused or given up: places of pods that are still there are released; successors of the others are waited for."""
        for pod in [pod for pod, kept in self._kept.items() if kept.plan == plan and pod in self._bookings]:
            self._release(pod)

    def keep(self, now: float) -> list[Plan]:
        """Plans that give successors their places."""
        if not self._kept:
            return []
        gone = [kept for pod, kept in self._kept.items() if pod not in self._bookings]
        for kept in gone:
            if kept.until is None:
                kept.until = now + self._limits.successor_s
            elif kept.until <= now:
                self._release(kept.move.leaves.pod)
        by_job: dict[JobId, list[ReservedPlace]] = {}
        for kept in gone:
            if kept.move.leaves.pod in self._kept:
                by_job.setdefault(kept.move.leaves.job, []).append(kept)
        plans = []
        for job, places in by_job.items():
            if places[0].move.leaves.gang:
                if (entry := self._queue.entries.get(job)) is not None:
                    plans += self._give(entry, places, now)
                continue
            for kept in places:
                entry = next(self._like(kept), None)
                if entry is not None:
                    plans += self._give(entry, [kept], now)
        return plans

    def next_at(self) -> list[float]:
        """When `keep` gives up somebody."""
        times = [kept.until for kept in self._kept.values() if kept.until is not None]
        return [min(times)] if times else []

    def _like(self, kept: ReservedPlace) -> Iterator[Entry]:
        """Jobs of one pod that could be the successor."""
        old, held = kept.move.leaves, kept.move.leaves.held
        for entry in self._queue.entries.values():
            job = entry.job
            if (
                job.queue == old.queue
                and not job.gang
                and held is not None
                and job.namespace == held.namespace
                and _free(entry)
            ):
                entry.update_pending(self._bookings)
                if entry.lone is kept.move.task and entry.pending[0][1][0].uid not in self._kept:
                    yield entry

    def _give(self, entry: Entry, places: Sequence[ReservedPlace], now: float) -> list[Plan]:
        """The places to pods of the job that ask for the same; all that have to start together, or none."""
        if not _free(entry):
            return []
        entry.update_pending(self._bookings)
        left = {id(task): [pod for pod in pods if pod.uid not in self._kept] for task, pods in entry.pending}
        given = [(kept, pods.pop(0)) for kept in places if (pods := left.get(id(kept.move.task)))]
        if not given or entry.need > len(given) or entry.problem():
            return []
        for kept, _ in given:
            self._release(kept.move.leaves.pod)
        placed = tuple(PodPlacement(kept.move.task, pod, kept.move.row, kept.move.slices) for kept, pod in given)
        plan = self._planner.placement_plan(JobPlacement(entry, placed, ()))
        if plan is None:
            return []
        self._unschedulable.retry_class(entry)
        entry.state, entry.key, entry.activated_from = JobState.PROPOSED, None, None
        self._flights.open(plan, now)
        return [plan]

    def _release(self, pod: PodUid) -> None:
        kept = self._kept.pop(pod, None)
        if kept is not None:
            self._bookings.remove(kept.place)


def _free(entry: Entry) -> bool:
    return entry.state in (JobState.ACTIVE, JobState.UNSCHEDULABLE)
