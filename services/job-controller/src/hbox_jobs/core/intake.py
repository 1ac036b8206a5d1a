"""Admission of jobs in turn, by namespace: a namespace that creates ten thousands of jobs delays only its own.

Two rules. *Turns*: work to compute, publish or write is taken from the namespaces in turn, one item of each. *Intake*: of a namespace's waiting jobs, at most
a number of jobs and of bytes is published to scheduler and ledger; the others are held back here. One is admitted when another gets its places or ends: the
highest priority first, then the oldest. A job with a higher priority than an admitted one replaces it at once, so that a namespace's own flood never blocks
its important jobs. Jobs with placed pods are never held back: a gang that lost a member needs a replacement.
"""

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K")


class Turns(Generic[K]):
    """Keys, each once, taken from namespaces in turns; of one namespace in the order in which they came.

    Ordered dictionaries, since a plain one looks for its first entry among all that were taken before: of 100,000 keys a millisecond each time.
    """

    def __init__(self) -> None:
        self._of: dict[K, str] = {}
        self._keys: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()  #: by namespace; the next one's turn first

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, key: K) -> bool:
        return key in self._of

    def __iter__(self) -> Iterator[K]:
        return iter(self._of)

    def add(self, key: K, namespace: str) -> None:
        """A key that is there keeps its place."""
        if key not in self._of:
            self._of[key] = namespace
            if (keys := self._keys.get(namespace)) is None:
                keys = self._keys[namespace] = OrderedDict()
            keys[key] = None

    def discard(self, key: K) -> None:
        namespace = self._of.pop(key, None)
        if namespace is not None:
            self._drop(key, namespace)

    def pop(self, skip: Collection[str] = ()) -> K | None:
        """The next key, of a namespace that is not in `skip`; None where there is none."""
        namespace = next((name for name in self._keys if name not in skip), None) if skip else next(iter(self._keys), None)
        if namespace is None:
            return None
        key = next(iter(self._keys[namespace]))
        del self._of[key]
        self._drop(key, namespace)
        if namespace in self._keys:
            self._keys.move_to_end(namespace)
        return key

    def heads(self) -> Iterator[K]:
        """The next key of each namespace."""
        return (next(iter(keys)) for keys in self._keys.values())

    def others(self, than: Collection[str]) -> bool:
        """Whether a namespace other than these has work."""
        return any(name not in than for name in self._keys)

    def _drop(self, key: K, namespace: str) -> None:
        keys = self._keys[namespace]
        del keys[key]
        if not keys:
            del self._keys[namespace]


#: So many jobs go out for one, and no more: to look for them is done again and again while it waits.
MOST_OUT = 512

#: Of a job: who has more of it comes first. Its priority, and minus when it was made.
_Rank = tuple[int, float]


@dataclass(slots=True)
class _Space:
    """Heaps have stale entries; the dictionaries are the truth."""

    inside: dict[str, _Rank] = field(default_factory=dict)
    held: dict[str, _Rank] = field(default_factory=dict)
    least: list[tuple[_Rank, str]] = field(default_factory=list)  #: of `inside`, the least important first
    next: list[tuple[_Rank, str]] = field(default_factory=list)  #: of `held`, with ranks negated: the most important first
    sizes: dict[str, int] = field(default_factory=dict)  #: of both, bytes
    total: int = 0  #: of `inside`


