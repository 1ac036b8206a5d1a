"""What the service asks of sessions: places for jobs, victims for those that may have more, and admission of PodGroups.

The policy's actions run in them: the same code, and so the same outcomes, as `hbox simulate cycle`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from hbox_common.model import JobId, Neighbour, PodUid, QueueName, QueueTree
from hbox_common.model.consolidation import Mode
from hbox_common.model.explanation import Outcome
from hbox_common.model.rights import may_preempt

from ..actions import consolidate, revoke
from ..actions.consolidate import ACTION as CONSOLIDATE
from ..actions.consolidate import rule_of
from ..actions.registry import run_action
from ..cluster import Booking, Bookings, Columns
from ..cluster.entities import Gang, Member, Status
from ..cluster.facts import ClusterFacts
from ..cluster.moves import FoundMoves
from ..cluster.task import Task
from ..explain.cards import CardReasons
from ..explain.outcomes import NOT_TRIED_YET, Headline, judged
from ..framework import GroupPhase, Session
from ..framework.conf import Conf
from ..framework.hooks import DomainGradients, ShuffleVictims
from ..framework.waiting import BACKFILL, KnownReasons, WaitReason, WaitReasons
from ..plugins.arguments import Given
from ..plugins.starts import Departures
from ..policy.ledgerrules import as_the_ledger_judges
from ..policy.policy import Policy
from ..policy.registry import plugins_of
from ..queueing.jobs import Entry
from ..quotas.namespaces import NamespaceQuota
from .emptycluster import Alone
from .emptyroom import rooms_by_node
from .entitlement import may_reclaim
from .explanations import Explained, Explainer, NodeRooms, failed_rules, judge
from .headlines import Headlines
from .moves import MoveRecords
from .outcomes import JobPlacement, Move, Placed, PodPlacement, Unplaced, Untried
from .protection import ProtectionRecords
from .ranks import Walk, arrange
from .reservations import SessionReservations
from .sessions import Sessions
from .startprojection import Projection, departures_of, projections

#: Actions of a policy that place pods on free resources.
PLACE = ("allocate", BACKFILL)

#: The action that admits PodGroups.
ENQUEUE = "enqueue"

#: The action that evicts pods without a preemptor.
SHUFFLE = "shuffle"


#: Gangs that cannot start, of which that is known.
_HOPELESS = 8192


class SessionRunner:
    """Runs sessions of the policy over all claims and bookings."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        columns: Columns,
        bookings: Bookings,
        neighbours: Mapping[PodUid, Neighbour],
        facts: ClusterFacts,
        quota: NamespaceQuota,
        conf: Conf,
        policy: Policy,
    ) -> None:
        """`sessions`: opens sessions on the same columns; `policy`: the masks and scores of `conf` by shape, with their learned state."""
        self._sessions = sessions
        self._columns = columns
        self._bookings = bookings
        self._facts = facts
        self._quota = quota
        self._reasons = KnownReasons(columns)
        self._walk = Walk()
        #: when they were found, for which sizes of the columns, and the ends of running pods
        self._departures: tuple[float, tuple[object, ...], Departures | None] = (0.0, (), None)
        self.reservations = SessionReservations(sessions, columns, bookings, neighbours, facts)
        self.moves = MoveRecords(facts)
        self.protection = ProtectionRecords(facts)
        self.follow(conf, policy)

    def follow(self, conf: Conf, policy: Policy) -> None:
        """Switch to this policy from the next session on."""
        self._sessions.follow(conf, policy)
        plugins = [
            (plugin, one)
            for tier, confs in zip(plugins_of(conf), conf.tiers, strict=True)
            for plugin, one in zip(tier, confs, strict=True)
        ]
        #: whether a victim search may have another result although nothing changed but the time, or the requests of the pods that wait
        self.repeats_searches = any(plugin.time_dependent or plugin.demand_dependent for plugin, _ in plugins)
        #: whether pending jobs are retried after each measurement of the nodes' utilisation
        self.reads_usage = any(plugin.reads_usage for plugin, _ in plugins)
        conf = as_the_ledger_judges(conf)
        self.reservations.follow(conf)
        self.moves.clear()
        self.protection.clear()
        self._headlines = Headlines(self._columns)
        #: whether the policy applies jobs' topology constraints
        self.heeds_domains = any(plugin.heeds_domains and DomainGradients not in one.off for plugin, one in plugins)
        self._placing = replace(conf, actions=tuple(action for action in conf.actions if action in PLACE))
        self._conf = replace(conf, actions=tuple(action for action in conf.actions if action in revoke.MAKE_ROOM))
        self._enqueue = replace(conf, actions=(ENQUEUE,))
        self.enqueues = ENQUEUE in conf.actions  #: whether PodGroups wait for admission
        self._rule = rule_of(Given(f"action {CONSOLIDATE}", conf.arguments.get(CONSOLIDATE, {})))
        self._moves = CONSOLIDATE in self._conf.actions and self._rule.mode is not Mode.OFF
        preview = {**conf.arguments.get(CONSOLIDATE, {}), "mode": Mode.PREVIEW.value}
        self._previewing = replace(conf, actions=(CONSOLIDATE,), arguments={**conf.arguments, CONSOLIDATE: preview})
        self._shuffling = replace(conf, actions=(SHUFFLE,))
        slow = {plugin.name: plugin.shuffle_every_s for plugin, _ in plugins if isinstance(plugin, ShuffleVictims)}
        self._between = replace(
            self._shuffling, tiers=tuple(tuple(one for one in tier if not slow.get(one.name)) for tier in conf.tiers)
        )
        self.interval_s = max(slow.values(), default=0.0)  #: seconds between two calls of `shuffle` with `slow`
        self.shuffles = SHUFFLE in conf.actions  #: whether the policy has the action `shuffle`

    def spare(self, pods: Iterable[PodUid], until: float) -> None:
        """Exclude these pods from victims until `until` (monotonic)."""
        self._facts.may_not_leave.update(dict.fromkeys(pods, until))

    @property
    def idle(self) -> bool:
        """Whether no eviction is possible: the policy has no action that evicts, and no offline work runs."""
        return not self._conf.actions and not self._bookings.offline

    def may_preempt(self, entry: Entry, queues: QueueTree) -> bool:
        """Whether a session may find victims for the job: its queue or an ancestor is below its deserved amount of the requested resources, or has pods of
        lower priority; or the policy moves pods or weights shares, which only a session evaluates; or offline work runs. False for an offline job."""
        task = entry.pending[0][0] if entry.pending else None
        if task is None or entry.offline or self.idle:
            return False
        if (
            task.namespace
            and not self._quota.within_quota(task, self._quota.remaining(task.namespace), together=max(entry.need, 1))[1]
        ):
            return False  # a quota never causes an eviction
        if self._moves or not self._sessions.shares_by_use or self._bookings.offline:
            return True
        pools = self._columns.pools_there()
        if may_reclaim(task, queues, entry.job.queue, pools) or (any(pools) and self._bookings.on_loan(entry.job.queue)):
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
            or not self._sessions.shares_by_use
            or self._bookings.offline
            or by_priority
            or any(queues.rights(one).entitlement for one in queues.path(queue))
            or self._bookings.on_loan(queue)
        )

    def preempt(self, entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid]) -> list[JobPlacement]:
        """What the policy would take for these jobs, in its order. `leaving`: pods that go already. Columns and bookings are as before afterwards."""
        with self._sessions.open(self._conf, entries, queues, leaving, whole=True) as (session, preemptors):
            revoke.run(session)
            for action in self._conf.actions:
                run_action(action, session)
            if self._moves:
                self.moves.note(session, preemptors)
            self.protection.note(session, preemptors)
            return self._job_placements(session, preemptors)

    @property
    def moves_mode(self) -> Mode:
        """What the policy does with moves that pay."""
        return self._rule.mode if self._moves else Mode.OFF

    def preview_moves(
        self, entry: Entry, queues: QueueTree, leaving: Iterable[PodUid], wall: float, failed: set[object]
    ) -> FoundMoves | None:
        """The moves that would make room for the job, whatever the policy does with them, as if no other job waited; None: there are none, or it equals a job
        of an earlier call with the same set `failed`. Nothing is changed by it. `wall`: seconds since the epoch."""
        entry.update_pending(self._bookings)
        if not entry.pending or entry.problem():
            return None
        before, self._facts.now = self._facts.now, wall
        try:
            with self._sessions.open(self._previewing, [entry], queues, leaving, trial=True) as (session, preemptors):
                consolidate.run(session, failed=failed)
                return next((found for gang in preemptors if (found := session.outcome.moves.get(gang.id)) is not None), None)
        finally:
            self._facts.now = before

    def card_reasons(self, entry: Entry, queues: QueueTree, leaving: Iterable[PodUid]) -> list[tuple[list[str], CardReasons]]:
        """Why the cards of all nodes do not fit the job's pending pods, with the pods' names, one item per shape. Changes no state."""
        entry.update_pending(self._bookings)
        if not entry.pending or entry.problem():
            return []
        with self._sessions.open(self._placing, [entry], queues, leaving) as (session, gangs):
            found: dict[Task, tuple[list[str], CardReasons]] = {}
            reasons = WaitReasons(session)
            for gang in gangs:
                for member in gang.of(Status.PENDING):
                    if member.task in found:
                        found[member.task][0].append(member.name)
                    elif (of_cards := reasons.cards(member)) is not None:
                        found[member.task] = [member.name], of_cards
            return list(found.values())

    def blocked(self, problems: Sequence[tuple[Entry, str]], queues: QueueTree, leaving: Iterable[PodUid]) -> list[Headline]:
        """Of jobs that are not tried, each for a reason that passes: what else keeps it from starting after that, or the reason. Changes no state."""
        known: dict[object, Headline] = {}
        with self._sessions.open(self._placing, [entry for entry, _ in problems], queues, leaving, trial=True) as (
            session,
            gangs,
        ):
            return [
                self._headlines.of(
                    session,
                    self._headlines.pending(session, gang)[0],
                    WaitReason(why),
                    revision=entry.job.revision,
                    known=known,
                )
                for gang, (entry, why) in zip(gangs, problems, strict=True)
            ]

    def explained(
        self, entry: Entry, queues: QueueTree, leaving: Iterable[PodUid], node: int = -1, *, why: str = ""
    ) -> tuple[Explained, list[str]]:
        """Why the job, alone, gets no places, and the labels of all rules that the node of a row fails for it. `why`: for which reason it is not tried; "" = it
        is. All that the session did is taken back."""
        choices, self._columns.choices = self._columns.choices, None
        try:
            with self._sessions.open(self._placing, [entry], queues, leaving, trial=True) as (session, gangs):
                gang = next(iter(gangs))
                member = self._headlines.pending(session, gang)[0]
                rules = failed_rules(session, member, node) if node >= 0 else []
                before = judge(session, member)
                wants = self._headlines.wants(session, gang)
                rooms = [NodeRooms(*rooms_by_node(session, one)) for one, _ in wants.kinds]
                explainer = Explainer(session, member, before, self._bookings, wants=wants, rooms=rooms)
                for action in self._placing.actions if not why else ():
                    run_action(action, session)
                if any(one.gang is gang for one in session.outcome.bindings):
                    waiting = WaitReason("")
                    return explainer.explained(judged(NOT_TRIED_YET, Outcome.WAIT), waiting, Alone()), rules
                waiting = WaitReason(why) if why else WaitReasons(session).of(member)
                revision = entry.job.revision
                headline = self._headlines.of(session, member, waiting, revision=revision)
                return explainer.explained(headline, waiting, self._headlines.alone(session, gang, waiting, revision)), rules
        finally:
            self._columns.choices = choices

    def starts(self, entry: Entry, queues: QueueTree, leaving: Iterable[PodUid]) -> tuple[bool, int]:
        """Whether the job, alone, would get places on free resources, and by how many pods it misses its minimum (0 = unknown). All that the session did is
        taken back."""
        with self._sessions.open(self._placing, [entry], queues, leaving, trial=True) as (session, gangs):
            for action in self._placing.actions:
                run_action(action, session)
            if any(member.gang in gangs for member in session.outcome.bindings):
                return True, 0
            (gang,) = gangs
            fitting = session.outcome.fitting.get(gang.id, 0)
            return False, max(gang.min_member - gang.ready - fitting, 0) if fitting else 0

    def makes_room(self, entry: Entry, queues: QueueTree, leaving: Iterable[PodUid]) -> bool:
        """Whether the policy would evict pods for the job, alone, so that it starts in their place. All that the session did is taken back."""
        with self._sessions.open(self._conf, [entry], queues, leaving, whole=True, trial=True) as (session, gangs):
            revoke.run(session)
            for action in self._conf.actions:
                if action != CONSOLIDATE:
                    run_action(action, session)
            return any(eviction.preemptor in gangs for eviction in session.outcome.evictions)

    def projections(
        self,
        ahead: Mapping[JobId, int],
        entries: Sequence[Entry],
        queues: QueueTree,
        leaving: Iterable[PodUid],
        wall: float,
        *,
        age_s: float = 0.0,
    ) -> dict[JobId, Projection]:
        """When these jobs could start, each as if only the jobs ahead of it waited too; those without a known start are left out. `ahead`: cards that these
        request, by job. `age_s`: the most by which the known ends of running pods may be old: to find them takes longer than all the rest. Changes no state.
        `wall`: seconds since the epoch."""
        for entry in entries:
            entry.update_pending(self._bookings)
        entries = [entry for entry in entries if entry.pending and not entry.problem()]
        if not entries:
            return {}
        before, self._facts.now = self._facts.now, wall
        try:
            with self._sessions.open(self._placing, entries, queues, leaving, trial=True) as (session, gangs):
                departures = self._departures_of(session, wall, age_s)
                found = projections(session, {gang: ahead[entry.job.id] for gang, entry in gangs.items()}, departures)
                return {gangs[gang].job.id: one for gang, one in found.items()}
        finally:
            self._facts.now = before

    def _departures_of(self, session: Session, wall: float, age_s: float) -> Departures | None:
        columns = self._columns
        sizes = columns.size, columns.allocatable.shape, columns.card_index.shape
        at, known, departures = self._departures
        if at <= wall <= at + age_s and known == sizes:
            return departures
        departures = departures_of(session, self._facts.run_times)
        self._departures = wall, sizes, departures
        return departures

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
        failure_cost: Callable[[Entry], int],
    ) -> list[Placed | Unplaced | Untried]:
        """Place jobs on free resources: for each job its placements or its pending reason. `represented`: as in `Gang.represented`; `outside`, `most`,
        `most_failures`, `failure_cost`: as in `Cluster`. The placements are booked on the columns."""
        with self._sessions.open(
            self._placing,
            entries,
            queues,
            leaving,
            represented=represented,
            outside=outside,
            most=most,
            most_failures=most_failures,
            failure_cost=failure_cost,
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
            known: dict[object, Headline] = {}
            return [self._found(session, gang, entry, by_gang.get(gang), reasons, known=known) for gang, entry in gangs.items()]

    def _found(
        self,
        session: Session,
        gang: Gang,
        entry: Entry,
        bound: Sequence[Member] | None,
        reasons: WaitReasons,
        *,
        known: dict[object, Headline],
    ) -> Placed | Unplaced | Untried:
        if bound:
            return Placed(entry, bound)
        if gang in session.outcome.untried:
            return Untried(entry)
        member = self._headlines.pending(session, gang)[0]
        waiting = reasons.of(member)
        headline = self._headlines.of(session, member, waiting, revision=entry.job.revision, known=known)
        self._note_hopeless(gang, headline)
        return Unplaced(entry, waiting.message, waiting.reasons, headline, waiting.lacks_room)

    def _note_hopeless(self, gang: Gang, headline: Headline) -> None:
        """Whether it is of use to keep nodes for a gang of several pods."""
        known = self._facts.cannot_start
        if headline.outcome is Outcome.WAIT or gang.min_member < 2:
            known.discard(gang.id)
            return
        if len(known) >= _HOPELESS:
            known.clear()
        known.add(gang.id)

    def _arrange(self, by_gang: Mapping[Gang, Sequence[Member]]) -> None:
        """Exchange the nodes of equal members of a gang so that ranks follow the fabric."""
        for members in by_gang.values():
            if len(members) > 1 and members[0].rank >= 0:
                self._walk.follow(self._facts.hypernodes)
                arrange(members, self._columns, self._walk)

    def shuffle(self, entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid], *, slow: bool) -> list[Booking]:
        """Running pods that the policy wants to move. `entries`: jobs with pending pods, which count as not placed. `slow`: include plugins that read measured
        utilisation, which lags behind placements."""
        conf = self._shuffling if slow else self._between
        with self._sessions.open(conf, entries, queues, leaving, whole=True) as (session, _):
            run_action(SHUFFLE, session)
            found = (self._bookings.get(eviction.member.uid) for eviction in session.outcome.evictions)
            return [booking for booking in found if booking is not None]

    def enqueue(
        self, outside: Sequence[JobId], entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid]
    ) -> dict[JobId, str]:
        """For each PodGroup that waits for admission, with or without pods: the rejection reason, or "" if it is admitted. `entries`: all jobs with pending
        pods."""
        with self._sessions.open(self._enqueue, entries, queues, leaving, with_groups=True) as (session, preemptors):
            run_action(ENQUEUE, session)
            jobs = {gang: entry.job.id for gang, entry in preemptors.items()}
            mine = {jobs.get(gang, gang.id): gang for gang in session.fresh}
            verdicts = session.outcome.verdicts
            return {
                job: verdicts.get(mine[job].id, "") if job in mine and mine[job].phase is GroupPhase.PENDING else ""
                for job in outside
            }

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
                PodPlacement(member.task, pods[member.uid], member.row, member.slices)
                for member in gang.members
                if member.status in (Status.PIPELINED, Status.ALLOCATED) and member.uid in pods
            )
            if placements:
                found_moves = session.outcome.moves.get(gang.id) if gang in moves else None
                terms = found_moves.terms if found_moves is not None else None
                found.append(JobPlacement(entry, placements, tuple(gone), tuple(moves.get(gang, ())), terms))
        return found
