"""Reservations: nodes set aside for large pending gangs (the policy's plugin `reservation`), made again about once a second while there is such a gang.

Only the last chosen nodes are stored: reservations follow from the pending gangs, their waiting times, the running pods and earlier run times. So a restarted
scheduler makes them again, and nothing is left of the reservation of a job that is gone, placed or nominated. A job whose reservation message changed is
activated, so that it publishes the message; one that fits now is activated at once.

Examining a gang costs as much as an attempt to place it, and tenants decide how many gangs there are. So each run examines the gangs that have nodes set aside
and a few of the others, by turns (`queueing.namespaceturns`): a gang that deserves nodes more than those is found within one round of turns. Only the first
run, of a new process or under a new policy, examines all gangs, so that no other pod gets nodes that had drained for them.
"""

from collections.abc import Collection
from heapq import heappop, heappush
from math import inf

import numpy as np

from hbox_common.model import Claim, ClaimState, JobId

from ..cluster.reservations import Reservation
from ..queueing.jobs import Entry, JobState, Order
from ..queueing.namespaceturns import NamespaceTurns
from .context import SchedulerContext
from .nominations import Nominations
from .placer import BY_CARDS, BY_OTHERS, TOGETHER

#: Least seconds between two runs for gangs without nodes set aside, and the addition for every 10,000 running pods.
EVERY_S, MORE_S = 1.0, 2.0

#: By so many seconds a start has to be later before jobs that would have ended too late are tried again.
LATER_S = 10.0

_WAITS = (JobState.UNSCHEDULABLE, JobState.ACTIVE, JobState.DELAYED, JobState.AWAITING_STATE)


