"""The hooks of a session: the extension points that call plugins. Each hook is a class here; a plugin derives from the hooks that it implements.

A session registers its plugins by these classes when it opens. A public method of a plugin that belongs to none of its declared hooks, or whose parameters
differ from the hook's, is an error (`check`), so a misspelt hook is never ignored silently. `FLAGS` maps the flags of volcano-scheduler.conf to the hooks that
they switch. The session combines the answers of several plugins (`session.py`; sources: volcano-tiers).

Masks and scores exist in two kinds, by their inputs. A `ShapeMask` or `ShapeScore` depends only on the pod's requests (its shape) and the node's own row.
It treats equal pods alike, so its answers are cached by shape and pods are placed in batches. A `PodMask`, `PodScore` or `CandidateScore` may read anything
else of the pod, of other nodes or of the session, and is called for each pod.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from hbox_common.errors import Bug
from hbox_common.model import QueueName

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows
from ..cluster.entities import Gang, Member, QueueInfo, SubGang
from ..cluster.runningtable import RunningTable
from ..cluster.task import Task
from .clockreads import CLOCK, clock_reads

if TYPE_CHECKING:
    from .conf import PluginConf
    from .session import Session

#: Sorts ascending; only compared with keys of the same plugin.
Key: TypeAlias = Any


class Vote(IntEnum):
    """Inside a tier one REJECT decides, then one PERMIT; if a whole tier abstains, the next tier votes."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Plugin(ABC):
    """Base of all plugins. A plugin declares by class attributes what the engine must know of it; the engine knows no plugin by its name.

    `__init__` may replace a declaration that depends on the arguments, for example `self.reads_images = self._weight > 0`.
    """

    name: ClassVar[str]
    """In volcano-scheduler.conf."""

    asks_others: ClassVar[bool] = False
    """Its `open` reads the results of other plugins: the session opens it last."""

    time_dependent: bool = False
    """Its answers in a victim search depend on the clock (`session.now`), or on data outside of the cluster's state that change without a notice. The scheduler
    then repeats a victim search that found none even if nothing changed since. `check` refuses a plugin whose victim hook reads the clock without it."""

    demand_dependent: bool = False
    """Its answers depend on the requests of the pods that wait. The scheduler then repeats a victim search as for `time_dependent`. If the plugin also limits
    queues (`Overused`, `Allocatable`), jobs that its limits hold back are retried after every change instead of after a change of their own queue."""

    passing: ClassVar[bool] = False
    """What it refuses now it may allow later without a change of the job or the nodes: by time, load, waiting jobs or another program. The search for jobs that
    can never start leaves it out."""

    guards: ClassVar[bool] = False
    """It protects pods from eviction instead of choosing victims."""

    guards_owners: ClassVar[bool] = False
    """A guard that also holds against the owner of a lent node, because the API server would refuse the eviction, or because the cluster needs the pod."""

    guards_offline: ClassVar[bool] = False
    """A guard that also holds for offline work, which other work evicts regardless of all other plugins."""

    guards_gangs: ClassVar[bool] = False
    """A guard of gangs: it lets a gang lose its surplus members or all members. Against the owner of a lent node it holds only for gangs that may be evicted
    whole; any other gang loses the members on the node."""

    ranks_priorities: ClassVar[bool] = False
    """Pods of higher priority may evict those of lower priority: victims are sorted by priority. If the plugin's hook `Preemptable` is on, the action `preempt`
    offers pods of lower priority only."""

    reads_images: bool = False
    """It reads the images of pods (`Member.images`). Without such a plugin the images are left out, so that pods with different images have one shape."""

    reads_usage: bool = False
    """Its answers for pending pods read the measured utilisation of nodes (`ClusterFacts.usage`): the scheduler retries pending jobs after each measurement."""

    heeds_domains: bool = False
    """Its `DomainGradients` apply the topology constraints of jobs: plans then state the domains that their placements use."""

    @abstractmethod
    def __init__(self, conf: "PluginConf") -> None:
        """Raises InvalidRequest if the arguments are invalid."""

    def open(self, session: "Session") -> None:  # noqa: B027  # most plugins have nothing to compute
        """Called when a session begins, with complete gangs, queues and columns: compute the data that the hooks need."""


