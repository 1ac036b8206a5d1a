"""Facts about the cluster that sessions read, apart from nodes, pods and the limits of queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.model import CardRequest, HyperNode, NodeUsage, PodUid, QueueName, ResourceQuota
from hbox_common.model.consolidation import RecentMoves

from .bookedbefore import BookedBefore
from .fabrics import Fabrics
from .images import HeldImages
from .reservations import Reservation
from .runtimes import RunTimes


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget that allows `allowed` more evictions of the members that it selects. If `Member.budgets` is set, it decides instead of the
    selector."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    allowed: int


@dataclass(slots=True)
class RecentUse:
    """Recent average of cards used, by queue. `changes` rises with every change of a value."""

    cards: dict[QueueName, float] = field(default_factory=dict)
    changes: int = 0

    def put(self, queue: QueueName, cards: float) -> None:
        if self.cards.get(queue, 0.0) != cards:
            self.changes += 1
        self.cards[queue] = cards

    def drop(self, queue: QueueName) -> None:
        self.changes += 1
        self.cards.pop(queue, None)


@dataclass(slots=True)
class ClusterFacts:
    """The last published values; empty if no service publishes them. Actions and plugins read them as `session.cluster.facts`. How to add one:
    docs/developer/add-a-cluster-fact.md."""

    hypernodes: list[HyperNode] = field(default_factory=list)  #: of all fabrics
    fabrics: Fabrics = field(default_factory=Fabrics)  #: the same by source, with their ages and degraded rails
    priority_classes: Mapping[str, int] = field(default_factory=dict)  #: values by name
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  #: namespaces that pods' constraints select
    quotas: Sequence[ResourceQuota] = ()  #: of namespaces
    usage: Sequence[NodeUsage] = ()  #: measured utilisation of nodes
    booked_before: BookedBefore | None = None  #: bookings on nodes before the measurement; None: unknown
    images: HeldImages = field(default_factory=HeldImages)  #: images that nodes hold
    #: recent average use of queues, including their descendants
    recent_use: RecentUse = field(default_factory=RecentUse)
    demand: Mapping[CardRequest, float] | None = None  #: cards requested so far, by card request; None: derived from the gangs
    budgets: Sequence[DisruptionBudget] = ()
    #: pods whose eviction was refused -> end of their exclusion as victims (monotonic)
    may_not_leave: dict[PodUid, float] = field(default_factory=dict)
    reservations: Sequence[Reservation] = ()  #: in force
    run_times: RunTimes = field(default_factory=RunTimes)  #: learned from claims that ended
    recent_moves: RecentMoves = field(default_factory=RecentMoves)  #: pods that this process moved recently
    cannot_start: set[str] = field(
        default_factory=set
    )  #: ids of gangs that no end of running pods starts, by their last attempt
    moves_held: str = ""  #: why the ledger pauses moves; "" = it does not
    #: gang id -> result of the last search for moves, if they were not executed
    move_reasons: dict[str, str] = field(default_factory=dict)
    #: gang id -> victims that only minimum run time, cool-down or a disruption budget protects from it
    protection_reasons: dict[str, str] = field(default_factory=dict)
    #: gang id -> kind of the moves that `move_reasons` describes, and time of the description
    moves_seen: dict[str, tuple[object, float]] = field(default_factory=dict)
    now: float = 0.0  #: current time, in seconds since the epoch

    def expire_refused(self, now: float) -> bool:
        """Drop expired refusals. Returns whether any expired."""
        over = [pod for pod, until in self.may_not_leave.items() if until <= now]
        for pod in over:
            del self.may_not_leave[pod]
        return bool(over)
