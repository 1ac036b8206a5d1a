"""Jobs that are examined repeatedly, a few at a time: by turns of their namespaces; within a namespace first those never examined, by priority and age, then
those examined longest ago.

A heap for each namespace. Removed items stay in it until they are popped, or until more than half of the heap is removed.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TypeAlias

from hbox_common.model import JobId

from .jobs import Order

#: Number of the last examination, 0 = none; and its cost.
_Item: TypeAlias = tuple[int, Order, int]

#: Maximum number of removed items in a heap beyond the number of jobs.
_SPARE = 64


class NamespaceTurns:
    def __init__(self) -> None:
        self._jobs: dict[JobId, tuple[str, _Item]] = {}
        self._looked: dict[JobId, int] = {}  #: of those of the last `take`
        self._heaps: dict[str, list[_Item]] = {}  #: in the order of their turns
        self._live: dict[str, int] = {}
        self._numbers = count(1)

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __contains__(self, job: JobId) -> bool:
        return job in self._jobs

    def add(self, job: JobId, namespace: str, order: Order, cost: int) -> None:
        """Add a job whose examination costs `cost`; if it was in the last `take`, behind the others of its namespace. `order` ends with the job's id."""
        self.remove(job)
        item = (self._looked.pop(job, 0), order, cost)
        self._jobs[job] = namespace, item
        self._live[namespace] = self._live.get(namespace, 0) + 1
        heappush(self._heaps.setdefault(namespace, []), item)

    def remove(self, job: JobId) -> None:
        known = self._jobs.pop(job, None)
        if known is None:
            return
        namespace = known[0]
        self._live[namespace] -= 1
        heap = self._heaps[namespace]
        if not self._live[namespace]:
            del self._heaps[namespace], self._live[namespace]
        elif len(heap) > 2 * self._live[namespace] + _SPARE:
            heap[:] = [item for item in heap if self._is_live(item)]
            heapify(heap)

    def take(self, budget: float, most: int) -> list[JobId]:
        """Remove and return jobs whose examinations together cost `budget`, or more if the first one does; `most` at most."""
        self._looked.clear()
        found: list[JobId] = []
        for job, cost in self._turns():
            if found and (cost > budget or len(found) >= most):
                break
            budget -= cost
            found.append(job)
            namespace = self._jobs[job][0]
            self.remove(job)
            if namespace in self._heaps:
                self._heaps[namespace] = self._heaps.pop(namespace)
        number = next(self._numbers)
        self._looked = dict.fromkeys(found, number)
        return found

    def _turns(self) -> Iterator[tuple[JobId, int]]:
        """Jobs in turn with their costs, without end."""
        while self._heaps:
            heap = next(iter(self._heaps.values()))
            while not self._is_live(heap[0]):
                heappop(heap)
            yield heap[0][1][-1], heap[0][2]

    def _is_live(self, item: _Item) -> bool:
        known = self._jobs.get(item[1][-1])
        return known is not None and known[1] is item
