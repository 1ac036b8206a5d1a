"""The hooks of a session: what a plugin may be asked, and when. Each moment is a class here; a plugin is derived from those that it has an opinion on.

A session registers its plugins by these classes when it opens. A public method of a plugin that belongs to none of the hooks that it declares, or whose
parameters are not the hook's, is an error (`check`): a misspelt hook is never silently nothing. `FLAGS` has the flag of volcano-scheduler.conf that switches
each hook. How the answers of several plugins become one is the session's business (`session.py`; rules in reference volcano §2).

Masks and scores exist twice, by what they depend on. A `ShapeMask` or `ShapeScore` is a function of what the pod asks for (its shape) and of the node's own row
alone: equal pods are equal to it, so that its answers are kept by shape and pods are placed in batches. A `PodMask`, `PodScore` or `CandidateScore` may look at
anything else of the pod, of other nodes or of the session, and is asked for each pod.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from hbox_common.errors import Bug
from hbox_common.model import QueueName

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows
from ..cluster.entities import Gang, Member, QueueInfo, SubGang
from ..cluster.task import Task

if TYPE_CHECKING:
    from .conf import PluginConf
    from .session import Session

#: Sorts ascending; only compared with keys of the same plugin.
Key: TypeAlias = Any


class Vote(IntEnum):
    """Inside a tier one REJECT decides, then one PERMIT; a tier that only abstains passes the question on."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Plugin(ABC):
    """What all plugins have."""

    name: ClassVar[str]  #: in volcano-scheduler.conf
    guards: ClassVar[bool] = False  #: of victims it says who must stay, not who may go
    asks_others: ClassVar[bool] = False  #: it asks the session what others say when it opens: it is opened after them

    @abstractmethod
    def __init__(self, conf: "PluginConf") -> None:
        """Raises InvalidRequest for arguments that are wrong."""

    def open(self, session: "Session") -> None:  # noqa: B027  # most plugins have nothing to compute
        """A session begins: compute what the hooks need. The session's gangs, queues and columns are complete."""


# Orders: the key that sorts first is served first; the first plugin whose keys differ decides.


class QueueOrder(Plugin):
    @abstractmethod
    def queue_key(self, queue: QueueInfo) -> Key:
        """May change with what queues have, and with nothing else."""

    def related(self, queue: QueueInfo) -> Iterable[QueueName] | None:  # noqa: ARG002  # the hook's signature
        """The queues whose keys may change with what this one has, itself among them; None: all of them."""
        return None


class GangOrder(Plugin):
    @abstractmethod
    def gang_key(self, gang: Gang) -> Key:
        """May change with what the gang has, and with nothing else."""


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
        """Why the gang cannot be scheduled as it stands, or "". All plugins have to agree."""


class Enqueueable(Plugin):
    @abstractmethod
    def enqueueable(self, gang: Gang) -> Vote: ...

    def reject_reason(self, gang: Gang) -> str:  # noqa: ARG002  # the hook's signature
        """Why it rejects the gang, in words: asked right after `enqueueable`. "" = there is no more to say."""
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
        """How many members like this one, and `most` at most, the queue may take on top of what it has. The least of all answers counts."""

    @abstractmethod
    def withheld_reason(self, queue: QueueInfo, members: Sequence[Member]) -> str:
        """Why the queue may not take all of these members on top of what it has: label and words; "" = it may, or what it may have is all that
        the cluster has: nodes say it then."""


class Preemptive(Plugin):
    @abstractmethod
    def preemptive(self, queue: QueueInfo, member: Member) -> bool:
        """Whether the queue may reclaim from others for this member. All have to agree."""


# States of gangs.


class Readiness(Plugin):
    @abstractmethod
    def ready(self, gang: Gang) -> bool:
        """Whether its places may be bound. All have to agree."""


class SubGangReadiness(Plugin):
    @abstractmethod
    def sub_gang_ready(self, sub_gang: SubGang) -> bool: ...


class Pipelined(Plugin):
    @abstractmethod
    def pipelined(self, gang: Gang) -> Vote:
        """Whether it has, or is promised, enough places."""


class SubGangPipelined(Plugin):
    @abstractmethod
    def sub_gang_pipelined(self, sub_gang: SubGang) -> Vote: ...


class Starving(Plugin):
    @abstractmethod
    def starving(self, gang: Gang) -> bool:
        """Whether it may take from others. Decided by the first tier that has the hook; all of that tier have to agree."""


# Nodes. n = rows asked about; [N] = `session.columns.size` rows. The columns given are those as they are, or as they will be once all that leaves has left.


class ByShape(Plugin):
    """What masks and scores by shape have in common."""

    of_session: ClassVar[bool] = False  #: it reads what `open` computed for one session: nothing of it is kept


