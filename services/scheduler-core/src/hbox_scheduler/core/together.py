"""Jobs that are placed in a session, as `hbox simulate cycle` places them: those whose pods have to do with others, or with each other's places, and all
where the user brought a policy.

The planner's way, equal pods on the columns at once, cannot see affinities between pods, spreading, the fabric, or plugins. A session can, one pod at a time:
jobs that come together share one, and those that found no place are looked at again when anybody came or went, at a pace that slows while that is in vain.
"""

from collections.abc import Iterable, Iterator

from hbox_common.events import JobVerdict
from hbox_common.model import Index, JobId, Neighbour, PodUid, Resources

from .crowds import Crowds
from .jobs import Entry, JobState
from .pace import Pace
from .parts import Parts
from .planner import Attempt, verdict_of
from .promises import Promises
from .taking import Unplaced

#: Pods that are gone are forgotten then: their end is told by their claims.
NEIGHBOURS_KEPT = 100_000


class Together:
    """`neighbours`: what is known of pods that have to do with others. `everybody`: all jobs are placed here."""

    def __init__(self, parts: Parts, *, neighbours: dict[PodUid, Neighbour], everybody: bool) -> None:
        self._takings = parts.takings
        self._neighbours = neighbours
        self._planner = parts.planner
        self._bookings = parts.bookings
        self._queues = parts.queues
        self._lineup = parts.lineup
        self._limits = parts.limits
        self._everybody = everybody
        self._waiting: dict[JobId, None] = {}  #: those that are in no crowd
        self._leaving: Iterable[PodUid] = ()
        self._crowds = Crowds(
            parts.planner.columns,
            parts.bookings,
            parts.lineup.entries,
            neighbours,
            every_s=parts.limits.verdict_every_s,
            reserves_from=lambda: parts.takings.reserves_from,
        )
        self._tried: set[JobId] = set()  #: in this cycle, in vain
        self._pace = Pace(parts.limits.look_every_s, parts.limits.look_rarely_s)
        self._met: tuple[Index, int] = (Index(0), 0)
        self._introduced = 0  #: news so far

    def introduce(self, neighbours: Iterable[Neighbour]) -> None:
        """Pods that have to do with others, as they are now."""
        for neighbour in neighbours:
            if (job := self._crowds.of_pod(neighbour.uid)) is not None:
                self.revised(job)
            self._neighbours[neighbour.uid] = neighbour
            self._takings.met((neighbour.uid,))
            self._introduced += 1
        if len(self._neighbours) > NEIGHBOURS_KEPT:
            self._forget_gone()

    def shake(self) -> None:
        """Something else changed that places depend on."""
        self._introduced += 1

    def concerns(self, entry: Entry) -> bool:
        """Whether its pods want something of others or of each other, or others may want something of them."""
        if entry.problem() or not entry.pending:
            return False
        if self._everybody or entry.job.together:
            return True
        return bool(self._neighbours) and any(
            (neighbour := self._neighbours.get(pod.uid)) is not None and neighbour.social
            for _, pods in entry.pending
            for pod in pods
        )

    def forget(self, job: JobId) -> None:
        self._waiting.pop(job, None)
        self._crowds.leave(job)

    def revised(self, job: JobId) -> None:
        """The job is not what it was: whether it is like others is seen when it is looked at next."""
        if self._crowds.leave(job):
            self._waiting[job] = None

    def next_at(self, index: Index) -> list[float]:
        """When `wake` or `news` has something next."""
        looks = [self._pace.next_at] if (self._waiting or self._crowds) and self._news(index) else []
        return looks + self._crowds.next_at()

    def news(self, now: float) -> Iterator[JobVerdict]:
        """Why jobs wait that others stood for, where that is not what they were told."""
        return self._crowds.news(now)

    def behind(self, job: JobId) -> Iterable[JobId]:
        """All jobs for which this one stands, and itself; none where it stands for none."""
        return self._crowds.like(job)

    def wake(self, index: Index, now: float) -> None:
        """At the beginning of a cycle: jobs that found no place are looked at again when anybody came or went; by a user's policy also when time has passed."""
        self._tried.clear()
        self._crowds.begin()
        if not (self._waiting or self._crowds) or not self._news(index) or not self._pace.due(now):
            return
        self._met = (index, self._introduced)
        self._pace.went(now, fruitful=False)
        self._wake_all()

    def place(self, first: Entry, promises: Promises) -> Attempt:
        """The job, and those of its kind right after it, in one session. By a user's policy with those that wait: they count for its plugins."""
        attempt = Attempt()
        self._leaving = promises
        if self._everybody:
            self._wake_all()
        entries: list[Entry] = []
        for entry in (first, *self._company()):
            if (said := self._crowds.vain(entry)) is not None:
                self._wait(attempt, entry, said)
            elif why := self._kept_out(entry, entry.least()):
                self._fail(attempt, Unplaced(entry, why, None))
            else:
                entries.append(entry)
        behind = self._crowds.behind(entries)
        for found in self._takings.place(entries, self._queues.all(), promises, behind) if entries else ():
            if isinstance(found, Unplaced):
                self._fail(attempt, found)
            elif why := self._kept_out(found.entry, found.amounts()):
                self._fail(attempt, Unplaced(found.entry, why, None))
            elif (plan := self._planner.kept(found)) is not None:
                self._crowds.leave(found.entry.job.id)
                attempt.proposed.append(found.entry)
                attempt.plans.append(plan)
        if attempt.plans:
            self._pace.encourage()
        return attempt

    def _kept_out(self, entry: Entry, amounts: Resources) -> str:
        """Why so much for the job would leave others without what they are guaranteed. Sessions do not know."""
        kept = self._queues.kept_for_others(entry.job.queue, amounts, preemptable=entry.job.preemptable)
        return kept.message if kept.pods == 0 else ""

    def _fail(self, attempt: Attempt, found: Unplaced) -> None:
        self._wait(attempt, found.entry, verdict_of(found.entry, found.reasons, found.message))

    def _wait(self, attempt: Attempt, entry: Entry, verdict: JobVerdict) -> None:
        attempt.failed.append((entry, verdict))
        if not self._everybody or not self._crowds.join(entry, verdict):
            self._waiting[entry.job.id] = None
            self._tried.add(entry.job.id)

    def _wake_all(self) -> None:
        for stand_in in list(self._crowds.stand_ins(self._leaving)):
            self._lineup.wake(stand_in)
        woken = [job for job in self._waiting if job not in self._tried]
        for job in woken:
            del self._waiting[job]
            entry = self._lineup.entries.get(job)
            if entry is not None and entry.state is JobState.PARKED:
                self._lineup.wake(entry)

    def _news(self, index: Index) -> bool:
        return self._everybody or self._met != (index, self._introduced)

    def _company(self) -> list[Entry]:
        """Those right after it that are placed here too. Who has nothing to place stands in nobody's way."""
        company: list[Entry] = []
        aside: list[Entry] = []
        while len(company) < self._limits.look_at - 1 and (entry := self._lineup.next()) is not None:
            if self.concerns(entry):
                company.append(entry)
                continue
            aside.append(entry)
            if entry.pending and not entry.problem():
                break
        for entry in aside:
            self._lineup.give_back(entry)
        return company

    def _forget_gone(self) -> None:
        """Those that neither have a place nor wait for one."""
        entries = self._lineup.entries.values()
        waiting = {pod.uid for entry in entries for task in entry.job.tasks for pod in task.pods}
        for uid in [uid for uid in self._neighbours if uid not in waiting and uid not in self._bookings]:
            del self._neighbours[uid]
