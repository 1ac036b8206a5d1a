"""The present state with something different, and the engine that tries it."""

from dataclasses import dataclass
from typing import Protocol

from hbox_common.model import Job, Queue


@dataclass(frozen=True, slots=True)
class Trial:
    """`job`: as it would be; `queues`: rules in place of the present ones; `repaired`: rows whose nodes count as schedulable, ready and sound, with all of
    their cards; `evicts`: pods may be evicted for the job, as the policy allows."""

    job: Job
    queues: tuple[Queue, ...] = ()
    repaired: frozenset[int] = frozenset()
    evicts: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """Whether the job starts. `short`: pods by which the attempt missed the gang's minimum; 0 = unknown."""

    starts: bool
    short: int = 0


class Engine(Protocol):
    """The scheduler's placement."""

    def attempt(self, trial: Trial) -> Attempt:
        """Try to place the job now. The state is as before afterwards."""
        ...
