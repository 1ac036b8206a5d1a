"""Input of a session apart from the nodes, which are in the columns."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from hbox_common.model import (
    CardQuota,
    CardQuotas,
    Lending,
    QueueName,
    Resources,
)

from .entities import Gang, QueueInfo
from .facts import ClusterFacts
from .roster import Roster
from .running import Kind, RunningGangs
from .task import Task


@dataclass(slots=True)
class Cluster:
    """Input of a session apart from the nodes, which are in the columns."""

    gangs: list[Gang]
    queues: list[QueueInfo]
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    card_quotas: Sequence[CardQuota] = ()  #: card limits of quotas
    card_books: CardQuotas | None = None  #: replaces `card_quotas`: limits with their present use
    lending: Lending | None = None  #: lent guaranteed amounts; None: guarantees are not checked
    #: non-reclaimable queues that guarantees of other queues limited; sessions add to it
    limited_by_guarantees: set[QueueName] = field(default_factory=set)
    #: by task: version of the nodes (`Columns.described.end`), and number of such pods that fit on empty nodes; sessions fill it
    rooms_when_empty: dict[Task, tuple[int, int]] = field(default_factory=dict)
    foreign: Resources = field(default_factory=dict)  #: amounts of pods without a queue on its nodes, by pool
    #: Kinds of all pending members, inside and outside `gangs`, with their number. Empty: `gangs` contains all of them.
    waiting: Sequence[tuple[Kind, int]] = ()
    outside: Collection[QueueName] = ()  #: queues with pending gangs outside `gangs`
    #: maximum members that `allocate` places; the next session continues
    most: int | None = None
    most_failures: int | None = None  #: maximum failed gangs, weighted by `failure_cost`; the next session continues
    failure_cost: Callable[[Gang], int] = lambda _: 1
    running: RunningGangs | None = None  #: running gangs that are cached across sessions, in addition to `gangs`
    reserves: bool = True  #: whether the session computes reservations when it opens; else those of `facts` are in force
    kept: Roster | None = None  #: roster of `queues`, if it is cached across sessions

    @property
    def roster(self) -> Roster:
        """The queues with aggregates over all of them."""
        return Roster.of(self.queues) if self.kept is None else self.kept
