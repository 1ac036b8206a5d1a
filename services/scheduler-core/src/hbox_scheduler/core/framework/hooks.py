"""The hooks of a session: what a plugin may be asked, and when. A plugin implements those that it has an opinion on.

Each hook has one line in `HOOKS`: the flag of volcano-scheduler.conf that switches it, and the method that is asked. How the answers of several plugins
become one is the session's business (`session.py`; rules in reference volcano §2).
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import Gang, Member, QueueInfo, SubGang

if TYPE_CHECKING:
    from .session import Session

#: Sorts ascending; only compared with keys of the same plugin.
Key: TypeAlias = Any


class Vote(IntEnum):
    """Inside a tier one REJECT decides, then one PERMIT; a tier that only abstains passes the question on."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Plugin(Protocol):
    """What all plugins have. Beside this, any of the methods of `Hooks`.

    A plugin with `asks_others = True` asks the session what others say when it opens: it is opened after them, wherever it stands.
    """

    name: str

    def open(self, session: "Session") -> None:
        """A session begins: compute what the hooks need. The session's gangs, queues and columns are complete."""
        ...


class Hooks(Protocol):
    """Every hook there is, for reference and for the type checker. No plugin has all of them."""

    # Orders: the key that sorts first is served first; the first plugin whose keys differ decides.
    def queue_key(self, queue: QueueInfo) -> Key: ...
    def gang_key(self, gang: Gang) -> Key:
        """May change with what the gang has, and with nothing else."""
        ...

    def sub_gang_key(self, sub_gang: SubGang) -> Key: ...
    def member_key(self, member: Member) -> Key: ...

    # Gates.
    def valid(self, gang: Gang) -> str:
        """Why the gang cannot be scheduled as it stands, or "". All plugins have to agree."""
        ...

    def enqueueable(self, gang: Gang) -> Vote: ...
    def reject_reason(self, gang: Gang) -> str:
        """Why it rejects the gang, in words: asked right after `enqueueable`."""
        ...

    def enqueued(self, gang: Gang) -> None:
        """The gang was enqueued in this session."""
        ...

    def overused(self, queue: QueueInfo) -> bool:
        """Whether the queue gets no more in this session. One yes is enough."""
        ...

    def allocatable(self, queue: QueueInfo, member: Member) -> bool:
        """Whether the queue may take this member on top of what it has. All have to agree."""
        ...

    def preemptive(self, queue: QueueInfo, member: Member) -> bool:
        """Whether the queue may reclaim from others for this member. All have to agree."""
        ...

    # States of gangs.
    def ready(self, gang: Gang) -> bool:
        """Whether its places may be bound. All have to agree."""
        ...

    def sub_gang_ready(self, sub_gang: SubGang) -> bool: ...
    def pipelined(self, gang: Gang) -> Vote:
        """Whether it has, or is promised, enough places."""
        ...

    def sub_gang_pipelined(self, sub_gang: SubGang) -> Vote: ...
    def starving(self, gang: Gang) -> bool:
        """Whether it may take from others. Decided by the first tier that has the hook; all of that tier have to agree."""
        ...

    # Nodes. [N] = `session.columns.size` rows. `cluster` is the columns as they are (free now) or as they will be once all that leaves has left.
    def failures(self, member: Member, cluster: Columns) -> Iterator[tuple[str, Bools]]:
        """Label and mask `[N]` of nodes that the member may not use."""
        ...

    def score(self, member: Member, cluster: Columns) -> Floats | None:
        """`[N]`, the plugin's weight applied; only read where the member fits. None = no opinion on this member."""
        ...

    def normalised(self, member: Member, cluster: Columns, candidates: Bools) -> Floats | None:
        """As `score`, for scores that are relative to the candidates `[N]`."""
        ...

    def best_node(self, member: Member, scores: Floats) -> int | None:
        """A row that is taken whatever the scores say."""
        ...

    def card_keys(self, member: Member, cluster: Columns, rows: Ints) -> Floats | None:
        """`[n, D]`: which of a row's cards the member takes, the lowest first. The first opinion counts."""
        ...

    # Victims: of `candidates` those that may be evicted for `preemptor`; None = no opinion. First tier with a result that is not empty decides.
    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None: ...
    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None: ...
    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member] | None:
        """For gangpreempt (same queue) and gangreclaim."""
        ...

    def rightful(self, preemptor: Gang, victims: Sequence[Member]) -> bool:
        """Whether the gang may reclaim from all of these together what it is promised now: asked when all have their places. All have to agree."""
        ...

    def victim_queue_key(self, preemptor: QueueInfo, queue: QueueInfo) -> Key:
        """Whose members are taken first: the lowest key."""
        ...

    def victims(self, members: Sequence[Member]) -> list[Member]:
        """For `shuffle`: running members that should go elsewhere. The first tier with any decides; the union inside it."""
        ...

    def may_leave(self, members: Sequence[Member]) -> list[Member]:
        """For `shuffle`: those of whom it was said that they should go elsewhere who may, all of them together. All have to agree."""
        ...

    # Topology domains (HyperNodes), by name.
    def gradients(self, sub_gang: SubGang | None, gang: Gang, *, evict: bool) -> list[list[str]] | None:
        """Domains to be tried, in groups; the next group only if nothing in the one before fits."""
        ...

    def domain_scores(self, sub_gang: SubGang | None, gang: Gang, domains: Sequence[str]) -> Mapping[str, float] | None: ...

    # What happens to members, told after the session's own state was changed. `allocate`, `pipeline` and an eviction taken back are `placed`.
    def placed(self, member: Member, row: int) -> None: ...
    def displaced(self, member: Member, row: int) -> None: ...


#: Flag in volcano-scheduler.conf -> hooks that it switches. Hooks named in no flag cannot be switched off (valid, evictable, victim_queue_key, events).
FLAGS: Mapping[str, tuple[str, ...]] = {
    "enableJobOrder": ("gang_key",),
    "enabledSubJobOrder": ("sub_gang_key",),
    "enableTaskOrder": ("member_key",),
    "enableQueueOrder": ("queue_key",),
    "enableJobReady": ("ready",),
    "enabledSubJobReady": ("sub_gang_ready",),
    "enableJobPipelined": ("pipelined",),
    "enabledSubJobPipelined": ("sub_gang_pipelined",),
    "enableJobStarving": ("starving",),
    "enableJobEnqueued": ("enqueueable", "reject_reason", "enqueued"),
    "enablePredicate": ("failures",),
    "enableNodeOrder": ("score", "normalised", "card_keys"),
    "enableBestNode": ("best_node",),
    "enabledHyperNodeOrder": ("domain_scores",),
    "enabledHyperNodeGradient": ("gradients",),
    "enablePreemptable": ("preemptable",),
    "enableReclaimable": ("reclaimable",),
    "enablePreemptive": ("preemptive",),
    "enabledOverused": ("overused",),
    "enabledAllocatable": ("allocatable",),
    "enabledVictim": ("victims", "may_leave"),
}

#: Flags that Volcano knows and that switch nothing here: their hooks are gone, or belong to several clusters.
IDLE_FLAGS = frozenset({"enableTargetJob", "enableReservedNodes", "enabledClusterOrder"})

#: Not a hook: plugins read it (drf's and capacity's hierarchy). Off unless written.
HIERARCHY_FLAG = "enableHierarchy"
