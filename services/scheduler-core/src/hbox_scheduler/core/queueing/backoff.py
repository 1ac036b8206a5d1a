"""Exponential backoff between sessions: a session costs milliseconds, and most of them find what the one before found."""

from dataclasses import dataclass


@dataclass(slots=True)
class SessionBackoff:
    """`least_s` seconds between two attempts, doubled up to `most_s` by each attempt without success. Time comes in as `now`."""

    least_s: float
    most_s: float
    next_at: float = float("-inf")  #: the earliest time of the next attempt
    _wait_s: float = 0.0
    _recorded: float = float("-inf")

    def due(self, now: float) -> bool:
        return now >= self.next_at

    def record(self, now: float, *, success: bool) -> None:
        """An attempt was made at `now`; sets the time of the next one."""
        self._wait_s = self.least_s if success else min(max(2 * self._wait_s, self.least_s), self.most_s)
        self.next_at, self._recorded = now + self._wait_s, now

    def retry_soon(self) -> None:
        """The state changed: the next attempt may come `least_s` after the last one, regardless of the backoff."""
        self.next_at = min(self.next_at, self._recorded + self.least_s)

    def reset(self) -> None:
        """An attempt recorded as a failure has succeeded after all: the delay starts at `least_s` again."""
        self._wait_s = self.least_s
