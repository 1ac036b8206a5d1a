"""The scheduler: what it is told changes its view, and `cycle` turns the view into proposals.

Theory of operation. The ledger owns the truth; this is a view of it plus our own hopes. A placement is booked on the columns the moment it
is made and stays booked until the ledger has answered: a refusal takes it back, a claim takes its place. Every job is in one state
(`jobs.JobState`); every change that could matter moves it back to EAGER, and only eager jobs cost a cycle anything. Messages may come late,
twice or out of order: revisions, plan ids and the books' index decide what counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from hbox_common.events import JobVerdict, Plan, PlanAnswer
from hbox_common.model import (
    Claim,
    ClaimState,
    Epoch,
    Index,
    Job,
    JobId,
    Neighbour,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    Queue,
    QueueName,
    RefusalReason,
    SchedulerId,
    Verdict,
)

from .jobs import Entry, JobState, Order, entry_of
from .pace import Pace
from .parking import Parking
from .planner import Attempt, Planner, verdict_of
from .policy import Policy
from .policy.conf import Conf
from .promises import Promise, Promises
from .proposals import InFlight, Verdicts
from .queues import Queues
from .state import Booking, Bookings, Columns
from .taking import Taking, Takings, Unplaced
from .task import Tasks
from .view import Views

#: Pods that are gone are forgotten then: their end is told by their claims.
NEIGHBOURS_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one cycle and of what may be outstanding. Times in seconds."""

    placements: int = 512  #: after so many a cycle ends; a gang is never cut
    outstanding: int = 8192  #: placements without an answer, beyond which nothing new is planned
    resend_after_s: float = 5.0
    backoff_s: float = 0.05  #: after a second refusal in a row, doubling
    backoff_max_s: float = 5.0
    verdict_every_s: float = 2.0  #: of one job, at most
    deadline_s: float = 60.0  #: for a gang to be bound whole
    look_every_s: float = 0.2  #: for room that others hold, at most, and for jobs that wait for others
    look_rarely_s: float = 2.0  #: while that finds nothing
    look_at: int = 512  #: jobs in one such look
    promise_s: float = 120.0  #: after so long without its victims gone a job looks elsewhere


@dataclass(slots=True)
class Proposals:
    """What a cycle wants to be sent. `wake_at`: when to call again though nothing happens (None = never); `more`: at once."""

    plans: list[Plan] = field(default_factory=list)
    resend: list[Plan] = field(default_factory=list)
    verdicts: list[JobVerdict] = field(default_factory=list)
    wake_at: float | None = None
    more: bool = False