class Reservations:
    """Chooses the jobs that may get a reservation, and when to examine them again. The columns and the runner hold the reservations in force."""

    def __init__(self, context: SchedulerContext, *, nominations: Nominations) -> None:
        self._reserving = context.runner.reservations
        self._bookings = context.bookings
        self._columns = context.plans.columns
        self._queues = context.queues
        self._queue = context.queue
        self._limits = context.limits
        self._nominations = nominations
        self._turns = NamespaceTurns()  #: large jobs that have waited for long enough, but `_holders`
        self._holders: dict[JobId, None] = {}  #: those with nodes set aside
        #: A heap: large jobs by when they were created, those that have not waited for long enough or are gone.
        self._later: list[tuple[float, JobId]] = []
        self._in_later: set[JobId] = set()
        self._new: list[Entry] = []
        self._new_wishing: list[tuple[Order, JobId]] = []  #: a heap: those of them that wish certain cards
        self._made_at = float("-inf")
        self._is_first = True  #: the next making is for all
        self._wake_at: float | None = None
        self._risen = -1

    def add(self, entry: Entry) -> None:
        """A job found no place: it may be a large one."""
        job = entry.job.id
        if not self._reserving.reserves or job in self._turns or job in self._holders or job in self._in_later:
            return
        if self._reserving.is_large(entry):
            self._wait(entry)

    def add_new(self, entry: Entry) -> None:
        """A job is new here. It may have waited for long already: if this process is new, nodes are set aside for it before other jobs are tried."""
        if self._reserving.reserves:
            self._new.append(entry)

    def remove(self, job: JobId) -> None:
        """The job is gone."""
        self._turns.remove(job)

    def reset(self) -> None:
        """The policy changed: what it sets aside is computed before any job is tried."""
        self._turns = NamespaceTurns()
        self._holders, self._later, self._in_later, self._new_wishing = {}, [], set(), []
        self._new = list(self._queue.entries.values()) if self._reserving.reserves else []
        self._is_first = True
        self._reserving.unreserve()

    def pod_ended(self, claim: Claim | None, wall: float) -> None:
        """A claim ended: how long its pod ran is remembered, unless others had it leave, or it was never seen to run."""
        if claim is not None and claim.state is ClaimState.POSTED and claim.pod_uid not in self._nominations:
            self._reserving.learn_run_time(claim, wall)

    def next_at(self) -> list[float]:
        """When `run` has something next."""
        return [self._wake_at] if self._wake_at is not None else []

    def run(self, now: float, wall: float) -> None:
        """Make the reservations again if they are due."""
        self._add_due(wall)
        self._ripen(wall)
        stay = [entry for job in self._holders if (entry := self._queue.entries.get(job)) is not None and entry.state in _WAITS]
        if (self._turns or stay) and now >= self._made_at + self._every_s():
            self._make([*stay, *self._next()], wall)
            self._made_at, self._is_first = now, False
        elif len(stay) < len(self._holders) or self._has_room():
            self._make(stay, wall)
        times = [now] if self._new_wishing else []
        times += [now + self._left_s(self._later[0][0], wall) / self._limits.clock_rate] if self._later else []
        times += [self._made_at + self._every_s()] if self._turns or self._holders else []
        self._wake_at = min(times, default=None)

    def _next(self) -> list[Entry]:
        """Gangs to examine besides those with nodes set aside."""
        entries = self._queue.entries
        jobs = self._turns.take(inf if self._is_first else self._limits.session_failures, self._limits.session_jobs)
        return [entry for job in jobs if (entry := entries.get(job)) is not None and entry.state in _WAITS]

    def _has_room(self) -> bool:
        """Whether room came on reserved nodes."""
        if not self._reserving.reservations or self._columns.risen.end == self._risen:
            return False
        rows = self._columns.risen.since(self._risen)
        self._risen = self._columns.risen.end
        return rows is None or bool(self._columns.reserved[rows].any())

    def _make(self, entries: Collection[Entry], wall: float) -> None:
        before = {one.gang: one for one in self._reserving.reservations}
        made = self._reserving.make(tuple(entries), self._queues.all(), self._nominations)
        for one in self._reserving.reservations:
            if (known := before.get(one.gang)) is not None and _opens(known, one):
                self._columns.risen.extend(np.flatnonzero(one.rows).tolist())
        self._risen = self._columns.risen.end
        self._holders = {entry.job.id: None for entry, _ in made}
        for entry in entries:
            if entry.job.id not in self._holders:
                self._look_later(entry)
        for entry, one in made:
            known = before.get(one.gang)
            if entry.state is JobState.UNSCHEDULABLE and (one.start <= wall or known is None or known.message != one.message):
                self._queue.activate(entry)

    def _add_due(self, wall: float) -> None:
        """All that are new, but of those that wish certain cards one at a time: each may be like no other, and to ask about it costs as much as to try it."""
        new, self._new = self._new, []
        for entry in new:
            if self._left_s(entry.job.created_at, wall) > 0 or entry.state not in _WAITS:
                continue
            if entry.wishes_certain_cards:
                heappush(self._new_wishing, (entry.order, entry.job.id))
            else:
                self._add_new(entry)
        while self._new_wishing:
            wishing = self._queue.entries.get(heappop(self._new_wishing)[1])
            if wishing is not None and wishing.state in _WAITS:
                self._add_new(wishing)
                return

    def _add_new(self, entry: Entry) -> None:
        entry.update_pending(self._bookings)
        self.add(entry)

    def _ripen(self, wall: float) -> None:
        """Jobs that have waited for long enough are examined from now on."""
        while self._later and self._left_s(self._later[0][0], wall) <= 0:
            _, job = heappop(self._later)
            self._in_later.remove(job)
            entry = self._queue.entries.get(job)
            if entry is None or entry.state not in _WAITS:
                continue
            if self._left_s(entry.job.created_at, wall) > 0:  # another one of this name
                self._wait(entry)
            else:
                self._look_later(entry)

    def _wait(self, entry: Entry) -> None:
        heappush(self._later, (entry.job.created_at, entry.job.id))
        self._in_later.add(entry.job.id)

    def _look_later(self, entry: Entry) -> None:
        if entry.job.id not in self._holders:
            self._turns.add(entry.job.id, entry.job.namespace, entry.order, _cost(entry))

    def _left_s(self, created_at: float, wall: float) -> float:
        """How long a job has still to wait before nodes are set aside for it; 0 or less: it has waited for long enough."""
        return self._reserving.after_s - (wall - created_at)

    def _every_s(self) -> float:
        return EVERY_S + MORE_S * len(self._bookings) / 10_000


def _cost(entry: Entry) -> int:
    """The cost of examining the job, of `Limits.session_failures`, as of an attempt that fails (`placer`)."""
    if entry.wishes_certain_cards:
        return BY_CARDS
    return TOGETHER if entry.job.together else BY_OTHERS


def _opens(before: Reservation, now: Reservation) -> bool:
    """True if jobs may pass it that could not before: its start is later, or known at last."""
    later = before.start == inf or now.start > before.start + LATER_S
    return (now.start < inf and later) or (before.entitled and not now.entitled)