class ShapeMask(ByShape):
    """A mask by shape, from what the node is and not from what is booked there: see above."""

    @abstractmethod
    def shape_failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        """Label and mask `[n]` of nodes that pods of this shape may not use."""


class ShapeRoom(ByShape):
    """A limit by shape of how many more pods a node takes beside what is booked there. It is a mask too: nodes that take none are told its label."""

    label: ClassVar[str]

    @abstractmethod
    def limits(self, task: Task) -> bool:
        """Whether it has an opinion on pods of this shape; they alone are told of it, and cost anything."""

    @abstractmethod
    def shape_room(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        """`[n]`: pods of this shape that the node takes, 0 or less for none. Pods of the shape itself lower it by one each."""

    def room_words(self, columns: Columns, row: int, task: Task) -> str:  # noqa: ARG002  # the hook's signature
        """What a node that takes none keeps where, for who waits; "" = the label says all."""
        return ""

    def room_by_amounts(self, columns: Columns) -> bool:  # noqa: ARG002  # the hook's signature
        """Whether nodes that are equal in amounts and cards (`Columns.kind`, `Columns.booked`) have equal room, as nodes are described now."""
        return False


class PerPod(Plugin):
    """What masks and scores for each pod have in common."""

    @property
    @abstractmethod
    def sees_plain_pods(self) -> bool:
        """Whether it has an opinion on plain pods: those that have no constraints on others, and nothing written on them that it reads."""

    def concerns(self, member: Member) -> bool:  # noqa: ARG002  # the hook's signature
        """Whether it may tell nodes apart for this member, as things stand; members for whom no plugin does are placed by their shape."""
        return True


class PodMask(PerPod):
    """A mask for each pod: see above."""

    @abstractmethod
    def settled(self, member: Member) -> bool:
        """Whether what it says about the member stays true whoever comes or goes in this session."""

    @abstractmethod
    def failures(self, member: Member, cluster: Columns) -> Iterator[tuple[str, Bools]]:
        """Label and mask `[N]` of nodes that the member may not use."""


class ShapeScore(ByShape):
    """A score by shape: see above."""

    by_amounts: ClassVar[bool] = False
    """Whether it reads nothing of a row but its amounts and cards (`Columns.kind`, `Columns.booked`): rows that are equal in these have equal scores."""

    @property
    def by_requests(self) -> bool:
        """Whether, besides, it reads nothing of cards: pods that request the same amounts have equal scores on rows that are equal in amounts, whichever
        shares of which cards they are about."""
        return False

    @property
    @abstractmethod
    def fills(self) -> bool:
        """Whether placing a pod on the best node leaves it the best for an equal pod, until it is full."""

    @property
    def version(self) -> int:
        """Rises when all scores have to be computed anew though no node changed."""
        return 0

    def learn(self, task: Task, pods: int) -> None:  # most scores learn nothing
        """A job was seen for the first time, with so many pods of this shape."""

    @abstractmethod
    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """`[n]`, the plugin's weight applied; only read where the pod fits. None = no opinion on this shape."""


class PodScore(PerPod):
    """A score for each pod: see above."""

    @abstractmethod
    def score(self, member: Member, cluster: Columns) -> Floats | None:
        """`[N]`, the plugin's weight applied; only read where the member fits. None = no opinion on this member."""


class CandidateScore(PerPod):
    """A score that is relative to the candidates."""

    @abstractmethod
    def normalised(self, member: Member, cluster: Columns, candidates: Bools) -> Floats | None:
        """As `PodScore.score`; candidates: `[N]`."""


class BestNode(Plugin):
    @abstractmethod
    def best_node(self, member: Member, scores: Floats) -> int | None:
        """A row that is taken whatever the scores say."""


class EqualNodeOrder(Plugin):
    """Orders nodes with equal scores. Without such a plugin the first row is taken."""

    @abstractmethod
    def tells_apart(self, columns: Columns, rows: Ints) -> Bools | None:
        """`[n]`: rows whose equals may differ to it. None = it has no opinion now."""

    @abstractmethod
    def equal_node_keys(self, columns: Columns, rows: Ints) -> Ints:
        """`[n]`: of equal rows, the lowest first. Pods that are placed one after the other meet the same order as many at once."""


class CardOrder(Plugin):
    """Reads nothing of a row but its amounts and cards (`Columns.kind`, `Columns.booked`)."""

    @abstractmethod
    def card_keys(self, columns: Columns, rows: Ints, task: Task) -> Floats | None:
        """`[n, D]`: which of a row's cards a pod of this shape takes, the lowest first. The first opinion counts."""

    def orders_cards_of(self, task: Task) -> bool:  # noqa: ARG002  # for plugins that order the cards of some pods only
        """Whether `card_keys` may return keys for a pod of this shape."""
        return True


# Victims: of `candidates` those that may be evicted for `preemptor`; None = no opinion. First tier with a result that is not empty decides.


class Preemptable(Plugin):
    @abstractmethod
    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None: ...

    def movable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None:
        """Of those that would get other places, whom it does not guard."""
        return self.preemptable(preemptor, candidates)


class Reclaimable(Plugin):
    @abstractmethod
    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None: ...

    def giving(self, preemptor: Member) -> Collection[QueueName] | None:  # noqa: ARG002  # the hook's signature
        """The queues of which `reclaimable` may choose anybody at all, as things stand; those left out will not be chosen from while more is taken. None: not
        known beforehand."""
        return None


class Evictable(Plugin):
    @abstractmethod
    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member] | None:
        """For gangpreempt (same queue) and gangreclaim."""


