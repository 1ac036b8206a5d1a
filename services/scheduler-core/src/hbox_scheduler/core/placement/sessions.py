"""Sessions over the service's own columns, with the ledger's claims as their members.

What a session did to the columns is taken back when it closes, but the places that it gives: these are the scheduler's to book and to propose.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType

from hbox_common.model import JobId, Neighbour, PodUid, QueueName, QueueTree

from ..cluster import Bookings, Columns
from ..cluster.entities import Gang, Member, Status
from ..cluster.facts import ClusterFacts
from ..cluster.running import Kind
from ..cluster.snapshot import Cluster
from ..cluster.task import Task
from ..cluster.tasks import Tasks
from ..framework import GroupPhase, Session
from ..framework.conf import Conf
from ..framework.hooks import Allocatable, Overused
from ..framework.statement import depart
from ..framework.views import Views
from ..framework.webhooks import Ask
from ..plugins.usageweight import usage_weight
from ..policy.policy import Policy
from ..policy.registry import plugins_of
from ..policy.uniform import in_the_way
from ..queueing.groups import Groups
from ..queueing.jobs import Entry, WaitKey
from ..topology.known import KnownTree
from .gangs import WaitingGangs, join
from .queueinfos import QueueInfos
from .running import RunningJobs, vector_of

_NONE_COUNTED = (-1, (0, 0), 0)


class Sessions:
    """Opens them. `neighbours`: what is known of pods that have to do with others."""

    def __init__(
        self,
        *,
        columns: Columns,
        bookings: Bookings,
        tasks: Tasks,
        neighbours: Mapping[PodUid, Neighbour],
        facts: ClusterFacts,
        known_tree: KnownTree,
        groups: Groups,
        views: Views,
        demand: Mapping[WaitKey, int],
        ask: Ask,
    ) -> None:
        """`views`: of the policy that is followed; `demand`: pods that wait, as they are when asked; `ask`: how the policy's plugins ask others."""
        self._columns = columns
        self._bookings = bookings
        self._facts = facts
        self._known_tree = known_tree
        self._groups = groups
        self._views = views
        self._demand = demand
        self._ask = ask
        self._running = RunningJobs(columns, bookings, tasks, neighbours, groups)
        self._waiting = WaitingGangs(columns, groups, neighbours)
        self._kinds: dict[WaitKey, Kind] = {}
        self._kinds_size = 0
        self._queue_infos = QueueInfos()
        self._rooms_when_empty: dict[Task, tuple[int, int]] = {}
        #: versions of the tree and of the models' codes, and number of shares, that have columns
        self._counted = _NONE_COUNTED

    def follow(self, conf: Conf, policy: Policy) -> None:
        """The policy from the next session on."""
        self._policy = policy
        self._rooms_when_empty = {}
        self.by_shape = not in_the_way(conf)  #: whether equal pods are equal to the policy
        plugins = [plugin for tier in plugins_of(conf) for plugin in tier]
        #: whether the limits of queues depend only on their rules and their holdings
        self.shares_by_use = not any(
            plugin.demand_dependent and isinstance(plugin, Overused | Allocatable) for plugin in plugins
        )
        self._by_demand = not self.shares_by_use or usage_weight(conf) > 0  #: whether what waits elsewhere counts in a session
        self._waiting.reads_images = any(plugin.reads_images for plugin in plugins)

    def resolve_again(self) -> None:
        """Drop what was computed by column, after `Columns` assigned resources to other columns."""
        self._running.resolve_again()
        self._waiting.drop_vectors()
        self._kinds.clear()
        self._counted = _NONE_COUNTED

    def prepare(self, entry: Entry) -> None:
        """Make the job's gang now, not when its turn comes."""
        entry.update_pending(self._bookings)
        if entry.pending:
            self._waiting.of(entry)

    def mark_changed(self, pods: Iterable[PodUid]) -> None:
        """These pods changed otherwise than by their bookings."""
        self._running.mark_changed(pods)

    def advance(self, limit: int) -> bool:
        """Count up to `limit` changed pods of those that run. Returns whether some are left for the next call, or for the next session."""
        return self._running.advance(limit)

    def mix(self) -> Iterator[tuple[Task, int]]:
        """What pods ask for that run, and that wait, and how many do."""
        for kind, count in self._running.current().by_kind():
            yield kind.task, count
        for (_, task), count in self._demand.items():
            yield task, count

    @contextmanager
    def open(
        self,
        conf: Conf,
        entries: Sequence[Entry],
        queues: QueueTree,
        leaving: Iterable[PodUid],
        *,
        whole: bool = False,
        with_groups: bool = False,
        reserving: bool = False,
        trial: bool = False,
        represented: Mapping[JobId, Sequence[float]] = MappingProxyType({}),
        outside: Collection[QueueName] = (),
        most: int | None = None,
        most_failures: int | None = None,
        failure_cost: Callable[[Entry], int] = lambda _: 1,
    ) -> Iterator[tuple[Session, dict[Gang, Entry]]]:
        """A session with these jobs as preemptors. What it does to the columns is taken back in the end. `whole`: members of theirs that have places are as
        those of others; else they stay where they are. `with_groups`: with the PodGroups that have no pods here, admitted or not.
        `reserving`: reservations are made anew, for jobs of it. `trial`: the places that it gives are taken back too."""
        self._keep_counted(queues)
        running = self._running.current()
        joining = [entry.job.id for entry in entries if entry.job.bound or entry.held]
        before = {gang.id: gang for gang in self._running.lend(joining)}
        leaving_uids = set(leaving)
        others = self._running.lend_with(leaving_uids)
        gone = [
            member
            for gang in (*before.values(), *others)
            for member in gang.members
            if member.uid in leaving_uids and _runs(member)
        ]
        preemptors: dict[Gang, Entry] = {}
        for entry in entries:
            gang = self._waiting.of(entry)
            gang.represented = represented.get(entry.job.id, ())
            if (own := before.get(entry.job.id)) is not None:
                join(gang, own, entry, settled=not whole)
                if gang.phase is GroupPhase.PENDING:
                    gang.phase = GroupPhase.INQUEUE  # a gang that runs was admitted
            preemptors[gang] = entry
        gangs = [*others, *preemptors]
        if with_groups:
            there = {*running.jobs, *(gang.id for gang in others), *(entry.job.id for entry in entries)}
            gangs += self._groups.without_pods(there)
        facts = self._facts
        known = self._queue_infos.of(queues, {gang.queue for gang in gangs}, running, facts.recent_use)
        with self._gone(gone, preempting=whole), self._policy.trial() if trial else nullcontext():
            session = Session(
                columns=self._columns,
                cluster=Cluster(
                    gangs,
                    list(known.queues.values()),
                    facts=facts,
                    foreign=self._bookings.foreign(),
                    rooms_when_empty=self._rooms_when_empty,
                    card_books=self._bookings.card_quotas,
                    lending=self._bookings.lending,
                    limited_by_guarantees=self._bookings.limited_by_guarantees,
                    running=running,
                    waiting=self._waiting_kinds() if self._by_demand or known.weighted else (),
                    outside=outside,
                    most=most,
                    most_failures=most_failures,
                    failure_cost=lambda gang: failure_cost(preemptors[gang]) if gang in preemptors else 1,
                    reserves=reserving,
                    kept=known,
                ),
                conf=conf,
                tiers=plugins_of(conf),
                now=facts.now,
                ask=self._ask,
                learned=self._policy.learned,
                views=self._views if self.by_shape else None,
                known_tree=self._known_tree,
            )
            given: Collection[Member] = ()
            try:
                yield session, preemptors
                given = () if trial else session.outcome.bindings
            finally:
                self._undo(session, preemptors, given)
                session.close()

    def _keep_counted(self, queues: QueueTree) -> None:
        """Give a column to each amount, model and share that the session counts, before amounts of its gangs are computed: these have a number for each."""
        columns = self._columns
        now = queues.version, columns.model_codes, len(columns.shares)
        if now == self._counted:
            return
        self._counted = now
        for amounts in map(queues.amounts, queues):
            for name in (*amounts.capability, *amounts.deserved, *amounts.guarantee):
                columns.column(name)
        for name in filter(None, columns.model_resources) if queues.by_model else ():
            columns.column(name)
        for name in columns.shares:
            columns.column(name)

    @contextmanager
    def _gone(self, members: Sequence[Member], *, preempting: bool) -> Iterator[None]:
        """Their places count as left; `preempting`: also where others are guaranteed what they hold."""
        for member in members:
            member.status = Status.RELEASING
            depart(self._columns, member)
        leaving = self._bookings.held(member.uid for member in members) if preempting else ()
        try:
            with self._bookings.lending.assuming((), leaving=leaving):
                yield
        finally:
            for member in members:
                depart(self._columns, member, -1)

    def _undo(self, session: Session, gangs: Mapping[Gang, Entry], given: Collection[Member]) -> None:
        """Take what the session did off the columns again, but what is given."""
        for eviction in session.outcome.evictions:
            member = eviction.member
            if member.status is Status.PIPELINED:  # to another place
                depart(self._columns, member)
            self._columns.depart(
                eviction.row, member.task.requests, eviction.slices, -1, aligned=member.task.aligned, pod=member.id
            )
            self._running.mark_changed((eviction.member.uid,))
        kept = {*given, *(eviction.member for eviction in session.outcome.evictions)}
        for gang, entry in gangs.items():
            if gang.untouched:
                continue
            entry.gang = None
            if gang.prepared and gang.holding == len(gang.members) and gang.members[0] in kept:
                continue
            for member in gang.members:
                if member in kept:
                    continue
                if member.status is Status.PIPELINED:
                    depart(self._columns, member)
                elif member.status is Status.ALLOCATED:
                    self._columns.undo(member.row, member.task.requests, member.slices, aligned=member.task.aligned)

    def _waiting_kinds(self) -> list[tuple[Kind, int]]:
        """All that waits, by queue and shape."""
        known, size = self._kinds, len(self._columns.allocatable)
        if self._kinds_size != size or len(known) > 4 * len(self._demand) + 1024:
            known.clear()
            self._kinds_size = size
        found = []
        for key, count in self._demand.items():
            kind = known.get(key)
            if kind is None:
                kind = known[key] = Kind(*key, vector_of(key[1], self._columns), True, False, ())
            found.append((kind, count))
        return found


def _runs(member: Member) -> bool:
    """Whether the ledger has claimed the member's placement. A proposed placement cannot be evicted."""
    return member.status is Status.RUNNING
