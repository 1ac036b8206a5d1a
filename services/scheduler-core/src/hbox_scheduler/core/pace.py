"""How often a session is worth its price: at once while it finds something, more and more rarely while it does not."""

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Seconds between two looks: `least_s`, doubling up to `most_s` with each that found nothing. Time comes in as `now`."""

    least_s: float
    most_s: float
    next_at: float = float("-inf")  #: not before
    _wait_s: float = 0.0
    _went: float = float("-inf")

    def due(self, now: float) -> bool:
        return now >= self.next_at

    def went(self, now: float, *, fruitful: bool) -> None:
        """A look was had."""
        self._wait_s = self.least_s if fruitful else min(max(2 * self._wait_s, self.least_s), self.most_s)
        self.next_at, self._went = now + self._wait_s, now

    def hurry(self) -> None:
        """A look would find something else than the last one did."""
        self.next_at = min(self.next_at, self._went + self.least_s)

    def encourage(self) -> None:
        """What was thought fruitless came to something after all."""
        self._wait_s = self.least_s
