"""Attribution of waiting: which reason each second of a job's waiting is charged to."""

from dataclasses import dataclass, field

from .ids import JobId


@dataclass(frozen=True, slots=True)
class JobWait:
    """A job's waiting by code of the reason (`hbox_common.reasons`), in the order in which the codes first applied.

    `code`: of the wait that began at `since` (seconds since the epoch) and lasts; "" = the job does not wait. `seconds`: of waits that ended.
    """

    job: JobId
    code: str = ""
    since: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    def until(self, now: float) -> dict[str, float]:
        """Seconds by code, with those of the wait that lasts."""
        found = dict(self.seconds)
        if self.code:
            found[self.code] = found.get(self.code, 0.0) + max(0.0, now - self.since)
        return found
