"""What sessions see of the cluster beside its nodes, its pods and the rules of its queues."""

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
    """How many cards queues used on average of late. `changes` rises with every other value."""

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
    """As published last; empty where nobody publishes it."""

    hypernodes: list[HyperNode] = field(default_factory=list)  #: of all fabrics
    known_tree: KnownTree | None = None  #: of the same, over the nodes
    fabrics: Fabrics = field(default_factory=Fabrics)  #: the same by source, and how old each is
    priority_classes: Mapping[str, int] = field(default_factory=dict)  #: values by name
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  #: those that pods' constraints ask about
    quotas: Sequence[ResourceQuota] = ()  #: of namespaces
    usage: Sequence[NodeUsage] = ()  #: what nodes really use
    booked_before: BookedBefore = field(default_factory=BookedBefore)  #: what was booked on nodes before the measurement
    images: HeldImages = field(default_factory=HeldImages)  #: that nodes have
    #: what queues, with all below them, used on average of late
    recent_use: RecentUse = field(default_factory=RecentUse)
    demand: Mapping[CardRequest, float] = field(default_factory=dict)  #: cards asked for so far, by what is asked of each
    budgets: Sequence[DisruptionBudget] = ()
    #: pods whose eviction was refused, and until when that is believed of them (monotonic)
    may_not_leave: dict[PodUid, float] = field(default_factory=dict)
    reservations: Sequence[Reservation] = ()  #: in force
    run_times: RunTimes = field(default_factory=RunTimes)  #: learned from claims that ended
    recent_moves: RecentMoves = field(default_factory=RecentMoves)  #: pods that this process had move of late
    moves_held: str = ""  #: why the ledger has nobody move now
    move_words: dict[str, str] = field(default_factory=dict)  #: as of `Cluster`
    protected_words: dict[str, str] = field(default_factory=dict)  #: as of `Cluster`
    #: gang id -> what `move_words` are about, and since when
    moves_seen: dict[str, tuple[object, float]] = field(default_factory=dict)
    now: float = 0.0  #: what time it is, in seconds since the epoch

    def expire_refused(self, now: float) -> bool:
        """Forget refusals that are old. Returns whether there were such."""
        over = [pod for pod, until in self.may_not_leave.items() if until <= now]
        for pod in over:
            del self.may_not_leave[pod]
        return bool(over)
