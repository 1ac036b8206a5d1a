"""The scheduler: what it is told changes its view, and `cycle` turns the view into proposals.

Theory of operation. The ledger owns the truth; this is a view of it plus our own hopes. A placement is booked on the columns the moment it
is made and stays booked until the ledger has answered: a refusal takes it back, a claim takes its place. Messages may come late,
twice or out of order: revisions, plan ids and the books' index decide what counts. Whose turn it is, is `lineup`'s; room that others hold, `room`'s; jobs
whose places depend on each other, `together`'s; the rest is placed by the `planner`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hbox_common.events import JobVerdict, Plan, PlanAnswer
from hbox_common.model import (
    CardQuota,
    Claim,
    ClaimState,
    Epoch,
    GroupState,
    HyperNode,
    Index,
    Job,
    JobId,
    Neighbour,
    NodeName,
    NodeState,
    NodeUsage,
    PlanId,
    PodBudget,
    PodUid,
    Queue,
    QueueName,
    RefusalReason,
    ResourceQuota,
    SchedulerId,
    Verdict,
)

from .devices.models import Demand
from .gate import Gate
from .groups import Groups
from .jobs import Entry, JobState
from .limits import Limits, Proposals
from .lineup import Lineup
from .parking import Parking
from .parts import Parts
from .paying import Payer
from .planner import Attempt, Planner
from .policy import Policy
from .policy.conf import Conf
from .policy.default import default_conf
from .proposals import InFlight, Verdicts
from .queues import Queues
from .room import Room
from .session import DisruptionBudget
from .session.outside import Ask, nobody
from .shuffling import Shuffling
from .state import Booking, Bookings, Columns
from .surroundings import Surroundings
from .taking import PLACE, Takings
from .task import Tasks
from .together import Together
from .view import Views

#: While the ledger holds plans nothing is due sooner: what is due could not be planned.
HELD_S = 1.0


class Scheduler:
    """One scheduler's view and its decisions. Single-threaded; time comes in as `now`, in seconds, monotone."""

    def __init__(
        self,
        *,
        id: SchedulerId,
        policy: Policy,
        limits: Limits | None = None,
        conf: Conf | None = None,
        by_conf: bool = False,
        ask: Ask = nobody,
    ) -> None:
        """`conf`: the policy of sessions, whose reclaim and preempt actions make room; None = HBox's own without them. `by_conf`: every job is placed in a
        session, not only those whose places depend on others. `ask`: how the policy's plugins ask others."""
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
        self.held = ""  #: why the ledger accepts no plans for now
        self.tasks = Tasks(self.columns)
        payer = Payer(self.columns, self.bookings.card_quotas)
        self._planner = Planner(
            id=id,
            columns=self.columns,
            bookings=self.bookings,
            views=self.views,
            policy=policy,
            queues=self.queues,
            payer=payer,
            deadline_s=self.limits.deadline_s,
        )
        self._groups = Groups(self.columns)
        self._parking = Parking(self.columns, self.views, self.queues, payer)
        self._lineup = Lineup(self.tasks, self.bookings, self._parking, self.queues, groups=self._groups, limits=self.limits)
        self._flights = InFlight(self.limits.resend_after_s)
        self._verdicts = Verdicts(self.limits.verdict_every_s)
        self._demand = Demand()
        self._queues_changed: set[QueueName] = set()
        self._requoted: set[str] = set()  #: namespaces
        neighbours: dict[PodUid, Neighbour] = {}
        self._around = Surroundings(demand=self._demand.cards)
        self._takings = Takings(
            columns=self.columns,
            bookings=self.bookings,
            tasks=self.tasks,
            neighbours=neighbours,
            around=self._around,
            conf=conf or replace(default_conf(), actions=PLACE),
            by_conf=by_conf,
            ask=ask,
            payer=payer,
            groups=self._groups,
        )
        parts = Parts(
            takings=self._takings,
            planner=self._planner,
            bookings=self.bookings,
            queues=self.queues,
            lineup=self._lineup,
            parking=self._parking,
            flights=self._flights,
            limits=self.limits,
        )
        self._room = Room(parts, timed=by_conf)
        self._shuffling = Shuffling(parts, promises=self._room.promises)
        self.gate = Gate(parts, groups=self._groups, verdicts=self._verdicts, promises=self._room.promises)
        self.gate.follow(gated=self._takings.gated)
        self._together = Together(parts, neighbours=neighbours, everybody=by_conf)

    # What it is told.

    def on_node(self, node: NodeState) -> None:
        """A node as it is now. An older generation than the one known is ignored."""
        row = self.columns.row_of.get(node.name)
        known = None if row is None else self.columns.states[row]
        if known is not None and node.generation < known.generation:
            return
        if node.gone:
            self.columns.drop_node(node.name)
            self.bookings.moved(node.name)
            self.bookings.lending.node(node, None)
            return
        self.columns.put_node(node)
        if self.columns.renamed:
            self.columns.renamed = False
            self._lineup.resolve_anew()
            for name in self.columns.row_of:
                self.bookings.rebuild(name)
        self.bookings.lending.node(node, self.columns.verdicts.get(node.name))
        self.gate.stir()
        if known is None or [c.index for c in known.cards] != [c.index for c in node.cards]:
            self.bookings.rebuild(node.name)

    def on_verdict(self, verdict: Verdict) -> None:
        if self.columns.verdicts.get(verdict.node) != verdict:
            self.columns.put_verdict(verdict)
            if (row := self.columns.row_of.get(verdict.node)) is not None and (state := self.columns.states[row]) is not None:
                self.bookings.lending.node(state, verdict)

    def on_queue(self, queue: Queue, *, gone: bool = False, recent_cards: float = 0.0) -> None:
        """A queue's rules, and how many cards it and all below it used on average of late. What is used of it now is counted here, from the claims."""
        self._around.recent_cards[queue.name] = recent_cards
        if gone:
            del self._around.recent_cards[queue.name]
            self._queues_changed.update(self.queues.drop(queue.name))
        elif self.queues.put(queue):
            self._queues_changed.add(queue.name)
        self.gate.stir()

    def on_card_quotas(self, quotas: Iterable[CardQuota]) -> None:
        """What ResourceQuotas say of cards, all of them. What is used of them is counted here, from the claims."""
        if changed := self.bookings.limit(quotas):
            self._requoted |= changed
            self.on_answers_of_others()

    def on_namespace_quotas(self, quotas: Sequence[ResourceQuota]) -> None:
        """What namespaces may ask for and have asked for, all of it."""
        self._around.quotas = quotas
        self.gate.stir()

    def on_fabric(self, hypernodes: Sequence[HyperNode]) -> None:
        """The domains of the fabric, all of them."""
        self._around.hypernodes = list(hypernodes)
        self._together.shake()

    def on_priority_classes(self, values: Mapping[str, int]) -> None:
        """What each PriorityClass stands for, all of them."""
        self._around.priority_classes = values

    def on_namespaces(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Labels by namespace, all that pods' wishes ask about."""
        if self._around.namespace_labels != labels:
            self._around.namespace_labels = labels
            self._together.shake()

    def follow(self, conf: Conf) -> None:
        """The policy for sessions from the next cycle on; jobs that wait are looked at again by it."""
        self._takings.follow(conf)
        self.gate.follow(gated=self._takings.gated)
        self.on_answers_of_others()

    def on_answers_of_others(self) -> None:
        """Whom the policy's plugins ask may say something else now: jobs that wait are looked at again."""
        self._together.shake()
        self._room.shake()

    def on_usage(self, usages: Sequence[NodeUsage]) -> None:
        """What nodes really use, as it was measured last."""
        self._around.usage = usages
        if self._takings.judges("usage"):
            self.on_answers_of_others()

    def mark(self) -> int:
        """To be taken before asking for a snapshot of the jobs, and handed in with it."""
        return self._lineup.touched

    def on_jobs(self, jobs: Iterable[Job]) -> None:
        """Jobs as they are now; a revision that is not higher than the one known is ignored."""
        self._lineup.touched += 1
        for job in jobs:
            known = self._lineup.entries.get(job.id)
            if known is not None and job.revision <= known.job.revision:
                known.touched = self._lineup.touched
                continue
            if known is None and not self._lineup.was_withdrawn(job):
                self._welcome(job)
            elif known is not None:
                self._lineup.revise(known, job)
                self._together.revised(job.id)
                self._verdicts.again(job.id)

    def on_groups(self, groups: Iterable[GroupState]) -> None:
        """PodGroups with a minimum of resources, as they are now. To be told before the jobs that they are."""
        self._lineup.touched += 1
        self.gate.told(groups, self._lineup.touched)

    def on_jobs_snapshot(self, jobs: Sequence[Job], *, since: int, groups: Sequence[GroupState] = ()) -> None:
        """All jobs there are, and all PodGroups with a minimum: those that were not heard of after the mark `since` and are not among them are gone."""
        self.gate.only({group.id for group in groups}, since)
        self.on_groups(groups)
        for entry in self._lineup.missing({job.id for job in jobs}, since):
            self._forget(entry)
        self.on_jobs(jobs)

    def on_neighbours(self, neighbours: Iterable[Neighbour]) -> None:
        """Pods that have to do with others, as they are now. To be told before the jobs that they are of."""
        self._together.introduce(neighbours)

    def on_withdrawn(self, jobs: Sequence[JobId], revisions: Sequence[int]) -> None:
        """Jobs with nothing left to place, as of these revisions."""
        for job, revision in zip(jobs, revisions, strict=True):
            entry = self._lineup.entries.get(job)
            if entry is not None and entry.job.revision > revision:
                continue
            if entry is not None:
                self._forget(entry)
            self._lineup.withdrawn(job, revision)

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
            if not plan.placements:
                self._flights.close(plan.id)
                if not answer.committed:
                    self._shuffling.refused(plan, now)
                continue
            if answer.committed and plan.victims:
                self._flights.close(plan.id)
                self._room.accepted(plan)
                if (entry := self._lineup.entries.get(plan.job)) is not None:
                    entry.plans.discard(plan.id)
                continue
            if answer.committed:
                self._flights.commit(plan.id, index)
            else:
                self._flights.close(plan.id)
                self._undo(plan)
            entry = self._lineup.entries.get(plan.job)
            if entry is None:
                continue
            if not answer.committed:
                if plan.victims:
                    self._room.refused(plan)
                    entry.state = JobState.PROPOSED
                held = answer.reason is RefusalReason.PODS_UNSEEN  # nothing against the plan: no reason to try the later
                entry.refusals += not held
                entry.refresh = max(entry.refresh, answer.refresh)
                if entry.refusals > 1 or held:
                    reason = f"{answer.reason}: {answer.message}" if answer.reason else answer.message
                    self._verdicts.put(JobVerdict(job=plan.job, message=reason), now)
            self._lineup.answered(entry, plan.id, self.index, now)
        self._settle(now)
        return epoch <= self.epoch

    def on_budgets(self, budgets: Iterable[PodBudget]) -> None:
        """How many disruptions each PodDisruptionBudget allows, all of them."""
        found = [DisruptionBudget(one.namespace, one.name, {}, one.allowed) for one in budgets]
        if found != self._around.budgets:
            self._around.budgets = found
            self._room.shake()

    def on_stayed(self, *, epoch: Epoch, pods: Sequence[PodUid], now: float) -> None:
        """These were to make room, and may not be evicted now: whoever wants room takes it from others."""
        if epoch < self.epoch:
            return
        self._around.may_not_leave.update(dict.fromkeys(pods, now + self.limits.stays_s))
        self._room.stay(pods)

    def refuse(self, plan: Plan, message: str, *, now: float) -> None:
        """A plan that cannot even be sent: as if the ledger had refused it."""
        answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.MALFORMED, message=message)
        self.on_answers(epoch=self.epoch, index=self.index, answers=[answer], now=now)

    def unsaid(self, verdicts: Iterable[JobVerdict], now: float) -> None:
        """Verdicts of a cycle that could not be sent: they are given out again later."""
        for verdict in verdicts:
            if verdict.job in self._lineup.entries or verdict.job in self._groups:
                self._verdicts.unsaid(verdict, now)

    # What it decides.

    def cycle(self, now: float, wall: float = 0.0) -> Proposals:
        """Plan for the jobs whose turn it is. Nothing is planned while the books are frozen or plans are held. `wall`: seconds since the epoch, for
        plugins of the policy."""
        out = Proposals()
        self._around.wall = wall
        if self._around.may_leave_again(now):
            self._room.shake()
        self._lineup.due(self.index, now)
        changed = self._queues_changed
        freed = self.queues.freed(changed | self.bookings.queues_freed | self.queues.eased())
        self._queues_changed, self.bookings.queues_freed = set(), set()
        if not self.frozen and not self.held:
            out.plans += self._room.keep(now)
            self._together.wake(self.index, now)
            self._lineup.reroute(changed)
            self._lineup.requote(self._requoted)
            self._lineup.unpark(freed, changed, self.bookings.namespaces_freed)
            self._requoted, self.bookings.namespaces_freed = set(), set()
            out.admitted, out.unheard = self.gate.look(now)
            self._plan(out, now)
            self._verdicts.put_all(self._together.news(now), now)
            self._room.freed(self._parking.left(self._lineup.entries, freed), news=bool(changed))
            out.plans += self._room.look(self.index, now)
            out.plans += self._shuffling.look(now)
        else:
            self._queues_changed, self.bookings.queues_freed = changed, freed
        out.resend = self._flights.due(now)
        out.verdicts = self._verdicts.due(now)
        times = chain(
            self._flights.next_at(),
            self._around.may_not_leave.values(),
            self._verdicts.next_at(),
            self._lineup.next_at(),
            self._together.next_at(self.index),
            self._room.next_at(self.index),
            self._shuffling.next_at() if not self.frozen else (),
            self.gate.next_at() if not self.frozen else (),
        )
        out.wake_at = min(times, default=None)
        if self.held and out.wake_at is not None:
            out.wake_at = max(out.wake_at, now + HELD_S)
        return out

    def _plan(self, out: Proposals, now: float) -> None:
        placed = 0
        while entry := self._lineup.next():
            if placed >= self.limits.placements or self._flights.placements >= self.limits.outstanding:
                self._lineup.give_back(entry)
                out.more = placed >= self.limits.placements
                return
            if self._together.concerns(entry):
                attempt = self._together.place(entry, self._room.promises)
            else:
                attempt = self._planner.attempt(self._lineup.run(entry, self.limits.placements - placed))
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
                self._room.want(entry, self._together.behind(entry.job.id))
            if not self._groups.closed(entry.job.id):  # else the gate says why
                self._verdicts.put(verdict, now)

    def _welcome(self, job: Job) -> None:
        entry = self._lineup.welcome(job)
        for task, spec in zip(entry.tasks, job.tasks, strict=True):
            self.policy.learn(task, len(spec.pods))
            self._demand.add(task.cards, len(spec.pods))

    def _forget(self, entry: Entry) -> None:
        self._lineup.forget(entry)
        self._room.forget(entry.job.id)
        self._together.forget(entry.job.id)
        self._verdicts.drop(entry.job.id)

    # Bookings.

    def _claimed(self, claims: Iterable[Claim], index: Index, now: float) -> None:
        """The ledger's word on pods takes the place of our own. Plans are all or nothing: one claim of a plan says that it was accepted."""
        for claim in claims:
            self.bookings.put(Booking.of(claim, self.bookings.get(claim.pod_uid)))
            entry = self._lineup.entries.get(claim.job)
            if entry is not None and claim.state is ClaimState.POSTED:
                entry.refusals = 0
            if self._flights.get(claim.plan) is not None:
                self._flights.commit(claim.plan, index)
                if entry is not None:
                    self._lineup.answered(entry, claim.plan, self.index, now)

    def _restart(self, now: float) -> None:
        """A new epoch: what was proposed in the old one and has no claim is planned anew; indexes of the old one mean nothing any more."""
        for plan in self._flights.restart():
            if not plan.placements:
                self._shuffling.refused(plan, float("-inf"))
                continue
            self._undo(plan)
            self._room.refused(plan)
            entry = self._lineup.entries.get(plan.job)
            if entry is not None:
                self._lineup.answered(entry, plan.id, self.index, now)
        for entry in self._lineup.entries.values():
            entry.refresh = Index(0)

    def _void(self, pod: PodUid, now: float) -> None:
        """A claim ended. If its job still lists the pod, it has to be placed again; each time in a row a little later."""
        booking = self.bookings.remove(pod)
        self.gate.stir()
        self._room.left(pod)
        entry = None if booking is None else self._lineup.entries.get(booking.job)
        if entry is None or entry.state not in (JobState.SETTLED, JobState.PARKED):
            return
        entry.refusals += 1
        self._lineup.again(entry, self.index, now)

    def _undo(self, plan: Plan) -> None:
        self.bookings.take_back(plan.id, (placement.pod_uid for placement in plan.placements))

    def _settle(self, now: float) -> None:
        """What a newer index decides: commits whose claims are known by now, and jobs that waited for this view."""
        for plan in self._flights.reached(self.index):
            for placement in plan.placements:
                booking = self.bookings.get(placement.pod_uid)
                if booking is not None and booking.plan == plan.id and not booking.claim:
                    self._void(placement.pod_uid, now)
        self._lineup.reached(self.index)

    # For reports and tests.

    @property
    def jobs_by_state(self) -> dict[JobState, int]:
        return self._lineup.by_state()

    def entry(self, job: JobId) -> Entry | None:
        return self._lineup.entries.get(job)

    def is_claimed(self, pod: PodUid) -> bool:
        """Whether the ledger has said that this pod has a place."""
        return (booking := self.bookings.get(pod)) is not None and bool(booking.claim)

    def placed_on(self) -> dict[PodUid, NodeName]:
        """Where every booked pod is, or is hoped to be."""
        return {uid: booking.node for uid, booking in self.bookings.all().items()}

    def outstanding(self) -> list[PlanId]:
        """Plans without an answer."""
        return [plan.id for plan in self._flights.outstanding()]
