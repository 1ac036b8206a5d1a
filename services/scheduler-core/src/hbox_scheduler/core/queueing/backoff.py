"""How often a session is worth its price: at once while it finds something, more and more rarely while it does not."""

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Seconds between two looks: `least_s`, doubling up to `most_s` with each that found nothing. Time comes in as `now`."""

    least_s: float
    most_s: float
    next_at: float = float("-inf")  #: not before
    _wait_s: float = 0.0
    _recorded: float = float("-inf")

    def due(self, now: float) -> bool:
        return now >= self.next_at

    def record(self, now: float, *, success: bool) -> None:
        """A look was had."""
        self._wait_s = self.least_s if success else min(max(2 * self._wait_s, self.least_s), self.most_s)
        self.next_at, self._recorded = now + self._wait_s, now

    def retry_soon(self) -> None:
        """A look would find something else than the last one did."""
        self.next_at = min(self.next_at, self._recorded + self.least_s)

    def reset(self) -> None:
        """What was thought fruitless came to something after all."""
        self._wait_s = self.least_s