# Orders: the key that sorts first is served first; the first plugin whose keys differ decides.


class QueueOrder(Plugin):
    @abstractmethod
    def queue_key(self, queue: QueueInfo) -> Key:
        """May depend on the allocated amounts of queues, and on no other state that changes in a session."""

    def related(self, queue: QueueInfo) -> Iterable[QueueName] | None:  # noqa: ARG002  # the hook's signature
        """The queues, including this one, whose keys may change with the amounts allocated to this one; None: all queues."""
        return None


class BranchOrder(QueueOrder):
    """An order of a tree of queues. Queues of one branch have an equal first part of `queue_key`, and no other queue has it."""

    @abstractmethod
    def branch(self, queue: QueueInfo) -> QueueName:
        """The branch of the queue."""

    @abstractmethod
    def related_in_branch(self, queue: QueueInfo) -> Iterable[QueueName]:
        """Of `related`, the queues of which other parts of the key than the first may change too."""


class GangOrder(Plugin):
    @abstractmethod
    def gang_key(self, gang: Gang) -> Key:
        """May depend on the gang's placed members, and on no other state that changes in a session."""

    lone_keys_fixed: bool = False
    """True if `lone_keys` depends on the table alone, and the key of a job changes only with its slot."""

    def lone_keys(self, table: RunningTable, slots: Ints) -> Ints | Floats | None:  # noqa: ARG002
        """`[n]`: `gang_key` of the jobs of one pod in these slots (`RunningTable.lone`), as numbers; None: only their gangs say it."""
        return None


class SubGangOrder(Plugin):
    @abstractmethod
    def sub_gang_key(self, sub_gang: SubGang) -> Key: ...


class MemberOrder(Plugin):
    @abstractmethod
    def member_key(self, member: Member) -> Key: ...


# Validity, and admission by `enqueue`.


class Validity(Plugin):
    @abstractmethod
    def valid(self, gang: Gang) -> str:
        """Why the gang cannot be scheduled in its present state, or "". All plugins must agree."""


class Enqueueable(Plugin):
    @abstractmethod
    def enqueueable(self, gang: Gang) -> Vote: ...

    def reject_reason(self, gang: Gang) -> str:  # noqa: ARG002  # the hook's signature
        """Why the plugin rejects the gang, as text; called right after `enqueueable`. "" = the plugin's name is the whole reason."""
        return ""

    def enqueued(self, gang: Gang) -> None:  # nothing is counted by default
        """The gang was admitted in this session."""


# Limits of queues.


class Overused(Plugin):
    @abstractmethod
    def overused(self, queue: QueueInfo) -> bool:
        """Whether the queue gets no more in this session. One yes is enough."""


class Allocatable(Plugin):
    @abstractmethod
    def room(self, queue: QueueInfo, member: Member, most: int) -> int:
        """How many members equal to this one, at most `most`, fit into the queue beyond its current use. The minimum of all plugins' answers applies."""

    @abstractmethod
    def withheld_reason(self, queue: QueueInfo, members: Sequence[Member]) -> str:
        """Why these members do not all fit into the queue beyond its current use, as label and text; "" = they fit, or the queue may use the whole cluster,
        so that the nodes' reasons explain the failure."""


class Preemptive(Plugin):
    @abstractmethod
    def preemptive(self, queue: QueueInfo, member: Member) -> bool:
        """Whether the queue may reclaim from other queues for this member. All plugins must agree."""


# States of gangs.


class Readiness(Plugin):
    @abstractmethod
    def ready(self, gang: Gang) -> bool:
        """Whether the gang's placements may be bound. All plugins must agree."""


class SubGangReadiness(Plugin):
    @abstractmethod
    def sub_gang_ready(self, sub_gang: SubGang) -> bool: ...


