"""Whether the holder of somebody else's lease is alive: seen to renew it, whatever clocks say."""

from enum import StrEnum

#: A lease that says that it lasts longer is not waited for any longer.
MAX_LASTS_S = 60.0
#: No clocks differ by so much: what was renewed so long ago is nobody's, and needs no waiting.
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

    def look(self, said: str, lasts_s: float, age_s: float, *, now: float) -> Liveness:
        """`said`: holder and renewal, empty where nobody holds it; `age_s`: of the renewal, by our own wall clock; `now`: monotonic seconds."""
        if said != self._seen:
            self._renewed = bool(said and self._seen)
            self._seen, self._since = said, now
        if not said or (age_s > FORGOTTEN_S and not self._renewed):
            return Liveness.DEAD
        if now - self._since >= min(lasts_s, MAX_LASTS_S):
            self._renewed = False
            return Liveness.DEAD
        return Liveness.ALIVE if self._renewed else Liveness.UNKNOWN
