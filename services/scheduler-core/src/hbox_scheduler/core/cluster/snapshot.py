"""What a session is opened on beside the nodes, which are in the columns."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.model import (
    CardQuota,
    CardQuotas,
    CardRequest,
    HyperNode,
    Lending,
    NodeName,
    NodeUsage,
    PodUid,
    QueueName,
    ResourceQuota,
    Resources,
)
from hbox_common.model.consolidation import RecentMoves

from .entities import Gang, QueueInfo
from .images import HeldImages
from .reservations import Reservation
from .roster import Roster
from .running import Kind, RunningGangs
from .runtimes import RunTimes
from .task import Task


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget: `allowed` more of the members that it selects may go. Members that say themselves which budgets select them are not asked for
    their labels."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    allowed: int


@dataclass(slots=True)
class Cluster:
    """All that a session is opened on beside the nodes, which are in the columns."""

    gangs: list[Gang]
    queues: list[QueueInfo]
    hypernodes: list[HyperNode] = field(default_factory=list)
    old_domains: Mapping[str, str] = field(default_factory=dict)  #: those too old to promise anything on, and why
    degraded: Mapping[NodeName, int] = field(default_factory=dict)  #: rails of nodes that are down, slow or at another leaf
    budgets: Sequence[DisruptionBudget] = ()
    may_not_leave: Container[PodUid] = frozenset()  #: pods whose eviction was refused lately, whatever the budgets say
    quotas: Sequence[ResourceQuota] = ()
    card_quotas: Sequence[CardQuota] = ()  #: what quotas say of cards
    card_books: CardQuotas | None = None  #: in place of them: with what is held, by members and others
    lending: Lending | None = None  #: what of guarantees is lent; None: nobody looks
    #: queues that give nothing back, and may not have all that they like of what others are guaranteed: sessions add them
    limited_by_guarantees: set[QueueName] = field(default_factory=set)
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: by task: the version of the nodes (`Columns.described.end`), and for how many such pods the nodes have room when empty; sessions fill it
    rooms_when_empty: dict[Task, tuple[int, int]] = field(default_factory=dict)
    foreign: Resources = field(default_factory=dict)  #: amounts of pods without a queue on its nodes, by pool
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    images: HeldImages = field(default_factory=HeldImages)  #: that nodes have
    usage: Sequence[NodeUsage] = ()
    #: by node, cpu, memory and pods booked before its last measurement (`BookedBefore`); None: unknown
    booked_before: Mapping[NodeName, tuple[int, int, int]] | None = None
    #: Of members that wait for places, those of `gangs` and others: kinds, and how many. Empty: those of `gangs` are all.
    waiting: Sequence[tuple[Kind, int]] = ()
    outside: Collection[QueueName] = ()  #: queues of which gangs wait that are not among `gangs`
    #: members that `allocate` gives places to, before it leaves the turns of others to the next session
    most: int | None = None
    most_failures: int | None = (
        None  #: gangs that find no place, after which it does so too: each counts for its `failure_cost`
    )
    failure_cost: Callable[[Gang], int] = lambda _: 1
    running: RunningGangs | None = None  #: gangs beside `gangs` that were seen by sessions before
    #: Cards asked for lately, by what is asked of each; None = by the gangs alone.
    demand: Mapping[CardRequest, float] | None = None
    #: those in force, which are on the columns; None: to be made when the session opens
    reservations: Sequence[Reservation] | None = None
    reserved_before: Sequence[Reservation] = ()  #: where they are to be made: those that were in force until now
    run_times: RunTimes = field(default_factory=RunTimes)  #: what was learned of how long pods run
    recent_moves: RecentMoves = field(default_factory=RecentMoves)  #: pods that moved of late (`consolidate`)
    moves_held: str = ""  #: why nobody is moved now, whatever it gains
    #: gang id -> what the last look for moves came to, where none are made
    move_words: Mapping[str, str] = field(default_factory=dict)
    #: gang id -> of whom it could take, were they not in their minimum run time or cool-down
    protected_words: Mapping[str, str] = field(default_factory=dict)
    kept: Roster | None = None  #: of `queues`, where it is kept from session to session

    @property
    def roster(self) -> Roster:
        """The queues, and what is asked of all of them together."""
        return Roster.of(self.queues) if self.kept is None else self.kept