class Pipelined(Plugin):
    @abstractmethod
    def pipelined(self, gang: Gang) -> Vote:
        """Whether enough members of the gang are placed or nominated."""


class SubGangPipelined(Plugin):
    @abstractmethod
    def sub_gang_pipelined(self, sub_gang: SubGang) -> Vote: ...


class Starving(Plugin):
    @abstractmethod
    def starving(self, gang: Gang) -> bool:
        """Whether the gang may preempt others. The first tier that has the hook decides; all plugins of that tier must agree."""


# Nodes. n = number of requested rows; [N] = `session.columns.size` rows. The columns show the present state, or the state after all victims have terminated.


class ByShape(Plugin):
    """Base of masks and scores by shape."""

    of_session: ClassVar[bool] = False  #: it reads data that `open` computed for one session: its answers are not cached


class ShapeMask(ByShape):
    """A mask by shape that depends on the node's description, not on its bookings: see above."""

    @abstractmethod
    def shape_failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        """Label and mask `[n]` of nodes that pods of this shape may not use."""


class ShapeRoom(ByShape):
    """A limit by shape on the number of further pods that a node accepts beyond its bookings. It is also a mask: full nodes fail with its label."""

    label: ClassVar[str]

    @abstractmethod
    def limits(self, task: Task) -> bool:
        """Whether the plugin limits pods of this shape. It is not called for other shapes."""

    @abstractmethod
    def shape_room(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        """`[n]`: number of further pods of this shape that each node accepts; 0 or less = none. Each placed pod of the shape lowers it by one."""

    def room_explanation(self, columns: Columns, row: int, task: Task) -> str:  # noqa: ARG002  # the hook's signature
        """For the reasons of a pending pod: the amounts that a full node keeps free; "" = the label is sufficient."""
        return ""

    def room_by_amounts(self, columns: Columns) -> bool:  # noqa: ARG002  # the hook's signature
        """Whether nodes that are equal in amounts and cards (`Columns.kind`, `Columns.booked`) have equal room, as nodes are described now."""
        return False


class PerPod(Plugin):
    """Base of masks and scores for each pod."""

    @property
    @abstractmethod
    def sees_plain_pods(self) -> bool:
        """Whether the plugin distinguishes nodes for plain pods: those without inter-pod constraints and without annotations that the plugin reads."""

    def concerns(self, member: Member) -> bool:  # noqa: ARG002  # the hook's signature
        """Whether the plugin may distinguish nodes for this member now. A member that no plugin concerns is placed by its shape."""
        return True


class PodMask(PerPod):
    """A mask for each pod: see above."""

    @abstractmethod
    def settled(self, member: Member) -> bool:
        """Whether the member's mask is independent of placements and evictions in this session."""

    @abstractmethod
    def failures(self, member: Member, columns: Columns) -> Iterator[tuple[str, Bools]]:
        """Label and mask `[N]` of nodes that the member may not use."""


class ShapeScore(ByShape):
    """A score by shape: see above."""

    by_amounts: ClassVar[bool] = False
    """Whether it reads nothing of a row but its amounts and cards (`Columns.kind`, `Columns.booked`): rows that are equal in these have equal scores."""

    @property
    def by_requests(self) -> bool:
        """Whether the score also ignores cards: pods with equal requested amounts have equal scores on rows with equal amounts, whichever cards or shares
        of cards they request."""
        return False

    @property
    @abstractmethod
    def fills(self) -> bool:
        """Whether placing a pod on the best node leaves it the best for an equal pod, until it is full."""

    @property
    def version(self) -> int:
        """Rises when all scores must be recomputed although no node changed."""
        return 0

    def learn(self, task: Task, pods: int) -> None:  # most scores learn nothing
        """Called for each new job with the number of its pods of this shape."""

    def observe(self, columns: Columns) -> None:
        """Called after some hundred changes of nodes at the latest: a plugin whose scores depend on all nodes may raise its version."""

    def trial(self) -> AbstractContextManager[None]:
        """A context after which the plugin scores as before it, whatever was placed in it."""
        return nullcontext()

    @abstractmethod
    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """`[n]`, the plugin's weight applied; only read where the pod fits. None = no opinion on this shape."""


class PodScore(PerPod):
    """A score for each pod: see above."""

    @abstractmethod
    def score(self, member: Member, columns: Columns) -> Floats | None:
        """`[N]`, the plugin's weight applied; only read where the member fits. None = no opinion on this member."""


class CandidateScore(PerPod):
    """A score relative to the candidates."""

    @abstractmethod
    def normalised(self, member: Member, columns: Columns, candidates: Bools) -> Floats | None:
        """As `PodScore.score`; candidates: `[N]`."""


class BestNode(Plugin):
    @abstractmethod
    def best_node(self, member: Member, scores: Floats) -> int | None:
        """The row to use regardless of the scores; None = no opinion."""


class EqualNodeOrder(Plugin):
    """Orders nodes with equal scores. Without such a plugin the first row is taken."""

    @abstractmethod
    def distinguishes(self, columns: Columns, rows: Ints) -> Bools | None:
        """`[n]`: rows whose key may differ from that of rows with an equal score. None = no opinion at present."""

    @abstractmethod
    def equal_node_keys(self, columns: Columns, rows: Ints) -> Ints:
        """`[n]`: keys of rows with equal scores, lowest first. Pods placed one by one must get the same order as pods placed in a batch."""


class CardOrder(Plugin):
    """Reads nothing of a row but its amounts and cards (`Columns.kind`, `Columns.booked`)."""

    @abstractmethod
    def card_keys(self, columns: Columns, rows: Ints, task: Task) -> Floats | None:
        """`[n, D]`: keys of each row's cards; a pod of this shape takes the lowest first. The first plugin with an opinion decides."""

    def orders_cards_of(self, task: Task) -> bool:  # noqa: ARG002  # for plugins that order the cards of some pods only
        """Whether `card_keys` may return keys for a pod of this shape."""
        return True


# Victims: of `candidates` those that may be evicted for `preemptor`; None = no opinion. First tier with a result that is not empty decides.


class Preemptable(Plugin):
    @abstractmethod
    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None: ...

    def movable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None:
        """The candidates that this plugin does not protect, provided that each of them gets another placement."""
        return self.preemptable(preemptor, candidates)


class Reclaimable(Plugin):
    @abstractmethod
    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None: ...

    def giving(self, preemptor: Member) -> Collection[QueueName] | None:  # noqa: ARG002  # the hook's signature
        """The queues from which `reclaimable` may choose victims now. It never chooses from the other queues while evictions continue. None: unknown in
        advance."""
        return None


class Evictable(Plugin):
    @abstractmethod
    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member] | None:
        """For gangpreempt (same queue) and gangreclaim."""


