"""The ledger's side of the scheduler: its claims, nominations and answers update the scheduler's view.

The ledger owns the state. A placement is booked on the columns when it is proposed, and stays booked until the ledger answers: a refusal reverts it, a claim
replaces it. Messages may arrive late, twice or out of order: epochs, plan ids and the ledger's index decide which of them apply.
"""

from collections.abc import Iterable, Sequence, Set

from hbox_common.events import HeldNomination, JobVerdict, Leaving, Plan, PlanAnswer
from hbox_common.model import (
    Claim,
    ClaimState,
    Epoch,
    Index,
    Job,
    JobId,
    NodeName,
    PlanId,
    PodGroupTask,
    PodUid,
    RefusalReason,
)
from hbox_common.model.claim import KUBELET_GAVE

from .cluster import Booking
from .cluster.facts import ClusterFacts
from .protocol.inflight import Verdicts
from .queueing.jobs import Entry, JobState
from .steps.admission import Admission
from .steps.context import SchedulerContext
from .steps.preemptor import Preemptor
from .steps.reservations import Reservations
from .steps.shuffling import Shuffling
from .steps.successions import Successions


class LedgerView:
    """What one scheduler knows of the ledger, and the handlers of its messages."""

    def __init__(
        self,
        context: SchedulerContext,
        *,
        facts: ClusterFacts,
        verdicts: Verdicts,
        preemptor: Preemptor,
        shuffling: Shuffling,
        reservations: Reservations,
        admission: Admission,
        successions: Successions,
    ) -> None:
        self.epoch = Epoch(0)
        self.index = Index(0)
        self.frozen = True
        self.held = ""  #: why the ledger accepts no plans for now
        self.limits = context.limits
        self.bookings = context.bookings
        self.admission = admission
        self._queue = context.queue
        self._flights = context.flights
        self._sessions = context.sessions
        self._facts = facts
        self._verdicts = verdicts
        self._preemptor = preemptor
        self._shuffling = shuffling
        self._reservations = reservations
        self._successions = successions
        self._clocks = (0.0, 0.0)  #: `now` and `wall` of the last cycle
        self._placed_before: dict[PodUid, tuple[Job, PodGroupTask]] = {}  #: empty once all claims are known

    def on_claims_page(self, *, epoch: Epoch, index: Index, claims: Iterable[Claim], now: float) -> None:
        """Book claims of a snapshot at `index` that is still arriving; `on_claims_snapshot` follows, with these objects among its claims. Until then nothing
        may be planned, and no later change of claims may be applied: the view is partly as of `index`."""
        if epoch > self.epoch or (epoch == self.epoch and index >= self.index):
            self._claimed((claim for claim in claims if claim.state.live), index, now)

    def on_claims_snapshot(
        self,
        *,
        epoch: Epoch,
        index: Index,
        frozen: bool,
        claims: Iterable[Claim],
        nominations: Sequence[HeldNomination] = (),
        now: float,
    ) -> None:
        """Record all live claims and nominations at `index`. In a new epoch, proposals without a claim or nomination were never accepted and never will be.
        Claims that are booked already, as this object, cost a look-up each."""
        if epoch < self.epoch or (epoch == self.epoch and index < self.index):
            return
        news = {claim.pod_uid: claim for claim in claims if claim.state.live}
        for uid, booking in list(self.bookings.all().items()):
            if booking.claim and uid not in news:
                self._void(uid, now)
        self._claimed(news.values(), index, now)
        restarted = epoch != self.epoch
        self.epoch, self.index, self.frozen = epoch, index, frozen
        named = {nomination.plan.id for nomination in nominations}
        if restarted:
            self._restart(now, named)
        self._preemptor.keep_only(named)
        for nomination in nominations:
            self._preemptor.take_over(nomination, now)
        if self._placed_before:
            self._learn_placed()
        self._settle(now)

    def on_claims(
        self,
        *,
        epoch: Epoch,
        previous: Index,
        index: Index,
        claims: Iterable[Claim],
        nominations: Sequence[HeldNomination] = (),
        ended: Sequence[PlanId] = (),
        leaving: Sequence[Leaving] = (),
        now: float,
    ) -> bool:
        """Record the changes of claims after `previous` up to `index`, of nominations and of terminating victims. Returns False if changes before `previous`
        are missing: the caller then requests a snapshot."""
        if epoch == self.epoch and previous <= self.index:
            for nomination in nominations:
                self._preemptor.take_over(nomination, now)
            for plan in ended:
                self._preemptor.ended(plan)
            self._preemptor.victims_leave(leaving, now)
        if epoch < self.epoch or (epoch == self.epoch and index <= self.index):
            return True
        if epoch != self.epoch or previous > self.index:
            return False
        changes = list(claims)
        self._claimed([claim for claim in changes if claim.state.live], index, now)
        for claim in changes:
            booking = None if claim.state.live else self.bookings.get(claim.pod_uid)
            if booking is not None and (booking.claim == claim.id or (not booking.claim and booking.plan == claim.plan)):
                self._void(claim.pod_uid, now, claim)
        self.index = index
        self._settle(now)
        return True

    def on_answers(self, *, epoch: Epoch, index: Index, answers: Iterable[PlanAnswer], now: float) -> bool:
        """Record the ledger's answers; a plan's answer may arrive more than once. Returns False if the ledger is in a newer epoch: request a snapshot then."""
        for answer in answers:
            plan = self._flights.get(answer.plan)
            if plan is None:
                continue
            if not plan.placements:
                self._flights.close(plan.id)
                if not answer.committed:
                    self._shuffling.refused(plan, now)
                continue
            entry = self._entry_of(plan)
            if answer.committed and plan.victims:
                self._flights.close(plan.id)
                self._preemptor.accepted(plan)
                if entry is not None:
                    entry.plans.discard(plan.id)
                continue
            if answer.committed:
                self._flights.commit(plan.id, index)
                self._preemptor.accepted(plan)
                self._successions.answered(plan.id, accepted=True)
            else:
                self._flights.close(plan.id)
                if self._preemptor.nominate_again(plan, entry, answer, now):
                    continue
                self._undo(plan)
                self._preemptor.refused(plan, answer)
                self._successions.answered(plan.id, accepted=False)
            if entry is None:
                if not answer.committed:
                    self._freed(plan.job, now)
                continue
            if not answer.committed:
                if plan.victims:
                    entry.state = JobState.PROPOSED
                    if plan.moves is not None and answer.reason is RefusalReason.EVICTIONS_PAUSED:
                        self._preemptor.moves_paused(answer.message, now)
                held = answer.reason is RefusalReason.PODS_UNSEEN  # not a fault of the plan: no backoff
                entry.refusals += not held
                entry.refresh = max(entry.refresh, answer.refresh)
                if entry.refusals > 1 or held:
                    reason = f"{answer.reason}: {answer.message}" if answer.reason else answer.message
                    self._verdicts.put(JobVerdict(job=plan.job, message=reason), now)
            self._queue.plan_answered(entry, plan.id, self.index, now)
        self._settle(now)
        return epoch <= self.epoch

    def on_placed(self, jobs: Iterable[Job]) -> None:
        """Record the requests of pods that were placed before this process started; the tasks of these jobs list pods with nodes only. Without it the
        scheduler does not move these pods, because it does not know which other nodes suit them."""
        self._placed_before = {pod.uid: (job, spec) for job in jobs for spec in job.tasks for pod in spec.pods}
        self._learn_placed()

    def on_stayed(self, *, epoch: Epoch, pods: Sequence[PodUid], now: float) -> None:
        """The API server refused to evict these pods: exclude them as victims for `Limits.stays_s` and give up nominations that wait for them."""
        if epoch < self.epoch:
            return
        self._facts.may_not_leave.update(dict.fromkeys(pods, now + self.limits.stays_s))
        self._preemptor.eviction_failed(pods)

    def on_held(self, reason: str) -> None:
        """Record why the ledger accepts no plans at present; "" = it accepts them."""
        self.held = reason

    def refuse(self, plan: Plan, message: str, *, now: float) -> None:
        """Treat a plan that cannot be published as refused by the ledger."""
        answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.MALFORMED, message=message)
        self.on_answers(epoch=self.epoch, index=self.index, answers=[answer], now=now)

    def _learn_placed(self) -> None:
        """Set the task of each booked pod of `_placed_before` whose claim is known, provided that the claim has the same requests."""
        learned: list[PodUid] = []
        for uid, (job, spec) in self._placed_before.items():
            booking = self.bookings.get(uid)
            if booking is None or not booking.claim or booking.task is not None or booking.job != job.id:
                continue
            task = self._queue.task_of(job, spec)
            if booking.requests == task.requests:
                booking.task, booking.gang = task, job.gang
                self.bookings.note_domain(job)
                learned.append(uid)
        self._sessions.mark_changed(learned)
        if self.epoch:  # all claims are known
            self._placed_before = {}
            self._preemptor.invalidate()

    def _claimed(self, claims: Iterable[Claim], index: Index, now: float) -> None:
        """Replace bookings with the ledger's claims. Plans are atomic, so one claim of a plan proves that the ledger accepted the plan."""
        given: set[NodeName] = set()
        for claim in claims:
            before = self.bookings.get(claim.pod_uid)
            if before is not None and before.held is claim and self._flights.get(claim.plan) is None:
                continue  # of a page of this snapshot, or read once more
            self.bookings.put(Booking.of(claim, before))
            entry = self._queue.entries.get(claim.job)
            if entry is not None and claim.state is ClaimState.POSTED:
                entry.refusals = 0
            if (plan := self._flights.get(claim.plan)) is not None:
                self._flights.commit(plan.id, index)
                self._preemptor.accepted(plan)
                self._successions.answered(plan.id, accepted=True)
                if entry is not None:
                    self._queue.plan_answered(entry, claim.plan, self.index, now)
            if claim.reason == KUBELET_GAVE:
                given.add(claim.node)
        if given:
            self._preemptor.cards_given(given)
            self._successions.cards_given(given)

    def _restart(self, now: float, nominated: Set[PlanId]) -> None:
        """Start a new epoch: plan again all proposals of the old epoch that have no claim and are not among the `nominated`. Indexes of the old epoch are
        invalid."""
        for plan in self._flights.restart():
            if not plan.placements:
                self._shuffling.refused(plan, float("-inf"))
                continue
            entry = self._entry_of(plan)
            if plan.id in nominated:
                self._preemptor.accepted(plan)
                if entry is not None:
                    entry.plans.discard(plan.id)
                continue
            if self._preemptor.nominate_again(plan, entry, None, now):
                continue
            self._undo(plan)
            self._preemptor.refused(plan, None)
            self._successions.answered(plan.id, accepted=False)
            if entry is None:
                self._freed(plan.job, now)
                continue
            if plan.victims:
                entry.state = JobState.PROPOSED
            self._queue.plan_answered(entry, plan.id, self.index, now)
        for entry in self._queue.entries.values():
            entry.refresh = Index(0)
        self._preemptor.restarted()

    def _void(self, pod: PodUid, now: float, ended_claim: Claim | None = None) -> None:
        """Remove the booking of a claim that ended. If the job still lists the pod, place it again, with a backoff that grows with each repetition.
        `ended_claim`: as the ledger published it."""
        if (ended := self.bookings.get(pod)) is not None:
            self._reservations.pod_ended(ended.held, self._clocks[1] + (now - self._clocks[0]) * self.limits.clock_rate)
        booking = self.bookings.remove(pod)
        self.admission.invalidate()
        if booking is not None and booking.claim and ended_claim is not None:
            self._successions.ended(booking, ended_claim, now)
        self._preemptor.pod_left(pod)
        entry = None if booking is None else self._queue.entries.get(booking.job)
        if entry is None or entry.state not in (JobState.SETTLED, JobState.UNSCHEDULABLE):
            return
        entry.refusals += 1
        self._queue.retry(entry, self.index, now)

    def _entry_of(self, plan: Plan) -> Entry | None:
        """The job that waits for the plan's answer; None if the job was deleted, even if a new job has its id."""
        entry = self._queue.entries.get(plan.job)
        return entry if entry is not None and plan.id in entry.plans else None

    def _freed(self, job: JobId, now: float) -> None:
        """Retry the job after the bookings of a plan that it no longer waits for were reverted: the job may have counted them."""
        entry = self._queue.entries.get(job)
        if entry is not None and entry.state in (JobState.SETTLED, JobState.UNSCHEDULABLE):
            self._queue.retry(entry, self.index, now)

    def _undo(self, plan: Plan) -> None:
        self.bookings.take_back(plan.id, (placement.pod_uid for placement in plan.placements))

    def _settle(self, now: float) -> None:
        """Settle the plans whose claims are known at the current index, and activate the jobs that waited for this index."""
        for plan in self._flights.reached(self.index):
            for placement in plan.placements:
                booking = self.bookings.get(placement.pod_uid)
                if booking is not None and booking.plan == plan.id and not booking.claim:
                    self._void(placement.pod_uid, now)
        self._queue.reached(self.index)
