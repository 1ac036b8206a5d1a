"""The present state with something different, and the engine that tries it."""

from dataclasses import dataclass
from typing import Protocol

from hbox_common.model import Job, Queue


@dataclass(frozen=True, slots=True)
class Trial:
    """`job`: as it would be; `queues`: rules in place of the present ones; `repaired`: rows whose nodes count as schedulable, ready and sound, with all of
    their cards."""

    job: Job
    queues: tuple[Queue, ...] = ()
    repaired: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Attempt:
    """Whether the job starts on free resources. `short`: pods by which the attempt missed the gang's minimum; 0 = unknown."""

    starts: bool
    short: int = 0


class Engine(Protocol):
    """The scheduler's placement."""

    def attempt(self, trial: Trial) -> Attempt:
        """Try to place the job now, without evictions. The state is as before afterwards."""
        ...

    def makes_room(self, trial: Trial) -> bool | None:
        """Whether the policy would evict pods for the job, so that it starts in their place; None: that is out of the question without a search."""
        ...