class ReclaimRight(Plugin):
    @abstractmethod
    def rightful(self, preemptor: Gang, victims: Sequence[Member]) -> bool:
        """Whether the gang may evict all of these victims together for its nominated placements; called once they are complete. All plugins must agree."""


class VictimQueueOrder(Plugin):
    @abstractmethod
    def relatives(self, preemptor: QueueInfo) -> Sequence[Collection[QueueName]]:
        """Collections of queues in the order in which their members are evicted. Members of queues in no collection come last."""


class VictimLoss(Plugin):
    """Among members of equal priority, the smallest loss is evicted first."""

    @abstractmethod
    def estimates(self, table: RunningTable, slots: Ints, members: Sequence[Member]) -> bool:
        """Whether the plugin estimates losses while these pods are the evictable ones: slots with `RunningTable.checkpointed`, and members without a slot."""

    @abstractmethod
    def losses(self, members: Sequence[Member]) -> Sequence[float]:
        """Seconds of work that each member would lose if evicted now."""

    @abstractmethod
    def lone_losses(self, table: RunningTable, slots: Ints) -> Floats:
        """`[n]`: as `losses`, of the pods in these slots, each the only one of its job."""


class ShuffleVictims(Plugin):
    shuffle_every_s: float = 0.0
    """Minimum seconds between two calls in the running service, for a plugin that reads measurements, which lag behind placements; 0: no minimum. Of several
    plugins with a minimum, all are called at the longest one."""

    @abstractmethod
    def victims(self, members: Sequence[Member]) -> list[Member]:
        """For `shuffle`: running members that should move to other nodes. The first tier with any decides, by the union of its plugins' answers."""


