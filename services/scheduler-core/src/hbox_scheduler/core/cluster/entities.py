"""What a session works on: members (one pod each), gangs, sub-gangs and queues, as they stand at its beginning.

A `Member` points to its interned `Task`, which holds all that equal pods share; node rows are those of the columns. Amounts are `int64[R]` in base
units, R = the resource columns known when the session opened.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from hbox_common.model import (
    NO_CONSTRAINTS,
    OFFLINE,
    POOLED,
    CardSlice,
    GroupPhase,
    JobId,
    NodeName,
    PodConstraints,
    PodUid,
    Pools,
    QueueName,
    QueuePhase,
    Resources,
    SubGangPolicy,
    TopologyWish,
    is_offline,
)
from hbox_common.model.resources import add

from .amounts import Asked
from .arrays import Ints
from .task import Task


class Status(Enum):
    """Status of a member: Volcano's task statuses, except those that only its bind workers need."""

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python: statuses are looked up in sets millions of times

    PENDING = auto()
    GATED = auto()  #: exists, but has scheduling gates
    ALLOCATED = auto()  #: placed on free resources in this session
    PIPELINED = auto()  #: nominated in this session to resources that victims still hold
    BOUND = auto()  #: bound to a node, not running yet
    RUNNING = auto()
    RELEASING = auto()  #: terminating, or evicted in this session
    SUCCEEDED = auto()
    FAILED = auto()


#: Hold resources now.
HOLDING = frozenset({Status.ALLOCATED, Status.BOUND, Status.RUNNING})

#: Hold no resources any more.
ENDED = frozenset({Status.SUCCEEDED, Status.FAILED})

#: May be evicted.
EVICTABLE = frozenset({Status.BOUND, Status.RUNNING})


@dataclass(slots=True, eq=False)
class Member:
    """One pod of a gang. Compared by identity."""

    uid: PodUid
    namespace: str
    name: str
    gang: "Gang"
    role: str  #: its task in the job (label or annotation volcano.sh/task-spec); "" where it has none
    task: Task
    request: Ints  #: `[R]`, without `pods`
    created_at: float
    priority: int = 1  #: of the pod; Volcano's default where it has none
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Status = Status.PENDING
    row: int = -1  #: the node's row while it has, or is promised, a place
    slices: tuple[CardSlice, ...] = ()
    models: Asked = ()  #: cards by model that it counts, by column, where queues name models
    pool: str = ""  #: in which it counts (`model.counted_as`), while it has a place or is tried there
    preemptable: bool = True
    #: protected from eviction until then: minimum run time or cool-down (`hbox_common.model.minruntime`)
    protected_until: float = 0.0
    movable: bool = True  #: all that it asks for is known, so that another place can be found for it
    never_preempts: bool = False  #: preemptionPolicy: Never
    with_others: bool = False  #: has to start with members that ask for something: is placed as they are, whatever it asks for
    nominated: NodeName | None = None
    placed_at: float | None = None  #: when it got its place, by the ledger: `protected_until` counts from then
    started_at: float | None = None  #: when it began to run: by its kubelet in whole seconds, else `placed_at`
    constraints: PodConstraints = NO_CONSTRAINTS
    selectable: bool = True  #: constraints of others may select it
    leaving: bool = False  #: it is being deleted: no spread counts it
    resource_version: str = ""  #: of the pod, where it is to be bound
    images: tuple[str, ...] = ()
    sub_gang: "SubGang | None" = None
    rank: int = -1  #: which of its job it is, from 0 on (`hbox_common.model.ranks`); -1: not known
    volume_claims: tuple[str, ...] = ()  #: `PodRef.volume_claims`
    budgets: tuple[str, ...] | None = None  #: names of the disruption budgets that select it; None = by their selectors

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def account(self) -> str:
        """The pool under which its queue counts it."""
        return OFFLINE if self.task.offline else self.pool

    @property
    def best_effort(self) -> bool:
        """Requests nothing that is counted: `allocate` leaves it to `backfill`."""
        return self.task.cards is None and not self.with_others and not self.request.any()


@dataclass(slots=True, eq=False)
class SubGang:
    """Members that a topology domain or a minimum binds together. A gang without policies has exactly one, named ""."""

    name: str
    gang: "Gang"
    policy: SubGangPolicy | None
    members: list[Member] = field(default_factory=list)
    allocated_domain: str = ""  #: HyperNode in which its running members are

    @property
    def size(self) -> int:
        """Members that have to be placed together."""
        return self.policy.size if self.policy is not None else self.gang.min_member


