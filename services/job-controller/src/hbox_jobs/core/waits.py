"""Attribution of waiting: each second for which a job waits is charged to one code, by job and, for the metric, by queue and code."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hbox_common.events import WAIT_SHARDS, shard_of
from hbox_common.model import JobId, JobWait, QueueName

#: Codes of one job that are recorded one by one; a further code counts as OTHER.
MOST_CODES = 16
#: Jobs of one published shard; if there are more, those with the shortest waits are not published.
MOST_PUBLISHED = 10_000
OTHER = "Other"


@dataclass(slots=True)
class _Account:
    """As JobWait. `queue`: None until the job is observed, for an account of an earlier process."""

    queue: QueueName | None
    code: str
    since: float
    outcome: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    resumed: bool = False  #: `code` is of an earlier process


@dataclass(slots=True)
class _Sum:
    """Waiting of one queue for one code and outcome. `seconds`: not yet taken, up to `at`; `open`: jobs that wait."""

    at: float
    open: int = 0
    seconds: float = 0.0

    def advance(self, now: float) -> None:
        self.seconds += self.open * max(0.0, now - self.at)
        self.at = now


class Waits:
    """One account for each job that waited. Times are seconds since the epoch."""

    def __init__(self) -> None:
        #: called with the job, the code, and the begin and end of each wait that ends
        self.on_end: Callable[[JobId, str, float, float], None] | None = None
        self._accounts: dict[JobId, _Account] = {}
        self._sums: dict[tuple[QueueName, str, str], _Sum] = {}
        self._by_shard: dict[str, set[JobId]] = {str(number): set() for number in range(WAIT_SHARDS)}
        self._changed: dict[str, None] = {}  #: shards to publish, in the order of their changes

    def note(self, job: JobId, queue: QueueName, code: str, now: float, *, since: float, outcome: str = "") -> None:
        """The job waits with this code; empty: it does not wait. `since`: when it began to, if nothing is recorded of it. `outcome`: whether waiting helps."""
        account = self._accounts.get(job)
        if account is None:
            if not code:
                return
            account = self._accounts[job] = _Account(queue, "", now)
            self._by_shard[shard_of(job, WAIT_SHARDS)].add(job)
            began = min(since, now)
            self._sum(queue, code, outcome, now).seconds += now - began
        elif account.queue is None:
            account.queue = queue
            account.outcome = outcome
            if account.code:
                self._sum(queue, account.code, outcome, now).open += 1
            if account.code == code:
                return
            began = now
        elif account.code == code and account.queue == queue:
            if code and account.outcome != outcome:
                self._sum(queue, code, account.outcome, now).open -= 1
                self._sum(queue, code, outcome, now).open += 1
                account.outcome = outcome
            return
        else:
            began = now
        self._close(job, account, now)
        if code and code not in account.seconds and len(account.seconds) >= MOST_CODES:
            code = OTHER
        account.queue, account.code, account.since, account.outcome = queue, code, began, outcome
        account.resumed = False
        if code:
            account.seconds.setdefault(code, 0.0)
            self._sum(queue, code, outcome, now).open += 1
        self._changed[shard_of(job, WAIT_SHARDS)] = None

    def gone(self, job: JobId, now: float) -> None:
        """The job ended."""
        account = self._accounts.pop(job, None)
        if account is not None:
            self._close(job, account, now)
            shard = shard_of(job, WAIT_SHARDS)
            self._by_shard[shard].discard(job)
            self._changed[shard] = None

    def of(self, job: JobId) -> JobWait | None:
        """The job's account; None if it never waited."""
        account = self._accounts.get(job)
        return None if account is None else JobWait(job, account.code, account.since, dict(account.seconds))

    def all(self) -> Iterator[JobWait]:
        """Of every job that waited until now."""
        return (JobWait(job, one.code, one.since, dict(one.seconds)) for job, one in list(self._accounts.items()))

    # --- restarts

    def resume(self, waits: Iterable[JobWait]) -> None:
        """Continue the accounts of an earlier process, before the first `note`: an open wait lasted meanwhile."""
        for one in waits:
            self._accounts[one.job] = _Account(None, one.code, one.since, seconds=dict(one.seconds), resumed=True)
            self._by_shard[shard_of(one.job, WAIT_SHARDS)].add(one.job)

    def resumed(self, job: JobId) -> str:
        """Code of an earlier process under which the job still waits; empty if there is none."""
        account = self._accounts.get(job)
        return account.code if account is not None and account.resumed else ""

    def keep(self, jobs: Collection[JobId], now: float) -> None:
        """Drop accounts of jobs that ended while no process ran."""
        for job in [job for job in self._accounts if job not in jobs]:
            self.gone(job, now)

    def mark_changed(self) -> None:
        """Publish all shards again."""
        self._changed.update(dict.fromkeys(self._by_shard))

    def take(self, now: float) -> tuple[str, tuple[JobWait, ...]] | None:
        """The shard that changed first, and its accounts; None if none changed."""
        if not self._changed:
            return None
        shard = next(iter(self._changed))
        del self._changed[shard]
        waits = [wait for job in sorted(self._by_shard[shard]) if (wait := self.of(job)) is not None]
        if len(waits) > MOST_PUBLISHED:
            waits = sorted(waits, key=lambda one: -sum(one.until(now).values()))[:MOST_PUBLISHED]
        return shard, tuple(waits)

    def retry(self, shard: str) -> None:
        """The shard could not be published."""
        self._changed[shard] = None

    # --- sums

    def charged(self, now: float) -> Iterator[tuple[QueueName, str, float]]:
        """Seconds of waiting by queue and code since the last call."""
        for (queue, code, outcome), one in list(self._sums.items()):
            one.advance(now)
            if one.seconds:
                yield queue, code, one.seconds
                one.seconds = 0.0
            if not one.open:
                del self._sums[queue, code, outcome]

    def waiting(self) -> Mapping[tuple[QueueName, str, str], int]:
        """Jobs that wait, by queue, code and outcome."""
        return {key: one.open for key, one in self._sums.items() if one.open}

    def _sum(self, queue: QueueName, code: str, outcome: str, now: float) -> _Sum:
        found = self._sums.get((queue, code, outcome))
        if found is None:
            found = self._sums[queue, code, outcome] = _Sum(now)
        found.advance(now)
        return found

    def _close(self, job: JobId, account: _Account, now: float) -> None:
        if account.code:
            if self.on_end is not None:
                self.on_end(job, account.code, account.since, now)
            account.seconds[account.code] = account.seconds.get(account.code, 0.0) + max(0.0, now - account.since)
            if account.queue is not None:
                self._sum(account.queue, account.code, account.outcome, now).open -= 1

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        assert sum(map(len, self._by_shard.values())) == len(self._accounts)
        waiting = [(one.queue, one.code, one.outcome) for one in self._accounts.values() if one.code and one.queue is not None]
        assert Counter(waiting) == self.waiting()
        assert all(one.open >= 0 for one in self._sums.values())