class ShuffleGuard(Plugin):
    @abstractmethod
    def may_leave(self, members: Sequence[Member]) -> list[Member]:
        """For `shuffle`: the subset of the proposed victims that may be evicted together. All plugins must agree."""


class NodeReservation(Plugin):
    """Reserves nodes for large gangs in `open` (`Session.reserve`)."""

    @property
    @abstractmethod
    def reserves_after_s(self) -> float:
        """Seconds that a gang must be pending before nodes are reserved for it."""

    @property
    @abstractmethod
    def reserves_from(self) -> int:
        """Minimum pods of a gang for which nodes may be reserved."""

    @abstractmethod
    def large(self, columns: Columns, needs: Sequence[tuple[Task, int]]) -> bool:
        """Whether so many pods of each task are a large gang."""


# Topology domains (HyperNodes), by name.


class DomainGradients(Plugin):
    @abstractmethod
    def gradients(self, sub_gang: SubGang | None, gang: Gang, *, evict: bool) -> list[list[str]] | None:
        """Candidate domains in groups; the session tries a group only if no domain of the previous one fits."""


class DomainScore(Plugin):
    @abstractmethod
    def domain_scores(self, sub_gang: SubGang | None, gang: Gang, domains: Sequence[str]) -> Mapping[str, float] | None: ...


class Events(Plugin):
    """Placements and evictions of members, reported after the session updated its own state. `allocate`, `pipeline` and a reverted eviction call `placed`."""

    @abstractmethod
    def placed(self, member: Member, row: int) -> None: ...
    @abstractmethod
    def displaced(self, member: Member, row: int) -> None: ...

    def placed_uniform(self, members: Sequence[Member]) -> None:
        """As `placed`, for equal members of one gang, each on its current row."""
        for member in members:
            self.placed(member, member.row)


Hook: TypeAlias = type[Plugin]

#: Flag in volcano-scheduler.conf -> hooks that it switches.
FLAGS: Mapping[str, tuple[Hook, ...]] = {
    "enableJobOrder": (GangOrder,),
    "enabledSubJobOrder": (SubGangOrder,),
    "enableTaskOrder": (MemberOrder,),
    "enableQueueOrder": (QueueOrder, BranchOrder),
    "enableJobReady": (Readiness,),
    "enabledSubJobReady": (SubGangReadiness,),
    "enableJobPipelined": (Pipelined,),
    "enabledSubJobPipelined": (SubGangPipelined,),
    "enableJobStarving": (Starving,),
    "enableJobEnqueued": (Enqueueable,),
    "enablePredicate": (ShapeMask, ShapeRoom, PodMask),
    "enableNodeOrder": (ShapeScore, PodScore, CandidateScore, EqualNodeOrder, CardOrder),
    "enableBestNode": (BestNode,),
    "enabledHyperNodeOrder": (DomainScore,),
    "enabledHyperNodeGradient": (DomainGradients,),
    "enablePreemptable": (Preemptable,),
    "enableReclaimable": (Reclaimable,),
    "enablePreemptive": (Preemptive,),
    "enabledOverused": (Overused,),
    "enabledAllocatable": (Allocatable,),
    "enabledVictim": (ShuffleVictims, ShuffleGuard),
}

#: Hooks that no flag switches off.
UNSWITCHED: tuple[Hook, ...] = (Validity, Evictable, ReclaimRight, VictimQueueOrder, VictimLoss, NodeReservation, Events)

