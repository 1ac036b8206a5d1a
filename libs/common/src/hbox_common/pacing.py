"""How often something may be done, and how long to wait before it is tried again: one token bucket and one back-off for all services.

Pure: time comes in as `now`, in monotonic seconds, and chance as a generator.
"""

from random import Random

#: Another side's wish to wait is honoured up to this.
WISH_S = 60.0


class TokenBucket:
    """Lets through `rate_per_s` on average, and up to `burst`, one at least, at once after a rest."""

    __slots__ = ("_at", "_tokens", "burst", "rate_per_s")

    def __init__(self, *, rate_per_s: float, burst: float) -> None:
        self.rate_per_s, self.burst = rate_per_s, max(1.0, burst)
        self._tokens = self.burst
        self._at: float | None = None

    def available(self, now: float) -> int:
        """Whole tokens. A clock set back adds none."""
        if self._at is not None and now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate_per_s)
        self._at = now if self._at is None else max(self._at, now)
        return int(self._tokens)

    def take(self, now: float) -> bool:
        """One token, if there is one."""
        if not self.available(now):
            return False
        self._tokens -= 1.0
        return True

    def spend(self, count: int) -> None:
        """Spend tokens. If `count` exceeds `available`, none are available until the rest is made up for."""
        self._tokens -= count

    def give_back(self) -> None:
        """A token that was taken for nothing."""
        self._tokens = min(self.burst, self._tokens + 1.0)

    def wait_s(self, now: float) -> float:
        """Seconds until `take` succeeds."""
        self.available(now)
        return max(0.0, (1.0 - self._tokens) / self.rate_per_s)


def backoff_s(failures: int, *, base_s: float, cap_s: float, factor: float = 2.0) -> float:
    """Seconds to wait after so many failures in a row before this one: `base_s`, times `factor` for each of them, `cap_s` at most."""
    return min(cap_s, base_s * factor ** min(failures, 30))


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
        limit_s = backoff_s(self.failures, base_s=self._base_s, cap_s=self._cap_s)
        self.failures += 1
        return max(self._rng.uniform(0.0, limit_s), min(at_least_s or 0.0, WISH_S))

    def reset(self) -> None:
        self.failures = 0
