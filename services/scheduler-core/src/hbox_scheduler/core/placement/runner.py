"""What the service asks of sessions: places for jobs, victims for those that may have more, and admission of PodGroups.

The policy's actions run on a session over the service's own columns, with the ledger's claims as its members: the same code, and so the same outcomes, as
`hbox simulate cycle`. Places that are given stay on the columns, for the scheduler to book and propose; all else that the session did is undone.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

import numpy as np

from hbox_common.model import (
    POOLED,
    CardSlice,
    Claim,
    JobId,
    Neighbour,
    PlanId,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    QueuePhase,
    QueueTree,
    Resources,
    TreeAmounts,
    amounts_in,
    by_pool,
    in_pool,
    named_models,
)
from hbox_common.model.annotations import OVER_QUOTA_WEIGHT
from hbox_common.model.consolidation import Mode, MoveTerms
from hbox_common.model.resources import PODS, add
from hbox_common.model.rights import CARDS_BY_NAME, AtParting, may_preempt

from ..actions import revoke
from ..actions.consolidate import ACTION as CONSOLIDATE
from ..actions.consolidate import rule_of
from ..actions.registry import run_action
from ..cluster import Booking, Bookings, Columns
from ..cluster.entities import Gang, Member, QueueInfo, Status
from ..cluster.moves import FoundMoves
from ..cluster.reservations import Reservation
from ..cluster.running import Kind
from ..cluster.snapshot import Cluster
from ..cluster.task import Task, Tasks
from ..explain.cards import CardReasons
from ..explain.reasons import Reasons
from ..framework import GroupPhase, Session
from ..framework.conf import Conf
from ..framework.external import Ask, nobody
from ..framework.hooks import DomainGradients
from ..framework.views import Views
from ..framework.waiting import BACKFILL, KnownReasons, WaitReasons
from ..plugins.arguments import Given
from ..plugins.fairshare import usage_weight
from ..plugins.networktopology import NetworkTopology
from ..plugins.nodeorder import NodeOrder
from ..plugins.rescheduling import Rescheduling
from ..plugins.reservation import ReservationPlugin
from ..plugins.walltimes import bound_of, walltime_in
from ..policy.batches import in_the_way
from ..policy.judged import as_the_ledger_judges
from ..policy.policy import Policy
from ..policy.registry import plugins_of
from ..queueing.groups import Groups
from ..queueing.jobs import Entry, Waiting
from ..quotas.models import concerned
from ..quotas.namespaces import NamespaceQuota
from .facts import ClusterFacts
from .gangs import WaitingGangs, join, waiting_id
from .ranks import Walk, arrange
from .running import RunningJobs, vector_of

#: Actions of a policy that give free places.
PLACE = ("allocate", BACKFILL)

#: What is said of moves that are not made is said anew after so long, though they are the same ones, seconds.
REWORD_S = 60.0

#: The action that admits PodGroups.
ENQUEUE = "enqueue"

#: The action that has pods leave for nobody in particular.
SHUFFLE = "shuffle"


#: Plugins by which what queues may have depends on what others ask for.
_SHARES_BY_DEMAND = frozenset({"proportion"})

#: Plugins that judge whom to evict by the time, or by what they are told from outside.
_TIMED = frozenset({"minruntime", "tdm", "cdp", "sla", "extender", "usage", "rescheduling", "proportion", "drf"})


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """One pod's place among what its job is given."""

    task: Task
    pod: PodRef
    row: int
    slices: tuple[CardSlice, ...]
    models: Resources = field(default_factory=dict)  #: cards by model
    pool: str = ""  #: in which it counts

    @property
    def uid(self) -> PodUid:
        return self.pod.uid

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def resource_version(self) -> str:
        return self.pod.resource_version

    @property
    def rank(self) -> int:
        return self.pod.rank


@dataclass(frozen=True, slots=True)
class Move:
    """Another place for the successor of a pod that leaves."""

    leaves: Booking
    task: Task
    row: int
    slices: tuple[CardSlice, ...]


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """What one job gets, whose bookings have to go for it, and which of those are promised other places."""

    entry: Entry
    placements: tuple[PodPlacement, ...]
    victims: tuple[Booking, ...]
    moves: tuple[Move, ...] = ()
    terms: MoveTerms | None = None  #: of the moves

    def amounts(self) -> Resources:
        """What all its places take together."""
        amounts: Resources = {}
        for placed in self.placements:
            add(amounts, amounts_in(placed.pool, placed.task.requests))
            add(amounts, amounts_in(placed.pool, placed.models))
        return amounts


