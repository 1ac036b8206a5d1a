"""How long to wait before trying again."""

from random import Random

#: Another side's wish to wait is honoured up to this.
WISH_S = 60.0


class Backoff:
    """Exponential with full jitter: the n-th wait is uniform in 0 .. min(cap, base * 2^n) seconds.

    Full jitter spreads a fleet that failed together (AWS architecture blog, "Exponential Backoff And Jitter").
    The cap is also how long an outage lasts on after its end: client-go's 30 s are for thousands of kubelets, we are a handful of watches.
    """

    __slots__ = ("_base_s", "_cap_s", "_rng", "failures")

    def __init__(self, rng: Random, *, base_s: float = 0.8, cap_s: float = 5.0) -> None:
        self._rng = rng
        self._base_s = base_s
        self._cap_s = cap_s
        self.failures = 0  #: in a row

    def next_s(self, *, at_least_s: float | None = None) -> float:
        """Seconds to wait now. `at_least_s`: the other side's wish, honoured up to WISH_S."""
        limit_s = min(self._cap_s, self._base_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(self._rng.uniform(0.0, limit_s), min(at_least_s or 0.0, WISH_S))

    def reset(self) -> None:
        self.failures = 0
