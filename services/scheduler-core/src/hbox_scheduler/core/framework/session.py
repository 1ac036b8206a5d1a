"""One scheduling session: a view of the cluster, a policy's plugins, and the rules that combine their answers.

Combination (sources: volcano-tiers): orders - the first plugin whose keys differ decides, then creation time, then id. Gates and filters - all plugins must
agree; overused - one plugin suffices. Votes - inside a tier a reject decides, then a permit; if the tier abstains, the next tier votes. Starving - the first
tier that has the hook. Victims - among the plugins that choose victims (priority, drf, proportion, capacity, ...) the first tier with an answer decides; all
of its plugins must agree, and an empty set is an answer. Plugins that protect pods (`guards = True`: gang, conformance, pdb, cdp, tdm) must always agree,
whatever their tier. In Volcano an empty set passes the decision to the next tier, and a guard protects pods in its own tier only, so another tier evicts
pods that a guard protects (its #5896).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardSlice, GroupPhase, NodeName, QueueName, Resources, by_pool
from hbox_common.model.resources import PODS, add

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import ENDED, Gang, Member, QueueInfo, Status, SubGang, form_sub_gangs
from ..cluster.moves import FoundMoves
from ..cluster.population import Population
from ..cluster.reservations import Reservation
from ..cluster.running import RunningGangs
from ..cluster.runningtable import RunningTable
from ..cluster.snapshot import Cluster
from ..cluster.task import Task, passing
from ..explain.labels import Label
from ..topology.known import KnownTree
from ..topology.tree import Tree, tree_of
from .basefits import capacity_when_empty
from .guarantees import Guarantees
from .hooks import (
    Allocatable,
    BestNode,
    BranchOrder,
    CandidateScore,
    CardOrder,
    DomainGradients,
    DomainScore,
    Enqueueable,
    EqualNodeOrder,
    Events,
    Evictable,
    GangOrder,
    Hook,
    Key,
    MemberOrder,
    Overused,
    Pipelined,
    Plugin,
    PodMask,
    PodScore,
    Preemptable,
    Preemptive,
    QueueOrder,
    Readiness,
    Reclaimable,
    ReclaimRight,
    ShapeMask,
    ShapeRoom,
    ShapeScore,
    ShuffleGuard,
    ShuffleVictims,
    Starving,
    SubGangOrder,
    SubGangPipelined,
    SubGangReadiness,
    Validity,
    VictimLoss,
    VictimQueueOrder,
    Vote,
    hooks_of,
)
from .models import Models
from .namespacequotas import NamespaceQuotas
from .nodepools import NodePools, may_go_whole
from .ranking import Branches, QueueRanking
from .requests import Requests
from .statement import Operation, OperationKind, Statement
from .views import Views
from .webhooks import Ask, no_webhooks

if TYPE_CHECKING:
    from .conf import Conf

#: The order of `Session.gangs`. Creation times have whole seconds: names break ties, as in Volcano, because uids are random.
_by_age = attrgetter("created_at", "namespace", "name", "id")

#: The order of members that no plugin orders.
_by_rank = attrgetter("rank", "uid")

#: Maximum number of nodes sampled for an explanation.
_MAX_EXPLAINED_NODES = 64

H = TypeVar("H", bound=Plugin)

#: Calls a plugin for the subset of members that may be evicted; None: no opinion.
Choice: TypeAlias = Callable[[H, list[Member]], list[Member] | None]


@dataclass(frozen=True, slots=True)
class Eviction:
    member: Member
    row: int
    preemptor: Gang | None
    reason: str
    slices: tuple[CardSlice, ...] = ()  #: the cards that the member frees


@dataclass(slots=True)
class Outcome:
    """The decisions of a session: committed operations only."""

    bindings: list[Member] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    nominations: list[Member] = field(default_factory=list)
    untried: set[Gang] = field(default_factory=set)  #: gangs that the session did not try before it ended
    verdicts: dict[str, str] = field(default_factory=dict)  #: gang id -> pending reason that concerns no node
    #: gang id -> members placed in its last turn, if they were too few
    fitting: dict[str, int] = field(default_factory=dict)
    #: gang id -> labels of rules by which the places of the first members excluded the others in that turn
    apart: dict[str, list[str]] = field(default_factory=dict)
    moves: dict[str, FoundMoves] = field(default_factory=dict)  #: gang id -> moves that would make room for it, executed or not
    #: gang id -> victims that only their minimum run time, cool-down or an exhausted disruption budget protects from it
    protected: dict[str, str] = field(default_factory=dict)
    #: members that a guard protected in the last victim search because of disruption budgets -> names of their budgets
    under_budgets: dict[Member, tuple[str, ...]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  #: ignored problems

    def warn(self, what: str) -> None:
        """Record a warning unless it is already recorded."""
        if what not in self.warnings:
            self.warnings.append(what)

    def take(self, operations: Sequence[Operation]) -> None:
        allocate, pipeline, evict = OperationKind.ALLOCATE, OperationKind.PIPELINE, OperationKind.EVICT
        for done in operations:
            if done.kind is allocate:
                self.bindings += done.members
        self.nominations += [done.member for done in operations if done.kind is pipeline]
        self.evictions += [
            Eviction(done.member, done.row, done.preemptor, done.reason, done.slices)
            for done in operations
            if done.kind is evict
        ]


#: Maximum number of entries of `Cluster.rooms_when_empty`.
_ROOMS = 8192


class Session:
    """Opened on a cluster for a sequence of actions. Single-threaded; it changes only the columns, the members and its outcome."""

    def __init__(
        self,
        *,
        columns: Columns,
        cluster: Cluster,
        conf: "Conf",
        tiers: Sequence[Sequence[Plugin]],
        now: float = 0.0,
        ask: Ask = no_webhooks,
        learned: Mapping[str, Plugin] = MappingProxyType({}),
        views: Views | None = None,
        known_tree: KnownTree | None = None,
    ) -> None:
        """`tiers`: the plugins of `conf`, in its order (`policy.registry.plugins_of`); `ask`: calls an external service for them; `learned`: plugins by name
        whose learned state outlives the session; `views`: views of the same policy, for placement by shape; `known_tree`: the tree of the cluster's
        HyperNodes, if it is cached across sessions.

        Raises InvalidRequest if `tiers` and `conf` name different plugins.
        """
        self.columns = columns
        self.cluster = cluster
        self.conf = conf
        self.now = now
        self.ask = ask
        self.learned = learned
        self.outcome = Outcome()
        self.queues: Mapping[QueueName, QueueInfo] = cluster.roster.queues
        _intern(columns, cluster)
        self.running = cluster.running or RunningGangs(columns)  #: gangs of earlier cycles without pending members
        self.running.publish_changes()
        self.fresh: list[Gang] = sorted(cluster.gangs, key=_by_age)  #: all others
        self.guarantees = Guarantees(columns, cluster)
        self._lends = bool(self.guarantees)
        self.models = Models(columns, cluster, self.running, self.fresh, self.guarantees)
        self.pools = NodePools(columns, self.queues, self.running, self.fresh)
        self.rows: Ints = columns.alive_rows
        self.total: Ints = columns.total()  #: foreign pods included
        self.counted: Bools = np.ones(len(self.total), dtype=np.bool_)  #: dimensions that quotas limit: all but `pods`
        if PODS in columns.resources:
            self.counted[columns.resources[PODS]] = False
        self.requests = Requests()
        #: queues whose settings a plugin cannot parse -> reason; the session places nothing new in them
        self.refused: dict[QueueName, str] = {}
        self._tiers = tiers
        self._hooks: dict[Hook, list[list[Any]]] = {}
        self._places = _places_of(tiers, conf)
        self._flat: dict[Hook, list[Any]] = {}
        for tier, confs in zip(tiers, conf.tiers, strict=True):
            for plugin, plugin_conf in zip(tier, confs, strict=True):
                if plugin.name != plugin_conf.name:
                    raise InvalidRequest(f"plugin {plugin.name} is loaded where the policy names {plugin_conf.name}")
        self._events = self._all(Events)
        self._pod_masks = self._all(PodMask)
        self._shape_rooms = self._all(ShapeRoom)
        self._masking = self._with(ShapeMask, ShapeRoom, PodMask)
        self.views = views
        self._known_tree = known_tree
        self._by_shape: dict[tuple[int, bool], bool] = {}
        self._per_pod = [plugin for hook in (PodMask, PodScore, CandidateScore) for plugin in self._all(hook)]
        self.namespace_quotas = NamespaceQuotas(columns, cluster)
        self.population = Population.beginning_with(
            partial(getattr, self.running, "population"),
            columns,
            cluster.facts.namespace_labels,
            constrained=self.running.constrained,
        )
        self.ranking = QueueRanking(self.queues, self._queue_key, self._related, self._branch())
        self.reservations: Sequence[Reservation] = ()  #: in force
        self._passes: Callable[[Member], int] | None = None
        self.promises = 0  #: members nominated to resources that victims still hold
        self.departures: list[Sequence[Member]] = []  #: displaced members, one entry per operation
        self.unplaced: list[Gang] = []  #: gangs with pending members when the session began
        for gang in self.fresh:
            if gang.prepared:
                self.unplaced.append(gang)
                continue
            form_sub_gangs(gang)
            gang.tally()
            if gang.count(Status.PENDING):
                self.unplaced.append(gang)
            self.promises += gang.waiting
            for member in gang.of(Status.GATED) if gang.count(Status.GATED) else ():
                add(gang.gated, member.task.requests)
        self.population.put_all(
            [
                member
                for gang in self.fresh
                if not gang.prepared
                for member in gang.members
                if member.row >= 0 and member.status not in ENDED
            ]
        )
        plugins = [plugin for tier in tiers for plugin in tier]
        for plugin in sorted(plugins, key=lambda plugin: plugin.asks_others):
            plugin.open(self)

    def close(self) -> None:
        """Break the reference cycles between the session and its plugins, so that their memory is freed at once. Call it last."""
        self._tiers, self._events, self._shape_rooms, self._pod_masks, self._masking, self._per_pod = (), [], [], [], [], []
        self._hooks.clear()
        self._flat.clear()
        self._passes = None
        self.guarantees.close()
        del self.ranking

    # Queries of plugins and actions about the cluster.

    def zeros(self) -> Ints:
        """`[R]`"""
        return np.zeros(len(self.columns.allocatable), dtype=np.int64)

    def vector(self, amounts: Mapping[str, int]) -> Ints:
        """`[R]` base units. Resources that no node has and no queue names share one column (`UNOFFERED`), whose capacity is 0."""
        out = self.zeros()
        for name, units in amounts.items():
            out[self.columns.resource(name)] += units
        return out

    def amounts(self, vector: Ints) -> Resources:
        """The reverse of `vector`, without zeros and without the shared column of resources that no node has."""
        return {name: int(vector[column]) for name, column in self.columns.resources.items() if vector[column]}

    @cached_property
    def gangs(self) -> list[Gang]:
        """All gangs, the oldest first."""
        before = self.running.gangs.values()
        return sorted([*before, *self.fresh], key=_by_age) if before else [*self.fresh]

    @cached_property
    def tree(self) -> Tree:
        """The HyperNodes over the nodes."""
        known = self._known_tree
        return tree_of(self.cluster.facts.hypernodes, self.columns.row_of, self.columns.size) if known is None else known.tree

    def node(self, row: int) -> NodeName:
        return self.columns.names[row]

    def row(self, node: NodeName) -> int | None:
        return self.columns.row_of.get(node)

    def statement(self) -> Statement:
        return Statement(self)

    def plugins(self, hook: type[H]) -> Sequence[H]:
        """The policy's plugins with this hook enabled, in its order; `Plugin`: all plugins."""
        return self._all(hook)

    def arguments(self, action: str) -> Mapping[str, Any]:
        """The action's part of `configurations`."""
        return self.conf.arguments.get(action, {})

    # Events.

    def placed(self, member: Member, row: int) -> None:
        self.population.put(member, row)
        if self._lends:
            self.guarantees.book(member, row)
        self.ranking.touch(member.gang.queue)
        for plugin in self._events:
            plugin.placed(member, row)

    def placed_all(self, members: Sequence[Member]) -> None:
        """As `placed`, for equal members of one gang, each on its current row."""
        self.population.put_all(members)
        for member in members if self._lends else ():
            self.guarantees.book(member, member.row)
        self.ranking.touch(members[0].gang.queue)
        for plugin in self._events:
            plugin.placed_uniform(members)

    def displaced(self, member: Member, row: int) -> None:
        self.population.take(member)
        if self._lends:
            self.guarantees.book(member, row, -1)
        self.departures.append((member,))
        self.ranking.touch(member.gang.queue)
        for plugin in self._events:
            plugin.displaced(member, row)

    def displaced_all(self, members: Sequence[Member]) -> None:
        """As `displaced`, each on its current row."""
        self.population.take_all(members)
        self.departures.append(members)
        for member in members:
            if self._lends:
                self.guarantees.book(member, member.row, -1)
            self.ranking.touch(member.gang.queue)
        for plugin in self._events:
            for member in members:
                plugin.displaced(member, member.row)

    # Orders.

    def queue_key(self, queue: QueueInfo) -> Key:
        return self.ranking.key(queue.name)

    def _queue_key(self, queue: QueueInfo) -> Key:
        return (*(plugin.queue_key(queue) for plugin in self._all(QueueOrder)), queue.created_at, queue.name)

    def _related(self, queue: QueueInfo) -> Collection[QueueName] | None:
        """Queues whose keys may change with the queue's allocated amounts; None = all."""
        names: dict[QueueName, None] = {}
        for plugin in self._all(QueueOrder):
            if (related := plugin.related(queue)) is None:
                return None
            names.update(dict.fromkeys(related))
        return names

    def _branch(self) -> Branches | None:
        """Branches of queues, if one plugin orders queues and has branches."""
        match self._all(QueueOrder):
            case [BranchOrder() as order]:
                return Branches(order.branch, order.related_in_branch, lambda queue: order.queue_key(queue)[0])
            case _:
                return None

    def gang_key(self, gang: Gang) -> Key:
        keys = [plugin.gang_key(gang) for plugin in self._all(GangOrder)]
        return (*keys, gang.created_at, gang.namespace, gang.name, gang.id)

    def in_order(self, gangs: Sequence[Gang]) -> list[Gang]:
        """Sort gangs, given in the order of `session.gangs`, into the order of service. Fast for many gangs: one array of keys per plugin."""
        columns = [[plugin.gang_key(gang) for gang in gangs] for plugin in self._all(GangOrder)]
        if any(not issubclass(kind, bool | int | float) for column in columns for kind in set(map(type, column))):
            return sorted(gangs, key=self.gang_key)
        arrays = [np.arange(len(gangs)), *(np.asarray(column) for column in reversed(columns))]
        return [gangs[i] for i in np.lexsort(arrays).tolist()]

    def sub_gang_key(self, sub_gang: SubGang) -> Key:
        return (*(plugin.sub_gang_key(sub_gang) for plugin in self._all(SubGangOrder)), sub_gang.name)

    def member_key(self, member: Member) -> Key:
        keys = (plugin.member_key(member) for plugin in self._all(MemberOrder))
        return (*keys, -member.priority, member.created_at, member.rank, member.uid)

    def estimator(self, table: RunningTable, slots: Ints, members: Sequence[Member]) -> VictimLoss | None:
        """The first plugin that estimates the work that victims lose while these pods are evictable, as in `VictimLoss.estimates`; None if no plugin does."""
        return next((plugin for plugin in self._all(VictimLoss) if plugin.estimates(table, slots, members)), None)

    def members_in_order(self, members: Iterable[Member]) -> list[Member]:
        """Members sorted by `member_key`, fast for many: sorts by the last part of the key first, and skips parts that are equal for all members."""
        ordered = list(members)
        if ordered and ordered[0].gang.interchangeable:
            return ordered  # sorted when the gang was built
        ordered.sort(key=_by_rank)
        if len(ordered) == 1:
            return ordered
        parts: list[Callable[[Member], Key]] = [
            *(plugin.member_key for plugin in self._all(MemberOrder)),
            lambda member: -member.priority,
            attrgetter("created_at"),
        ]
        for part in reversed(parts):
            keys = list(map(part, ordered))
            if keys and keys.count(keys[0]) < len(keys):
                ordered = [ordered[i] for i in sorted(range(len(keys)), key=keys.__getitem__)]
        return ordered

    def relatives(self, preemptor: QueueInfo) -> Sequence[Collection[QueueName]]:
        """Collections of queues in the order in which their members are evicted; all other queues come last. Inside a collection, and without a plugin for
        this hook, the queue that would be served last comes first."""
        return next((plugin.relatives(preemptor) for plugin in self._all(VictimQueueOrder)), ())

    def victims_first(self, members: Iterable[Member], *, preemptor: Gang) -> list[Member]:
        """Members in the order of eviction: offline work first, then members of the nearest queues, then in the reverse order of service."""
        offline, members = self._divided(list(members))
        if offline:
            return [*self._victims_first(offline, preemptor), *self._victims_first(members, preemptor)]
        return self._victims_first(members, preemptor)

    def _victims_first(self, members: Sequence[Member], preemptor: Gang) -> list[Member]:
        home = self.queues.get(preemptor.queue)

        by_queue: dict[QueueName, list[Member]] = defaultdict(list)
        for member in members:
            by_queue[member.gang.queue].append(member)
        names = [name for name in by_queue if name in self.queues]
        near = self.relatives(home) if home is not None else ()
        nearness = {name: place - len(near) for place, names in enumerate(near) for name in names}
        names.sort(key=lambda name: self.queue_key(self.queues[name]), reverse=True)
        names.sort(key=lambda name: nearness.get(name, 0))
        names += [name for name in by_queue if name not in self.queues]
        out: list[Member] = []
        for name in names:
            by_gang: dict[Gang, list[Member]] = defaultdict(list)
            for member in by_queue[name]:
                by_gang[member.gang].append(member)
            for gang in sorted(by_gang, key=self.gang_key, reverse=True):
                out.extend(sorted(by_gang[gang], key=self.member_key, reverse=True))
        return out

    # Gates.

    def invalid(self, gang: Gang) -> str:
        """Why the gang cannot be scheduled in its present state, or ""."""
        if gang.problem or gang.queue in self.refused:
            return gang.problem or self.refused[gang.queue]
        return next((why for plugin in self._all(Validity) if (why := plugin.valid(gang))), "")

    def refuse(self, queue: QueueInfo, fault: InvalidRequest) -> None:
        """Refuse new placements in a queue whose settings a plugin cannot parse, until they are corrected. Its running pods are unaffected."""
        self.refused.setdefault(queue.name, f"{Label.QUEUE_INVALID}: {fault}")

    def enqueueable(self, gang: Gang) -> bool:
        return _passed([plugin.enqueueable(gang) for plugin in tier] for tier in self._of(Enqueueable))

    def reject_reason(self, gang: Gang) -> str:
        """The first plugin that rejects a gang that is not `enqueueable`, and its reason."""
        for plugin in self._all(Enqueueable):
            if plugin.enqueueable(gang) is Vote.REJECT:
                reason = plugin.reject_reason(gang)
                return f"{plugin.name}: {reason}" if reason else plugin.name
        return ""

    def placeable(self, gang: Gang) -> bool:
        """Whether empty nodes would have room for the pods that the gang still needs. True if no pod waits, since the requests are unknown then."""
        waiting = Counter(member.task for member in gang.of(Status.PENDING))
        need = max(gang.min_member - gang.holding, 1)
        return not waiting or sum(min(count, self._room_when_empty(task)) for task, count in waiting.items()) >= min(
            need, waiting.total()
        )

    def _room_when_empty(self, task: Task) -> int:
        """The number of such pods for which empty nodes have room under the policy; cached until nodes change."""
        known, version = self.cluster.rooms_when_empty, self.columns.described.end
        found = known.get(task)
        if found is None or found[0] != version:
            rows, room = slice(0, self.columns.size), capacity_when_empty(self.columns, task)
            for plugin in self._masking:
                for _, fails in plugin.shape_failures(self.columns, rows, task) if isinstance(plugin, ShapeMask) else ():
                    room = np.where(fails, 0, room)
            if len(known) > _ROOMS:
                known.clear()
            found = known[task] = version, int(room.sum())
        return found[1]

    def enqueue(self, gang: Gang) -> None:
        gang.phase = GroupPhase.INQUEUE
        for plugin in self._all(Enqueueable):
            plugin.enqueued(gang)

    def overused(self, queue: QueueInfo) -> bool:
        for plugin in self._all(Overused):  # noqa: SIM110  called each turn: a generator costs as much as the check
            if plugin.overused(queue):
                return True
        return False

    def allocatable(self, queue: QueueInfo, member: Member) -> bool:
        """Whether this member fits into the queue beyond its current use."""
        if self._lends and not self.guarantees.room(member, 1):
            return False
        return all(plugin.room(queue, member, 1) > 0 for plugin in self._all(Allocatable))

    def room(self, queue: QueueInfo, member: Member, most: int) -> int:
        """How many members equal to this one, at most `most`, fit into the queue beyond its current use."""
        for plugin in self._all(Allocatable):
            if most > 0:
                most = plugin.room(queue, member, most)
        return self.guarantees.room(member, most) if self._lends else most

    def withheld_reason(self, members: Sequence[Member]) -> str:
        """Why these members of one gang do not all fit into their queue now, as label and text; "" = for some pool, no plugin withholds resources."""
        choices = self.pools.choices(members[0]) if self.pools else ()
        whys = [self.pools_withheld(members, pool) for pool in choices]
        if choices:
            return "" if not all(whys) else whys[0]
        queue = self.queues[members[0].gang.queue]
        withheld = (plugin.withheld_reason(queue, members) for plugin in self._all(Allocatable))
        over = (
            f"{Label.QUEUE_SHARE}: queue {queue.name} has all that the policy's plugin {plugin.name} gives it now"
            for plugin in self._all(Overused)
            if plugin.overused(queue) and not members[0].best_effort and not members[0].task.offline
        )
        kept = (self.guarantees.withheld_reason(members),) if self._lends else ()
        return next((why for why in (*withheld, *over, *kept) if why), "")

    def pools_withheld(self, members: Sequence[Member], pool: str) -> str:
        """As `withheld_reason`, for one pool."""
        with self.pools.tried(members, pool):
            return self.withheld_reason(members)

    def rightful(self, gang: Gang, statement: Statement) -> bool:
        """Whether the gang may evict all victims of the statement for its nominated placements."""
        plugins = self._all(ReclaimRight)
        if not plugins:
            return True
        victims = [member for member in statement.evicted() if not member.task.offline]
        if self.pools:
            victims = self.pools.judged_by_shares(gang.queue, victims)
        return all(plugin.rightful(gang, victims) for plugin in plugins)

    def preemptive(self, queue: QueueInfo, member: Member) -> bool:
        """Whether a member may reclaim from other queues: resources that its queue has lent, or by agreement of all plugins. One admissible pool suffices."""
        choices = self.pools.choices(member) if self.pools else ()
        for pool in choices:
            with self.pools.tried((member,), pool):
                if self.preemptive(queue, member):
                    return True
        if choices:
            return False
        if member.pool and self.pools.may_take_back(queue.name, member.pool):
            return True
        return all(plugin.preemptive(queue, member) for plugin in self._all(Preemptive))

    def entitled(self, queue: QueueInfo, member: Member) -> bool:
        """Whether a plugin defines deserved amounts of queues and the queue may still reclaim up to its own for this member."""
        return bool(self._all(Preemptive)) and self.preemptive(queue, member)

    # States of gangs.

    def ready(self, gang: Gang) -> bool:
        return all(plugin.ready(gang) for plugin in self._all(Readiness))

    def sub_gang_ready(self, sub_gang: SubGang) -> bool:
        return all(plugin.sub_gang_ready(sub_gang) for plugin in self._all(SubGangReadiness))

    def pipelined(self, gang: Gang) -> bool:
        return _passed([plugin.pipelined(gang) for plugin in tier] for tier in self._of(Pipelined))

    def sub_gang_pipelined(self, sub_gang: SubGang) -> bool:
        return _passed([plugin.sub_gang_pipelined(sub_gang) for plugin in tier] for tier in self._of(SubGangPipelined))

    def starving(self, gang: Gang) -> bool:
        for tier in self._of(Starving):
            if tier:
                return all(plugin.starving(gang) for plugin in tier)
        return False

    # Nodes.

    def masks(self, member: Member, columns: Columns, *, but: Plugin | None = None) -> Iterator[tuple[str, Bools]]:
        """Label and mask `[N]` of nodes that the member may not use, from all plugins except `but`."""
        rows = slice(0, columns.size)
        for plugin in self._masking:
            if plugin is but:
                continue
            if isinstance(plugin, ShapeMask):
                yield from plugin.shape_failures(columns, rows, self.task(member))
            if isinstance(plugin, ShapeRoom) and plugin.limits(member.task):
                yield plugin.label, plugin.shape_room(columns, rows, member.task) <= 0
            if isinstance(plugin, PodMask):
                yield from plugin.failures(member, columns)

    def room_on(self, task: Task, columns: Columns) -> Ints | None:
        """`[N]`: how many further pods of this shape the plugins allow beyond the bookings; None = no opinion on this shape."""
        rows, least = slice(0, columns.size), None
        for plugin in self._shape_rooms:
            if plugin.limits(task):
                room = plugin.shape_room(columns, rows, task)
                least = room if least is None else np.minimum(least, room)
        return least

    def room_explanation(self, label: str, member: Member, columns: Columns, rows: Ints) -> str:
        """Explanation of a plugin for the first of these rows that has one; all rows are full by this label. "" = no explanation."""
        keepers = [plugin for plugin in self._shape_rooms if plugin.label == label and plugin.limits(member.task)]
        explanations = (
            keeper.room_explanation(columns, row, member.task)
            for row in rows[:_MAX_EXPLAINED_NODES].tolist()
            for keeper in keepers
        )
        return next(filter(None, explanations), "")

    def reserve(self, reservations: Sequence[Reservation], passes: Callable[[Member], int]) -> None:
        """Set the reservations in force, which the columns already show. `passes`: bits of the reservations that a member may use."""
        self.reservations, self._passes = reservations, passes

    def task(self, member: Member) -> Task:
        """The member's requests with the reservations that it may use, as masks by shape and views expect them."""
        return member.task if self._passes is None else self.passing(member, member.task)

    def passing(self, member: Member, task: Task) -> Task:
        """As `task`, with another task in place of the member's own."""
        bits = self._passes(member) if self._passes is not None else 0
        return passing(task, bits) if bits else task

    def by_shape(self, member: Member) -> bool:
        """Whether masks and scores of the member depend on its shape and the nodes' bookings only, so that `views` choose its node."""
        if self.views is None:
            return False
        if not member.gang.interchangeable:
            return not any(plugin.concerns(member) for plugin in self._per_pod)
        key = id(member.task), member.gang.min_member > 1  # all else is equal for such members
        found = self._by_shape.get(key)
        if found is None:
            found = self._by_shape[key] = not any(plugin.concerns(member) for plugin in self._per_pod)
        return found

    def settled(self, member: Member) -> bool:
        """Whether the member's masks are independent of placements and evictions."""
        return (
            not member.task.ports
            and not any(plugin.limits(member.task) for plugin in self._shape_rooms)
            and all(plugin.settled(member) for plugin in self._pod_masks)
        )

    def scores(self, member: Member, columns: Columns, candidates: Bools) -> Iterator[tuple[Plugin, Floats]]:
        """Scores `[N]` of the plugins that have an opinion on the member; a plugin may yield several. Valid at the candidates `[N]` only."""
        rows = slice(0, columns.size)
        for shape_scorer in self._all(ShapeScore):
            if (score := shape_scorer.shape_score(columns, rows, member.task)) is not None:
                yield shape_scorer, score
        for pod_scorer in self._all(PodScore):
            if (score := pod_scorer.score(member, columns)) is not None:
                yield pod_scorer, score
        for relative in self._all(CandidateScore):
            if (score := relative.normalised(member, columns, candidates)) is not None:
                yield relative, score

    def scorers(self) -> list[Plugin]:
        """Plugins that score nodes, in the policy's order."""
        return self._with(ShapeScore, PodScore, CandidateScore)

    @cached_property
    def equal_nodes(self) -> Sequence[EqualNodeOrder]:
        """The plugins that order nodes with equal scores."""
        return self._all(EqualNodeOrder)

    def best_node(self, member: Member, scores: Floats) -> int | None:
        for plugin in self._all(BestNode):
            if (row := plugin.best_node(member, scores)) is not None:
                return int(row)
        return None

    def orders_cards_of(self, task: Task) -> bool:
        """Whether a plugin may order a node's cards for a pod of this shape."""
        return any(plugin.orders_cards_of(task) for plugin in self._all(CardOrder))

    def card_keys(self, task: Task, columns: Columns, rows: Ints) -> Floats | None:
        """Keys `[n, D]` of each row's cards, lowest first; None = no plugin has an opinion."""
        for plugin in self._all(CardOrder):
            if (keys := plugin.card_keys(columns, rows, task)) is not None:
                return keys
        return None

    # Victims.

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return self._may_leave(Preemptable, lambda plugin, left: plugin.preemptable(preemptor, left), candidates)

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        offline, others = self._divided(candidates)
        if not offline:
            return self._reclaimable(preemptor, candidates)
        return [*self.revocable(preemptor, offline), *(self._reclaimable(preemptor, others) if others else ())]

    def revocable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """The offline members that may be evicted: all that no guard of offline work protects. A gang is evicted whole or keeps its minimum."""
        return self._guarded(Reclaimable, lambda plugin, left: plugin.reclaimable(preemptor, left), candidates)

    @cached_property
    def offline_runs(self) -> bool:
        """Whether any offline work runs."""
        return any(kind.task.offline for kind, _ in self.running.by_kind()) or any(
            gang.offline and gang.holding for gang in self.fresh
        )

    def _divided(self, candidates: Sequence[Member]) -> tuple[Sequence[Member], Sequence[Member]]:
        """Split members into offline work and all others."""
        if not self.offline_runs:
            return (), candidates
        offline = [member for member in candidates if member.task.offline]
        return offline, [member for member in candidates if not member.task.offline]

    def _guarded(self, hook: type[H], ask: Choice[H], offline: Sequence[Member]) -> list[Member]:
        left = list(offline)
        for plugin in self._all(hook) if left else ():
            if plugin.guards_offline and left and (answer := ask(plugin, left)) is not None:
                left = answer
        return left

    def _reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        owner, only = preemptor.gang.queue, self.pools.only(preemptor) if self.pools else None
        lent = self.pools.to_be_returned(owner, candidates, only) if self.pools and only else []
        if not lent:
            return self._victims(Reclaimable, lambda plugin, left: plugin.reclaimable(preemptor, left), candidates)
        returned = lent
        for plugin in self._all(Reclaimable):
            if plugin.guards_owners and returned:
                returned = plugin.reclaimable(preemptor, returned) or []
            elif plugin.guards_gangs:
                whole = [member for member in returned if may_go_whole(member.gang, self.now)]
                kept = {*map(id, whole)} - {*map(id, plugin.reclaimable(preemptor, whole) or [])}
                returned = [member for member in returned if id(member) not in kept]
        back = set(map(id, lent))
        others = [member for member in candidates if id(member) not in back]
        return [
            *returned,
            *self._victims(Reclaimable, lambda plugin, left: plugin.reclaimable(preemptor, left), others),
        ]

    def giving(self, preemptor: Member) -> Collection[QueueName] | None:
        """The queues from which `reclaimable` may choose victims; None: unknown. They are the answer of the first tier that chooses victims, plus the queues
        that borrow the preemptor's nodes."""
        lent = self.pools.borrowers(only) if self.pools and (only := self.pools.only(preemptor)) else frozenset[QueueName]()
        lent = lent if lent and self.pools.owns(preemptor.gang.queue, only or "") else frozenset()
        for tier in self._of(Reclaimable):
            if choosing := [plugin for plugin in tier if not plugin.guards]:
                known = [names for plugin in choosing if (names := plugin.giving(preemptor)) is not None]
                return {*min(known, key=len), *lent} if lent and known else min(known, key=len) if known else None
        return None

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member]:
        return self._may_leave(Evictable, lambda plugin, left: plugin.evictable(preemptor, left, reclaim=reclaim), candidates)

    def movable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """The candidates that no guard protects from a move. A move gives each of them another placement, so it breaks no gang."""
        left = [
            member for member in candidates if member.movable and not member.task.offline
        ]  # offline work is evicted, not moved
        for plugin in self._all(Preemptable):
            if left and plugin.guards and (answer := plugin.movable(preemptor, left)) is not None:
                left = answer
        return left

    def _may_leave(self, hook: type[H], ask: Choice[H], candidates: Sequence[Member]) -> list[Member]:
        """Offline work that no guard protects, and the other members that the plugins choose."""
        offline, others = self._divided(candidates)
        if not offline:
            return self._victims(hook, ask, candidates)
        return [*self._guarded(hook, ask, offline), *(self._victims(hook, ask, others) if others else ())]

    def _victims(self, hook: type[H], ask: Choice[H], candidates: Sequence[Member]) -> list[Member]:
        left, answered = list(candidates), False
        for tier in self._of(hook):
            chosen = False
            for plugin in tier:
                if not plugin.guards and (answer := ask(plugin, left)) is not None:
                    left, chosen = answer, True
            if chosen:
                answered = True
                break
        for plugin in self._all(hook):
            if plugin.guards and left and (answer := ask(plugin, left)) is not None:
                left, answered = answer, True
        return left if answered else []

    def shuffled(self, members: Sequence[Member]) -> list[Member]:
        """Members that a plugin wants to move and that no plugin protects."""
        for tier in self._of(ShuffleVictims):
            union = {id(victim): victim for plugin in tier for victim in plugin.victims(members)}
            if union:
                chosen = [member for member in members if id(member) in union]
                for guard in self._all(ShuffleGuard):
                    chosen = guard.may_leave(chosen)
                return chosen
        return []

    # Domains.

    @property
    def topological(self) -> bool:
        """Whether a plugin restricts gangs to domains."""
        return bool(self._all(DomainGradients))

    def gradients(self, sub_gang: SubGang | None, gang: Gang, *, evict: bool = False) -> list[list[str]]:
        for plugin in self._all(DomainGradients):
            if (found := plugin.gradients(sub_gang, gang, evict=evict)) is not None:
                return list(found)
        return []

    def domain_scores(self, sub_gang: SubGang | None, gang: Gang, domains: Sequence[str]) -> dict[str, float]:
        total = dict.fromkeys(domains, 0.0)
        for plugin in self._all(DomainScore):
            for name, score in (plugin.domain_scores(sub_gang, gang, domains) or {}).items():
                total[name] += score
        return total

    def _of(self, hook: type[H]) -> list[list[H]]:
        """The plugins with this hook enabled, by tier."""
        found = self._hooks.get(hook)
        if found is None:
            places = self._places.get(hook)
            if places is None:
                places = self._places[hook] = [
                    [
                        place
                        for place, (plugin, conf) in enumerate(zip(tier, confs, strict=True))
                        if hook not in conf.off and (hook is Plugin or hook in hooks_of(type(plugin)))
                    ]
                    for tier, confs in zip(self._tiers, self.conf.tiers, strict=True)
                ]
            found = self._hooks[hook] = [
                [tier[place] for place in having] if having else _NO_PLUGINS
                for tier, having in zip(self._tiers, places, strict=True)
            ]
        return found

    def _all(self, hook: type[H]) -> list[H]:
        """As `_of`, for all tiers in one list."""
        found = self._flat.get(hook)
        if found is None:
            found = self._flat[hook] = [plugin for tier in self._of(hook) for plugin in tier]
        return found

    def _with(self, *hooks: Hook) -> list[Plugin]:
        """Plugins that have one of these hooks enabled, in the policy's order."""
        having = {id(plugin) for hook in hooks for plugin in self._all(hook)}
        return [plugin for tier in self._tiers for plugin in tier if id(plugin) in having]


