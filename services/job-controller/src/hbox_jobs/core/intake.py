"""Who comes in, and whose turn it is, by namespace: a namespace that makes jobs by the ten thousand delays its own and nobody else's.

Two rules. *Turns*: what is to be worked out, said or written is taken from one namespace after the other, one of each. *Intake*: of the jobs of one
namespace that wait for places, so many are told to scheduler and ledger and no more; the rest is held back here, where a job costs a tenth. One comes in as
another gets its places or leaves: the most important first, then the oldest. A job that is more important than one that is in takes its place at once, so
that a namespace's own flood keeps nothing important of it out. Who has pods with places is never held back: a gang that lost a member needs it again.
"""

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
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
        """Whether a namespace beside these has something."""
        return any(name not in than for name in self._keys)

    def _drop(self, key: K, namespace: str) -> None:
        keys = self._keys[namespace]
        del keys[key]
        if not keys:
            del self._keys[namespace]


#: Of a job: who has more of it comes first. Its priority, and minus when it was made.
_Rank = tuple[int, float]


@dataclass(slots=True)
class _Space:
    """Heaps have stale entries; the dictionaries are the truth."""

    inside: dict[str, _Rank] = field(default_factory=dict)
    held: dict[str, _Rank] = field(default_factory=dict)
    least: list[tuple[_Rank, str]] = field(default_factory=list)  #: of `inside`, the least important first
    next: list[tuple[_Rank, str]] = field(default_factory=list)  #: of `held`, with ranks negated: the most important first


class Intake:
    """Which jobs are let in. `most`: of one namespace at a time; 0 = all of them, and nothing is kept."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._spaces: dict[str, _Space] = {}

    def counts(self) -> int:
        """How many are held back."""
        return sum(len(space.held) for space in self._spaces.values())

    def enter(self, key: str, namespace: str, *, priority: int, created_at: float) -> tuple[bool, str | None]:
        """A job waits for places: whether it is in, and which one has to go out for it."""
        if not self._most:
            return True, None
        space = self._spaces.setdefault(namespace, _Space())
        rank = (priority, -created_at)
        if key in space.inside:
            if space.inside[key] != rank:
                space.inside[key] = rank
                heapq.heappush(space.least, (rank, key))
            return True, None
        if len(space.inside) < self._most:
            self._let_in(space, key, rank)
            return True, None
        least = _top(space.least, space.inside)
        assert least is not None
        if priority > least[0][0]:
            del space.inside[least[1]]
            self._hold(space, least[1], least[0])
            self._let_in(space, key, rank)
            return True, least[1]
        self._hold(space, key, rank)
        return False, None

    def leave(self, key: str, namespace: str) -> str | None:
        """A job waits for places no more. Returns the one that may come in for it: it is in from now on."""
        space = self._spaces.get(namespace)
        if space is None:
            return None
        space.held.pop(key, None)
        was_in = space.inside.pop(key, None) is not None
        found = None
        if was_in and len(space.inside) < self._most and (top := _top(space.next, space.held, negated=True)) is not None:
            found = top[1]
            self._let_in(space, found, _negated(top[0]))
        if not space.inside and not space.held:
            del self._spaces[namespace]
        return found

    def _let_in(self, space: _Space, key: str, rank: _Rank) -> None:
        space.held.pop(key, None)
        space.inside[key] = rank
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
            assert not space.inside.keys() & space.held.keys()
            assert not space.held or len(space.inside) == self._most, "somebody is held back though there is room"


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
    """What a job is told that is held back: one text for all of a namespace, since 100,000 have it."""
    return (
        f"namespace {namespace} has {most} jobs that wait for places, as many as it may have at a time "
        "(HBOX_PENDING_PER_NAMESPACE of job-controller): this one comes in as others start or leave, the most important first"
    )
