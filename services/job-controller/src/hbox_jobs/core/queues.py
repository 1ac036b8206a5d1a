"""Work that waits its turn: keyed, so that a newer piece replaces an older one of its key, and paced, so that the API server is spared. What is due is taken
from one namespace after the other, so that a hundred thousand pods of one do not stand before the one of another."""

import heapq
from math import exp
from typing import Generic, TypeVar

from .intake import Turns

K = TypeVar("K")
V = TypeVar("V")


class DueQueue(Generic[K, V]):
    """One value a key, each with the time from which it may be done.

    A value put again under its key replaces the older one and keeps the earlier due time: what changes all the time is done all the same.
    """

    def __init__(self) -> None:
        self._values: dict[K, tuple[float, V, str]] = {}
        self._order: list[tuple[float, int, K]] = []  #: of what is not due yet
        self._first: Turns[K] = Turns()  #: due since ever: before all that is due
        self._due: Turns[K] = Turns()
        self._count = 0

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: K, value: V, due: float, namespace: str = "") -> None:
        """`due` minus infinity: before everything else."""
        known = self._values.get(key)
        if known is not None and known[0] <= due:
            self._values[key] = (known[0], value, known[2])
            return
        self._values[key] = (due, value, namespace)
        self._count += 1
        heapq.heappush(self._order, (due, self._count, key))

    def take(self, now: float, limit: int) -> list[V]:
        """At most `limit` values that are due, of one namespace after the other, of each the earliest first."""
        while self._order and self._order[0][0] <= now:
            due, _, key = heapq.heappop(self._order)
            known = self._values.get(key)
            if known is None or known[0] != due:
                continue  # it was put anew, to be done earlier
            if due == float("-inf"):
                self._due.discard(key)
                self._first.add(key, known[2])
            else:
                self._due.add(key, known[2])
        taken: list[V] = []
        for turns in (self._first, self._due):
            while len(taken) < limit and (found := turns.pop()) is not None:
                taken.append(self._values.pop(found)[1])
        return taken

    def next_due(self) -> float | None:
        """When the earliest value is due; None where nothing waits."""
        if self._first:
            return float("-inf")
        dues = [self._values[key][0] for key in self._due.heads()]
        while self._order:
            due, _, key = self._order[0]
            known = self._values.get(key)
            if known is not None and known[0] == due and key not in self._due:
                dues.append(due)
                break
            heapq.heappop(self._order)
        return min(dues, default=None)


class Meter:
    """How many a second, of late: a sum that decays with a time constant of SMOOTHING_S. `now` is monotonic seconds."""

    SMOOTHING_S = 1.0

    def __init__(self) -> None:
        self._sum, self._at = 0.0, 0.0

    def count(self, amount: int, now: float) -> None:
        self._sum, self._at = self._decayed(now) + amount, now

    def per_s(self, now: float) -> float:
        return self._decayed(now) / self.SMOOTHING_S

    def _decayed(self, now: float) -> float:
        return self._sum * exp(min(0.0, self._at - now) / self.SMOOTHING_S)


class Burst:
    """Whether more than `per_s` a second came of late, or up to `for_s` seconds ago: on a crowded machine a burst comes in clumps, and what waits for its end
    must not be done in the gaps between them."""

    def __init__(self, per_s: float, for_s: float) -> None:
        self._per_s, self._for_s = per_s, for_s
        self._meter = Meter()
        self._until = float("-inf")

    def count(self, amount: int, now: float) -> None:
        self._meter.count(amount, now)
        if self._meter.per_s(now) > self._per_s:
            self._until = now + self._for_s

    def lasts(self, now: float) -> bool:
        return now < self._until
