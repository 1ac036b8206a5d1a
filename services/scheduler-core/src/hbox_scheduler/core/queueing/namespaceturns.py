"""Jobs that are looked at again and again, a few at a time: by turns of their namespaces; of one namespace those first that were never looked at, by priority
and age, then those that were looked at longest ago.

A heap for each namespace. What is removed stays in it until it is popped, or until more than half of the heap is gone.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TypeAlias

from hbox_common.model import JobId

from .jobs import Order

#: Which look at it was the last one, 0 = none; and what it counts for.
_Item: TypeAlias = tuple[int, Order, int]

#: A heap may have so many more than there are jobs.
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
        """The job waits for a look that counts for `cost`; where it was of the last `take` it comes behind the others of its namespace. `order` ends with the
        job's id."""
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
        """Jobs whose looks together count for `budget`, the last one for more where it is the first; `most` at most. They are in no more."""
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
        """Whose turn it is and what it counts for, again and again."""
        while self._heaps:
            heap = next(iter(self._heaps.values()))
            while not self._is_live(heap[0]):
                heappop(heap)
            yield heap[0][1][-1], heap[0][2]

    def _is_live(self, item: _Item) -> bool:
        known = self._jobs.get(item[1][-1])
        return known is not None and known[1] is item
