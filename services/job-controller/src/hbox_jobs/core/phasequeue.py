"""Phases that wait for publication: those of one job in order, those of namespaces in turn. So a namespace that creates ten thousands of jobs delays only the
phases of its own jobs.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from hbox_common.model import JobId


class Phase(Protocol):
    """What the queue reads of its items."""

    @property
    def job(self) -> JobId: ...
    @property
    def namespace(self) -> str: ...
    @property
    def at(self) -> float: ...


P = TypeVar("P", bound=Phase)

#: Beyond so many the oldest of the namespace with the most are dropped, before a long outage of the bus fills the memory: a tenth of that at a time.
MAX_PHASES = 100_000


class PhaseQueue(Generic[P]):
    """`most`: phases of all namespaces together."""

    def __init__(self, most: int = MAX_PHASES) -> None:
        self._most = most
        self._count = 0
        self._of: dict[str, deque[P]] = {}  #: by namespace, never empty; the next one's turn first

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[P]:
        """In no order that counts."""
        return (phase for phases in self._of.values() for phase in phases)

    def add(self, phase: P) -> None:
        self._of.setdefault(phase.namespace, deque()).append(phase)
        self._count += 1
        if self._count > self._most:
            largest = max(self._of.values(), key=len)
            for _ in range(min(len(largest) - 1, max(1, self._most // 10))):
                largest.popleft()
                self._count -= 1

    def wait_s(self, now: float, rest_s: float) -> float | None:
        """Until `take` has something; None where nothing waits. `now`: seconds since the epoch."""
        return min((_rests_s(phases[0], now, rest_s) for phases in self._of.values()), default=None)

    def age_s(self, now: float) -> float:
        """For how long the one that waits longest does; 0 where nothing waits."""
        return max((now - phases[0].at for phases in self._of.values()), default=0.0)

    def take(self, limit: int, *, now: float, rest_s: float, is_news: Callable[[P], bool]) -> list[P]:
        """At most `limit` phases, one per job, that were entered at least `rest_s` ago: they may be published concurrently, the next phase of a job only after
        them.
        Obsolete phases are dropped and not counted.
        """
        taken: dict[str, P] = {}
        passed = 0  #: namespaces in a row that have nothing to give
        while len(taken) < limit and passed < len(self._of):
            namespace, phases = next(iter(self._of.items()))
            del self._of[namespace]
            given = False
            while not given and phases and phases[0].job not in taken and not _rests_s(phases[0], now, rest_s):
                phase = phases.popleft()
                self._count -= 1
                if given := is_news(phase):
                    taken[phase.job] = phase
            if phases:
                self._of[namespace] = phases
                passed += 1
            if given:
                passed = 0
        return list(taken.values())

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        assert all(self._of.values())
        assert self._count == sum(len(phases) for phases in self._of.values())


def _rests_s(phase: Phase, now: float, rest_s: float) -> float:
    """How long the phase is to rest yet. One of the future is of before the clock was set back: it rests no more."""
    age_s = now - phase.at
    return rest_s - age_s if 0.0 <= age_s < rest_s else 0.0
