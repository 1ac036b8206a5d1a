"""How long to wait before trying again."""

from random import Random


class Backoff:
    """Exponential with full jitter: the n-th wait is uniform in 0 .. min(cap, base * 2^n) seconds.

    Full jitter spreads a fleet that failed together (AWS architecture blog, "Exponential Backoff And Jitter").
    """

    __slots__ = ("_base_s", "_cap_s", "_rng", "failures")

    def __init__(self, rng: Random, *, base_s: float = 0.8, cap_s: float = 30.0) -> None:
        self._rng = rng
        self._base_s = base_s
        self._cap_s = cap_s
        self.failures = 0  #: in a row

    def next_s(self, *, at_least_s: float | None = None) -> float:
        """Seconds to wait now. `at_least_s`: the other side's wish, honoured up to twice the cap."""
        limit_s = min(self._cap_s, self._base_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(self._rng.uniform(0.0, limit_s), min(at_least_s or 0.0, 2 * self._cap_s))

    def reset(self) -> None:
        self.failures = 0
