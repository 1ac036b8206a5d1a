"""Whether the holder of another component's lease is alive: it is if it renews the lease, independent of clocks."""

from enum import StrEnum

#: Maximum lease duration that is waited for.
MAX_LASTS_S = 60.0
#: Seconds beyond any clock difference: a lease renewed longer ago has no holder, and is not waited for.
FORGOTTEN_S = 600.0


class Liveness(StrEnum):
    ALIVE = "alive"  #: renewed before our eyes, and not run out since
    UNKNOWN = "unknown"  #: it may still be renewed
    DEAD = "dead"


class Renewals:
    """One lease, look by look."""

    def __init__(self) -> None:
        self._seen = ""
        self._since = 0.0  #: when it was first seen so
        self._renewed = False

    def look(self, renewal: str, lasts_s: float, age_s: float, *, now: float) -> Liveness:
        """`renewal`: holder and renewal, empty without a holder; `age_s`: of the renewal, by the local wall clock; `now`: monotonic seconds."""
        if renewal != self._seen:
            self._renewed = bool(renewal and self._seen)
            self._seen, self._since = renewal, now
        if not renewal or (age_s > FORGOTTEN_S and not self._renewed):
            return Liveness.DEAD
        if now - self._since >= min(lasts_s, MAX_LASTS_S):
            self._renewed = False
            return Liveness.DEAD
        return Liveness.ALIVE if self._renewed else Liveness.UNKNOWN