def _places_of(tiers: Sequence[Sequence[Plugin]], conf: "Conf") -> dict[Hook, list[list[int]]]:
    """Indices of the plugins with each hook enabled, by tier; shared by all sessions with the same plugins."""
    key = tuple(
        tuple((type(plugin), one.off) for plugin, one in zip(tier, confs, strict=True))
        for tier, confs in zip(tiers, conf.tiers, strict=True)
    )
    found = _PLACES.get(key)
    if found is None:
        if len(_PLACES) >= _MOST_PLACES:
            _PLACES.clear()
        found = _PLACES[key] = {}
    return found


_PLACES: dict[object, dict[Hook, list[list[int]]]] = {}
_MOST_PLACES = 256
_NO_PLUGINS: list[Any] = []


def _passed(tiers: Iterable[list[Vote]]) -> bool:
    """The result of votes by tier; True if every plugin abstains."""
    for votes in tiers:
        if Vote.REJECT in votes:
            return False
        if Vote.PERMIT in votes:
            return True
    return True


def _intern(columns: Columns, cluster: Cluster) -> None:
    """Give a column to every resource that a queue names, so that a limit on a resource that no node has counts as a limit on an amount of 0."""
    for name in cluster.roster.named:
        columns.column(name)
        columns.column(by_pool(name)[0])
