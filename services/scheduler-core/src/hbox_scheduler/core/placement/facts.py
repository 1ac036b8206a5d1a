"""Cluster state for sessions, apart from nodes, pods and the limits of queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.model import CardRequest, HyperNode, NodeUsage, PodUid, QueueName, ResourceQuota
from hbox_common.model.consolidation import RecentMoves

from ..cluster.bookedbefore import BookedBefore
from ..cluster.fabrics import Fabrics
from ..cluster.images import HeldImages
from ..cluster.reservations import Reservation
from ..cluster.runtimes import RunTimes
from ..cluster.snapshot import DisruptionBudget
from ..topology.known import KnownTree


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
    """The last published values; empty if no service publishes them."""

    hypernodes: list[HyperNode] = field(default_factory=list)  #: of all fabrics
    known_tree: KnownTree | None = None  #: of the same, over the nodes
    fabrics: Fabrics = field(default_factory=Fabrics)  #: the same by source, with their ages
    priority_classes: Mapping[str, int] = field(default_factory=dict)  #: values by name
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  #: namespaces that pods' constraints select
    quotas: Sequence[ResourceQuota] = ()  #: of namespaces
    usage: Sequence[NodeUsage] = ()  #: measured utilisation of nodes
    booked_before: BookedBefore = field(default_factory=BookedBefore)  #: bookings on nodes before the measurement
    images: HeldImages = field(default_factory=HeldImages)  #: images that nodes hold
    #: recent average use of queues, including their descendants
    recent_use: RecentUse = field(default_factory=RecentUse)
    demand: Mapping[CardRequest, float] = field(default_factory=dict)  #: cards requested so far, by card request
    budgets: Sequence[DisruptionBudget] = ()
    #: pods whose eviction was refused -> end of their exclusion as victims (monotonic)
    may_not_leave: dict[PodUid, float] = field(default_factory=dict)
    reservations: Sequence[Reservation] = ()  #: in force
    run_times: RunTimes = field(default_factory=RunTimes)  #: learned from claims that ended
    recent_moves: RecentMoves = field(default_factory=RecentMoves)  #: pods that this process moved recently
    moves_held: str = ""  #: why the ledger pauses moves; "" = it does not
    move_words: dict[str, str] = field(default_factory=dict)  #: as of `Cluster`
    protected_words: dict[str, str] = field(default_factory=dict)  #: as of `Cluster`
    #: gang id -> kind of the moves that `move_words` describes, and time of the description
    moves_seen: dict[str, tuple[object, float]] = field(default_factory=dict)
    now: float = 0.0  #: current time, in seconds since the epoch

    def expire_refused(self, now: float) -> bool:
        """Drop expired refusals. Returns whether any expired."""
        over = [pod for pod, until in self.may_not_leave.items() if until <= now]
        for pod in over:
            del self.may_not_leave[pod]
        return bool(over)
