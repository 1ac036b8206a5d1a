"""Input of a session apart from the nodes, which are in the columns."""

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
    """A PodDisruptionBudget that allows `allowed` more evictions of the members that it selects. If `Member.budgets` is set, it decides instead of the
    selector."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    allowed: int


@dataclass(slots=True)
class Cluster:
    """Input of a session apart from the nodes, which are in the columns."""

    gangs: list[Gang]
    queues: list[QueueInfo]
    hypernodes: list[HyperNode] = field(default_factory=list)
    old_domains: Mapping[str, str] = field(default_factory=dict)  #: domains of stale fabrics -> why they are stale
    degraded: Mapping[NodeName, int] = field(default_factory=dict)  #: number of rails that are down, slow or at another leaf
    budgets: Sequence[DisruptionBudget] = ()
    may_not_leave: Container[PodUid] = frozenset()  #: pods whose eviction was refused recently, regardless of budgets
    quotas: Sequence[ResourceQuota] = ()
    card_quotas: Sequence[CardQuota] = ()  #: card limits of quotas
    card_books: CardQuotas | None = None  #: replaces `card_quotas`: limits with their present use
    lending: Lending | None = None  #: lent guaranteed amounts; None: guarantees are not checked
    #: non-reclaimable queues that guarantees of other queues limited; sessions add to it
    limited_by_guarantees: set[QueueName] = field(default_factory=set)
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: by task: version of the nodes (`Columns.described.end`), and number of such pods that fit on empty nodes; sessions fill it
    rooms_when_empty: dict[Task, tuple[int, int]] = field(default_factory=dict)
    foreign: Resources = field(default_factory=dict)  #: amounts of pods without a queue on its nodes, by pool
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    images: HeldImages = field(default_factory=HeldImages)  #: images that nodes hold
    usage: Sequence[NodeUsage] = ()
    #: by node, cpu, memory and pods booked before its last measurement (`BookedBefore`); None: unknown
    booked_before: Mapping[NodeName, tuple[int, int, int]] | None = None
    #: Kinds of all pending members, inside and outside `gangs`, with their number. Empty: `gangs` contains all of them.
    waiting: Sequence[tuple[Kind, int]] = ()
    outside: Collection[QueueName] = ()  #: queues with pending gangs outside `gangs`
    #: maximum members that `allocate` places; the next session continues
    most: int | None = None
    most_failures: int | None = None  #: maximum failed gangs, weighted by `failure_cost`; the next session continues
    failure_cost: Callable[[Gang], int] = lambda _: 1
    running: RunningGangs | None = None  #: running gangs that are cached across sessions, in addition to `gangs`
    #: Recently requested cards, by card request; None = derived from the gangs.
    demand: Mapping[CardRequest, float] | None = None
    #: reservations in force, which the columns show; None: the session computes them when it opens
    reservations: Sequence[Reservation] | None = None
    reserved_before: Sequence[Reservation] = ()  #: previous reservations, if the session computes new ones
    run_times: RunTimes = field(default_factory=RunTimes)  #: learned run times of pods
    recent_moves: RecentMoves = field(default_factory=RecentMoves)  #: recently moved pods (`consolidate`)
    moves_held: str = ""  #: why moves are paused; "" = they are not
    #: gang id -> result of the last search for moves, if they were not executed
    move_words: Mapping[str, str] = field(default_factory=dict)
    #: gang id -> victims that only minimum run time, cool-down or a disruption budget protects from it
    protected_words: Mapping[str, str] = field(default_factory=dict)
    kept: Roster | None = None  #: roster of `queues`, if it is cached across sessions

    @property
    def roster(self) -> Roster:
        """The queues with aggregates over all of them."""
        return Roster.of(self.queues) if self.kept is None else self.kept
