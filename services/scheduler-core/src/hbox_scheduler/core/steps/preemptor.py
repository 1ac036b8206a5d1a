"""Preemption: places that other pods hold, for pending jobs that are entitled to more. Sessions find victims, and the places are nominated, and planned once
they are free.

A victim search scans every evictable pod, so it runs only after a state change, with a backoff while it finds no victims.
"""

from collections.abc import Collection, Iterable, Set
from dataclasses import replace
from functools import partial
from operator import attrgetter

from hbox_common.events import GivenUp, HeldNomination, Leaving, Plan, PlanAnswer
from hbox_common.model import ClaimId, Index, JobId, NodeName, PlanId, PodUid, QueueName, RefusalReason
from hbox_common.pacing import backoff_s

from ..cluster import Booking
from ..devices import PodSlices
from ..placement.outcomes import JobPlacement, PodPlacement
from ..queueing.backoff import SessionBackoff
from ..queueing.jobs import Entry, JobState
from .context import SchedulerContext
from .moves import Moves
from .nominatedcards import move_off_taken
from .nominations import Nomination, Nominations

#: Seconds until moves that were not made are tried again, and until the ledger is asked again after it paused moves.
MOVES_AGAIN_S, MOVES_PAUSED_S = 30.0, 60.0

#: Refusals that say nothing against the places of a nomination: a kubelet gave one of its cards to another pod, so that other cards of the node do; or the
#: ledger accepted nothing at that time.
_KEEPS_PLACES = (RefusalReason.CARD_TAKEN, RefusalReason.PODS_UNSEEN, RefusalReason.FROZEN, RefusalReason.STALE_EPOCH)
#: So many of them in a row are too many.
_REFUSALS = 8


def _against(answer: PlanAnswer | None) -> bool:
    """True if a rejection concerns the places that were reserved for the plan."""
    return answer is not None and answer.reason not in _KEEPS_PLACES


