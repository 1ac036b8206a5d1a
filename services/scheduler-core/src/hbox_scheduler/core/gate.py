"""The gate of `enqueue` in the running service: PodGroups with a minimum of resources wait, with pods or without, until the policy's plugins let them in.

The action runs in a session over all that runs, all that was promised, and the jobs that wait: the same code as `hbox simulate cycle`. Whom it lets in is
said to job-controller, again and again until that is told back.
"""

from collections.abc import Iterable

from hbox_common.events import JobVerdict
from hbox_common.model import GroupState, JobId

from .groups import Groups
from .jobs import Entry, JobState
from .pace import Pace
from .parts import Parts
from .promises import Promises
from .proposals import Verdicts


class Gate:
    """`groups`: what is known of PodGroups; `promises`: who leaves already."""

    def __init__(self, parts: Parts, *, groups: Groups, verdicts: Verdicts, promises: Promises) -> None:
        self._groups = groups
        self._verdicts = verdicts
        self._promises = promises
        self._takings = parts.takings
        self._bookings = parts.bookings
        self._lineup = parts.lineup
        self._queues = parts.queues
        self._limits = parts.limits
        self._pace = Pace(parts.limits.look_every_s, parts.limits.look_rarely_s)
        self._say_at: dict[JobId, float] = {}  #: of whom to say that they are let in, and when

    @property
    def on(self) -> bool:
        """Whether the policy has the gate."""
        return self._groups.gated

    def told(self, groups: Iterable[GroupState], touched: int) -> None:
        """News of PodGroups. `touched`: the count of messages about jobs."""
        for group in groups:
            if self._groups.tell(group, touched):
                self._settle(group.id)

    def only(self, named: Iterable[JobId], since: int) -> None:
        """There are no other PodGroups than these, but for those told after the mark `since`."""
        for job in self._groups.only(set(named), since):
            self._settle(job)
        self._say_at.update(dict.fromkeys(self._groups.unheard(), float("-inf")))

    def stir(self) -> None:
        """Something changed by which somebody may be let in."""
        self._pace.hurry()

    def follow(self, *, gated: bool) -> None:
        """Whether the policy has the gate, from now on."""
        if self._groups.gated is not gated:
            self._groups.gated = gated
            for job in self._groups.ids():
                self._settle(job)
        self.stir()

    def look(self, now: float) -> tuple[list[JobId], bool]:
        """Whose PodGroups to say that they are let in, and whether some of this was said before and not heard. At the beginning of a cycle."""
        if not self._groups.gated:
            return [], False
        if self._pace.due(now) and (waiting := list(self._groups.outside())):
            times = max(1.0, len(waiting) / self._limits.look_at)
            self._pace.least_s, self._pace.most_s = times * self._limits.look_every_s, times * self._limits.look_rarely_s
            self._pace.went(now, fruitful=self._open(waiting, now))
        due = [job for job, at in self._say_at.items() if at <= now]
        again = any(self._say_at[job] > float("-inf") for job in due)
        self._say_at.update(dict.fromkeys(due, now + self._limits.resend_after_s))
        return due, again

    def next_at(self) -> list[float]:
        """When `look` has something next."""
        if not self._groups.gated:
            return []
        return [*([self._pace.next_at] if any(self._groups.outside()) else []), *self._say_at.values()]

    def _open(self, waiting: list[GroupState], now: float) -> bool:
        """Returns whether anybody is let in."""
        fruitful = False
        judged = {group.id: self._queues.closed(group.queue, group.namespace) for group in waiting}
        asking = [group.id for group in waiting if not judged[group.id]]
        if asking:
            judged |= self._takings.entering(asking, self._entries(set(judged)), self._queues.all(), self._promises)
        for job, why in judged.items():
            if why:
                self._groups.keep_out(job, why)
                self._verdicts.put(JobVerdict(job=job, message=self._groups.closed(job)), now)
            else:
                self._groups.let_in(job)
                self._verdicts.drop(job)
                self._say_at[job] = float("-inf")
                fruitful = True
            if (entry := self._lineup.entries.get(job)) is not None:
                self._lineup.bar(entry)
        return fruitful

    def _entries(self, outside: set[JobId]) -> list[Entry]:
        """Jobs with pods that wait: those at the gate, and the first of the others."""
        entries = [entry for entry in self._lineup.entries.values() if entry.state in (JobState.EAGER, JobState.PARKED)]
        entries.sort(key=lambda entry: (entry.job.id not in outside, entry.order))
        chosen: list[Entry] = []
        for entry in entries:
            entry.look(self._bookings)
            if entry.pending and (entry.job.id in outside or not entry.problem()):
                chosen.append(entry)
            if len(chosen) >= self._limits.look_at:
                break
        return chosen

    def _settle(self, job: JobId) -> None:
        """What is known of it changed."""
        if job in self._groups.unheard():
            self._say_at[job] = float("-inf")
        else:
            self._say_at.pop(job, None)
        entry = self._lineup.entries.get(job)
        opened = not self._groups.closed(job) if entry is None else self._lineup.bar(entry)
        if opened:
            self._verdicts.drop(job)
        elif entry is None:
            self._verdicts.again(job)
        self.stir()
