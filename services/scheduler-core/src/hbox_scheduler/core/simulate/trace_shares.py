"""Order of queues in a trace by their recent usage: the rule of the plugins (`hbox_common.model.fairshare`) over queues of equal weight that deserve nothing.

History is the trace's own past: card-seconds with a half-life, as an average over the elapsed time. The ledger aggregates by hours; here time is continuous.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, log

from hbox_common.model.fairshare import corrected


@dataclass(slots=True)
class QueueShares:
    """`k`, the weight of history; `cards` of the cluster. Times in seconds."""

    k: float
    half_life_s: float
    cards: int
    held: Counter[str] = field(default_factory=Counter)  #: cards
    waiting: Counter[str] = field(default_factory=Counter)  #: jobs
    own: dict[str, float] = field(default_factory=dict)  #: card-seconds, as they weigh now
    observed: float = 0.0  #: seconds, likewise
    _keys: dict[str, tuple[float, float]] = field(default_factory=dict)

    def passes(self, seconds: float) -> None:
        factor = 0.5 ** (seconds / self.half_life_s)
        gained = self.half_life_s / log(2) * (1 - factor)
        for queue in self.own.keys() | self.held.keys():
            self.own[queue] = self.own.get(queue, 0.0) * factor + self.held[queue] * gained
        self.observed = self.observed * factor + gained
        self._keys.clear()

    def waits(self, queue: str, jobs: int = 1) -> None:
        """So many jobs more wait."""
        self.waiting[queue] += jobs
        self._keys.clear()

    def holds(self, queue: str, cards: int) -> None:
        """So many cards more are held."""
        self.held[queue] += cards
        self._keys.clear()

    def recent(self, queue: str) -> float:
        """Recent average number of cards in use."""
        return self.own.get(queue, 0.0) / self.observed if self.observed > 0 else 0.0

    def key(self, queue: str) -> tuple[float, float]:
        """The lowest has its turn: what it would have with one card more, by its weight."""
        if not self._keys:
            self._keys = dict(self._all())
        return self._keys.get(queue, (inf, inf))

    def _all(self) -> Iterable[tuple[str, tuple[float, float]]]:
        eager = [queue for queue in self.waiting.keys() | self.held.keys() if self.waiting[queue] or self.held[queue]]
        for queue in eager:
            weight, last = corrected(1 / len(eager), self.recent(queue) / self.cards, self.k)
            part = (self.held[queue] + 1) / self.cards
            yield queue, (part / weight if weight > 0 else inf, part / last if last > 0 else inf)
