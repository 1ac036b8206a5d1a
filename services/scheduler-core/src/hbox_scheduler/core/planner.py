"""One attempt at one job, or at a run of jobs that ask for the same: seats found, plans made, or the reasons why not.

Gangs are all or nothing: pods that have a place already and those placed now reach `min_member`, or everything is taken back. What a
standing gang has beyond its minimum is placed pod by pod, each in a plan of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from hbox_common.events import JobVerdict, Placement, Plan, Victim
from hbox_common.model import Generation, NodeName, PlanId, PodRef, SchedulerId
from hbox_common.model.resources import Resources, add

from .explain.labels import Label
from .explain.reasons import Reasons, reasons_of
from .jobs import Entry
from .modelwalls import nearest_in, spend, wall, within
from .paying import Payer, pay
from .policy import Policy
from .queues import Queues
from .seating import Seat, allocate
from .state import Booking, Bookings, Columns, Journal
from .taking import Taking
from .task import Task
from .view import Views


@dataclass(slots=True)
class Attempt:
    """What came of it, job by job."""

    plans: list[Plan] = field(default_factory=list)
    proposed: list[Entry] = field(default_factory=list)
    settled: list[Entry] = field(default_factory=list)  #: nothing left to place
    failed: list[tuple[Entry, JobVerdict]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Planner:
    """Places on the columns at once and books under the plan's id."""

    id: SchedulerId
    columns: Columns
    bookings: Bookings
    views: Views
    policy: Policy
    queues: Queues
    payer: Payer
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
        allowance = self.queues.allowance(job.queue, task.requests, preemptable=job.preemptable)
        allowed = len(run) if allowance.pods is None else min(len(run), allowance.pods)
        left = self.queues.left_of_models(job.queue, preemptable=job.preemptable)
        seats = self._allocate(Journal(self.columns), task, allowed, left)
        for entry, seat in zip(run, seats, strict=False):
            out.plans.append(self._plan(entry, [(task, entry.pending[0][1], [seat])]))
            out.proposed.append(entry)
        if len(seats) == len(run):
            return
        reasons = self._reasons(run[0], task, left) if len(seats) < allowed else None
        over = self.queues.allowance(
            job.queue, task.requests, preemptable=job.preemptable
        ).message  # anew: with what was placed just now
        for position, entry in enumerate(run[len(seats) :], start=len(seats)):
            lacks_room = reasons is not None and position < allowed
            out.failed.append((entry, verdict_of(entry, reasons if lacks_room else None, over)))

    def _gang(self, out: Attempt, entry: Entry) -> None:
        journal = Journal(self.columns)
        chosen: list[tuple[Task, list[PodRef], list[Seat]]] = []
        total: Resources = {}
        purse = self.payer.purse(entry.job.namespace)
        models = self.queues.left_of_models(entry.job.queue, preemptable=entry.job.preemptable)
        left = entry.need
        full: Task | None = None
        short = 0
        tasks = sorted(entry.pending, key=lambda item: _difficulty(item[0])) if len(entry.pending) > 1 else entry.pending
        if refusal := self._queue_refusal(entry, tasks):
            out.failed.append((entry, JobVerdict(job=entry.job.id, message=refusal)))
            return
        for task, pods in tasks:
            wanted = min(left, len(pods))
            seats = self._allocate(journal, task, wanted, models, purse, together=True)
            if len(seats) < wanted and full is None:
                full, short = task, wanted - len(seats)
            if seats:
                chosen.append((task, pods, seats))
                add(total, task.requests, len(seats))
                left -= len(seats)
            if not left:
                break
        if left:
            assert full is not None
            reasons = self._reasons(entry, full, models, purse, together=short)
            journal.rollback()
            prefix = f"{entry.need - left} of {entry.need} pods fit that have to start together; for the next one "
            out.failed.append((entry, verdict_of(entry, reasons, prefix=prefix if entry.need > 1 else "")))
            return
        job = entry.job
        if len(chosen) > 1 and (over := self.queues.allowance(job.queue, total, preemptable=job.preemptable)).pods == 0:
            journal.rollback()
            out.failed.append((entry, JobVerdict(job=entry.job.id, message=over.message)))
            return
        out.plans.append(self._plan(entry, chosen))
        out.proposed.append(entry)

    def _queue_refusal(self, entry: Entry, tasks: list[tuple[Task, list[PodRef]]]) -> str:
        """Why the queue takes no gang like this; for gangs of several tasks only what is sure before they are placed."""
        task = tasks[0][0]
        each = {name: units * entry.need for name, units in task.requests.items()} if len(tasks) == 1 else task.requests
        allowance = self.queues.allowance(entry.job.queue, each, preemptable=entry.job.preemptable)
        return allowance.message if allowance.pods == 0 else ""

    def _surplus(self, out: Attempt, entry: Entry) -> None:
        verdict: JobVerdict | None = None
        placed = False
        for task, pods in entry.pending:
            allowance = self.queues.allowance(entry.job.queue, task.requests, preemptable=entry.job.preemptable)
            allowed = len(pods) if allowance.pods is None else min(len(pods), allowance.pods)
            left = self.queues.left_of_models(entry.job.queue, preemptable=entry.job.preemptable)
            seats = self._allocate(Journal(self.columns), task, allowed, left)
            for pod, seat in zip(pods, seats, strict=False):
                out.plans.append(self._plan(entry, [(task, [pod], [seat])]))
                placed = True
            if len(seats) < len(pods) and verdict is None:
                verdict = verdict_of(
                    entry, self._reasons(entry, task, left) if len(seats) < allowed else None, allowance.message
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
        purse: Resources | None = None,
        *,
        together: bool = False,
    ) -> list[Seat]:
        """Seats for up to `pods` pods, or (`together`) for all of them or a part that is of no use. `models`: what the walls of the queue leave of card models,
        `purse`: what the quotas of the namespace have left; both are spent from."""
        if task.cards is None or not (task.namespace or models):
            return allocate(self.columns, self.views, self.policy, journal=journal, task=task, pods=pods)
        if purse is None and task.namespace:
            purse = self.payer.purse(task.namespace)
        found: list[Seat] = []
        while (missing := pods - len(found)) > 0:
            kept, room = within(task, models)
            wanted = missing if room is None else min(missing, room)
            if task.namespace and purse is not None:
                kept, paid = self.payer.payable(kept, purse, together=missing if together else 1)
                wanted = min(wanted, paid)
            seats = allocate(self.columns, self.views, self.policy, journal=journal, task=kept, pods=wanted)
            if not seats:
                break
            if task.namespace and purse is not None:
                pay(purse, (slices for _, slices in seats))
            spend(models, self.columns.states, seats)
            found += seats
        return found

    def _plan(self, entry: Entry, chosen: list[tuple[Task, list[PodRef], list[Seat]]]) -> Plan:
        """The plan of these seats, taken down in the bookings."""
        job = entry.job
        entry.counter += 1
        plan = PlanId(blake2b(f"{self.id}/{job.id}/{entry.counter}".encode(), digest_size=16).hexdigest())
        names, states = self.columns.names, self.columns.states
        placements: list[Placement] = []
        job_id, queue, priority, namespace = job.id, job.queue, job.priority, job.namespace
        gang, soft = job.gang, job.preemptable
        for which, (task, pods, seats) in enumerate(chosen):
            bookings: list[Booking] = []
            requests = task.requests
            for pod, (row, slices) in zip(pods, seats, strict=False):
                name, state, uid = names[row], states[row], pod.uid
                generation = state.generation if state is not None else Generation(0)
                placements.append(Placement(uid, pod.name, pod.resource_version, name, generation, slices, which))
                bookings.append(
                    Booking(uid, job_id, queue, name, requests, slices, plan, priority, namespace, task, gang, soft)
                )
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

    def taking(self, taking: Taking) -> Plan:
        """The plan that asks for the room of others. Its places are booked, on top of those who are still there."""
        plan = self._plan(taking.entry, self._chosen(taking))
        for taken in taking.placements:
            self.columns.book(taken.row, taken.task.requests, taken.slices)
        moves = {move.leaves.pod: (self.columns.names[move.row], move.slices) for move in taking.moves}
        victims = tuple(
            Victim(claim=victim.claim, pod_uid=victim.pod, to=to, slices=slices)
            for victim in taking.victims
            for to, slices in (moves.get(victim.pod, (NodeName(""), ())),)
        )
        return plan.model_copy(update={"victims": victims})

    def sending_away(self, leave: Sequence[Booking], number: int) -> Plan:
        """The plan that asks for nothing but that these pods leave, all of one job and with claims; the so-and-so-manieth of this process."""
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

    def kept(self, taking: Taking) -> Plan | None:
        """The plan for the same places without victims; None where the job is not what it was: its pods, what they ask for, or how many have to start
        together."""
        entry = taking.entry
        entry.look(self.bookings)
        pods = {pod.uid: (task, pod) for task, pending in entry.pending for pod in pending}
        if entry.problem() or entry.need > len(taking.placements):
            return None
        if any(pods.get(taken.pod.uid, (None,))[0] is not taken.task for taken in taking.placements):
            return None
        fresh = replace(taking, placements=tuple(replace(taken, pod=pods[taken.pod.uid][1]) for taken in taking.placements))
        plan = self._plan(entry, self._chosen(fresh))
        for taken in taking.placements:
            self.columns.book(taken.row, taken.task.requests, taken.slices)
        return plan

    @staticmethod
    def _chosen(taking: Taking) -> list[tuple[Task, list[PodRef], list[Seat]]]:
        chosen: dict[int, tuple[Task, list[PodRef], list[Seat]]] = {}
        for taken in taking.placements:
            _, pods, seats = chosen.setdefault(id(taken.task), (taken.task, [], []))
            pods.append(taken.pod)
            seats.append((taken.row, taken.slices))
        return list(chosen.values())

    def _reasons(
        self, entry: Entry, task: Task, models: Resources, purse: Resources | None = None, *, together: int = 1
    ) -> Reasons:
        """Reasons for one more pod of the task (of so many that have to start together), kept as long as no node changes."""
        shown, _ = within(task, models)
        if task.namespace:
            purse = self.payer.purse(task.namespace) if purse is None else purse
            shown, _ = self.payer.payable(shown, purse, together=together)
        known = self._known.get(shown)
        if known is not None and known[0] == self.columns.changes.end:
            reasons = known[1]
        else:
            reasons = reasons_of(self.columns, shown, self.policy.judges)
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[shown] = (self.columns.changes.end, reasons)
        walls = []
        if kept := reasons.counts.get(Label.QUEUE_MODEL, 0):
            queue = entry.job.queue
            walls.append(wall(task, queue, models, nearest_in(self.queues.all(), queue), kept))
        if Label.CARD_QUOTA in reasons.counts:
            walls.append(self.payer.wall(task.namespace, task, purse, together=together))
        return replace(reasons, wall="; ".join(walls)) if walls else reasons


def _difficulty(task: Task) -> tuple[int, int]:
    """Sorts the tasks that are hardest to place first: many cards, then much cpu."""
    return (-(task.cards.count if task.cards is not None else 0), -task.requests.get("cpu", 0))


def verdict_of(entry: Entry, reasons: Reasons | None, message: str = "", *, prefix: str = "") -> JobVerdict:
    if reasons is None:
        return JobVerdict(job=entry.job.id, message=message)
    return JobVerdict(
        job=entry.job.id, message=prefix + reasons.headline(), nodes=reasons.nodes, reasons=reasons.counts, sole=reasons.sole
    )
