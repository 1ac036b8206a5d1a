"""The brake on evictions: more pods than that are not told to leave for others within WINDOW_S (ADR 26).

Each eviction has a right of its own, and still a scheduler that is wrong, or somebody who speaks for it, may ask for one after the other without end: pods
that push each other out, or a cluster that is emptied by rules that somebody mistyped. What is allowed follows from how much runs, so that neither a large
gang that reclaims its share nor a small cluster that is given to one job meets it: as many as run, but of more than LARGE a quarter.

Plans that would go beyond are refused, and asked for again by the scheduler: it goes on by itself as the window moves, or when somebody who may write
queues releases it (`hbox evictions release`): then it counts from nothing. Gangs that are unwound, and binds that are revoked, are the ledger's own and
are not counted.
"""

from collections import deque
from dataclasses import dataclass, field

from hbox_common.model import Refusal, RefusalReason

WINDOW_S = 300.0

#: So many are always allowed; of a cluster with more pods than LARGE no more than so many, or a quarter.
LEAST, LARGE = 200, 2_500


@dataclass(slots=True)
class Storm:
    """`most`: what the setting says; 0 = by what runs."""

    most: int = 0
    paused: str = ""  #: why plans with victims are refused now
    _decided: deque[tuple[float, int]] = field(default_factory=deque)  #: when, how many

    def refusal(self, asked: int, *, live: int, now: float) -> Refusal | None:
        """Why `asked` more pods may not be told to leave now, where `live` claims are. Else they are counted."""
        self.pass_(now)
        most = self.most or max(LEAST, min(live, max(LARGE, live // 4)))
        before = sum(count for _, count in self._decided)
        if (
            before and before + asked > most
        ):  # a single plan may be as large as it likes: it is one decision, and was judged as one
            self.paused = f"{before} pods were evicted within {WINDOW_S:g} s, and {asked} more would exceed the limit of {most}"
            return Refusal(RefusalReason.EVICTIONS_PAUSED, f"evictions pause: {self.paused}; ask again")
        if asked:
            self._decided.append((now, asked))
            self.paused = ""
        return None

    def release(self) -> int:
        """Forget all that was counted; how many that were."""
        count = sum(count for _, count in self._decided)
        self._decided.clear()
        self.paused = ""
        return count

    def pass_(self, now: float) -> None:
        """Forget what was longer ago; with a clock that was set nobody can say, and what is in its future is forgotten too."""
        self._decided = deque((at, count) for at, count in self._decided if 0 <= now - at < WINDOW_S)
        if not self._decided:
            self.paused = ""