#: Every hook there is.
HOOKS: tuple[Hook, ...] = (*(hook for hooks in FLAGS.values() for hook in hooks), *UNSWITCHED)

#: Volcano's flags that switch no hook here: their hooks were removed, or concern multiple clusters.
IDLE_FLAGS = frozenset({"enableTargetJob", "enableReservedNodes", "enabledClusterOrder"})

#: Not a hook: drf and capacity read it to enable their hierarchy. Off by default.
HIERARCHY_FLAG = "enableHierarchy"


#: Hooks that decide whether a member may be evicted. `VictimQueueOrder` and `VictimLoss` only order the victims.
VICTIM_HOOKS: tuple[Hook, ...] = (Preemptable, Reclaimable, Evictable, ReclaimRight, ShuffleVictims, ShuffleGuard)


@cache
def hooks_of(plugin: Hook) -> frozenset[Hook]:
    """The hooks that a plugin class declares. Raises Bug if `check` fails."""
    check(plugin)
    return frozenset(hook for hook in HOOKS if issubclass(plugin, hook))


def check(plugin: Hook) -> None:
    """Raises Bug if a plugin class has public methods that belong to none of its declared hooks, takes other parameters than a hook, lacks a method of a
    declared hook, or has a victim hook that reads the clock without declaring `time_dependent`, or a kind of guard without `guards`."""
    whose = f"plugin {getattr(plugin, 'name', plugin.__name__)}"
    if missing := sorted(getattr(plugin, "__abstractmethods__", ())):
        raise Bug(f"{whose} declares {', '.join(missing)} and does not have it")
    declared = {name: hook for hook in HOOKS if issubclass(plugin, hook) for name in _methods(hook)}
    known = {name: hook for hook in HOOKS for name in _methods(hook)}
    for name in sorted(_public_methods(plugin) - {"open"}):
        if name not in known:
            close = get_close_matches(name, known, n=1)
            raise Bug(
                f"{whose} has a public method {name}, which is no hook" + (f" (did you mean {close[0]}?)" if close else "")
            )
        if name not in declared:
            raise Bug(f"{whose} has {name} and does not declare {known[name].__name__}")
    for name, hook in (*declared.items(), ("open", Plugin)):
        wanted, has = _parameters(getattr(hook, name)), _parameters(getattr(plugin, name))
        if wanted != has:
            raise Bug(f"{whose}: {name} has the parameters {has}, the hook has {wanted}")
    for kind in ("guards_owners", "guards_offline", "guards_gangs"):
        if getattr(plugin, kind) and not plugin.guards:
            raise Bug(f"{whose} declares {kind} and does not declare guards = True")
    if plugin.time_dependent:
        return
    reads = clock_reads(plugin)
    for name, hook in sorted(declared.items()):
        if hook in VICTIM_HOOKS and name in reads and getattr(plugin, name) is not getattr(hook, name):
            way = "" if reads[name] == CLOCK else f" through {reads[name]}"
            raise Bug(
                f"{whose}: {name} ({hook.__name__}) reads session.now{way}, so its answers change with time alone;"
                " declare time_dependent = True"
            )


def _methods(hook: Hook) -> set[str]:
    """Names of the methods and properties of a hook's class."""
    return {
        name
        for base in ((hook, PerPod) if issubclass(hook, PerPod) else (hook,))
        for name, value in vars(base).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }


def _public_methods(plugin: Hook) -> set[str]:
    own = (base for base in plugin.__mro__ if base not in (*HOOKS, PerPod, ByShape, Plugin, ABC, object))
    return {name for base in own for name, value in vars(base).items() if not name.startswith("_") and inspect.isroutine(value)}


def _parameters(method: object) -> list[tuple[str, str]] | None:
    """Name and kind of each parameter; None for a property or an attribute."""
    if not inspect.isfunction(method):
        return None
    return [(p.name, p.kind.description) for p in inspect.signature(method).parameters.values()]