class Intake:
    """Which jobs are let in. `most`: of one namespace at a time; `most_bytes`: all of these together, but for one that is alone; 0 = no bound."""

    def __init__(self, most: int = 0, most_bytes: int = 0) -> None:
        self._bounded = bool(most or most_bytes)
        self._most, self._most_bytes = most or inf, most_bytes or inf
        self._spaces: dict[str, _Space] = {}

    def counts(self) -> int:
        """How many are held back."""
        return sum(len(space.held) for space in self._spaces.values())

    def enter(
        self, key: str, namespace: str, *, priority: int, created_at: float, size: int = 0
    ) -> tuple[bool, Collection[str]]:
        """Record a waiting job whose message has `size` bytes. Returns whether it is admitted, and which other jobs are admitted or held back by that."""
        if not self._bounded:
            return True, ()
        space = self._spaces.setdefault(namespace, _Space())
        rank = (priority, -created_at)
        before = space.sizes.get(key, 0)
        space.sizes[key] = size
        changed: set[str] = set()
        if key in space.inside:
            space.total += size - before
            if space.inside[key] != rank:
                space.inside[key] = rank
                heapq.heappush(space.least, (rank, key))
            while space.total > self._most_bytes and len(space.inside) > 1:  # it has grown
                changed ^= {self._put_out(space)}
        else:
            self._hold(space, key, rank)
        changed ^= self._fill(space)
        return key in space.inside, changed - {key}

    def is_crowded(self, namespace: str) -> bool:
        """Whether jobs of the namespace are held back for the number of those that are in, not for their bytes."""
        return len(self._spaces[namespace].inside) >= self._most

    def leave(self, key: str, namespace: str) -> Collection[str]:
        """A job waits for places no more. Returns those that come in for it."""
        space = self._spaces.get(namespace)
        if space is None:
            return ()
        size = space.sizes.pop(key, 0)
        space.held.pop(key, None)
        if space.inside.pop(key, None) is not None:
            space.total -= size
        found = self._fill(space)
        if not space.inside and not space.held:
            del self._spaces[namespace]
        return found

    def _fill(self, space: _Space) -> set[str]:
        """Admit held jobs, the highest priority first, while there is room or admitted jobs of lower priority can be held back instead. No job overtakes one
        that is
        too large for the present room, so that it gets its turn. Returns the jobs that changed.
        """
        changed: set[str] = set()
        while (top := _top(space.next, space.held, negated=True)) is not None:
            rank, key = _negated(top[0]), top[1]
            size = space.sizes[key]
            if not self._has_room(size, space.total, len(space.inside)):
                gone = self._less_important(space, rank[0], size)
                if not gone:
                    break
                changed ^= {self._put_out(space) for _ in range(gone)}
            self._let_in(space, key, rank)
            changed ^= {key}
        return changed

    def _has_room(self, size: int, total: int, count: int) -> bool:
        """Whether a job of that size may come to so many."""
        return count < self._most and (total + size <= self._most_bytes or not count)

    def _less_important(self, space: _Space, priority: int, size: int) -> int:
        """How many of lower priority would have to go out for one of `size` bytes; 0 where MOST_OUT of them would not do."""
        taken: list[tuple[_Rank, str]] = []
        total, count, found = space.total, len(space.inside), 0
        while len(taken) < MOST_OUT and (least := _top(space.least, space.inside)) is not None and least[0][0] < priority:
            heapq.heappop(space.least)
            if taken and least == taken[-1]:
                continue  # it is in the heap twice
            taken.append(least)
            total, count = total - space.sizes[least[1]], count - 1
            if self._has_room(size, total, count):
                found = len(taken)
                break
        for one in taken:
            heapq.heappush(space.least, one)
        return found

    def _put_out(self, space: _Space) -> str:
        least = _top(space.least, space.inside)
        assert least is not None
        rank, key = least
        del space.inside[key]
        space.total -= space.sizes[key]
        self._hold(space, key, rank)
        return key

    def _let_in(self, space: _Space, key: str, rank: _Rank) -> None:
        space.held.pop(key, None)
        space.inside[key] = rank
        space.total += space.sizes[key]
        heapq.heappush(space.least, (rank, key))
        if len(space.least) > 2 * len(space.inside) + 64:
            space.least = [(one, name) for name, one in space.inside.items()]
            heapq.heapify(space.least)

    def _hold(self, space: _Space, key: str, rank: _Rank) -> None:
        if space.held.get(key) == rank:
            return
        space.held[key] = rank
        heapq.heappush(space.next, (_negated(rank), key))
        if len(space.next) > 2 * len(space.held) + 64:
            space.next = [(_negated(one), name) for name, one in space.held.items()]
            heapq.heapify(space.next)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        for space in self._spaces.values():
            assert len(space.inside) <= self._most
            assert space.total == sum(space.sizes[key] for key in space.inside)
            assert space.total <= self._most_bytes or len(space.inside) == 1
            assert not space.inside.keys() & space.held.keys()
            assert space.sizes.keys() == space.inside.keys() | space.held.keys()
            top = min(((_negated(rank), key) for key, rank in space.held.items()), default=None)
            if top is not None:
                size = space.sizes[top[1]]
                assert not self._has_room(size, space.total, len(space.inside)), "no job is held back while there is room"


def _negated(rank: _Rank) -> _Rank:
    return -rank[0], -rank[1]


def _top(heap: list[tuple[_Rank, str]], truth: dict[str, _Rank], *, negated: bool = False) -> tuple[_Rank, str] | None:
    """The first entry that still holds; those before it are dropped. `negated`: ranks are so in the heap."""
    while heap:
        rank, key = heap[0]
        known = truth.get(key)
        if known is not None and rank == (_negated(known) if negated else known):
            return heap[0]
        heapq.heappop(heap)
    return None


@lru_cache(maxsize=1024)
def held_text(namespace: str, most: int) -> str:
    """The message for a held job: one text for the whole namespace, since 100,000 jobs may share it."""
    return (
        f"namespace {namespace} has {most} jobs that wait for places, as many as it may have at a time "
        "(HBOX_PENDING_PER_NAMESPACE of job-controller): this one comes in as others start or leave, the most important first"
    )


@lru_cache(maxsize=1024)
def too_large_text(namespace: str, most_mib: int) -> str:
    """As `held_text`, where it is not their number."""
    return (
        f"namespace {namespace} has jobs that wait for places whose pods say {most_mib} MiB of where they may run and what they want, as much as it may have "
        "at a time (HBOX_PENDING_MIB_PER_NAMESPACE of job-controller): this one comes in as others start or leave, the most important first"
    )
