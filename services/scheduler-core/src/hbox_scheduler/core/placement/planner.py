"""One attempt at one job, or at a run of jobs that ask for the same: slots found, plans made, or the reasons why not.

Gangs are all or nothing: pods that have a place already and those placed now reach `min_member`, or everything is taken back. What a
standing gang has beyond its minimum is placed pod by pod, each in a plan of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from hbox_common.events import JobVerdict, Placement, Plan, Victim
from hbox_common.model import Generation, PlanId, PodRef, SchedulerId
from hbox_common.model.resources import Resources, add

from ..cluster import Booking, Bookings, Columns, Journal
from ..cluster.task import Task
from ..explain.labels import Label
from ..explain.reasons import Reasons, fit_together, reasons_of
from ..framework.placing import capacity_when_empty
from ..policy import Policy
from ..policy.seating import Slot, allocate
from ..policy.view import Views
from ..queueing.jobs import Entry
from ..quotas.models import limit_message, nearest_in, spend, within_limits
from ..quotas.namespaces import NamespaceQuota, charge
from ..quotas.queues import Queues
from .runner import JobPlacement, Move


@dataclass(slots=True)
class Attempt:
    """The result of an attempt, job by job."""

    plans: list[Plan] = field(default_factory=list)
    proposed: list[Entry] = field(default_factory=list)
    settled: list[Entry] = field(default_factory=list)  #: nothing left to place
    failed: list[tuple[Entry, JobVerdict]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans for jobs without a session: places are booked on the columns at once, under the plan's id."""

    id: SchedulerId
    columns: Columns
    bookings: Bookings
    views: Views
    policy: Policy
    queues: Queues
    quota: NamespaceQuota
    deadline_s: float
    _known: dict[Task, tuple[int, Reasons]] = field(default_factory=dict)

    def attempt(self, run: list[Entry]) -> Attempt:
        """Try the jobs of a run: either one job, or several that each have the same one pod to place."""
        out = Attempt()
        first = run[0]
        if not first.pending:
            out.settled.append(first)
        elif problem := first.problem():
            out.failed.append((first, JobVerdict(job=first.job.id, message=problem)))
        elif (task := first.lone) is not None:
            self._singles(out, run, task)
        elif first.need > 0:
            self._gang(out, first)
        else:
            self._surplus(out, first)
        return out

    def _singles(self, out: Attempt, run: list[Entry], task: Task) -> None:
        job = run[0].job
        allowance = self.queues.allowance(job.queue, task.requests)
        allowed = len(run) if allowance.pods is None else min(len(run), allowance.pods)
        left = self.queues.left_of_models(job.queue)
        slots = self._allocate(Journal(self.columns), task, allowed, left)
        for entry, slot in zip(run, slots, strict=False):
            out.plans.append(self._plan(entry, [(task, entry.pending[0][1], [slot])]))
            out.proposed.append(entry)
        if len(slots) == len(run):
            return
        reasons = self._reasons(run[0], task, left) if len(slots) < allowed else None
        over = self.queues.allowance(job.queue, task.requests).message  # anew: with what was placed just now
        for position, entry in enumerate(run[len(slots) :], start=len(slots)):
            lacks_room = reasons is not None and position < allowed
            out.failed.append((entry, verdict_of(entry, reasons if lacks_room else None, over)))

    def _gang(self, out: Attempt, entry: Entry) -> None:
        journal = Journal(self.columns)
        chosen: list[tuple[Task, list[PodRef], list[Slot]]] = []
        total: Resources = {}
        remaining = self.quota.remaining(entry.job.namespace)
        models = self.queues.left_of_models(entry.job.queue)
        left = entry.need
        full: Task | None = None
        short = 0
        tasks = sorted(entry.pending, key=lambda item: _difficulty(item[0])) if len(entry.pending) > 1 else entry.pending
        if refusal := self._queue_refusal(entry, tasks):
            out.failed.append((entry, JobVerdict(job=entry.job.id, message=refusal)))
            return
        for task, pods in tasks:
            wanted = min(left, len(pods))
            slots = self._allocate(journal, task, wanted, models, remaining, together=True)
            if len(slots) < wanted and full is None:
                full, short = task, wanted - len(slots)
            if slots:
                chosen.append((task, pods, slots))
                add(total, task.requests, len(slots))
                left -= len(slots)
            if not left:
                break
        if left:
            assert full is not None
            reasons = self._reasons(entry, full, models, remaining, together=short)
            journal.rollback()
            most = int(capacity_when_empty(self.columns, full).sum()) if len(tasks) == 1 else None
            prefix = f"{fit_together(entry.need - left, entry.need, most)}; for the next one "
            out.failed.append((entry, verdict_of(entry, reasons, prefix=prefix if entry.need > 1 else "")))
            return
        job = entry.job
        if len(chosen) > 1 and (over := self.queues.allowance(job.queue, total)).pods == 0:
            journal.rollback()
            out.failed.append((entry, JobVerdict(job=entry.job.id, message=over.message)))
            return
        out.plans.append(self._plan(entry, chosen))
        out.proposed.append(entry)

    def _queue_refusal(self, entry: Entry, tasks: list[tuple[Task, list[PodRef]]]) -> str:
        """Why the queue takes no gang like this; for gangs of several tasks only what is sure before they are placed."""
        task = tasks[0][0]
        each = {name: units * entry.need for name, units in task.requests.items()} if len(tasks) == 1 else task.requests
        allowance = self.queues.allowance(entry.job.queue, each)
        return allowance.message if allowance.pods == 0 else ""

    def _surplus(self, out: Attempt, entry: Entry) -> None:
        verdict: JobVerdict | None = None
        placed = False
        for task, pods in entry.pending:
            allowance = self.queues.allowance(entry.job.queue, task.requests)
            allowed = len(pods) if allowance.pods is None else min(len(pods), allowance.pods)
            left = self.queues.left_of_models(entry.job.queue)
            slots = self._allocate(Journal(self.columns), task, allowed, left)
            for pod, slot in zip(pods, slots, strict=False):
                out.plans.append(self._plan(entry, [(task, [pod], [slot])]))
                placed = True
            if len(slots) < len(pods) and verdict is None:
                verdict = verdict_of(
                    entry, self._reasons(entry, task, left) if len(slots) < allowed else None, allowance.message
                )
        if placed:
            out.proposed.append(entry)
        elif verdict is not None:
            out.failed.append((entry, verdict))

    def _allocate(
        self,
        journal: Journal,
        task: Task,
        pods: int,
        models: Resources,
        remaining: Resources | None = None,
        *,
        together: bool = False,
    ) -> list[Slot]:
        """Slots for up to `pods` pods, or (`together`) for all of them or a part that is of no use. `models`: what the limits of the queue leave of card
        models,
        `remaining`: what the quotas of the namespace have left; both are spent from."""
        if task.cards is None or not (task.namespace or models):
            return allocate(self.columns, self.views, self.policy, journal=journal, task=task, pods=pods)
        if remaining is None and task.namespace:
            remaining = self.quota.remaining(task.namespace)
        found: list[Slot] = []
        while (missing := pods - len(found)) > 0:
            kept, room = within_limits(task, models)
            wanted = missing if room is None else min(missing, room)
            if task.namespace and remaining is not None:
                kept, paid = self.quota.within_quota(kept, remaining, together=missing if together else 1)
                wanted = min(wanted, paid)
            slots = allocate(self.columns, self.views, self.policy, journal=journal, task=kept, pods=wanted)
            if not slots:
                break
            if task.namespace and remaining is not None:
                charge(remaining, task.requests, (slices for _, slices in slots))
            spend(models, self.columns.states, slots)
            found += slots
        return found

    def _plan(self, entry: Entry, chosen: list[tuple[Task, list[PodRef], list[Slot]]]) -> Plan:
        """The plan of these slots, taken down in the bookings."""
        job = entry.job
        entry.counter += 1
        plan = PlanId(blake2b(f"{self.id}/{job.id}/{entry.counter}".encode(), digest_size=16).hexdigest())
        names, states = self.columns.names, self.columns.states
        placements: list[Placement] = []
        job_id, queue, priority, namespace = job.id, job.queue, job.priority, job.namespace
        gang = job.gang
        for which, (task, pods, slots) in enumerate(chosen):
            bookings: list[Booking] = []
            requests = task.requests
            for pod, (row, slices) in zip(pods, slots, strict=False):
                name, state, uid = names[row], states[row], pod.uid
                generation = state.generation if state is not None else Generation(0)
                placements.append(Placement(uid, pod.name, pod.resource_version, name, generation, slices, which))
                bookings.append(Booking(uid, job_id, queue, name, requests, slices, plan, priority, namespace, task, gang))
            self.bookings.record(bookings)
        entry.plans.add(plan)
        return Plan(
            id=plan,
            job=job.id,
            namespace=job.namespace,
            name=job.name,
            queue=job.queue,
            priority=job.priority,
            min_member=job.min_member,
            bound=job.bound + entry.held,
            requests=tuple(task.requests for task, _, _ in chosen),
            placements=tuple(placements),
            preemptable=job.preemptable,
            created_at=job.created_at,
            deadline_s=self.deadline_s,
            traceparent=job.traceparent,
        )

    def preemption_plan(self, placement: JobPlacement) -> Plan:
        """The plan with victims. Its places are booked on top of the victims' bookings."""
        plan = self._plan(placement.entry, self._chosen(placement))
        for placed in placement.placements:
            self.columns.book(placed.row, placed.task.requests, placed.slices)
        moves = {move.leaves.pod: move for move in placement.moves}
        victims = tuple(self._victim(victim, moves.get(victim.pod)) for victim in placement.victims)
        return plan.model_copy(update={"victims": victims})

    def _victim(self, leaves: Booking, move: Move | None) -> Victim:
        if move is None:
            return Victim(claim=leaves.claim, pod_uid=leaves.pod)
        node, cards = self.columns.names[move.row], move.task.cards
        return Victim(claim=leaves.claim, pod_uid=leaves.pod, to=node, slices=move.slices, gang=move.leaves.gang, cards=cards)

    def eviction_plan(self, leave: Sequence[Booking], number: int) -> Plan:
        """The plan that asks for nothing but that these pods leave, all of one job and with claims; `number`: of such plans in this process, from 1."""
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
        """The plan for the same places without victims; None where the job is not what it was: its pods, what they ask for, or how many have to start
        together."""
        entry = placement.entry
        entry.update_pending(self.bookings)
        pods = {pod.uid: (task, pod) for task, pending in entry.pending for pod in pending}
        if entry.problem() or entry.need > len(placement.placements):
            return None
        if any(pods.get(placed.pod.uid, (None,))[0] is not placed.task for placed in placement.placements):
            return None
        fresh = replace(
            placement, placements=tuple(replace(placed, pod=pods[placed.pod.uid][1]) for placed in placement.placements)
        )
        plan = self._plan(entry, self._chosen(fresh))
        for placed in placement.placements:
            self.columns.book(placed.row, placed.task.requests, placed.slices)
        return plan

    @staticmethod
    def _chosen(placement: JobPlacement) -> list[tuple[Task, list[PodRef], list[Slot]]]:
        chosen: dict[int, tuple[Task, list[PodRef], list[Slot]]] = {}
        for placed in placement.placements:
            _, pods, slots = chosen.setdefault(id(placed.task), (placed.task, [], []))
            pods.append(placed.pod)
            slots.append((placed.row, placed.slices))
        return list(chosen.values())

    def _reasons(
        self, entry: Entry, task: Task, models: Resources, remaining: Resources | None = None, *, together: int = 1
    ) -> Reasons:
        """Reasons for one more pod of the task (of so many that have to start together), kept as long as no node changes."""
        shown, _ = within_limits(task, models)
        if task.namespace:
            remaining = self.quota.remaining(task.namespace) if remaining is None else remaining
            shown, _ = self.quota.within_quota(shown, remaining, together=together)
        known = self._known.get(shown)
        if known is not None and known[0] == self.columns.changes.end:
            reasons = known[1]
        else:
            reasons = reasons_of(self.columns, shown, self.policy.rules)
            if not reasons.fitting and not capacity_when_empty(self.columns, task).any():
                reasons = replace(reasons, too_large=True)
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[shown] = (self.columns.changes.end, reasons)
        limits = []
        if kept := reasons.counts.get(Label.QUEUE_MODEL, 0):
            queue = entry.job.queue
            limits.append(limit_message(task, queue, models, nearest_in(self.queues.all(), queue), kept))
        if Label.CARD_QUOTA in reasons.counts:
            limits.append(self.quota.limit_message(task.namespace, task, remaining, together=together))
        return replace(reasons, limit="; ".join(limits)) if limits else reasons


def _difficulty(task: Task) -> tuple[int, int]:
    """Sorts the tasks that are hardest to place first: many cards, then much cpu."""
    return (-(task.cards.count if task.cards is not None else 0), -task.requests.get("cpu", 0))


def verdict_of(entry: Entry, reasons: Reasons | None, message: str = "", *, prefix: str = "") -> JobVerdict:
    if reasons is None:
        return JobVerdict(job=entry.job.id, message=message)
    return JobVerdict(
        job=entry.job.id, message=prefix + reasons.headline(), nodes=reasons.nodes, reasons=reasons.counts, sole=reasons.sole
    )
