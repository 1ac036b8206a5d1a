"""Plans: what is proposed to the ledger, taken down in the bookings under the plan's id until it has answered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter

from hbox_common.events import JobVerdict, Placement, Plan, Victim
from hbox_common.model import VENDORS, Generation, PlanId, SchedulerId
from hbox_common.model.explanation import Outcome

from ..cluster import Booking, Bookings, Columns
from ..cluster.entities import Member
from ..cluster.task import Task
from ..devices import layout_of
from ..explain.outcomes import CARDS_RECLAIMED, Headline, headline_of, judged
from ..explain.reasons import Reasons
from ..queueing.jobs import Entry
from .domains import PlanDomains
from .outcomes import JobPlacement, Move, PodPlacement

#: Of a node that was not described.
_UNSEEN = Generation(0)


@dataclass(frozen=True, slots=True)
class Plans:
    """Of one scheduler. `deadline_s`: for a gang to be bound whole."""

    id: SchedulerId
    columns: Columns
    bookings: Bookings
    deadline_s: float
    domains: PlanDomains

    def placed(self, entry: Entry, members: Sequence[Member]) -> list[Plan]:
        """The plans for placements of a session, which are already on the columns: one plan for all members that start together, and one for each pod beyond
        the gang's minimum, so that a conflict about one pod does not delay others."""
        if entry.need > 0 or len(members) == 1:
            return [self._plan(entry, members)]
        return [self._plan(entry, (member,)) for member in members]

    def _plan(self, entry: Entry, members: Sequence[Member | PodPlacement]) -> Plan:
        """Create the plan of these placements and record its bookings. Plan ids are never reused, even if a job is recreated, because the ledger repeats its
        answer to a known id."""
        job = entry.job
        entry.counter += 1
        if job.topology is not None or job.sub_gangs:
            self.bookings.note_domain(job)
        plan = PlanId(blake2b(f"{self.id}/{job.id}/{entry.since}/{entry.counter}".encode(), digest_size=16).hexdigest())
        names, states, named = self.columns.names, self.columns.states, self.columns.named
        placements: list[Placement] = []
        job_id, queue, priority, namespace = job.id, job.queue, job.priority, job.namespace
        gang = job.gang
        by_task: dict[Task, Sequence[Member | PodPlacement]]
        if len(members) == 1:
            by_task = {members[0].task: members}
        else:
            lists: dict[Task, list[Member | PodPlacement]] = {}
            for task, some in groupby(members, attrgetter("task")):
                lists.setdefault(task, []).extend(some)
            by_task = {**lists}
        for which, (task, of_task) in enumerate(by_task.items()):
            requests = task.requests
            seen = [_UNSEEN if (state := states[one.row]) is None else state.generation for one in of_task]
            placed = [
                Placement(
                    one.uid, one.name, one.resource_version, names[one.row], generation, named(one.row, one.slices), which, one.rank,
                    layout_of(task.cards, one.slices), one.volume_claims,
                )
                for one, generation in zip(of_task, seen, strict=True)
            ]  # fmt: skip
            self.bookings.record(
                [
                    Booking(one.pod_uid, job_id, queue, one.node, requests, one.slices, plan, priority, namespace, task, gang)
                    for one in placed
                ]
            )
            placements += placed
        entry.plans.add(plan)
        domains = self.domains.of(entry, members) or () if gang else ()
        if len(by_task) > 1 and any(one.placements for one in domains):
            at = {placed.pod_uid: number for number, placed in enumerate(placements)}
            domains = tuple(
                one.model_copy(update={"placements": tuple(at[members[number].uid] for number in one.placements)})
                for one in domains
            )
        return Plan(
            id=plan,
            job=job.id,
            namespace=job.namespace,
            name=job.name,
            queue=job.queue,
            priority=job.priority,
            min_member=job.min_member,
            bound=job.bound + entry.held,
            requests=tuple(task.requests for task in by_task),
            placements=tuple(placements),
            preemptable=job.preemptable,
            created_at=job.created_at,
            deadline_s=self.deadline_s,
            traceparent=job.traceparent,
            domains=domains,
        )

    def preemption_plan(self, placement: JobPlacement) -> Plan:
        """The plan with victims. Its places are booked on top of the victims' bookings."""
        plan = self._plan(placement.entry, placement.placements)
        for placed in placement.placements:
            self.columns.book(placed.row, placed.task.requests, placed.slices, aligned=placed.task.aligned)
        moves = {move.leaves.pod: move for move in placement.moves}
        victims = tuple(self._victim(victim, moves.get(victim.pod)) for victim in placement.victims)
        return plan.model_copy(update={"victims": victims, "moves": placement.terms})

    def _victim(self, leaves: Booking, move: Move | None) -> Victim:
        if move is None:
            return Victim(claim=leaves.claim, pod_uid=leaves.pod)
        node, cards = self.columns.names[move.row], move.task.cards
        slices = self.columns.named(move.row, move.slices)
        return Victim(claim=leaves.claim, pod_uid=leaves.pod, to=node, slices=slices, gang=move.leaves.gang, cards=cards)

    def eviction_plan(self, leave: Sequence[Booking], number: int) -> Plan:
        """A plan that only evicts these pods, all of one job and with claims; `number`: of such plans in this process, from 1."""
        first = leave[0]
        held = first.held
        assert held is not None, "what has no claim has nothing to leave"
        return Plan(
            id=PlanId(blake2b(f"{self.id}/{first.job}/away/{number}".encode(), digest_size=16).hexdigest()),
            job=first.job,
            namespace=held.namespace,
            name=held.pod,
            queue=first.queue,
            priority=first.priority,
            min_member=1,
            bound=0,
            requests=(),
            placements=(),
            victims=tuple(Victim(claim=booking.claim, pod_uid=booking.pod) for booking in leave),
            deadline_s=self.deadline_s,
        )

    def placement_plan(self, placement: JobPlacement) -> Plan | None:
        """The plan for the same places without victims; None where the job is not what it was (its pods, what they ask for, or how many have to start
        together), or its places are in no domain any more that does."""
        entry = placement.entry
        entry.update_pending(self.bookings)
        pods = {pod.uid: (task, pod) for task, pending in entry.pending for pod in pending}
        if entry.problem() or entry.need > len(placement.placements):
            return None
        if any(pods.get(placed.pod.uid, (None,))[0] is not placed.task for placed in placement.placements):
            return None
        if entry.job.gang and self.domains.of(entry, placement.placements) is None:
            return None  # the fabric is not what it was
        fresh = replace(
            placement, placements=tuple(replace(placed, pod=pods[placed.pod.uid][1]) for placed in placement.placements)
        )
        plan = self._plan(entry, fresh.placements)
        for placed in placement.placements:
            self.columns.book(placed.row, placed.task.requests, placed.slices, aligned=placed.task.aligned)
        return plan


def verdict_of(entry: Entry, reasons: Reasons | None, message: str, headline: Headline | None = None) -> JobVerdict:
    """`headline`: of the job's explanation; None: that of the code with which the message starts."""
    found = headline or headline_of(message)
    fields = {"code": found.code, "outcome": found.outcome, "owner": found.owner} if found is not None else {}
    if reasons is None:
        return JobVerdict(job=entry.job.id, message=message, **fields)
    return JobVerdict(
        job=entry.job.id,
        message=message,
        nodes=reasons.nodes - reasons.fitting,
        reasons=reasons.counts,
        sole=reasons.sole,
        **fields,
    )


def reclaims(plan: Plan) -> JobVerdict:
    """Of a job for which pods leave by this plan."""
    cards = sum(VENDORS.asked(plan.requests[placement.requests]) for placement in plan.placements)
    what = f"{cards} cards are" if cards else "resources are"
    headline = judged(CARDS_RECLAIMED, Outcome.WAIT)
    message = f"{CARDS_RECLAIMED}: {what} being reclaimed for it, from {len(plan.victims)} pods"
    return JobVerdict(job=plan.job, message=message, code=headline.code, outcome=headline.outcome, owner=headline.owner)
