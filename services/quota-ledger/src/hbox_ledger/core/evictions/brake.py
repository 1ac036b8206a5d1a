"""Rate limit of evictions: at most a number of pods within WINDOW_S (ADR 26).

Each eviction is checked by itself. Still, a faulty scheduler, or a client that impersonates one, could request evictions without end: pods that evict each
other, or a cluster that mistyped rules empty. The limit follows from the number of running pods, so that neither a large gang that reclaims its share nor a
small cluster that is given to one job reaches it: all running pods up to LARGE, above that a quarter of them.

Plans beyond the limit are refused, and the scheduler proposes them again. Evictions resume by themselves as the window moves, or when a user with write
access to queues runs `hbox evictions release`, which resets the count. Unwound gangs and revoked binds are the ledger's own and are not counted.
"""

from collections import deque
from dataclasses import dataclass, field

from hbox_common.model import Refusal, RefusalReason

WINDOW_S = 300.0

#: LEAST evictions are always allowed; in a cluster with more pods than LARGE the limit is LARGE or a quarter of the pods.
LEAST, LARGE = 200, 2_500


@dataclass(slots=True)
class Brake:
    """`most`: the configured limit; 0 = by the number of running pods."""

    most: int = 0
    paused: str = ""  #: why plans with victims are refused now; empty if they are not
    _decided: deque[tuple[float, int]] = field(default_factory=deque)  #: time and number of evictions

    def refusal(self, asked: int, *, live: int, now: float) -> Refusal | None:
        """Why `asked` more pods may not be evicted now, while there are `live` claims. If they may, count them."""
        self.pass_(now)
        most = self.most or max(LEAST, min(live, max(LARGE, live // 4)))
        before = sum(count for _, count in self._decided)
        if before and before + asked > most:  # a single plan may be of any size: it is one decision, judged as a whole
            self.paused = f"{before} pods were evicted within {WINDOW_S:g} s, and {asked} more would exceed the limit of {most}"
            return Refusal(RefusalReason.EVICTIONS_PAUSED, f"evictions pause: {self.paused}; ask again")
        if asked:
            self._decided.append((now, asked))
            self.paused = ""
        return None

    def release(self) -> int:
        """Reset the count. Returns what it was."""
        count = sum(count for _, count in self._decided)
        self._decided.clear()
        self.paused = ""
        return count

    def pass_(self, now: float) -> None:
        """Drop evictions older than the window, and those in the future, which only a clock that was set back can cause."""
        self._decided = deque((at, count) for at, count in self._decided if 0 <= now - at < WINDOW_S)
        if not self._decided:
            self.paused = ""