@dataclass(frozen=True, slots=True)
class Placed:
    """The members of a job that got places, which are on the columns. `models`: by column, the resources of card models."""

    entry: Entry
    members: Sequence[Member]
    models: Mapping[int, str]

    def amounts(self) -> Resources:
        """What all their places take together."""
        amounts: Resources = {}
        for (task, pool), count in Counter((member.task, member.pool) for member in self.members).items():
            add(amounts, amounts_in(pool, task.requests), count)
        for member in self.members:
            add(amounts, amounts_in(member.pool, {self.models[column]: cards for column, cards in member.models}))
        return amounts


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why a job gets nothing; `reasons` where it is about nodes; `lacks_room`: nothing but a change of nodes can help it."""

    entry: Entry
    message: str
    reasons: Reasons | None
    lacks_room: bool = False


@dataclass(frozen=True, slots=True)
class Untried:
    """The turn of a job did not come."""

    entry: Entry


class SessionRunner:
    """Looks for placements, over all claims. `neighbours`: what is known of pods that have to do with others."""

    def __init__(
        self,
        *,
        columns: Columns,
        bookings: Bookings,
        tasks: Tasks,
        neighbours: Mapping[PodUid, Neighbour],
        facts: ClusterFacts,
        conf: Conf,
        quota: NamespaceQuota,
        groups: Groups,
        policy: Policy,
        views: Views,
        demand: Mapping[Waiting, int],
        ask: Ask = nobody,
    ) -> None:
        """`policy`: what of `conf` goes by shape, and what it has learned; `views`: of the same policy; `demand`: pods that wait, as they are when asked."""
        self._facts = facts
        self._neighbours = neighbours
        self._groups = groups
        self._running = RunningJobs(columns, bookings, tasks, neighbours, groups)
        self._columns = columns
        self._bookings = bookings
        self._tasks = tasks
        self._ask = ask
        self._quota = quota
        self._views = views
        self._demand = demand
        self._kinds: dict[Waiting, Kind] = {}
        self._kinds_size = 0
        self._waiting = WaitingGangs(columns, groups, neighbours)
        self._reasons = KnownReasons(columns)
        self._queue_infos = _QueueInfos()
        self._walk = Walk()
        self.reworded: list[Entry] = []  #: of whom something else is said of moves since it was emptied
        self.follow(conf, policy)

    def follow(self, conf: Conf, policy: Policy) -> None:
        """The policy from the next session on."""
        self._learned = policy.learned
        self.by_shape = not in_the_way(conf)  #: whether equal pods are equal to the policy
        names = {plugin.name for plugin in conf.plugins}
        self.shares_by_use = (
            not names & _SHARES_BY_DEMAND
        )  #: whether what queues may have changes with their rules and what they have alone
        self._by_demand = not self.shares_by_use or usage_weight(conf) > 0  #: whether what waits elsewhere counts in a session
        self.timed = bool(names & _TIMED)  #: whether whom it evicts changes with time alone
        conf = as_the_ledger_judges(conf)
        self.heeds_domains = any(
            one.name == NetworkTopology.name and DomainGradients not in one.off for one in conf.plugins
        )  #: whether jobs' wishes of the fabric count
        self._placing = replace(conf, actions=tuple(action for action in conf.actions if action in PLACE))
        self._conf = replace(conf, actions=tuple(action for action in conf.actions if action in revoke.MAKE_ROOM))
        self._enqueue = replace(conf, actions=(ENQUEUE,))
        self.enqueues = ENQUEUE in conf.actions  #: whether PodGroups wait for admission
        self._rule = rule_of(Given(f"action {CONSOLIDATE}", conf.arguments.get(CONSOLIDATE, {})))
        self._moves = CONSOLIDATE in self._conf.actions and self._rule.mode is not Mode.OFF
        preview = {**conf.arguments.get(CONSOLIDATE, {}), "mode": Mode.PREVIEW.value}
        self._previewing = replace(conf, actions=(CONSOLIDATE,), arguments={**conf.arguments, CONSOLIDATE: preview})
        self.reworded.clear()
        self._facts.move_words.clear()
        self._facts.moves_seen.clear()
        self._shuffling = replace(conf, actions=(SHUFFLE,))
        self._between = replace(
            self._shuffling, tiers=tuple(tuple(one for one in tier if one.name != Rescheduling.name) for tier in conf.tiers)
        )
        slow = [one for tier in plugins_of(conf) for one in tier if isinstance(one, Rescheduling)]
        self.interval_s = slow[0].interval_s if slow else 0.0  #: after which `shuffle` may be asked with `slow` again
        self._reserving = next((one for tier in plugins_of(conf) for one in tier if isinstance(one, ReservationPlugin)), None)
        self._reserve = replace(conf, actions=())
        self._waiting.reads_images = any(
            isinstance(one, NodeOrder) and one.reads_images for tier in plugins_of(conf) for one in tier
        )
        self.shuffles = SHUFFLE in conf.actions  #: whether the policy has pods leave of its own accord

    @property
    def reserves(self) -> bool:
        """Whether large gangs may have nodes set aside for them."""
        return self._reserving is not None

    @property
    def reserves_from(self) -> int | None:
        """Gangs that start with so many pods may have nodes set aside for them; None: nobody."""
        return self._reserving.large.members if self._reserving is not None else None

    @property
    def reservations(self) -> Sequence[Reservation]:
        """In force."""
        return self._facts.reservations

    def is_large(self, entry: Entry) -> bool:
        """Whether the job's pods that wait are a large gang, to the policy. By all that have to start together, of whichever shapes."""
        if self._reserving is None or not entry.pending:
            return False
        left, needs = max(entry.need, 1), []
        if sum(len(pods) for _, pods in entry.pending) < left:
            return False
        for task, pods in entry.pending:
            needs.append((task, len(pods) if len(entry.pending) > 1 else min(left, len(pods))))
        return self._reserving.large.among(self._columns, needs)

    def due_in_s(self, entry: Entry, wall: float) -> float:
        """How long the job has still to wait before nodes are set aside for it; 0 or less: it has waited for long enough."""
        assert self._reserving is not None
        return self._reserving.after_s - (wall - entry.job.created_at)

    def make_reservations(
        self, entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid]
    ) -> list[tuple[Entry, Reservation]]:
        """Set nodes aside for these jobs, as far as the policy does so, and for no others. Returns for whom, and what."""
        for entry in entries:
            entry.update_pending(self._bookings)
        entries = [entry for entry in entries if entry.pending and not entry.problem()]
        if not entries:
            self.unreserve()
            return []
        with self._session(self._reserve, entries, queues, leaving, reserving=True) as (session, gangs):
            made = {one.gang: one for one in session.reservations}
            self._facts.reservations = tuple(session.reservations)
            return [(entry, made[gang.id]) for gang, entry in gangs.items() if gang.id in made]

    def passes(self, entry: Entry, queues: QueueTree) -> int:
        """The bits of the reservations that the job may pass now, by its first pods."""
        facts = self._facts
        if not facts.reservations or not entry.pending:
            return 0
        if entry.offline:
            return sum(one.bit for one in facts.reservations)
        job, task, spec = entry.job, entry.pending[0][0], entry.job.tasks[0]
        rules = queues.get(job.queue)
        written = walltime_in(spec.annotations, job.annotations, rules.annotations if rules is not None else {})

        def ends(sure: bool) -> float:
            return facts.now + bound_of(written, job.queue, job.namespace, facts.run_times, sure=sure)

        return sum(
            one.bit
            for one in facts.reservations
            if one.passed(
                waiting_id(job.id),
                job.queue,
                job.priority,
                ends=ends,
                entitled=lambda: _may_reclaim(task, queues, job.queue, self._columns.pools_there()),
                now=facts.now,
            )
        )

    def unreserve(self) -> None:
        """Nothing is set aside for anybody."""
        self._facts.reservations = ()
        self._columns.reserve(np.zeros(self._columns.size, dtype=np.int64))

    def learn_run_time(self, claim: Claim, wall: float) -> None:
        """The pod of this claim has ended."""
        neighbour = self._neighbours.get(claim.pod_uid)
        started = neighbour.started_at if neighbour is not None and neighbour.started_at is not None else claim.claimed_at
        queue = self._bookings.queues.get(claim.queue)
        notes = (neighbour.annotations if neighbour is not None else {}, queue.annotations if queue is not None else {})
        self._facts.run_times.ended(claim.queue, claim.namespace, wall - started, walltime_in(*notes))

    def has_plugin(self, plugin: str) -> bool:
        """Whether the policy has the plugin."""
        return any(one.name == plugin for one in self._placing.plugins)

    @property
    def idle(self) -> bool:
        """Whether nobody has to leave: the policy has no action that evicts, and no offline work runs."""
        return not self._conf.actions and not self._bookings.offline

    def may_preempt(self, entry: Entry, queues: QueueTree) -> bool:
        """Whether a session may find victims for the job: the job's queue, or one above it, has less than it deserves of what is asked for, or work of lower
        priority; or the policy moves pods together, or gives shares by weight, which sessions know; or offline work runs, and the job is none."""
        task = entry.pending[0][0] if entry.pending else None
        if task is None or entry.offline or self.idle:
            return False
        if (
            task.namespace
            and not self._quota.within_quota(task, self._quota.remaining(task.namespace), together=max(entry.need, 1))[1]
        ):
            return False  # nobody is evicted because of a quota
        if self._moves or not self.shares_by_use or self._bookings.offline:
            return True
        pools = self._columns.pools_there()
        if _may_reclaim(task, queues, entry.job.queue, pools) or (any(pools) and self._bookings.on_loan(entry.job.queue)):
            return True
        lowest = self._bookings.lowest_priority(entry.job.queue)
        return lowest is not None and may_preempt(entry.job.priority, lowest)

    def may_preempt_at_all(self, queue: QueueName, priority: int, queues: QueueTree) -> bool:
        """False where `may_preempt` is False for all jobs of the queue with this priority."""
        if self.idle:
            return False
        lowest = self._bookings.lowest_priority(queue)
        by_priority = lowest is not None and may_preempt(priority, lowest)
        return (
            self._moves
            or not self.shares_by_use
            or self._bookings.offline
            or by_priority
            or any(queues.rights(one).entitlement for one in queues.path(queue))
            or self._bookings.on_loan(queue)
        )

    def preempt(self, entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid]) -> list[JobPlacement]:
        """What the policy would take for these jobs, in its order. `leaving`: pods that go already. Columns and bookings are as before afterwards."""
        with self._session(self._conf, entries, queues, leaving, whole=True) as (session, preemptors):
            revoke.run(session)
            for action in self._conf.actions:
                run_action(action, session)
            if self._moves:
                self._note_moves(session, preemptors)
            return self._job_placements(session, preemptors)

    def _note_moves(self, session: Session, preemptors: Mapping[Gang, Entry]) -> None:
        """Remember for whom moves were found that are not made, and why. What was said of a job before stays while it is about the same moves: the hours that
        they cost change with each look."""
        words, facts = self._facts.move_words, self._facts
        for gang, entry in preemptors.items():
            found = session.outcome.moves.get(gang.id)
            if found is None or not found.refused:
                facts.moves_seen.pop(gang.id, None)
                if words.pop(gang.id, None) is not None:
                    self.reworded.append(entry)
                continue
            kind, (before, at) = _kind_of(found), facts.moves_seen.get(gang.id, (None, 0.0))
            if kind == before and facts.now - at < REWORD_S:
                continue
            facts.moves_seen[gang.id] = kind, facts.now
            if words.get(gang.id) != found.words:
                words[gang.id] = found.words
                self.reworded.append(entry)

    def forget_moves(self, job: JobId) -> None:
        """The job is gone."""
        self._facts.move_words.pop(waiting_id(job), None)
        self._facts.moves_seen.pop(waiting_id(job), None)

    def note_moved(self, plan: PlanId, pods: int) -> None:
        """So many pods move by this plan."""
        self._facts.recent_moves.note(plan, pods, self._facts.now)

    def withdraw_moved(self, plan: PlanId) -> None:
        """The plan was refused: nobody moves by it."""
        self._facts.recent_moves.withdraw(plan)

    def hold_moves(self, why: str) -> None:
        """The ledger has nobody move now, and says why; "": it may be asked again."""
        self._facts.moves_held = why

    @property
    def moves_mode(self) -> Mode:
        """What the policy does with moves that pay."""
        return self._rule.mode if self._moves else Mode.OFF

    @property
    def refuses_moves(self) -> bool:
        """Whether moves were found that are not made: time alone may change that."""
        return bool(self._facts.move_words)

    def mix(self) -> Iterator[tuple[Task, int]]:
        """What pods ask for that run, and that wait, and how many do."""
        for kind, count in self._running.current().alike():
            yield kind.task, count
        for (_, task), count in self._demand.items():
            yield task, count

    def preview_moves(
        self, entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid], wall: float
    ) -> list[tuple[Entry, FoundMoves]]:
        """For each of these jobs the moves that would make room for it, whatever the policy does with them, each as if it were the only one. Nothing is changed
        by it. `wall`: seconds since the epoch."""
        for entry in entries:
            entry.update_pending(self._bookings)
        entries = [entry for entry in entries if entry.pending and not entry.problem()]
        if not entries:
            return []
        before, self._facts.now = self._facts.now, wall
        try:
            with self._session(self._previewing, entries, queues, leaving) as (session, preemptors):
                run_action(CONSOLIDATE, session)
                found = session.outcome.moves
                return [(entry, found[gang.id]) for gang, entry in preemptors.items() if gang.id in found]
        finally:
            self._facts.now = before

    def card_reasons(self, entry: Entry, queues: QueueTree, leaving: Iterable[PodUid]) -> list[tuple[list[str], CardReasons]]:
        """Of each shape of pods of the job that cards are in the way of: their names, and what the cards of all nodes say to one of them now. Nothing is
        changed by it."""
        entry.update_pending(self._bookings)
        if not entry.pending or entry.problem():
            return []
        with self._session(self._placing, [entry], queues, leaving) as (session, gangs):
            found: dict[Task, tuple[list[str], CardReasons]] = {}
            reasons = WaitReasons(session)
            for gang in gangs:
                for member in gang.of(Status.PENDING):
                    if member.task in found:
                        found[member.task][0].append(member.name)
                    elif (told := reasons.cards(member)) is not None:
                        found[member.task] = [member.name], told
            return list(found.values())

    def prepare(self, entry: Entry) -> None:
        """Make the job's gang now, not when its turn comes."""
        entry.update_pending(self._bookings)
        if entry.pending:
            self._waiting.of(entry)

    def place(
        self,
        entries: Sequence[Entry],
        queues: QueueTree,
        leaving: Iterable[PodUid],
        represented: Mapping[JobId, Sequence[float]],
        *,
        outside: Collection[QueueName],
        most: int,
        most_failures: int | None,
    ) -> list[Placed | Unplaced | Untried]:
        """Places that are free: for each job what it gets, or why it gets nothing. `represented`: for whom it stands (`Gang.represented`); `outside`, `most`,
        `most_failures`: as in `Cluster`. What is given is on the columns."""
        with self._session(
            self._placing,
            entries,
            queues,
            leaving,
            represented=represented,
            outside=outside,
            most=most,
            most_failures=most_failures,
        ) as (
            session,
            gangs,
        ):
            for action in self._placing.actions:
                run_action(action, session)
            by_gang: dict[Gang, list[Member]] = {}
            for gang, members in groupby(session.outcome.bindings, attrgetter("gang")):
                by_gang.setdefault(gang, []).extend(members)
            self._arrange(by_gang)
            reasons = WaitReasons(session, self._reasons)
            return [_found(session, gang, entry, by_gang.get(gang), reasons) for gang, entry in gangs.items()]

    def _arrange(self, by_gang: Mapping[Gang, Sequence[Member]]) -> None:
        """Members of gangs change places with their equals, so that ranks follow the fabric."""
        for members in by_gang.values():
            if len(members) > 1 and members[0].rank >= 0:
                self._walk.follow(self._facts.hypernodes)
                arrange(members, self._columns, self._walk)

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

    def shuffle(self, entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid], *, slow: bool) -> list[Booking]:
        """Whom the policy wants elsewhere, of those who run. `entries`: jobs with pods that wait; they count as away from theirs. `slow`: also by plugins
        that judge by what is measured, which lags behind what was done."""
        conf = self._shuffling if slow else self._between
        with self._session(conf, entries, queues, leaving, whole=True) as (session, _):
            run_action(SHUFFLE, session)
            found = (self._bookings.get(eviction.member.uid) for eviction in session.outcome.evictions)
            return [booking for booking in found if booking is not None]

    def enqueue(
        self, outside: Sequence[JobId], entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid]
    ) -> dict[JobId, str]:
        """Of PodGroups that wait for admission, with pods or without: why they are rejected, or "" for those that are admitted. `entries`: jobs with pods
        that wait, theirs and others'."""
        with self._session(self._enqueue, entries, queues, leaving, with_groups=True) as (session, preemptors):
            run_action(ENQUEUE, session)
            jobs = {gang: entry.job.id for gang, entry in preemptors.items()}
            mine = {jobs.get(gang, gang.id): gang for gang in session.fresh}
            verdicts = session.outcome.verdicts
            return {
                job: verdicts.get(mine[job].id, "") if job in mine and mine[job].phase is GroupPhase.PENDING else ""
                for job in outside
            }

    def mark_changed(self, pods: Iterable[PodUid]) -> None:
        """These pods changed otherwise than by their bookings."""
        self._running.mark_changed(pods)

    @contextmanager
    def _session(
        self,
        conf: Conf,
        entries: Sequence[Entry],
        queues: QueueTree,
        leaving: Iterable[PodUid],
        *,
        whole: bool = False,
        with_groups: bool = False,
        reserving: bool = False,
        represented: Mapping[JobId, Sequence[float]] = MappingProxyType({}),
        outside: Collection[QueueName] = (),
        most: int | None = None,
        most_failures: int | None = None,
    ) -> Iterator[tuple[Session, dict[Gang, Entry]]]:
        """A session with these jobs as preemptors. What it does to the columns is taken back in the end. `whole`: members of theirs that have places are as
        those of others; else they stay where they are. `with_groups`: with the PodGroups that have no pods here, admitted or not.
        `reserving`: reservations are made anew, for jobs of it."""
        running = self._running.current()
        joining = [entry.job.id for entry in entries if entry.job.bound or entry.held]
        before = {gang.id: gang for gang in self._running.lend(joining)}
        goes = set(leaving)
        others = self._running.lend_with(goes)
        gone = [
            member for gang in (*before.values(), *others) for member in gang.members if member.uid in goes and _runs(member)
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
        named = {gang.queue for gang in gangs} | {kind.queue for kind, _ in running.alike()}
        facts = self._facts
        known = self._queue_infos.of(queues, named, facts.recent_cards)
        with self._gone(gone, preempting=whole):
            session = Session(
                columns=self._columns,
                cluster=Cluster(
                    gangs,
                    known,
                    facts.hypernodes,
                    old_domains=facts.fabrics.old,
                    degraded=facts.fabrics.degraded,
                    quotas=facts.quotas,
                    namespace_labels=facts.namespace_labels,
                    card_books=self._bookings.card_quotas,
                    lending=self._bookings.lending,
                    limited_by_guarantees=self._bookings.limited_by_guarantees,
                    priority_classes=facts.priority_classes,
                    images=facts.images,
                    usage=facts.usage,
                    running=running,
                    demand=facts.demand,
                    budgets=facts.budgets,
                    may_not_leave=facts.may_not_leave,
                    waiting=self._waiting_kinds()
                    if self._by_demand or any(OVER_QUOTA_WEIGHT in one.annotations for one in known)
                    else (),
                    outside=outside,
                    most=most,
                    most_failures=most_failures,
                    reservations=None if reserving else facts.reservations,
                    reserved_before=facts.reservations,
                    run_times=facts.run_times,
                    recent_moves=facts.recent_moves,
                    moves_held=facts.moves_held,
                    move_words=facts.move_words,
                ),
                conf=conf,
                tiers=plugins_of(conf),
                now=facts.now,
                ask=self._ask,
                learned=self._learned,
                views=self._views if self.by_shape else None,
                known_tree=facts.known_tree,
            )
            given: Collection[Member] = ()
            try:
                yield session, preemptors
                given = session.outcome.bindings
            finally:
                self._undo(session, preemptors, given)
                session.close()

    @contextmanager
    def _gone(self, members: Sequence[Member], *, preempting: bool) -> Iterator[None]:
        """Their places count as left; `preempting`: also where others are guaranteed what they hold."""
        for member in members:
            member.status = Status.RELEASING
            self._columns.depart(member.row, member.task.requests, member.slices, aligned=member.task.aligned, pod=member.id)
        leaving = self._bookings.held(member.uid for member in members) if preempting else ()
        try:
            with self._bookings.lending.beside((), leaving=leaving):
                yield
        finally:
            for member in members:
                self._columns.depart(
                    member.row, member.task.requests, member.slices, -1, aligned=member.task.aligned, pod=member.id
                )

    def _job_placements(self, session: Session, preemptors: Mapping[Gang, Entry]) -> list[JobPlacement]:
        nominated: dict[Gang, list[Member]] = {}
        for member in session.outcome.nominations:
            nominated.setdefault(member.gang, []).append(member)
        self._arrange({gang: members for gang, members in nominated.items() if gang in preemptors})
        victims: dict[Gang, list[Booking]] = {}
        moves: dict[Gang, list[Move]] = {}
        for eviction in session.outcome.evictions:
            member, booking = eviction.member, self._bookings.get(eviction.member.uid)
            if eviction.preemptor is not None and booking is not None:
                victims.setdefault(eviction.preemptor, []).append(booking)
                if member.status is Status.PIPELINED:
                    moves.setdefault(eviction.preemptor, []).append(Move(booking, member.task, member.row, member.slices))
        found: list[JobPlacement] = []
        for gang, gone in victims.items():
            entry = preemptors[gang]
            pods = {pod.uid: pod for _, pending in entry.pending for pod in pending}
            placements = tuple(
                _pod_placement(session, member, pods[member.uid])
                for member in gang.members
                if member.status in (Status.PIPELINED, Status.ALLOCATED) and member.uid in pods
            )
            if placements:
                found_moves = session.outcome.moves.get(gang.id) if gang in moves else None
                terms = found_moves.terms if found_moves is not None else None
                found.append(JobPlacement(entry, placements, tuple(gone), tuple(moves.get(gang, ())), terms))
        return found

    def _undo(self, session: Session, gangs: Mapping[Gang, Entry], given: Collection[Member]) -> None:
        """Take what the session did off the columns again, but what is given."""
        for eviction in session.outcome.evictions:
            member = eviction.member
            if member.status is Status.PIPELINED:  # to another place
                self._columns.depart(
                    member.row, member.task.requests, member.slices, aligned=member.task.aligned, pod=member.id
                )
            self._columns.depart(
                eviction.row, member.task.requests, eviction.slices, -1, aligned=member.task.aligned, pod=member.id
            )
            self._running.mark_changed((eviction.member.uid,))
        kept = {*given, *(eviction.member for eviction in session.outcome.evictions)}
        for gang, entry in gangs.items():
            if gang.kinds and not gang.holding and not gang.waiting:
                continue  # as it was
            entry.gang = None
            if gang.kinds and gang.holding == len(gang.members) and gang.members[0] in kept:
                continue
            for member in gang.members:
                if member in kept:
                    continue
                if member.status is Status.PIPELINED:
                    self._columns.depart(
                        member.row, member.task.requests, member.slices, aligned=member.task.aligned, pod=member.id
                    )
                elif member.status is Status.ALLOCATED:
                    self._columns.undo(member.row, member.task.requests, member.slices, aligned=member.task.aligned)


def _may_reclaim(task: Task, queues: QueueTree, name: QueueName, pools: Collection[str]) -> bool:
    """Whether the queue, or one above it, is entitled to one more such pod, of whichever model, in one of these pools."""
    return any(_may_reclaim_in(pool, task, queues, name) for pool in pools if queues.may_use(name, pool or POOLED))


def _may_reclaim_in(pool: str, task: Task, queues: QueueTree, name: QueueName) -> bool:
    path, tree = queues.path(name)[::-1], TreeAmounts(queues)
    asked = amounts_in(pool, {resource: units for resource, units in task.requests.items() if units > 0 and resource != PODS})
    rule = AtParting(tree.rights, CARDS_BY_NAME)
    if rule.entitled(path, asked, tree.used):
        return True
    if task.cards is None or not queues.by_model:
        return False
    models = concerned(task, named_models(*(queues.rights(one).entitlement for one in path)))
    return any(rule.entitled(path, {**asked, in_pool(model, pool): task.cards.count}, tree.used) for model in models)


def _kind_of(found: FoundMoves) -> tuple[str, float, int]:
    """By what two findings are about the same moves."""
    return found.refused, found.terms.cards_gained, found.terms.pods_moved


def _runs(member: Member) -> bool:
    """Whether the ledger says that it has its place: what is only hoped for does not leave."""
    return member.status is Status.RUNNING


def _found(
    session: Session, gang: Gang, entry: Entry, bound: Sequence[Member] | None, reasons: WaitReasons
) -> Placed | Unplaced | Untried:
    if bound:
        return Placed(entry, bound, session.models.names)
    if gang in session.outcome.untried:
        return Untried(entry)
    waiting = reasons.of(next(gang.of(Status.PENDING), gang.members[0]))
    return Unplaced(entry, waiting.message, waiting.reasons, waiting.lacks_room)


def _pod_placement(session: Session, member: Member, pod: PodRef) -> PodPlacement:
    models = {session.models.names[column]: cards for column, cards in member.models}
    return PodPlacement(member.task, pod, member.row, member.slices, models, member.pool)


class _QueueInfos:
    """Queues as sessions see them, kept as long as they are the same: who keeps something by queue sees what changed."""

    def __init__(self) -> None:
        self._version = -1
        self._tree: list[QueueInfo] = []  #: those of the tree, in its order
        self._infos: dict[QueueName, tuple[Queue, QueueInfo]] = {}

    def of(self, queues: QueueTree, named: Set[QueueName], recent_cards: Mapping[QueueName, float]) -> list[QueueInfo]:
        """Those of the tree, and those that nobody made and somebody names."""
        unknown = [self._info(Queue(name), queues, 0.0) for name in sorted(named - queues.keys())]
        infos = self._infos
        if queues.version != self._version:
            for name in infos.keys() - queues.keys() - named:
                del infos[name]
            self._version = queues.version
            self._tree = [self._info(queue, queues, recent_cards.get(name, 0.0)) for name, queue in queues.items()]
        elif any(info.recent_cards != recent_cards.get(info.name, 0.0) for info in self._tree):
            self._tree = [self._info(infos[info.name][0], queues, recent_cards.get(info.name, 0.0)) for info in self._tree]
        return [*self._tree, *unknown]

    def _info(self, queue: Queue, queues: QueueTree, recent_cards: float) -> QueueInfo:
        found = self._infos.get(queue.name)
        if found is not None:
            known, info = found
            phase = QueuePhase.CLOSED if queues.refusal(queue.name) else QueuePhase.OPEN
            if (
                (known is queue or known == queue)
                and (info.recent_cards, info.phase) == (recent_cards, phase)
                and info.pools == queues.pools(queue.name)
            ):
                return info
        info = _queue_info(queue, queues, recent_cards)
        self._infos[queue.name] = queue, info
        return info


def _queue_info(queue: Queue, queues: QueueTree, recent_cards: float) -> QueueInfo:
    amounts = queues.amounts(queue.name)
    return QueueInfo(
        name=queue.name,
        weight=queue.weight,
        priority=queue.priority,
        parent=QueueName(queue.parent) if queue.parent else None,
        capability=amounts.capability,
        deserved={name: units for name, units in amounts.deserved.items() if by_pool(name)[0] != PODS},
        guarantee=amounts.guarantee,
        reclaimable=queue.reclaimable,
        phase=QueuePhase.CLOSED if queues.refusal(queue.name) else QueuePhase.OPEN,
        created_at=queue.created_at,
        annotations=queue.annotations,
        recent_cards=recent_cards,
        node_groups=queue.node_groups,
        pools=queues.pools(queue.name),
    )
