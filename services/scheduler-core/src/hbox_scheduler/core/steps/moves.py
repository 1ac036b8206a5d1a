"""Moves: pods that are evicted so that a gang fits (`consolidate`), and the places that are reserved for their successors.

A pod cannot move: it is evicted, and its controller creates a successor. From the plan on, the new place is booked under a name of its own, so that no other
pod gets it. When the pod is gone, the engine waits for its successor: another pod of the same job, or, for a pod without a gang, any pod of its namespace and
queue with equal requests, since no object names a pod's predecessor. The successor gets the place before any other job's turn. If none appears within a minute,
the place is released. Most controllers create the successor while its predecessor still terminates. Such a successor is placed like any other pod, and the
reserved place is released at once.

The ledger records these places with the nomination for which the pods leave; a restarted scheduler continues with them. Claims contain a pod's resources and
cards but no other constraints: a successor is then any such pod that may run on the node.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hbox_common.events import GivenUp, HeldNomination, Plan
from hbox_common.model import CardRequest, CardSlice, JobId, NodeName, PlanId, PodRef, PodUid

from ..cluster import Booking, Columns
from ..cluster.task import Task
from ..devices import CardFit, pick, slices_of
from ..placement.outcomes import JobPlacement, Move, PodPlacement
from ..queueing.jobs import Entry, JobState
from .context import SchedulerContext


@dataclass(slots=True)
class ReservedPlace:
    """A place reserved for the successor of a pod that moves. `slices`: its cards when it was last released; while it is booked, the booking has them."""

    plan: PlanId
    leaves: Booking
    node: NodeName
    slices: tuple[CardSlice, ...]
    cards: CardRequest | None
    task: Task | None  #: the pod's whole request, if this process knows it
    until: float | None = None  #: None while the pod is still there

    @property
    def place(self) -> PodUid:
        """Under which it is booked."""
        return PodUid(f"{self.leaves.pod}/moved")


class Moves:
    """Reserved places, by the pods that leave for them."""

    def __init__(self, context: SchedulerContext) -> None:
        self._bookings = context.bookings
        self._plans = context.plans
        self._views = context.views
        self._queue = context.queue
        self._unschedulable = context.unschedulable
        self._flights = context.flights
        self._limits = context.limits
        self._kept: dict[PodUid, ReservedPlace] = {}
        #: places given to successors, by the plan that assigns them, until the ledger has answered
        self._given: dict[PlanId, list[ReservedPlace]] = {}
        self.given_up: list[GivenUp] = []  #: what the ledger does not know yet; the reader empties it

    def put(self, plan: PlanId, moves: Iterable[Move]) -> None:
        """Reserve these places. The plan asks that their pods leave."""
        for move in moves:
            columns = self._plans.columns
            node, slices = columns.names[move.row], columns.named(move.row, move.slices)
            self._keep(ReservedPlace(plan, move.leaves, node, slices, move.task.cards, move.task))

    def take_over(self, held: HeldNomination) -> None:
        """Reserve the places of a nomination that another process made."""
        victims = {victim.claim: victim for victim in held.plan.victims}
        for claim in held.moved:
            victim, leaves = victims[claim.id], Booking.of(claim, None)
            leaves.gang = victim.gang
            self._keep(ReservedPlace(held.plan.id, leaves, victim.to, victim.slices, victim.cards, None))

    def _keep(self, kept: ReservedPlace) -> None:
        old = kept.leaves
        self._release(old.pod)
        self._bookings.put(
            Booking(
                kept.place,
                old.job,
                old.queue,
                kept.node,
                old.requests,
                kept.slices,
                kept.plan,
                priority=old.priority,
                task=kept.task,
                gang=old.gang,
                namespace=old.namespace,
            )
        )
        self._kept[old.pod] = kept

    def places(self) -> Iterator[PodUid]:
        """Under which names places are booked."""
        return (kept.place for kept in self._kept.values())

    def end(self, plan: PlanId) -> None:
        """The ledger remembers no place of the plan any more."""
        for pod in [pod for pod, kept in self._kept.items() if kept.plan == plan]:
            self._release(pod)

    def cancel(self, plan: PlanId) -> None:
        """The plan was refused or given up: places of pods that are still there are released; successors of the others are waited for."""
        for pod in [pod for pod, kept in self._kept.items() if kept.plan == plan and pod in self._bookings]:
            self._release(pod)

    def keep(self, now: float) -> list[Plan]:
        """Plans that give successors their places."""
        if not self._kept:
            return []
        gone = []
        for pod, kept in self._kept.items():
            if pod not in self._bookings:
                gone.append(kept)
            else:
                kept.until = None  # the pod is there, even if its end was reported
        for kept in gone:
            if kept.until is None:
                kept.until = now + self._limits.successor_s
            elif kept.until <= now:
                self._release(kept.leaves.pod)
                self.given_up.append(GivenUp(plan=kept.plan, moved=(kept.leaves.pod,)))
        by_job: dict[JobId, list[ReservedPlace]] = {}
        for kept in gone:
            if kept.leaves.pod in self._kept:
                by_job.setdefault(kept.leaves.job, []).append(kept)
        plans = []
        for job, places in by_job.items():
            if places[0].leaves.gang:
                if (entry := self._queue.entries.get(job)) is not None:
                    plans += self._give(entry, places, now)
                continue
            for kept in places:
                entry = next(self._like(kept), None)
                if entry is not None:
                    plans += self._give(entry, [kept], now)
        return plans

    def placed(self, plan: Plan) -> None:
        """The plan placed these pods on free resources: for each that could be a successor, release one reserved place."""
        entry = self._queue.entries.get(plan.job) if self._kept else None
        if entry is None:
            return
        pods = {pod.uid: task for task, spec in zip(entry.tasks, entry.job.tasks, strict=True) for pod in spec.pods}
        for one in plan.placements:
            task = pods.get(one.pod_uid)
            kept = next((kept for kept in self._kept.values() if task is not None and self._succeeds(kept, entry, task)), None)
            if kept is not None:
                self._release(kept.leaves.pod)
                self.given_up.append(GivenUp(plan=kept.plan, moved=(kept.leaves.pod,)))

    def taken(self, plan: Plan) -> None:
        """The ledger accepted this plan."""
        self._given.pop(plan.id, None)

    def refused(self, plan: Plan, *, keep: bool) -> None:
        """The ledger refused this plan. `keep`: its places are kept for successors as before."""
        for kept in self._given.pop(plan.id, ()):
            if keep:
                self._keep(kept)
            else:
                self.given_up.append(GivenUp(plan=kept.plan, moved=(kept.leaves.pod,)))

    def _succeeds(self, kept: ReservedPlace, entry: Entry, task: Task) -> bool:
        """Whether such a pod of the job could be the successor."""
        of = entry.job.id == kept.leaves.job if kept.leaves.gang else self._is_comparable(kept, entry)
        return of and self._suits(kept, task)

    def next_at(self) -> list[float]:
        """When `keep` releases the next place."""
        times = [kept.until for kept in self._kept.values() if kept.until is not None]
        return [min(times)] if times else []

    def _like(self, kept: ReservedPlace) -> Iterator[Entry]:
        """Jobs of one pod that could be the successor."""
        for entry in self._queue.entries.values():
            if self._is_comparable(kept, entry) and _free(entry):
                entry.update_pending(self._bookings)
                lone = entry.lone
                if lone is not None and self._suits(kept, lone) and entry.pending[0][1][0].uid not in self._kept:
                    yield entry

    @staticmethod
    def _is_comparable(kept: ReservedPlace, entry: Entry) -> bool:
        """Whether it is a job of one pod, of the same queue and namespace."""
        held, job = kept.leaves.held, entry.job
        return job.queue == kept.leaves.queue and not job.gang and held is not None and job.namespace == held.namespace

    def _give(self, entry: Entry, places: Sequence[ReservedPlace], now: float) -> list[Plan]:
        """The places to pods of the job that ask for the same; all that have to start together, or none."""
        if not _free(entry):
            return []
        entry.update_pending(self._bookings)
        left = [(task, [pod for pod in pods if pod.uid not in self._kept]) for task, pods in entry.pending]
        given = [
            (kept, found[0], found[1].pop(0))
            for kept in places
            if (found := next(((task, pods) for task, pods in left if pods and self._suits(kept, task)), None))
        ]
        if not given or entry.need > len(given) or entry.problem():
            return []
        for kept, _, _ in given:
            self._release(kept.leaves.pod)
        placed = self._placements(given)
        plan = self._plans.placement_plan(JobPlacement(entry, placed, ())) if placed else None
        if plan is None:
            for kept, _, _ in given:
                self._keep(kept)
            return []
        plan = plan.model_copy(update={"succeeds": tuple(kept.leaves.pod for kept, _, _ in given)})
        self._given[plan.id] = [kept for kept, _, _ in given]
        self._unschedulable.leave(entry, JobState.PROPOSED)
        self._flights.open(plan, now)
        return [plan]

    def _placements(self, given: Sequence[tuple[ReservedPlace, Task, PodRef]]) -> tuple[PodPlacement, ...]:
        """On the reserved cards; if these are taken by now (kubelets choose cards too), on other cards of the node; () if there are none."""
        columns = self._plans.columns
        placed: list[PodPlacement] = []
        try:
            for kept, task, pod in given:
                row = columns.row_of[kept.node]
                slices = kept.slices if _idle(columns, row, kept.slices) else _others(columns, row, task)
                if slices is None:
                    return ()
                columns.book(row, task.requests, slices, aligned=task.aligned)
                placed.append(PodPlacement(task, pod, row, slices))
        finally:
            for one in placed:
                columns.book(one.row, one.task.requests, one.slices, -1, aligned=one.task.aligned)
        return tuple(placed)

    def _suits(self, kept: ReservedPlace, task: Task) -> bool:
        """True if a pod of the task requests what the moved pod requested, and the node still exists."""
        row = self._plans.columns.row_of.get(kept.node)
        if row is None or kept.task is not None:
            return row is not None and task is kept.task
        same_request = task.requests == kept.leaves.requests and task.cards == kept.cards
        return same_request and bool(self._views.of(task).allowed[row])

    def _release(self, pod: PodUid) -> None:
        kept = self._kept.pop(pod, None)
        if kept is not None and (booking := self._bookings.remove(kept.place)) is not None:
            kept.slices = booking.slices


def _free(entry: Entry) -> bool:
    return entry.state in (JobState.ACTIVE, JobState.UNSCHEDULABLE)


def _idle(columns: Columns, row: int, slices: Sequence[CardSlice]) -> bool:
    """True if these cards are unused and all of them usable."""
    cards = columns.positions(row, slices)
    return all(card >= 0 and columns.card_ok[row, card] and not columns.card_pods[row, card] for card in cards)


def _others(columns: Columns, row: int, task: Task) -> tuple[CardSlice, ...] | None:
    """What the pod would be given of the row's cards now; None: there is no room."""
    if task.cards is None:
        return ()
    rows, one = np.array([row], dtype=np.int64), np.array([1], dtype=np.int64)
    room = CardFit().capacity(columns, rows, task)
    if room is None or room[0] < 1:
        return None
    return slices_of(columns, pick(columns, rows, one, task), task.cards.count)[0]