class Preemptor:
    """Jobs that may preempt others, and their nominations."""

    def __init__(self, context: SchedulerContext) -> None:
        self.nominations = Nominations()
        self._moves = Moves(context)
        self._runner = context.runner
        self._plans = context.plans
        self._bookings = context.bookings
        self._queues = context.queues
        self._queue = context.queue
        self._unschedulable = context.unschedulable
        self._flights = context.flights
        self._limits = context.limits
        self._candidates: dict[JobId, None] = {}
        self._backoff = SessionBackoff(context.limits.session_every_s, context.limits.session_max_s)
        self._tried_at: tuple[Index, int] = (Index(0), 0)
        #: when the protection of the next victim ends, as of the last search
        self._unprotected_at: float | None = None
        self._moves_paused_until: float | None = None
        self.activated = False  #: whether the last run gave jobs their turn again
        self._given_up: list[GivenUp] = []
        #: nominations of other processes that the ledger remembers: each is taken over once
        self._taken_over: set[PlanId] = set()
        #: nominations whose places are requested, by the requesting plan, until the ledger has answered
        self._asked: dict[PlanId, Nomination] = {}
        #: plan that places nominated pods elsewhere -> the nomination's plan
        self._elsewhere: dict[PlanId, PlanId] = {}

    def add(self, entry: Entry, equals: Iterable[JobId] = ()) -> None:
        """A job failed: it may preempt others, for itself and for the jobs that it represents."""
        if self._runner.may_preempt(entry, self._queues.all()):
            if entry.job.id not in self._candidates:
                self._candidates.update(dict.fromkeys(equals))
            self._candidates[entry.job.id] = None

    def add_all(self, freed: set[QueueName], quotas_freed: set[str], *, rules_changed: bool) -> None:
        """Unschedulable jobs whose queues hold less than before, which are `freed`, or whose namespaces do, so that their quotas leave more: `quotas_freed`.
        `rules_changed`: the rules of queues changed, so that a session may find more."""
        queues = self._queues.all()
        entitled = partial(self._runner.may_preempt_at_all, queues=queues)
        for jobs in self._unschedulable.still_waiting(self._queue.entries, freed, quotas_freed, entitled):
            if (first := next(jobs, None)) is not None and self._runner.may_preempt(first, queues):
                self._candidates[first.job.id] = None
                self._candidates.update((entry.job.id, None) for entry in jobs)
        if rules_changed:
            self.invalidate()

    def invalidate(self) -> None:
        """The state changed: the next session may find victims where the last one found none."""
        self._tried_at = (Index(-1), -1)

    def remove(self, job: JobId) -> None:
        if (nomination := self.nominations.get(job)) is not None:
            self._give_up(nomination)
        self._candidates.pop(job, None)
        self._runner.moves.forget(job)
        self._runner.protection.forget(job)

    def pod_left(self, pod: PodUid) -> None:
        """A pod's booking is gone: a nomination may have waited for this."""
        self.nominations.pod_left(pod)

    def eviction_failed(self, pods: Iterable[PodUid]) -> None:
        """Victims were not evicted: nominations that wait for them are given up at once."""
        for job in {job: None for pod in pods for job in self.nominations.waiting_for(pod)}:
            if (nomination := self.nominations.get(job)) is not None:
                self._give_up(nomination)
        self.nominations.stay(pods)
        self._backoff.retry_soon()
        self.invalidate()

    def accepted(self, plan: Plan) -> None:
        """The ledger accepted this plan: its victims leave, or what it was nominated is its own."""
        self._asked.pop(plan.id, None)
        self._elsewhere.pop(plan.id, None)
        self._moves.taken(plan)
        if (nomination := self.nominations.of_plan(plan.job, plan.id)) is not None:
            nomination.accepted = True

    def refused(self, plan: Plan, answer: PlanAnswer | None) -> None:
        """The ledger rejected this plan, or (None) a restarted ledger does not know it. Its own places are released already."""
        if (before := self._elsewhere.pop(plan.id, None)) is not None:
            self._given_up.append(GivenUp(plan=before))
        if plan.victims:
            self.nominations.drop(plan.job)
            self._moves.cancel(plan.id)
            if plan.moves is not None:
                self._runner.moves.withdraw(plan.id)
        elif plan.succeeds:
            self._moves.refused(plan, keep=not _against(answer))
            self.cards_given({place.node for place in plan.placements})

    def nominate_again(self, plan: Plan, entry: Entry | None, answer: PlanAnswer | None, now: float) -> bool:
        """A plan was rejected, or (None) a restarted ledger does not know it. If it had victims and the rejection does not concern its places, they are
        nominated again, and requested again on a view as new as the answer names, after a backoff from the second rejection in a row on. Returns whether they
        are. entry: the plan's job; None: it is gone."""
        nomination = self._asked.pop(plan.id, None)
        if nomination is None:
            return False
        places = [self._bookings.get(place.pod_uid) for place in plan.placements]
        mine = [place for place in places if place is not None and place.plan == plan.id and not place.claim]
        nomination.refusals += answer is not None
        if entry is None or _against(answer) or nomination.refusals > _REFUSALS or len(mine) < len(places):
            self._given_up.append(GivenUp(plan=nomination.plan))
            return False
        for place in mine:
            self._bookings.put(replace(place, plan=nomination.plan))
        nomination.refresh = answer.refresh if answer is not None else Index(0)
        limits, further = self._limits, nomination.refusals - 2
        nomination.ask_at = (
            now + backoff_s(further, base_s=limits.backoff_s, cap_s=limits.backoff_max_s) if further >= 0 else 0.0
        )
        self._put(nomination, now)
        entry.plans.discard(plan.id)
        entry.state = JobState.NOMINATED
        self.cards_given({place.node for place in mine})
        return True

    def restarted(self) -> None:
        """The ledger is in a new epoch: views of the old one mean nothing any more."""
        for nomination in self.nominations.all():
            nomination.refresh = Index(0)

    def moves_paused(self, why: str, now: float) -> None:
        """The ledger has paused moves: it is asked again after a minute."""
        self._runner.moves.hold(why)
        self._moves_paused_until = now + MOVES_PAUSED_S

    def take_over(self, held: HeldNomination, now: float) -> None:
        """Take over a nomination that the ledger recorded, if another process made it. If this process has booked places for the job, these are newer and
        stay."""
        plan = held.plan
        pods = tuple(placement.pod_uid for placement in plan.placements)
        if held.scheduler == self._plans.id or plan.id in self._taken_over:
            return
        self._taken_over.add(plan.id)
        if self.nominations.get(plan.job) is not None:
            return
        if pods and not any(pod in self._bookings for pod in pods):
            for p in plan.placements:
                requests = plan.requests[p.requests]
                self._bookings.put(
                    Booking(p.pod_uid, plan.job, plan.queue, p.node, requests, p.slices, plan.id, plan.priority, plan.namespace)
                )
            waits_for = {victim.pod_uid for victim in plan.victims if self._leaves(victim.claim, victim.pod_uid)}
            until = now + self._limits.nomination_s
            self._put(Nomination(plan.id, plan.job, pods, None, waits_for, until, accepted=True, held=plan), now)
        self._moves.take_over(held)
        self.cards_given({*(p.node for p in plan.placements), *(victim.to for victim in plan.victims if victim.to)})

    def cards_given(self, nodes: Collection[NodeName]) -> None:
        """Kubelets of these nodes gave pods other cards than planned: no place is kept on them."""
        kept = dict.fromkeys([*self.nominations.kept(), *self._moves.places()])
        on = {booking.node: None for pod in kept if (booking := self._bookings.get(pod)) is not None and booking.node in nodes}
        for node in on:
            move_off_taken(self._bookings, self._plans.columns, node, kept=kept, leaving=self.nominations)

    def keep_only(self, plans: Set[PlanId]) -> None:
        """The ledger remembers these nominations and no others: what was taken over and is not among them has ended."""
        for plan in sorted(self._taken_over - plans):
            self.ended(plan)

    def ended(self, plan: PlanId) -> None:
        """The ledger remembers none of the plan's places any more."""
        if (nomination := self.nominations.by_plan(plan)) is not None:
            self._drop(nomination)
        self._moves.end(plan)
        self._taken_over.discard(plan)

    def take_given_up(self) -> list[GivenUp]:
        """What the ledger need not remember any more, since the last call."""
        given_up = self._given_up + self._moves.given_up
        self._given_up, self._moves.given_up = [], []
        return given_up

    def next_at(self, index: Index, now: float) -> list[float]:
        """When `run` or `keep` has something next."""
        looks = self._candidates and self._changed_since(index) and not self._runner.idle and not self._full
        return [
            *([self._backoff.next_at] if looks else []),
            *(at for at in (self._unprotected_at, self._moves_paused_until) if self._candidates and at is not None),
            *self.nominations.next_at(now),
            *self._moves.next_at(),
        ]

    def run(self, index: Index, now: float, wall: float) -> list[Plan]:
        """Plans with victims, for pending jobs that are entitled to what others hold. `wall`: seconds since the epoch."""
        self.activated = False
        if self._moves_paused_until is not None and now >= self._moves_paused_until:
            self._moves_paused_until = None
            self._runner.moves.hold("")
            self.invalidate()
        if self._unprotected_at is not None and now >= self._unprotected_at:
            self._unprotected_at = None
            self.invalidate()
        if self._runner.idle or not self._candidates or not self._changed_since(index):
            return []
        if not self._backoff.due(now) or self._full:
            return []
        unschedulable = [
            entry
            for job in self._candidates
            if (entry := self._queue.entries.get(job)) is not None and entry.state is JobState.UNSCHEDULABLE
        ]
        self._candidates = dict.fromkeys(entry.job.id for entry in unschedulable)
        unschedulable.sort(key=attrgetter("order"))
        queues = self._queues.all()
        entries: list[Entry] = []
        may: dict[object, bool] = {}  #: by what `may_preempt` reads of a job
        for entry in unschedulable:
            entry.update_pending(self._bookings)
            if entry.problem() or not entry.pending:
                continue
            key = entry.pending[0][0], entry.job.queue, entry.job.priority, entry.offline, entry.need
            if key not in may:
                may[key] = self._runner.may_preempt(entry, queues)
            if may[key]:
                entries.append(entry)
                if len(entries) == self._limits.session_jobs:
                    break
        placements = self._runner.preempt(entries, queues, self.nominations) if entries else []
        plans = [self._nominate(placement, now) for placement in placements]
        self._tried_at = (index, len(self._candidates))
        soonest = self._bookings.next_unprotected(wall) if self._candidates else None
        self._unprotected_at = None if soonest is None else now + (soonest - wall) / self._limits.clock_rate
        if self._candidates and self._runner.moves.refused:
            again = now + MOVES_AGAIN_S
            self._unprotected_at = again if self._unprotected_at is None else min(self._unprotected_at, again)
        for reworded in (self._runner.moves.reworded, self._runner.protection.reworded):
            for entry in reworded:
                if entry.state is JobState.UNSCHEDULABLE:  # its next attempt publishes the reason
                    self._queue.activate(entry)
                    self.activated = True
            reworded.clear()
        self._backoff.record(now, success=bool(plans))
        return plans

    def keep(self, index: Index, now: float) -> list[Plan]:
        """Plans for the places whose victims are gone, and for successors of moved pods; nominations whose victims never left are dropped."""
        for nomination in self.nominations.unknown():
            if (entry := self._queue.entries.get(nomination.job)) is not None:
                self._resume(nomination, entry)
        plans = self._moves.keep(now)
        for nomination in self.nominations.due(index, now):
            placement = self._as_booked(nomination)
            entry = placement.entry
            self.nominations.drop(entry.job.id)
            self._release(nomination)
            plan = self._plans.placement_plan(placement)
            if plan is None:
                self._given_up.append(GivenUp(plan=nomination.plan))
                self._queue.activate(entry)
                continue
            entry.state = JobState.PROPOSED
            nomination.placement = placement
            self._asked[plan.id] = nomination
            self._flights.open(plan, now)
            plans.append(plan)
        for nomination in self.nominations.expired(now):
            self._give_up(nomination)
        return plans

    def placed(self, plan: Plan) -> None:
        """The plan takes what is free: its pods may be successors of moved pods."""
        self._moves.placed(plan)

    def _resume(self, nomination: Nomination, entry: Entry) -> None:
        """The job of a nomination that was taken over was received: it waits for its places, unless its requests differ from the plan's."""
        plan, row_of = nomination.held, self._plans.columns.row_of
        assert plan is not None
        pods = {pod.uid: (task, pod) for task, spec in zip(entry.tasks, entry.job.tasks, strict=True) for pod in spec.pods}
        placed: list[PodPlacement] = []
        for p in plan.placements:
            task, pod = pods.get(p.pod_uid, (None, None))
            row = row_of.get(p.node)
            if task is None or pod is None or row is None or task.requests != plan.requests[p.requests]:
                self._give_up(nomination)
                return
            placed.append(PodPlacement(task, pod, row, PodSlices.written(p.slices, p.layout)))
        self.nominations.resume(nomination, JobPlacement(entry, tuple(placed), ()))
        self._unschedulable.leave(entry, JobState.NOMINATED)
        self._candidates.pop(entry.job.id, None)

    def _as_booked(self, nomination: Nomination) -> JobPlacement:
        """Its placement, on the cards on which its places are booked by now."""
        placement = nomination.placement
        assert placement is not None
        placed = []
        for one in placement.placements:
            booking = self._bookings.get(one.uid)
            moved = booking is not None and booking.plan == nomination.plan and booking.slices != one.slices
            placed.append(replace(one, slices=booking.slices) if booking is not None and moved else one)
        return replace(placement, placements=tuple(placed))

    def _leaves(self, claim: ClaimId, pod: PodUid) -> bool:
        """Whether the pod still holds its place by this claim."""
        booking = self._bookings.get(pod)
        return booking is not None and booking.claim == claim

    def _give_up(self, nomination: Nomination) -> None:
        self._given_up.append(GivenUp(plan=nomination.plan))
        if self._flights.get(nomination.plan) is not None:
            self._flights.close(nomination.plan)  # resent after this message, it would evict victims for nothing
            if (entry := self._queue.entries.get(nomination.job)) is not None:
                entry.plans.discard(nomination.plan)
        self._drop(nomination)

    def _drop(self, nomination: Nomination) -> None:
        self.nominations.drop(nomination.job)
        self._release(nomination)
        self._moves.cancel(nomination.plan)
        entry = self._queue.entries.get(nomination.job)
        if entry is not None and entry.state is JobState.NOMINATED:
            self._queue.activate(entry)

    @property
    def _full(self) -> bool:
        """Whether nothing more is proposed before the ledger has answered, which wakes the scheduler."""
        return self._flights.placements >= self._limits.outstanding

    def _changed_since(self, index: Index) -> bool:
        """Whether anything changed since the last session that could change its result."""
        return self._runner.repeats_searches or self._tried_at != (index, len(self._candidates))

    def _nominate(self, placement: JobPlacement, now: float) -> Plan:
        entry = placement.entry
        self._unschedulable.leave(entry, JobState.NOMINATED)
        self._candidates.pop(entry.job.id, None)
        plan = self._plans.preemption_plan(placement)
        self._queue.recount(entry)
        victims = {victim.pod for victim in placement.victims}
        pods = tuple(placed.pod.uid for placed in placement.placements)
        until = now + self._limits.nomination_s
        self._put(Nomination(plan.id, entry.job.id, pods, placement, victims, until), now)
        self._moves.put(plan.id, placement.moves)
        if placement.moves:
            self._runner.moves.note_made(plan.id, len(placement.moves))
        self._flights.open(plan, now)
        return plan

    def moved_on(self, nomination: Nomination, plans: Iterable[Plan]) -> None:
        """End the nomination, since these plans place all of its pods elsewhere. The caller has removed the bookings of its places."""
        self.nominations.drop(nomination.job)
        self._moves.cancel(nomination.plan)
        self._elsewhere.update((plan.id, nomination.plan) for plan in plans)

    def nominate_elsewhere(self, nomination: Nomination, placement: JobPlacement, now: float) -> Plan:
        """The plan that replaces the nomination by one with other victims. The caller has removed the bookings of its places; the ledger ends the old
        nomination when it accepts the plan."""
        self.nominations.drop(nomination.job)
        self._moves.cancel(nomination.plan)
        return self._nominate(placement, now)

    def victims_leave(self, leaving: Iterable[Leaving], now: float) -> None:
        """Set the deadlines of these pods, whose evictions were accepted at `now` (monotonic)."""
        for one in leaving:
            by = now + one.grace_s / self._limits.clock_rate + self._limits.leave_margin_s
            self.nominations.leaves_by(one.pod_uid, by)

    def _put(self, nomination: Nomination, now: float) -> None:
        self.nominations.put(nomination, now + self._limits.leave_s + self._limits.leave_margin_s)

    def _release(self, nomination: Nomination) -> None:
        self._bookings.take_back(nomination.plan, nomination.pods)
