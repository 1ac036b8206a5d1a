"""Jobs of a trace, and what became of them."""

from dataclasses import dataclass, field

from hbox_common.errors import InvalidRequest

from ..cluster.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A rigid gang. `duration_s`: its run time on all of its cards, which no order knows. `queue`: "" = the trace names none."""

    name: str
    submit_s: float
    duration_s: float
    cards: int
    queue: str = ""

    def pods(self, sizes: Ints) -> tuple[int, int]:
        """How many equal pods with how many cards each: the fewest that fit on empty nodes of these sizes, which have cards enough."""
        for each in range(min(int(sizes.max()), self.cards), 0, -1):
            if self.cards % each == 0 and int((sizes // each).sum()) >= self.cards // each:
                return self.cards // each, each
        raise InvalidRequest(f"job {self.name} asks for {self.cards} cards, the cluster has {int(sizes.sum())}")


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment. Cards, but `waiting_jobs`."""

    at_s: float
    allocated: int
    waiting_jobs: int


@dataclass(slots=True)
class Totals:
    """Sums over time, in seconds times what is named, from the first submission to the last end."""

    allocated: float = 0.0  #: cards
    partly_used_nodes: float = 0.0
    stranded: float = 0.0  #: idle cards while the first in line wants no more than these, but not where they are
    restarts_s: float = 0.0  #: card seconds lost to starting again
    span_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Topology:
    """Starts of gangs of several nodes: leaves used, the fewest possible at that moment, and the fewest in an empty cluster."""

    used: tuple[int, ...] = ()
    possible: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One run. Arrays `[jobs]`, in the order of submission; times in seconds.

    `waited`: all the time without cards; `longest`: the longest such stretch.
    """

    cards: Ints
    nodes: int
    submit: Floats
    duration: Floats
    first: Floats
    finish: Floats
    longest: Floats
    preemptions: Ints
    capacity: int
    totals: Totals
    samples: tuple[Sample, ...] = ()
    topology: Topology = field(default_factory=Topology)
    queues: tuple[str, ...] = ()  #: of each job

    @property
    def jct(self) -> Floats:
        return self.finish - self.submit

    @property
    def queued(self) -> Floats:
        return self.first - self.submit


def checked(jobs: list[TraceJob], *, capacity: int) -> list[TraceJob]:
    """In the order of submission. Raises InvalidRequest for a job that can never start."""
    for job in jobs:
        if job.cards < 1 or job.duration_s <= 0:
            raise InvalidRequest(f"job {job.name}: {job.cards} cards for {job.duration_s:g} s", hint="both are more than zero")
        if job.cards > capacity:
            raise InvalidRequest(
                f"job {job.name} asks for {job.cards} cards, the cluster has {capacity}", hint="give it more nodes with --nodes"
            )
    return sorted(jobs, key=lambda job: job.submit_s)
