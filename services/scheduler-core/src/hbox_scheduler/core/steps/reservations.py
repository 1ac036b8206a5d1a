"""Reservations: nodes set aside for large gangs that wait (the policy's plugin `reservation`), made again about once a second while there is such a gang.

Nothing of them is kept but the nodes chosen last: they follow from who waits and since when, who runs, and how long others ran. So a scheduler that starts
anew makes them again, and of those of a job that is gone, placed or promised places that others leave, nothing stays. A job whose reservation changed in words
gets its turn, so that it says so; one that fits now gets its turn at once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Set
from math import inf
from operator import itemgetter

import numpy as np

from hbox_common.model import Claim, ClaimState, JobId

from ..cluster.reservations import Reservation
from ..queueing.jobs import Entry, JobState
from .context import SchedulerContext
from .nominations import Nominations

#: Time between two makings while nobody comes or goes, seconds, and what 10,000 that run add to it.
EVERY_S, MORE_S = 1.0, 2.0

#: By so much a start has to be later for those to be tried again who would have ended too late, seconds.
LATER_S = 10.0

_WAITS = (JobState.UNSCHEDULABLE, JobState.ACTIVE, JobState.DELAYED, JobState.AWAITING_STATE)


class Reservations:
    """Those in force are the columns' and the runner's; here is who may get one, and when to look again."""

    def __init__(self, context: SchedulerContext, *, nominations: Nominations) -> None:
        self._reserving = context.runner.reserving
        self._bookings = context.bookings
        self._columns = context.plans.columns
        self._queues = context.queues
        self._queue = context.queue
        self._limits = context.limits
        self._nominations = nominations
        self._candidates: dict[JobId, None] = {}
        self._made_at = float("-inf")
        self._made_for: Set[JobId] = set()
        self._wake_at: float | None = None
        self._risen = -1
        self._new: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """A job found no place: it may be a large one."""
        if self._reserving.reserves and self._reserving.is_large(entry):
            self._candidates[entry.job.id] = None

    def add_new(self, entry: Entry) -> None:
        """A job is new here. It may have waited for long already: where this process is new, its nodes are set aside before others are tried."""
        if self._reserving.reserves:
            self._new.append(entry)

    def reset(self) -> None:
        """Another policy: what it sets aside is found before anybody is tried."""
        self._candidates.clear()
        self._new = list(self._queue.entries.values()) if self._reserving.reserves else []
        self._made_for = set()
        self._reserving.unreserve()

    def pod_ended(self, claim: Claim | None, wall: float) -> None:
        """A claim ended: how long its pod ran is remembered, unless others had it leave, or it was never seen to run."""
        if claim is not None and claim.state is ClaimState.POSTED and claim.pod_uid not in self._nominations:
            self._reserving.learn_run_time(claim, wall)

    def next_at(self) -> list[float]:
        """When `run` has something next."""
        return [self._wake_at] if self._wake_at is not None else []

    def run(self, now: float, wall: float) -> None:
        """Make them anew, where it is time."""
        self._add_due(wall)
        at_once = now if self._new else None
        if not (self._candidates or self._reserving.reservations):
            self._wake_at = at_once
            return
        entries = self._queue.entries
        self._candidates = {
            job: None for job in self._candidates if (entry := entries.get(job)) is not None and entry.state in _WAITS
        }
        due: list[Entry] = []
        later: list[float] = []
        for job in self._candidates:
            left = self._reserving.due_in_s(entries[job], wall)
            if left <= 0:
                due.append(entries[job])
            else:
                later.append(left)
        first = min((now + left / self._limits.clock_rate for left in later), default=None)
        due.sort(key=lambda entry: entry.order)
        chosen = {entry.job.id: entry for entry in _by_turns(due)[: self._limits.session_jobs]}
        if self._is_time(chosen.keys(), now):
            self._make(chosen.values(), wall)
            self._made_at, self._made_for = now, set(chosen)
        again = self._made_at + self._every_s() if chosen else None
        self._wake_at = min((at for at in (at_once, first, again) if at is not None), default=None)

    def _is_time(self, jobs: Set[JobId], now: float) -> bool:
        """Whether somebody came or went, room came on reserved nodes, or some time has passed."""
        if jobs != self._made_for or (jobs and now >= self._made_at + self._every_s()):
            return True
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
        for entry, one in made:
            known = before.get(one.gang)
            if entry.state is JobState.UNSCHEDULABLE and (one.start <= wall or known is None or known.words != one.words):
                self._queue.activate(entry)

    def _add_due(self, wall: float) -> None:
        """All that are new, but of those that wish certain cards one at a time: each may be like no other, and to ask about it costs as much as to try it."""
        due = [entry for entry in self._new if self._reserving.due_in_s(entry, wall) <= 0 and entry.state in _WAITS]
        wishing = sorted((entry for entry in due if entry.wishes_certain_cards), key=lambda entry: entry.order)
        self._new = wishing[1:]
        for entry in (*wishing[:1], *(entry for entry in due if not entry.wishes_certain_cards)):
            entry.update_pending(self._bookings)
            self.add(entry)

    def _every_s(self) -> float:
        return EVERY_S + MORE_S * len(self._bookings) / 10_000


def _by_turns(entries: Iterable[Entry]) -> list[Entry]:
    """The first one of each namespace, then the second ones: who makes many leaves room for those of others."""
    before: Counter[str] = Counter()
    turns: list[tuple[int, Entry]] = []
    for entry in entries:
        turns.append((before[entry.job.namespace], entry))
        before[entry.job.namespace] += 1
    return [entry for _, entry in sorted(turns, key=itemgetter(0))]


def _opens(before: Reservation, now: Reservation) -> bool:
    """Whether others may pass it who might not before: its start is later, or known at last."""
    later = before.start == inf or now.start > before.start + LATER_S
    return (now.start < inf and later) or (before.entitled and not now.entitled)