class ReclaimRight(Plugin):
    @abstractmethod
    def rightful(self, preemptor: Gang, victims: Sequence[Member]) -> bool:
        """Whether the gang may reclaim from all of these together what it is promised now: asked when all have their places. All have to agree."""


class VictimQueueOrder(Plugin):
    @abstractmethod
    def relatives(self, preemptor: QueueInfo) -> Sequence[Collection[QueueName]]:
        """Whose members are taken first: those of the first collection, and so on; last those of all queues that are in none."""


class VictimLoss(Plugin):
    @abstractmethod
    def losses(self, members: Sequence[Member]) -> Sequence[float] | None:
        """Seconds of work that each of these would lose by leaving now: of equal priority those go first that lose least. None: nobody can tell."""


class ShuffleVictims(Plugin):
    @abstractmethod
    def victims(self, members: Sequence[Member]) -> list[Member]:
        """For `shuffle`: running members that should go elsewhere. The first tier with any decides; the union inside it."""


class ShuffleGuard(Plugin):
    @abstractmethod
    def may_leave(self, members: Sequence[Member]) -> list[Member]:
        """For `shuffle`: those of whom it was said that they should go elsewhere who may, all of them together. All have to agree."""


# Topology domains (HyperNodes), by name.


class DomainGradients(Plugin):
    @abstractmethod
    def gradients(self, sub_gang: SubGang | None, gang: Gang, *, evict: bool) -> list[list[str]] | None:
        """Domains to be tried, in groups; the next group only if nothing in the one before fits."""


class DomainScore(Plugin):
    @abstractmethod
    def domain_scores(self, sub_gang: SubGang | None, gang: Gang, domains: Sequence[str]) -> Mapping[str, float] | None: ...


class Events(Plugin):
    """What happens to members, told after the session's own state was changed. `allocate`, `pipeline` and an eviction taken back are `placed`."""

    @abstractmethod
    def placed(self, member: Member, row: int) -> None: ...
    @abstractmethod
    def displaced(self, member: Member, row: int) -> None: ...

    def placed_alike(self, members: Sequence[Member]) -> None:
        """As `placed`, for equal members of one gang, each where it is now."""
        for member in members:
            self.placed(member, member.row)


Hook: TypeAlias = type[Plugin]

#: Flag in volcano-scheduler.conf -> hooks that it switches.
FLAGS: Mapping[str, tuple[Hook, ...]] = {
    "enableJobOrder": (GangOrder,),
    "enabledSubJobOrder": (SubGangOrder,),
    "enableTaskOrder": (MemberOrder,),
    "enableQueueOrder": (QueueOrder,),
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
UNSWITCHED: tuple[Hook, ...] = (Validity, Evictable, ReclaimRight, VictimQueueOrder, VictimLoss, Events)

#: Every hook there is.
HOOKS: tuple[Hook, ...] = (*(hook for hooks in FLAGS.values() for hook in hooks), *UNSWITCHED)

#: Flags that Volcano knows and that switch nothing here: their hooks are gone, or belong to several clusters.
IDLE_FLAGS = frozenset({"enableTargetJob", "enableReservedNodes", "enabledClusterOrder"})

#: Not a hook: plugins read it (drf's and capacity's hierarchy). Off unless written.
HIERARCHY_FLAG = "enableHierarchy"


@cache
def hooks_of(plugin: Hook) -> frozenset[Hook]:
    """The hooks that a class of plugins declares. Raises Bug where it is not what it declares."""
    check(plugin)
    return frozenset(hook for hook in HOOKS if issubclass(plugin, hook))


def check(plugin: Hook) -> None:
    """Raises Bug where a class of plugins has public methods that belong to none of the hooks that it declares, takes other parameters than a hook has, or
    lacks a hook that it declares."""
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


def _methods(hook: Hook) -> set[str]:
    """Names of what a hook's class asks for: methods and properties."""
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
    """Name and kind of each; None of a property or an attribute, which has none."""
    if not inspect.isfunction(method):
        return None
    return [(p.name, p.kind.description) for p in inspect.signature(method).parameters.values()]