class Scheduler:
    """One scheduler's view and its decisions. Single-threaded; time comes in as `now`, in seconds, monotone."""

    def __init__(self, *, id: SchedulerId, policy: Policy, limits: Limits | None = None, conf: Conf | None = None) -> None:
        """`conf`: whose reclaim and preempt actions make room; None = nobody is evicted for anybody."""
        self.id = id
        self.limits = limits or Limits()
        self.policy = policy
        self.columns = Columns()
        self.bookings = Bookings(self.columns)
        self.queues = Queues(self.bookings)
        self.views = Views(self.columns, policy)
        self.epoch = Epoch(0)
        self.index = Index(0)
        self.frozen = True
        self.tasks = Tasks(self.columns)
        self._planner = Planner(
            id=id,
            columns=self.columns,
            bookings=self.bookings,
            views=self.views,
            policy=policy,
            queues=self.queues,
            deadline_s=self.limits.deadline_s,
        )
        self._entries: dict[JobId, Entry] = {}
        self._neighbours: dict[PodUid, Neighbour] = {}
        self._takings: Takings | None = None
        if conf is not None:
            self._takings = Takings(
                columns=self.columns, bookings=self.bookings, tasks=self.tasks, neighbours=self._neighbours, conf=conf
            )
        self._sociable: dict[JobId, None] = {}  #: parked jobs that wait for others to come or go
        self._meeting = Pace(self.limits.look_every_s, self.limits.look_rarely_s)
        self._met: tuple[Index, int] = (Index(0), 0)
        self._introduced = 0  #: news of neighbours so far
        self._promises = Promises()
        self._wanting: dict[JobId, None] = {}  #: parked jobs that others may have to make room for
        self._looking = Pace(self.limits.look_every_s, self.limits.look_rarely_s)
        self._looked: tuple[Index, int] = (Index(0), 0)
        self._withdrawn: dict[JobId, int] = {}
        self._touched = 0
        self._eager: list[Order] = []
        self._held: set[JobId] = set()
        self._delayed: list[tuple[float, JobId]] = []
        self._parking = Parking(self.columns, self.views, self.queues)
        self._flights = InFlight(self.limits.resend_after_s)
        self._verdicts = Verdicts(self.limits.verdict_every_s)
        self._queues_changed: set[QueueName] = set()

    # What it is told.

    def on_node(self, node: NodeState) -> None:
        """A node as it is now. An older generation than the one known is ignored."""
        row = self.columns.row_of.get(node.name)
        known = None if row is None else self.columns.states[row]
        if known is not None and node.generation < known.generation:
            return
        if node.gone:
            self.columns.drop_node(node.name)
            return
        self.columns.put_node(node)
        if known is None or [c.index for c in known.cards] != [c.index for c in node.cards]:
            self.bookings.rebuild(node.name)

    def on_verdict(self, verdict: Verdict) -> None:
        known = self.columns.verdicts.get(verdict.node)
        if known != verdict:
            self.columns.put_verdict(verdict)

    def on_queue(self, queue: Queue, *, gone: bool = False) -> None:
        """A queue's rules. What is used of it is counted here, from the claims."""
        if gone:
            self.queues.drop(queue.name)
        elif self.queues.put(queue):
            self._queues_changed.add(queue.name)

    def mark(self) -> int:
        """To be taken before asking for a snapshot of the jobs, and handed in with it."""
        return self._touched

    def on_jobs(self, jobs: Iterable[Job]) -> None:
        """Jobs as they are now; a revision that is not higher than the one known is ignored."""
        self._touched += 1
        for job in jobs:
            known = self._entries.get(job.id)
            if known is not None and job.revision <= known.job.revision:
                known.touched = self._touched
                continue
            if self._withdrawn.get(job.id, -1) >= job.revision:
                continue
            self._withdrawn.pop(job.id, None)
            if known is None:
                self._welcome(job)
            else:
                self._revise(known, job)

    def on_jobs_snapshot(self, jobs: Sequence[Job], *, since: int) -> None:
        """All jobs there are: those that were not heard of after the mark `since` and are not among them are gone."""
        named = {job.id for job in jobs}
        for entry in [e for e in self._entries.values() if e.touched <= since and e.job.id not in named]:
            self._forget(entry)
        self.on_jobs(jobs)

    def on_neighbours(self, neighbours: Iterable[Neighbour]) -> None:
        """Pods that have to do with others, as they are now. To be told before the jobs that they are of."""
        for neighbour in neighbours:
            self._neighbours[neighbour.uid] = neighbour
            self._introduced += 1
        if len(self._neighbours) > NEIGHBOURS_KEPT:
            self._forget_neighbours()

    def on_withdrawn(self, jobs: Sequence[JobId], revisions: Sequence[int]) -> None:
        """Jobs with nothing left to place, as of these revisions."""
        for job, revision in zip(jobs, revisions, strict=True):
            entry = self._entries.get(job)
            if entry is not None and entry.job.revision > revision:
                continue
            if entry is not None:
                self._forget(entry)
            self._withdrawn[job] = revision
        while len(self._withdrawn) > 50_000:
            del self._withdrawn[next(iter(self._withdrawn))]

    def on_claims_snapshot(self, *, epoch: Epoch, index: Index, frozen: bool, claims: Iterable[Claim], now: float) -> None:
        """All live claims at `index`. In a new epoch what we proposed and is not among them was never accepted, and never will be."""
        if epoch < self.epoch or (epoch == self.epoch and index < self.index):
            return
        news = {claim.pod_uid: claim for claim in claims if claim.state.live}
        for uid, booking in list(self.bookings.all().items()):
            if booking.claim and uid not in news:
                self._void(uid, now)
        self._claimed(news.values(), index, now)
        restarted = epoch != self.epoch
        self.epoch, self.index, self.frozen = epoch, index, frozen
        if restarted:
            self._restart(now)
        self._settle(now)

    def on_claims(self, *, epoch: Epoch, previous: Index, index: Index, claims: Iterable[Claim], now: float) -> bool:
        """Changes of claims after `previous` up to `index`. False: something is missing between, ask for a snapshot."""
        if epoch < self.epoch or (epoch == self.epoch and index <= self.index):
            return True
        if epoch != self.epoch or previous > self.index:
            return False
        changes = list(claims)
        self._claimed([claim for claim in changes if claim.state.live], index, now)
        for claim in changes:
            booking = None if claim.state.live else self.bookings.get(claim.pod_uid)
            if booking is not None and (booking.claim == claim.id or (not booking.claim and booking.plan == claim.plan)):
                self._void(claim.pod_uid, now)
        self.index = index
        self._settle(now)
        return True

    def on_answers(self, *, epoch: Epoch, index: Index, answers: Iterable[PlanAnswer], now: float) -> bool:
        """The ledger's answers, each plan's once or more often. False: the ledger is in a newer epoch, ask for a snapshot."""
        for answer in answers:
            plan = self._flights.get(answer.plan)
            if plan is None:
                continue
            if answer.committed and plan.victims:
                self._flights.close(plan.id)
                if (promise := self._promises.of_plan(plan.job, plan.id)) is not None:
                    promise.accepted = True
                continue
            if answer.committed:
                self._flights.commit(plan.id, index)
            else:
                self._flights.close(plan.id)
                self._undo(plan)
            entry = self._entries.get(plan.job)
            if entry is None:
                continue
            if not answer.committed and plan.victims:
                self._promises.drop(plan.job)
                entry.state = JobState.PROPOSED
            if not answer.committed:
                entry.refusals += 1
                entry.refresh = max(entry.refresh, answer.refresh)
                if entry.refusals > 1:
                    reason = f"{answer.reason}: {answer.message}" if answer.reason else answer.message
                    self._verdicts.put(JobVerdict(job=plan.job, message=reason), now)
            self._answered(entry, plan.id, now)
        self._settle(now)
        return epoch <= self.epoch

    def refuse(self, plan: Plan, message: str, *, now: float) -> None:
        """A plan that cannot even be sent: as if the ledger had refused it."""
        answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.MALFORMED, message=message)
        self.on_answers(epoch=self.epoch, index=self.index, answers=[answer], now=now)

    def unsaid(self, verdicts: Iterable[JobVerdict], now: float) -> None:
        """Verdicts of a cycle that could not be sent: they are given out again later."""
        for verdict in verdicts:
            if verdict.job in self._entries:
                self._verdicts.unsaid(verdict, now)

    # What it decides.

    def cycle(self, now: float) -> Proposals:
        """Plan for the jobs whose turn it is. Nothing is planned while the books are frozen."""
        out = Proposals()
        self._due(now)
        freed = self._queues_changed | self.bookings.queues_freed
        self._queues_changed, self.bookings.queues_freed = set(), set()
        if not self.frozen:
            self._keep_promises(out, now)
            self._meet_again(now)
            for entry in self._parking.wake(self._entries, freed):
                heappush(self._eager, entry.order)
            self._plan(out, now)
            self._make_room(out, now)
        else:
            self._queues_changed |= freed
        out.resend = self._flights.due(now)
        out.verdicts = self._verdicts.due(now)
        times = [t for t in (self._flights.next_at(), self._verdicts.next_at()) if t is not None]
        if self._delayed:
            times.append(self._delayed[0][0])
        if self._sociable and self._met != (self.index, self._introduced):
            times.append(self._meeting.next_at)
        if self._wanting and self._news():
            times.append(self._looking.next_at)
        if (until := self._promises.next_at()) is not None:
            times.append(until)
        out.wake_at = min(times, default=None)
        return out

    def _plan(self, out: Proposals, now: float) -> None:
        placed = 0
        while entry := self._next():
            if placed >= self.limits.placements or self._flights.placements >= self.limits.outstanding:
                heappush(self._eager, entry.order)
                out.more = placed >= self.limits.placements
                return
            if self._social(entry):
                placed += self._place_together(self._company(entry), out, now)
                continue
            attempt = self._planner.attempt(self._run(entry, self.limits.placements - placed))
            for plan in attempt.plans:
                out.plans.append(plan)
                placed += len(plan.placements)
                self._flights.open(plan, now)
            self._conclude(attempt, now)

    def _conclude(self, attempt: Attempt, now: float) -> None:
        for entry in attempt.proposed:
            entry.state = JobState.PROPOSED
            if entry.woken is not None and len(entry.woken[1]) > 1:
                self._parking.recheck(entry)
            entry.woken = None
        for entry in attempt.settled:
            self._parking.recheck(entry)
            entry.state = JobState.SETTLED
        for entry, verdict in attempt.failed:
            if entry.problem():
                self._parking.recheck(entry)
                entry.state, entry.kind = JobState.PARKED, None
            else:
                self._parking.park(entry)
                if self._takings is not None and self._takings.may(entry, self.queues.all()):
                    self._wanting[entry.job.id] = None
            self._verdicts.put(verdict, now)

    # Pods that have to do with each other.

    def _social(self, entry: Entry) -> bool:
        """Whether its pods want something of others, or others may want something of them."""
        if not self._neighbours or self._takings is None or entry.problem():
            return False
        return any(pod.uid in self._neighbours for _, pods in entry.pending for pod in pods)

    def _company(self, first: Entry) -> list[Entry]:
        """The job, and those of its kind right after it: they are placed in one session."""
        company = [first]
        while len(company) < self.limits.look_at and (entry := self._next()) is not None:
            if not self._social(entry):
                heappush(self._eager, entry.order)
                break
            company.append(entry)
        return company

    def _place_together(self, company: list[Entry], out: Proposals, now: float) -> int:
        """Returns how many pods got a place."""
        assert self._takings is not None
        placed = 0
        attempt = Attempt()
        for found in self._takings.place(company, self.queues.all(), self._promises, now=now):
            if isinstance(found, Unplaced):
                attempt.failed.append((found.entry, verdict_of(found.entry, found.reasons, found.message)))
                self._sociable[found.entry.job.id] = None
            elif (plan := self._planner.kept(found)) is not None:
                attempt.proposed.append(found.entry)
                self._flights.open(plan, now)
                out.plans.append(plan)
                placed += len(plan.placements)
        self._conclude(attempt, now)
        if placed:
            self._meeting.encourage()
        return placed

    def _meet_again(self, now: float) -> None:
        """Jobs that wait for others are looked at again when anybody came or went."""
        seen = (self.index, self._introduced)
        if not self._sociable or self._met == seen or not self._meeting.due(now):
            return
        self._met = seen
        self._meeting.went(now, fruitful=False)
        for job in list(self._sociable):
            entry = self._entries.get(job)
            del self._sociable[job]
            if entry is not None and entry.state is JobState.PARKED:
                self._wake(entry)

    def _forget_neighbours(self) -> None:
        """Those that neither have a place nor wait for one."""
        if not self._neighbours:
            return
        waiting = {pod.uid for entry in self._entries.values() for task in entry.job.tasks for pod in task.pods}
        for uid in [uid for uid in self._neighbours if uid not in waiting and uid not in self.bookings]:
            del self._neighbours[uid]

    # Room that others hold.

    def _news(self) -> bool:
        """Whether anything changed since the last look that could change what it found."""
        return self._looked != (self.index, len(self._wanting))

    def _make_room(self, out: Proposals, now: float) -> None:
        """Look for room that others hold, for jobs that wait though it is their turn."""
        if self._takings is None or self._takings.idle or not self._wanting or not self._news():
            return
        if not self._looking.due(now) or self._flights.placements >= self.limits.outstanding:
            return
        entries: list[Entry] = []
        for job in list(self._wanting):
            entry = self._entries.get(job)
            if entry is None or entry.state is not JobState.PARKED:
                del self._wanting[job]
                continue
            entry.look(self.bookings)
            if not entry.problem() and self._takings.may(entry, self.queues.all()):
                entries.append(entry)
        entries.sort(key=lambda entry: entry.order)
        takings = (
            self._takings.look(entries[: self.limits.look_at], self.queues.all(), self._promises, now=now) if entries else []
        )
        for taking in takings:
            self._parking.recheck(taking.entry)
            self._promise(out, taking, now)
        self._looked = (self.index, len(self._wanting))
        self._looking.went(now, fruitful=bool(takings))

    def _promise(self, out: Proposals, taking: Taking, now: float) -> None:
        entry = taking.entry
        del self._wanting[entry.job.id]
        plan = self._planner.taking(taking)
        entry.state, entry.kind, entry.woken = JobState.PROMISED, None, None
        self._promises.put(
            Promise(plan.id, taking, {victim.pod for victim in taking.victims}, until=now + self.limits.promise_s)
        )
        self._flights.open(plan, now)
        out.plans.append(plan)

    def _keep_promises(self, out: Proposals, now: float) -> None:
        """Propose the places whose victims are gone; give up on those that were never left."""
        for promise in self._promises.due():
            entry = promise.taking.entry
            self._promises.drop(entry.job.id)
            self._release(promise)
            plan = self._planner.kept(promise.taking)
            if plan is None:
                self._wake(entry)
                continue
            entry.state = JobState.PROPOSED
            self._flights.open(plan, now)
            out.plans.append(plan)
        for promise in self._promises.overdue(now):
            self._break(promise)

    def _break(self, promise: Promise) -> None:
        """The promise is off: its places are free again, and the job looks for others."""
        entry = promise.taking.entry
        self._promises.drop(entry.job.id)
        self._release(promise)
        if entry.state is JobState.PROMISED:
            self._wake(entry)

    def _release(self, promise: Promise) -> None:
        for taken in promise.taking.placements:
            booking = self.bookings.get(taken.pod.uid)
            if booking is not None and booking.plan == promise.plan and not booking.claim:
                self.bookings.remove(taken.pod.uid)

    def _run(self, first: Entry, most: int) -> list[Entry]:
        """The job, and those after it that ask for the same: each one pod of the same task in the same queue."""
        run = [first]
        task = first.lone
        if task is None or first.job.problem:
            return run
        while len(run) < most and (entry := self._next()) is not None:
            if entry.lone is not task or entry.job.queue != first.job.queue or entry.job.problem:
                heappush(self._eager, entry.order)
                break
            run.append(entry)
        return run

    def _next(self) -> Entry | None:
        """The eager job whose turn it is, looked at afresh."""
        while self._eager:
            order = heappop(self._eager)
            entry = self._entries.get(order[2])
            if entry is not None and entry.state is JobState.EAGER and entry.order == order:
                entry.look(self.bookings)
                return entry
        return None

    # States of jobs.

    def _welcome(self, job: Job) -> None:
        entry = entry_of(job, self.tasks, self._touched)
        self._entries[job.id] = entry
        for task, spec in zip(entry.tasks, job.tasks, strict=True):
            self.policy.learn(task, len(spec.pods))
        self._wake(entry)

    def _revise(self, entry: Entry, job: Job) -> None:
        """A new revision. What waits and asks for the same as before goes on waiting."""
        before = entry.kind
        fresh = entry_of(job, self.tasks, self._touched)
        moved = fresh.order != entry.order
        entry.job, entry.order, entry.tasks, entry.touched = job, fresh.order, fresh.tasks, self._touched
        if entry.state in (JobState.PROPOSED, JobState.PROMISED, JobState.HELD, JobState.DELAYED):
            return  # looked at again anyway when that is over
        if entry.state is JobState.PARKED and before is not None and not moved:
            entry.look(self.bookings)
            if not entry.problem() and before == (job.queue, tuple(task for task, _ in entry.pending), entry.need):
                return
        self._wake(entry)

    def _wake(self, entry: Entry) -> None:
        entry.state, entry.kind = JobState.EAGER, None
        heappush(self._eager, entry.order)

    def _forget(self, entry: Entry) -> None:
        self._parking.recheck(entry)
        if (promise := self._promises.drop(entry.job.id)) is not None:
            self._release(promise)
        self._wanting.pop(entry.job.id, None)
        self._sociable.pop(entry.job.id, None)
        del self._entries[entry.job.id]
        self._held.discard(entry.job.id)
        self._verdicts.drop(entry.job.id)

    def _answered(self, entry: Entry, plan: PlanId, now: float) -> None:
        entry.plans.discard(plan)
        if not entry.plans and entry.state is JobState.PROPOSED:
            self._again(entry, now)

    def _again(self, entry: Entry, now: float) -> None:
        """Look at a job again: on the view that explains its last refusal, and the later the more often in a row it met one."""
        if entry.refusals > 1:
            delay = min(self.limits.backoff_s * 2.0 ** min(entry.refusals - 2, 16), self.limits.backoff_max_s)
            entry.state = JobState.DELAYED
            heappush(self._delayed, (now + delay, entry.job.id))
        else:
            self._hold_or_wake(entry)

    def _hold_or_wake(self, entry: Entry) -> None:
        if entry.refresh > self.index:
            entry.state = JobState.HELD
            self._held.add(entry.job.id)
        else:
            self._wake(entry)

    def _due(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            _, job = heappop(self._delayed)
            entry = self._entries.get(job)
            if entry is not None and entry.state is JobState.DELAYED:
                self._hold_or_wake(entry)

    # Bookings.

    def _claimed(self, claims: Iterable[Claim], index: Index, now: float) -> None:
        """The ledger's word on pods takes the place of our own. Plans are all or nothing: one claim of a plan says that it was accepted."""
        for claim in claims:
            self.bookings.put(
                Booking(
                    pod=claim.pod_uid,
                    job=claim.job,
                    queue=claim.queue,
                    node=claim.node,
                    requests=claim.requests,
                    slices=claim.slices,
                    plan=claim.plan,
                    claim=claim.id,
                    priority=claim.priority,
                    held=claim,
                )
            )
            entry = self._entries.get(claim.job)
            if entry is not None and claim.state is ClaimState.POSTED:
                entry.refusals = 0
            if self._flights.get(claim.plan) is not None:
                self._flights.commit(claim.plan, index)
                if entry is not None:
                    self._answered(entry, claim.plan, now)

    def _restart(self, now: float) -> None:
        """A new epoch: what was proposed in the old one and has no claim is planned anew; indexes of the old one mean nothing any more."""
        for plan in self._flights.restart():
            self._undo(plan)
            if plan.victims:
                self._promises.drop(plan.job)
            entry = self._entries.get(plan.job)
            if entry is not None:
                self._answered(entry, plan.id, now)
        for entry in self._entries.values():
            entry.refresh = Index(0)

    def _void(self, pod: PodUid, now: float) -> None:
        """A claim ended. If its job still lists the pod, it has to be placed again; each time in a row a little later."""
        booking = self.bookings.remove(pod)
        self._promises.left(pod)
        entry = None if booking is None else self._entries.get(booking.job)
        if entry is None or entry.state not in (JobState.SETTLED, JobState.PARKED):
            return
        entry.refusals += 1
        self._again(entry, now)

    def _undo(self, plan: Plan) -> None:
        """Take back what a plan booked, where the ledger has not put a claim in its place."""
        for placement in plan.placements:
            booking = self.bookings.get(placement.pod_uid)
            if booking is not None and booking.plan == plan.id and not booking.claim:
                self.bookings.remove(placement.pod_uid)

    def _settle(self, now: float) -> None:
        """What a newer index decides: commits whose claims are known by now, and jobs that waited for this view."""
        for plan in self._flights.reached(self.index):
            for placement in plan.placements:
                booking = self.bookings.get(placement.pod_uid)
                if booking is not None and booking.plan == plan.id and not booking.claim:
                    self._void(placement.pod_uid, now)
        for job in [job for job in self._held if self._entries[job].refresh <= self.index]:
            self._held.discard(job)
            if self._entries[job].state is JobState.HELD:
                self._wake(self._entries[job])

    # For reports and tests.

    @property
    def jobs_by_state(self) -> dict[JobState, int]:
        counts = dict.fromkeys(JobState, 0)
        for entry in self._entries.values():
            counts[entry.state] += 1
        return counts

    def entry(self, job: JobId) -> Entry | None:
        return self._entries.get(job)

    def is_claimed(self, pod: PodUid) -> bool:
        """Whether the ledger has said that this pod has a place."""
        booking = self.bookings.get(pod)
        return booking is not None and bool(booking.claim)

    def placed_on(self) -> dict[PodUid, NodeName]:
        """Where every booked pod is, or is hoped to be."""
        return {uid: booking.node for uid, booking in self.bookings.all().items()}

    def outstanding(self) -> list[PlanId]:
        """Plans without an answer."""
        return [plan.id for plan in self._flights.outstanding()]