@dataclass(slots=True, eq=False)
class Gang:
    """A PodGroup with its pods (or a bare pod, as a gang of one). Compared by identity."""

    id: JobId
    namespace: str
    name: str
    queue: QueueName
    priority: int
    min_member: int
    created_at: float
    phase: GroupPhase = GroupPhase.INQUEUE
    min_task_member: Mapping[str, int] = field(default_factory=dict)  #: by role
    min_resources: Resources | None = None
    gated: Resources = field(default_factory=dict)  #: what members ask for that exist and have scheduling gates
    topology: TopologyWish | None = None
    sub_gang_policies: tuple[SubGangPolicy, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    preemptable: bool = True  #: volcano.sh/preemptable of the PodGroup
    priority_class: str = ""  #: its name, where one is written
    allocated_domain: str = ""
    members: list[Member] = field(default_factory=list)
    sub_gangs: list[SubGang] = field(default_factory=list)
    problem: str = ""  #: why it cannot be scheduled as written
    represented: Sequence[float] = ()  #: creation times of equal gangs outside the session that this one represents
    shapes: "Sequence[tuple[Member, int]]" = ()  #: of a `prepared` gang: one member of each shape, and the number of such members
    whole: bool = False  #: members that ask for nothing and wait do not make it ready for `backfill`: its minimum needs places
    _counts: dict[Status, int] | None = field(default=None, repr=False)  #: of the members by status, while a session is on
    _ready: int = 0
    _holding: int = 0

    @property
    def prepared(self) -> bool:
        """Whether the gang was built before the session, once for several sessions: its sub-gangs are formed, its members are sorted by rank and counted. When
        a session opens, all of them are pending, without a nomination."""
        return bool(self.shapes)

    @property
    def plain(self) -> bool:
        """Whether the gang and its members have no roles, labels, constraints, budgets or sub-gang policies: members of one shape are equal. True of a
        `prepared` gang, since no other is prepared; unknown of all others."""
        return self.prepared

    @property
    def interchangeable(self) -> bool:
        """Whether no plugin distinguishes members of one shape: the gang is `plain`, and has no annotations that a plugin may read."""
        return bool(self.shapes) and not self.annotations

    @property
    def untouched(self) -> bool:
        """Whether the gang is `prepared`, and no session placed or nominated a member."""
        return bool(self.shapes) and not self.holding and not self.waiting

    @property
    def counts_minimum(self) -> bool:
        """True if `enqueue` counts the gang with its minimum, whatever it holds: it may have lost members, and may hold more that can be reclaimed."""
        return self.min_resources is not None and self.phase in _MINIMUM_COUNTS and not self.offline

    @property
    def offline(self) -> bool:
        """Whether it is offline work: served after all others, evicts no pods, and is evicted first (`hbox_common.model.offline`)."""
        return self.members[0].task.offline if self.members else is_offline(self.priority_class)

    @property
    def counted_minimum(self) -> Resources:
        """What `enqueue` counts of the minimum once the gang is admitted: nothing for members with scheduling gates beyond what the gang holds."""
        if not self.gated or not self.min_resources:
            return self.min_resources or {}
        held: Resources = {}
        for member in self.of(*HOLDING):
            add(held, member.task.requests)
        return {
            name: max(units - self.gated.get(name, 0), min(units, held.get(name, 0)))
            for name, units in self.min_resources.items()
        }

    def of(self, *statuses: Status) -> Iterator[Member]:
        return (member for member in self.members if member.status in statuses)

    def count(self, *statuses: Status) -> int:
        if self._counts is None:
            return sum(member.status in statuses for member in self.members)
        if len(statuses) == 1:
            return self._counts.get(statuses[0], 0)
        return sum(self._counts.get(status, 0) for status in statuses)

    @property
    def ready(self) -> int:
        """Members that count for the minimum: placed, finished, or best effort and pending."""
        return self._ready if self._counts is not None else sum(map(_counts, self.members))

    @property
    def served(self) -> int:
        """Members that are placed or finished: as `ready`, without pending best-effort members."""
        return self.holding + self.count(Status.SUCCEEDED)

    @property
    def waiting(self) -> int:
        """Nominated members."""
        return self.count(Status.PIPELINED) if self._counts is None else self._counts.get(Status.PIPELINED, 0)

    @property
    def holding(self) -> int:
        """Placed members."""
        return self.count(*HOLDING) if self._counts is None else self._holding

    def dissolve(self) -> None:
        """Break the gang's reference cycles, so that its memory is freed at once, without the garbage collector. Call it last."""
        self.members, self.sub_gangs, self.shapes = [], [], ()

    def tally(self) -> None:
        """Count the members by status. Afterwards only statements change statuses, and call `moved`; after any other change, call this again."""
        counts: dict[Status, int] = {}
        if len(self.members) == 1:  # most jobs of most clusters
            member = self.members[0]
            self._counts = {member.status: 1}
            self._ready, self._holding = int(_counts(member)), int(member.status in HOLDING)
            return
        for member in self.members:
            counts[member.status] = counts.get(member.status, 0) + 1
        self._counts = counts
        self._ready = sum(map(_counts, self.members))
        self._holding = sum(counts.get(status, 0) for status in HOLDING)

    def moved(self, member: Member, before: Status) -> None:
        """Update the counts after a member's status changed from `before`. As `moved_uniform` for one member, in a third of its time."""
        counts, now = self._counts, member.status
        if counts is None:
            return
        counts[before] -= 1
        counts[now] = counts.get(now, 0) + 1
        self._holding += (now in HOLDING) - (before in HOLDING)
        self._ready += _counts(member) - (before in _READY or (before is Status.PENDING and member.best_effort))

    def moved_uniform(self, members: Sequence[Member], before: Status) -> None:
        """Update the counts after the status of equal members changed from `before`."""
        if self._counts is None or not members:
            return
        first, count = members[0], len(members)
        counts, now = self._counts, first.status
        counts[before] -= count
        counts[now] = counts.get(now, 0) + count
        self._holding += count * ((now in HOLDING) - (before in HOLDING))
        self._ready += count * (_counts(first) - (before in _READY or (before is Status.PENDING and first.best_effort)))


_MINIMUM_COUNTS = (GroupPhase.PENDING, GroupPhase.INQUEUE, GroupPhase.RUNNING)

_READY = HOLDING | {Status.SUCCEEDED}


def _counts(member: Member) -> bool:
    status = member.status
    return status in _READY or (status is Status.PENDING and member.best_effort)


def form_sub_gangs(gang: Gang) -> None:
    """Divide a gang's members by its policies: equal values of a policy's labels are one sub-gang. Members that no policy selects form the one named ""."""
    if not gang.sub_gang_policies:
        whole = SubGang("", gang, None, list(gang.members))
        for member in gang.members:
            member.sub_gang = whole
        gang.sub_gangs = [whole]
        return
    groups: dict[str, SubGang] = {}
    for member in gang.members:
        name, policy = "", None
        for candidate in gang.sub_gang_policies:
            if all(member.labels.get(key) == value for key, value in candidate.selector.items()) and all(
                key in member.labels for key in candidate.labels
            ):
                name = "/".join((candidate.name, *(member.labels[key] for key in candidate.labels)))
                policy = candidate
                break
        sub_gang = groups.get(name)
        if sub_gang is None:
            sub_gang = groups[name] = SubGang(name, gang, policy)
        sub_gang.members.append(member)
        member.sub_gang = sub_gang
    if not groups:
        groups[""] = SubGang("", gang, None)
    gang.sub_gangs = sorted(groups.values(), key=lambda group: group.name)


@dataclass(slots=True, eq=False)
class QueueInfo:
    """A Volcano Queue. Amounts are by resource name; a resource that `capability` does not name is not limited."""

    name: QueueName
    weight: int = 1
    priority: int = 0
    parent: QueueName | None = None
    capability: Resources = field(default_factory=dict)
    deserved: Resources = field(default_factory=dict)
    guarantee: Resources = field(default_factory=dict)
    reclaimable: bool = True
    phase: QueuePhase = QueuePhase.OPEN
    created_at: float = 0.0
    annotations: Mapping[str, str] = field(default_factory=dict)
    recent_cards: float = 0.0  #: recent average of cards used by the queue and its descendants
    node_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of node groups by `NODE_GROUP_RULES` (spec.affinity)."""
    pools: Pools = (POOLED,)  #: that it may use, those of `QueueTree.pools`
