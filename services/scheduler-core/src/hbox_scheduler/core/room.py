"""Room that others hold, for jobs that wait though it is their turn: looked for in sessions, promised, and taken when it is free.

A look is over all who may have to leave, and has its price: it is had when something changed since the last one, at a pace that slows while nothing is found.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from hbox_common.events import Plan
from hbox_common.model import Index, JobId, PodUid, Resources

from .jobs import Entry, JobState
from .moves import Moves
from .pace import Pace
from .parts import Parts
from .promises import Promise, Promises
from .taking import Taking


class Room:
    """Jobs that others may have to make room for, and what was promised to them."""

    def __init__(self, parts: Parts, *, timed: bool) -> None:
        """`timed`: what a look finds may change with time alone, by plugins of the policy."""
        self.promises = Promises()
        self._moves = Moves(parts)
        self._takings = parts.takings
        self._planner = parts.planner
        self._bookings = parts.bookings
        self._queues = parts.queues
        self._lineup = parts.lineup
        self._parking = parts.parking
        self._flights = parts.flights
        self._limits = parts.limits
        self._timed = timed
        self._wanting: dict[JobId, None] = {}
        self._pace = Pace(parts.limits.look_every_s, parts.limits.look_rarely_s)
        self._looked: tuple[Index, int] = (Index(0), 0)

    def want(self, entry: Entry, alike: Iterable[JobId] = ()) -> None:
        """A job that waits: others may have to make room for it, and for those that are like it."""
        if self._takings.may(entry, self._queues.all()):
            if entry.job.id not in self._wanting:
                self._wanting.update(dict.fromkeys(alike))
            self._wanting[entry.job.id] = None

    def freed(self, lots: Iterable[Iterator[Entry]], *, news: bool) -> None:
        """Jobs, each lot of one kind, that wait on though their queues have less than they had. `news`: rules changed; a look may find more."""
        for lot in lots:
            first = next(lot, None)
            if first is not None and self._takings.may(first, self._queues.all()):
                self._wanting[first.job.id] = None
                self._wanting.update((entry.job.id, None) for entry in lot)
        if news:
            self.shake()

    def shake(self) -> None:
        """What looks find may be another from now on."""
        self._looked = (Index(-1), -1)

    def forget(self, job: JobId) -> None:
        if (promise := self.promises.drop(job)) is not None:
            self._release(promise)
            self._moves.cancel(promise.plan)
        self._wanting.pop(job, None)

    def left(self, pod: PodUid) -> None:
        """A pod's booking is gone: somebody may have waited for that."""
        self.promises.left(pod)

    def stay(self, pods: Iterable[PodUid]) -> None:
        """They were to leave and may not: those for whom they were look elsewhere at once."""
        for job in {job: None for pod in pods if (job := self.promises.waiting_for(pod)) is not None}:
            self._give_up(self.promises.get(job))
        self.promises.stay(pods)
        self._pace.hurry()
        self.shake()

    def accepted(self, plan: Plan) -> None:
        """The ledger lets the victims of this plan go."""
        if (promise := self.promises.of_plan(plan.job, plan.id)) is not None:
            promise.accepted = True

    def refused(self, plan: Plan) -> None:
        """The ledger does not, or has forgotten the plan."""
        if plan.victims:
            self.promises.drop(plan.job)
            self._moves.cancel(plan.id)

    def next_at(self, index: Index) -> list[float]:
        """When `look` or `keep` has something next."""
        return [
            *([self._pace.next_at] if self._wanting and self._news(index) else []),
            *self.promises.next_at(),
            *self._moves.next_at(),
        ]

    def look(self, index: Index, now: float) -> list[Plan]:
        """Plans with victims, for jobs that wait and may have what others hold."""
        if self._takings.idle or not self._wanting or not self._news(index):
            return []
        if not self._pace.due(now) or self._flights.placements >= self._limits.outstanding:
            return []
        parked = [
            entry
            for job in self._wanting
            if (entry := self._lineup.entries.get(job)) is not None and entry.state is JobState.PARKED
        ]
        self._wanting = dict.fromkeys(entry.job.id for entry in parked)
        parked.sort(key=attrgetter("order"))
        queues = self._queues.all()
        entries: list[Entry] = []
        for entry in parked:
            entry.look(self._bookings)
            if not entry.problem() and self._takings.may(entry, queues) and self._beside_guarantees(entry, entry.least()):
                entries.append(entry)
                if len(entries) == self._limits.look_at:
                    break
        takings = self._takings.look(entries, queues, self.promises) if entries else []
        plans = [self._promise(taking, now) for taking in takings if self._beside_guarantees(taking.entry, taking.amounts())]
        self._looked = (index, len(self._wanting))
        self._pace.went(now, fruitful=bool(plans))
        return plans

    def keep(self, now: float) -> list[Plan]:
        """Plans for the places whose victims are gone, and for successors of those who moved; promises whose victims never left are given up."""
        plans = self._moves.keep(now)
        for promise in self.promises.due():
            entry = promise.taking.entry
            self.promises.drop(entry.job.id)
            self._release(promise)
            plan = self._planner.kept(promise.taking)
            if plan is None:
                self._lineup.wake(entry)
                continue
            entry.state = JobState.PROPOSED
            self._flights.open(plan, now)
            plans.append(plan)
        for promise in self.promises.overdue(now):
            self._give_up(promise)
        return plans

    def _give_up(self, promise: Promise | None) -> None:
        if promise is None:
            return
        entry = promise.taking.entry
        self.promises.drop(entry.job.id)
        self._release(promise)
        self._moves.cancel(promise.plan)
        if entry.state is JobState.PROMISED:
            self._lineup.wake(entry)

    def _beside_guarantees(self, entry: Entry, amounts: Resources) -> bool:
        """Whether the job may have so much where others are guaranteed something. Sessions do not know."""
        return self._queues.kept_for_others(entry.job.queue, amounts, preemptable=entry.job.preemptable).pods != 0

    def _news(self, index: Index) -> bool:
        """Whether anything changed since the last look that could change what it found."""
        return self._timed or self._looked != (index, len(self._wanting))

    def _promise(self, taking: Taking, now: float) -> Plan:
        entry = taking.entry
        self._parking.recheck(entry)
        del self._wanting[entry.job.id]
        plan = self._planner.taking(taking)
        entry.state, entry.kind, entry.woken = JobState.PROMISED, None, None
        victims = {victim.pod for victim in taking.victims}
        self.promises.put(Promise(plan.id, taking, victims, until=now + self._limits.promise_s))
        self._moves.put(plan.id, taking.moves)
        self._flights.open(plan, now)
        return plan

    def _release(self, promise: Promise) -> None:
        self._bookings.take_back(promise.plan, (taken.pod.uid for taken in promise.taking.placements))
