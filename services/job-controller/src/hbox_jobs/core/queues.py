"""Work that waits its turn: keyed, so that a newer piece replaces an older one of its key, and paced, so that the API server is spared. What is due is taken
from one namespace after the other, so that a hundred thousand pods of one do not stand before the one of another."""

import heapq
from collections import OrderedDict
from math import exp
from typing import Generic, TypeVar

from .intake import Turns

K = TypeVar("K")
V = TypeVar("V")


class DueQueue(Generic[K, V]):
    """One value a key, each with the time from which it may be done.

    A value put again under its key replaces the older one and keeps the earlier due time: what changes all the time is done all the same. Each namespace has a
    heap of its own, so that no call costs by how much waits or falls due at once: the reasons of 100,000 pods do, a second after a restart.
    """

    def __init__(self) -> None:
        self._values: dict[K, tuple[float, V, str]] = {}
        self._first: Turns[K] = Turns()  #: due since ever: before all that is due
        self._heaps: dict[
            str, list[tuple[float, int, K]]
        ] = {}  #: by namespace; entries that `_values` contradicts count for nothing
        self._due: OrderedDict[str, None] = OrderedDict()  #: namespaces with something due; the next one's turn first
        self._later: list[tuple[float, str]] = []  #: a heap: when others have something, or sooner
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
        if due == float("-inf"):
            self._first.add(key, namespace)
            return
        self._count += 1
        heap = self._heaps.setdefault(namespace, [])
        heapq.heappush(heap, (due, self._count, key))
        if heap[0][1] == self._count and namespace not in self._due:
            heapq.heappush(self._later, (due, namespace))

    def take(self, now: float, limit: int) -> list[V]:
        """At most `limit` values that are due, of one namespace after the other, of each the earliest first."""
        while self._later and self._later[0][0] <= now:
            self._due[heapq.heappop(self._later)[1]] = None
        taken: list[V] = []
        while len(taken) < limit and (first := self._first.pop()) is not None:
            taken.append(self._values.pop(first)[1])
        while len(taken) < limit and self._due:
            namespace = next(iter(self._due))
            head = self._head(namespace)
            if head is None or head[0] > now:
                del self._due[namespace]
                if head is not None:
                    heapq.heappush(self._later, (head[0], namespace))
                continue
            heapq.heappop(self._heaps[namespace])
            taken.append(self._values.pop(head[2])[1])
            self._due.move_to_end(namespace)
        return taken

    def next_due(self) -> float | None:
        """When the earliest value is due; None where nothing waits."""
        if self._first:
            return float("-inf")
        while self._later:
            due, namespace = self._later[0]
            head = self._head(namespace)
            if head is not None and head[0] == due and namespace not in self._due:
                break
            heapq.heappop(self._later)
            if head is not None and namespace not in self._due:
                heapq.heappush(self._later, (head[0], namespace))
        dues = [head[0] for namespace in self._due if (head := self._head(namespace)) is not None]
        return min(dues + [due for due, _ in self._later[:1]], default=None)

    def _head(self, namespace: str) -> tuple[float, int, K] | None:
        """The earliest of a namespace, without those before it that were put anew or are done; None where it has none."""
        heap = self._heaps.get(namespace)
        while heap:
            due, _, key = heap[0]
            known = self._values.get(key)
            if known is not None and known[0] == due and known[2] == namespace:
                return heap[0]
            heapq.heappop(heap)
        self._heaps.pop(namespace, None)
        return None


class Meter:
    """Recent events per second: a sum that decays with a time constant of SMOOTHING_S. `now` is monotonic seconds."""

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
    """Whether the rate exceeds `per_s` events a second, or did up to `for_s` seconds ago: on a crowded machine a burst arrives in clumps, and work that waits
    for its
    end must not run in the gaps between them.
    """

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
