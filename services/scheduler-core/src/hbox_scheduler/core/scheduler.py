"""The scheduler: messages update its view, and `cycle` turns the view into proposals.

Theory of operation. The ledger owns the state; the scheduler keeps a view of it, plus placements that the ledger has not answered yet. A placement is booked
on the columns when it is made and stays booked until the ledger answers: a refusal reverts it, a claim replaces it. Messages may arrive late, twice or out
of order: revisions, plan ids and the ledger's index decide which of them apply. `queueing` orders the jobs, the `preemptor` frees occupied resources by
eviction, and the `placer` places jobs on free ones. All of them search for nodes in sessions of the policy (`framework`).
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter

from hbox_common.events import HeldNomination, JobVerdict, Leaving, Plan, PlanAnswer
from hbox_common.model import (
    CardQuota,
    Claim,
    ClaimState,
    ClassQuota,
    Epoch,
    GroupState,
    HeldImage,
    HyperNode,
    Index,
    Job,
    JobId,
    Neighbour,
    NodeName,
    NodeRest,
    NodeState,
    NodeUsage,
    NodeZones,
    PlanId,
    PodBudget,
    PodGroupTask,
    PodUid,
    Queue,
    QueueName,
    RanFor,
    RefusalReason,
    ResourceQuota,
    SchedulerId,
    Verdict,
    by_pool,
)
from hbox_common.model.claim import KUBELET_GAVE
from hbox_common.model.consolidation import Mode

from .cluster import Booking, Bookings, Columns
from .cluster.moves import FoundMoves
from .cluster.reservations import Reservation
from .cluster.runtimes import RunTimes
from .cluster.snapshot import DisruptionBudget
from .cluster.tasks import Tasks
from .devices.models import Demand
from .explain.cards import CardReasons
from .explain.decisions import Decisions
from .explain.labels import Label
from .framework.conf import Conf
from .framework.views import Views
from .framework.webhooks import Ask, nobody
from .placement.domains import PlanDomains
from .placement.facts import ClusterFacts
from .placement.fragmentation import Fragmentation, fragmentation
from .placement.plans import Plans
from .placement.runner import PLACE, SessionRunner
from .placement.sessions import Sessions
from .policy import Policy, policy_from
from .protocol.inflight import InFlight, Verdicts
from .protocol.limits import Limits, Proposals
from .queueing.groups import Groups
from .queueing.jobs import Entry, JobState, Order, WaitKey
from .queueing.schedulingqueue import SchedulingQueue
from .queueing.unschedulable import UnschedulableJobs
from .quotas.classes import ClassQuotas
from .quotas.namespaces import NamespaceQuota
from .quotas.queues import Queues
from .steps.admission import Admission
from .steps.context import SchedulerContext
from .steps.elsewhere import Elsewhere
from .steps.placer import Attempt, Placer
from .steps.preemptor import Preemptor
from .steps.reservations import Reservations
from .steps.shuffling import Shuffling
from .topology.known import KnownTree

#: Minimum seconds to the next cycle while the ledger holds plans or is frozen: the scheduler plans nothing until the ledger's next message, which wakes it.
HELD_S = 1.0


#: Minimum pods of a job whose gang is built when the job is received, not in a session: some hundreds of pods take a millisecond.
LARGE = 32

#: Maximum jobs for which a preview searches moves, in queue order: each job that differs from its predecessors takes some milliseconds.
PREVIEWED = 64


@dataclass(frozen=True, slots=True)
class Proposal:
    """Moves that would make room for a job."""

    job: Job
    found: FoundMoves


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """What `hbox defrag` shows."""

    mode: Mode
    fragmentation: Fragmentation
    proposals: tuple[Proposal, ...]
    left_out: int  #: pending jobs beyond `PREVIEWED`
    unknown_pods: int  #: running pods with unknown requests (placed before this process started): never moved


@dataclass(slots=True)
class _Spent:
    """Placements and failures that count against the limits of one cycle."""

    placed: int = 0
    failures: int = 0


class Scheduler:
    """One scheduler's view and its decisions. Single-threaded; the caller passes the time as `now`, in monotonic seconds."""

    def __init__(
        self,
        *,
        id: SchedulerId,
        policy: Policy,
        limits: Limits | None = None,
        conf: Conf | None = None,
        ask: Ask = nobody,
    ) -> None:
        """`policy`: the masks and scores that depend on a pod's shape only, with their learned state. `conf`: the full policy from which `policy` was made;
        None = the configuration of `policy` without actions that evict. `ask`: calls an external service for the policy's plugins."""
        self.id = id
        self.limits = limits or Limits()
        self.policy = policy
        self.columns = Columns()
        self.columns.in_use = self._resources_in_use
        self.bookings = Bookings(self.columns)
        self.queues = Queues(self.bookings)
        self.views = Views(self.columns, policy)
        #: Explanations of recent placements.
        self.decisions = Decisions(
            self.columns, lambda rows, task: self.policy.terms(self.columns, rows, task), (conf or policy.conf).words
        )
        self.columns.choices = self.decisions
        self.epoch = Epoch(0)
        self.index = Index(0)
        self.frozen = True
        self._clocks = (0.0, 0.0)  #: `now` and `wall` of the last cycle
        self.held = ""  #: why the ledger accepts no plans for now
        self.tasks = Tasks(self.columns)
        quota = NamespaceQuota(self.columns, self.bookings.card_quotas)
        self._groups = Groups(self.columns)
        self.class_quotas = ClassQuotas()
        self._class_quotas_pending: tuple[Index, Sequence[ClassQuota]] | None = (
            None  #: apply once the claims are known up to this index
        )
        self._unschedulable = UnschedulableJobs(
            self.columns, self.views, self.queues, quota, lambda entry: self._runner.reserving.passes(entry, self.queues.all())
        )
        self._queue = SchedulingQueue(
            self.tasks,
            self.bookings,
            self._unschedulable,
            self.queues,
            self.class_quotas,
            groups=self._groups,
            limits=self.limits,
        )
        self._flights = InFlight(self.limits.resend_after_s)
        self._verdicts = Verdicts(self.limits.verdict_every_s)
        self._unreported: dict[JobId, None] = {}  #: jobs whose verdict names nodes that wait for a first report
        self._demand = Demand()
        self._placed_before: dict[PodUid, tuple[Job, PodGroupTask]] = {}  #: empty once all claims are known
        self._queues_changed: set[QueueName] = set()
        self._quotas_changed: set[str] = set()  #: namespaces
        neighbours: dict[PodUid, Neighbour] = {}
        self._tree = KnownTree(self.columns)
        self._facts = ClusterFacts(demand=self._demand.cards, known_tree=self._tree)
        domains = PlanDomains(self._tree, self._facts.fabrics, heeded=lambda: self._runner.heeds_domains)
        plans = Plans(id, self.columns, self.bookings, self.limits.deadline_s, domains)
        self._sessions = Sessions(
            columns=self.columns,
            bookings=self.bookings,
            tasks=self.tasks,
            neighbours=neighbours,
            facts=self._facts,
            groups=self._groups,
            views=self.views,
            demand=self._queue.waiting,
            ask=ask,
        )
        self._runner = SessionRunner(
            sessions=self._sessions,
            columns=self.columns,
            bookings=self.bookings,
            neighbours=neighbours,
            facts=self._facts,
            quota=quota,
            conf=conf or replace(policy.conf, actions=PLACE),
            policy=policy,
        )
        context = SchedulerContext(
            sessions=self._sessions,
            runner=self._runner,
            plans=plans,
            views=self.views,
            bookings=self.bookings,
            queues=self.queues,
            queue=self._queue,
            unschedulable=self._unschedulable,
            flights=self._flights,
            limits=self.limits,
        )
        self._preemptor = Preemptor(context)
        self._elsewhere = Elsewhere(context, self._preemptor)
        self._shuffling = Shuffling(context, nominations=self._preemptor.nominations)
        self.admission = Admission(
            context, groups=self._groups, verdicts=self._verdicts, nominations=self._preemptor.nominations
        )
        self.admission.follow(enqueues=self._runner.enqueues)
        self._placer = Placer(context, neighbours=neighbours)
        self._reservations = Reservations(context, nominations=self._preemptor.nominations)

    # Inputs.

    def on_node(self, node: NodeState) -> None:
        """Record the current state of a node. A generation older than the known one is ignored."""
        row = self.columns.row_of.get(node.name)
        known = None if row is None else self.columns.states[row]
        if known is not None and node.generation < known.generation:
            return
        if node.gone:
            self.columns.drop_node(node.name)
            self.bookings.moved(node.name)
            self._resolve_renamed()
            self.bookings.lending.node(node, None)
            return
        self.columns.put_node(node)
        self._resolve_renamed()
        self.bookings.lending.node(node, self.columns.verdicts.get(node.name))
        self.admission.invalidate()
        if known is None or [(c.index, c.uuid) for c in known.cards] != [(c.index, c.uuid) for c in node.cards]:
            self.bookings.rebuild(node.name)

    def _resolve_renamed(self) -> None:
        """If a resource moved to another column, recompute all amounts that are stored by column."""
        if not self.columns.renamed:
            return
        self.columns.renamed = False
        self._queue.resolve_again()
        self.bookings.resolve_again()
        self._sessions.resolve_again()

    def _resources_in_use(self) -> set[str]:
        """The resources that jobs request and pods hold."""
        names = {name for booking in self.bookings.all().values() for name in booking.requests}
        for entry in self._queue.entries.values():
            names.update(name for spec in entry.job.tasks for name in spec.requests)
        return names

    def on_verdict(self, verdict: Verdict) -> None:
        if self.columns.verdicts.get(verdict.node) != verdict:
            self.columns.put_verdict(verdict)
            if (row := self.columns.row_of.get(verdict.node)) is not None and (state := self.columns.states[row]) is not None:
                self.bookings.lending.node(state, verdict)

    def on_rest(self, rest: NodeRest) -> None:
        """Record the rests of a node: until a rest ends, the node gets no pods of the kinds that its kubelet rejected."""
        self.columns.rest(rest)

    def on_zones(self, zones: NodeZones) -> None:
        """Record the NUMA nodes of a node, as its kubelet or an object of the cluster reports them."""
        if self.columns.put_zones(zones):
            self.bookings.rezone(zones.node)

    def on_queue(self, queue: Queue, *, gone: bool = False, recent_cards: float = 0.0) -> None:
        """Record a queue's limits and the average of cards that it and its descendants used recently. Current use is counted from the claims."""
        if gone:
            self._facts.recent_use.drop(queue.name)
            self._queues_changed.update(self.queues.drop(queue.name))
        else:
            self._facts.recent_use.put(queue.name, recent_cards)
            for name in (*queue.capability, *queue.deserved, *queue.guarantee):
                self.columns.keep(name)
                self.columns.keep(by_pool(name)[0])
            self._resolve_renamed()
            if self.queues.put(queue):
                self._queues_changed.add(queue.name)
        self.admission.invalidate()

    def on_card_quotas(self, quotas: Iterable[CardQuota]) -> None:
        """Record the card limits of all ResourceQuotas. Their use is counted from the claims."""
        if changed := self.bookings.limit(quotas):
            self._quotas_changed |= changed
            self.invalidate_sessions()

    def on_class_quotas(self, quotas: Sequence[ClassQuota], index: Index) -> None:
        """Record all ResourceQuotas scoped to PriorityClasses, with their use by the claims at `index`. They apply once the claims at `index` are known:
        otherwise the use of a pod that has ended would be charged to other pods."""
        self._class_quotas_pending = index, quotas

    def on_namespace_quotas(self, quotas: Sequence[ResourceQuota]) -> None:
        """Record the limits and the requested amounts of all namespaces' ResourceQuotas."""
        self._facts.quotas = quotas
        self.admission.invalidate()

    def on_fabric(self, hypernodes: Sequence[HyperNode], fabric: str = "", version: int = 0) -> None:
        """Record all domains of one fabric. `version`: version of the fabric's description; 0 = the source counts no versions."""
        self._facts.hypernodes = self._facts.fabrics.put(fabric, hypernodes, version)
        self._tree.follow(self._facts.hypernodes)
        self._facts.fabrics.relist(self.limits.fabric_max_age_s)
        self._placer.invalidate()

    def on_fabric_gaps(self, fabric: str, degraded: Mapping[NodeName, tuple[int, ...]]) -> None:
        """Record all degraded rails of a fabric's nodes: down, slow or connected to another leaf."""
        if self._facts.fabrics.put_degraded(fabric, {node: len(rails) for node, rails in degraded.items() if rails}):
            self._placer.invalidate()

    def on_fabric_seen(self, fabric: str, seen_at: float, source: str) -> None:
        """Record that the fabric's source confirmed it at `seen_at`, in seconds since the epoch. A fabric without a source does not become stale."""
        if source:
            self._facts.fabrics.seen(fabric, seen_at)
        else:
            self._facts.fabrics.forget_age(fabric)

    def on_priority_classes(self, values: Mapping[str, int]) -> None:
        """Record the values of all PriorityClasses."""
        self._facts.priority_classes = values

    def on_namespaces(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Record the labels of all namespaces that a pod's affinity terms select."""
        if self._facts.namespace_labels != labels:
            self._facts.namespace_labels = labels
            self._placer.invalidate()

    def follow(self, conf: Conf) -> None:
        """Switch to this policy from the next cycle on, and retry all pending jobs under it."""
        self.policy = policy_from(conf)
        for entry in self._queue.entries.values():
            for task, spec in zip(entry.tasks, entry.job.tasks, strict=True):
                self.policy.learn(task, len(spec.pods))
        self.views.follow(self.policy)
        self._runner.follow(conf, self.policy)
        self._reservations.reset()
        self.admission.follow(enqueues=self._runner.enqueues)
        self._queue.activate_all()
        self.invalidate_sessions()

    def invalidate_sessions(self) -> None:
        """Retry the jobs that wait in sessions: answers of external services to plugins may have changed."""
        self._placer.invalidate()
        self._preemptor.invalidate()

    def on_images(self, shard: str, images: Sequence[HeldImage]) -> None:
        """Record which nodes hold the images of one shard. Images affect scores only, so no job is retried."""
        self._facts.images.put(shard, images)

    def on_run_times(self, learned: Sequence[RanFor]) -> None:
        """Add run times of pods that this scheduler or its predecessor learned."""
        self._facts.run_times.take_in(learned)

    @property
    def run_times(self) -> RunTimes:
        """The learned run times of pods."""
        return self._facts.run_times

    def on_usage(self, usages: Sequence[NodeUsage]) -> None:
        """Record the last measured utilisation of nodes."""
        self._facts.usage = usages
        if self._runner.reads_usage:
            self._facts.booked_before.measured(usages, self.columns)
            self.invalidate_sessions()

    def mark(self) -> int:
        """The mark to take before requesting a snapshot of jobs; pass it as `since` to `on_jobs_snapshot`."""
        return self._queue.touched

    def on_jobs(self, jobs: Iterable[Job]) -> None:
        """Record the current state of jobs. A revision that is not higher than the known one is ignored."""
        self._queue.touched += 1
        for job in jobs:
            known = self._queue.entries.get(job.id)
            if known is not None and job.revision <= known.job.revision:
                known.touched = self._queue.touched
                continue
            if known is None and not self._queue.is_withdrawn(job):
                self._add(job)
            elif known is not None:
                self._queue.update(known, job)
                self._placer.revised(job.id)
                self._verdicts.republish(job.id)

    def on_groups(self, groups: Iterable[GroupState]) -> None:
        """Record the current state of PodGroups with minimum resources. Call it before `on_jobs` for their jobs."""
        self._queue.touched += 1
        self.admission.update(groups, self._queue.touched)

    def on_jobs_snapshot(self, jobs: Sequence[Job], *, since: int, groups: Sequence[GroupState] = ()) -> None:
        """Replace the known jobs and PodGroups with a snapshot. Those missing from it are removed unless a message about them came after the mark `since`."""
        self.admission.keep_only({group.id for group in groups}, since)
        self.on_groups(groups)
        for entry in self._queue.unnamed({job.id for job in jobs}, since):
            self._remove(entry)
        self.on_jobs(jobs)

    def on_placed(self, jobs: Iterable[Job]) -> None:
        """Record the requests of pods that were placed before this process started; the tasks of these jobs list pods with nodes only. Without it the
        scheduler does not move these pods, because it does not know which other nodes suit them."""
        self._placed_before = {pod.uid: (job, spec) for job in jobs for spec in job.tasks for pod in spec.pods}
        self._learn_placed()

    def _learn_placed(self) -> None:
        """Set the task of each booked pod of `_placed_before` whose claim is known, provided that the claim has the same requests."""
        learned: list[PodUid] = []
        for uid, (job, spec) in self._placed_before.items():
            booking = self.bookings.get(uid)
            if booking is None or not booking.claim or booking.task is not None or booking.job != job.id:
                continue
            task = self._queue.task_of(job, spec)
            if booking.requests == task.requests:
                booking.task, booking.gang = task, job.gang
                self.bookings.note_domain(job)
                learned.append(uid)
        self._sessions.mark_changed(learned)
        if self.epoch:  # all claims are known
            self._placed_before = {}
            self._preemptor.invalidate()

    def on_neighbours(self, neighbours: Iterable[Neighbour]) -> None:
        """Record the current state of pods with inter-pod terms. Call it before `on_jobs` for their jobs."""
        self._placer.update_neighbours(neighbours)

    def on_withdrawn(self, jobs: Sequence[JobId], revisions: Sequence[int]) -> None:
        """Remove jobs that have no pods left to place as of these revisions."""
        for job, revision in zip(jobs, revisions, strict=True):
            entry = self._queue.entries.get(job)
            if entry is not None and entry.job.revision > revision:
                continue
            if entry is not None:
                self._remove(entry)
            self._queue.note_withdrawn(job, revision)

    def on_claims_snapshot(
        self,
        *,
        epoch: Epoch,
        index: Index,
        frozen: bool,
        claims: Iterable[Claim],
        nominations: Sequence[HeldNomination] = (),
        now: float,
    ) -> None:
        """Record all live claims and nominations at `index`. In a new epoch, proposals without a claim or nomination were never accepted and never will be."""
        if epoch < self.epoch or (epoch == self.epoch and index < self.index):
            return
        news = {claim.pod_uid: claim for claim in claims if claim.state.live}
        for uid, booking in list(self.bookings.all().items()):
            if booking.claim and uid not in news:
                self._void(uid, now)
        self._claimed(news.values(), index, now)
        restarted = epoch != self.epoch
        self.epoch, self.index, self.frozen = epoch, index, frozen
        named = {nomination.plan.id for nomination in nominations}
        if restarted:
            self._restart(now, named)
        self._preemptor.keep_only(named)
        for nomination in nominations:
            self._preemptor.take_over(nomination, now)
        if self._placed_before:
            self._learn_placed()
        self._settle(now)

    def on_claims(
        self,
        *,
        epoch: Epoch,
        previous: Index,
        index: Index,
        claims: Iterable[Claim],
        nominations: Sequence[HeldNomination] = (),
        ended: Sequence[PlanId] = (),
        leaving: Sequence[Leaving] = (),
        now: float,
    ) -> bool:
        """Record the changes of claims after `previous` up to `index`, of nominations and of terminating victims. Returns False if changes before `previous`
        are missing: the caller then requests a snapshot."""
        if epoch == self.epoch and previous <= self.index:
            for nomination in nominations:
                self._preemptor.take_over(nomination, now)
            for plan in ended:
                self._preemptor.ended(plan)
            self._preemptor.victims_leave(leaving, now)
        if epoch < self.epoch or (epoch == self.epoch and index <= self.index):
            return True
        if epoch != self.epoch or previous > self.index:
            return False
        changes = list(claims)
        self._claimed([claim for claim in changes if claim.state.live], index, now)
        for claim in changes:
            booking = None if claim.state.live else self.bookings.get(claim.pod_uid)
            if booking is not None and (booking.claim == claim.id or (not booking.claim and booking.plan == claim.plan)):
                self._void(claim.pod_uid, now)
        self.index = index
        self._settle(now)
        return True

    def on_answers(self, *, epoch: Epoch, index: Index, answers: Iterable[PlanAnswer], now: float) -> bool:
        """Record the ledger's answers; a plan's answer may arrive more than once. Returns False if the ledger is in a newer epoch: request a snapshot then."""
        for answer in answers:
            plan = self._flights.get(answer.plan)
            if plan is None:
                continue
            if not plan.placements:
                self._flights.close(plan.id)
                if not answer.committed:
                    self._shuffling.refused(plan, now)
                continue
            entry = self._entry_of(plan)
            if answer.committed and plan.victims:
                self._flights.close(plan.id)
                self._preemptor.accepted(plan)
                if entry is not None:
                    entry.plans.discard(plan.id)
                continue
            if answer.committed:
                self._flights.commit(plan.id, index)
                self._preemptor.accepted(plan)
            else:
                self._flights.close(plan.id)
                if self._preemptor.nominate_again(plan, entry, answer, now):
                    continue
                self._undo(plan)
                self._preemptor.refused(plan, answer)
            if entry is None:
                if not answer.committed:
                    self._freed(plan.job, now)
                continue
            if not answer.committed:
                if plan.victims:
                    entry.state = JobState.PROPOSED
                    if plan.moves is not None and answer.reason is RefusalReason.EVICTIONS_PAUSED:
                        self._preemptor.moves_paused(answer.message, now)
                held = answer.reason is RefusalReason.PODS_UNSEEN  # not a fault of the plan: no backoff
                entry.refusals += not held
                entry.refresh = max(entry.refresh, answer.refresh)
                if entry.refusals > 1 or held:
                    reason = f"{answer.reason}: {answer.message}" if answer.reason else answer.message
                    self._verdicts.put(JobVerdict(job=plan.job, message=reason), now)
            self._queue.plan_answered(entry, plan.id, self.index, now)
        self._settle(now)
        return epoch <= self.epoch

    def on_budgets(self, budgets: Iterable[PodBudget]) -> None:
        """Record the allowed disruptions of all PodDisruptionBudgets."""
        found = [DisruptionBudget(one.namespace, one.name, {}, one.allowed) for one in budgets]
        if found != self._facts.budgets:
            self._facts.budgets = found
            self._preemptor.invalidate()

    def on_stayed(self, *, epoch: Epoch, pods: Sequence[PodUid], now: float) -> None:
        """The API server refused to evict these pods: exclude them as victims for `Limits.stays_s` and give up nominations that wait for them."""
        if epoch < self.epoch:
            return
        self._facts.may_not_leave.update(dict.fromkeys(pods, now + self.limits.stays_s))
        self._preemptor.eviction_failed(pods)

    def on_held(self, reason: str) -> None:
        """Record why the ledger accepts no plans at present; "" = it accepts them."""
        self.held = reason

    def refuse(self, plan: Plan, message: str, *, now: float) -> None:
        """Treat a plan that cannot be published as refused by the ledger."""
        answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.MALFORMED, message=message)
        self.on_answers(epoch=self.epoch, index=self.index, answers=[answer], now=now)

    def unpublished(self, verdicts: Iterable[JobVerdict], now: float) -> None:
        """Keep verdicts that could not be published: a later cycle returns them again."""
        for verdict in verdicts:
            if verdict.job in self._queue.entries or verdict.job in self._groups:
                self._verdicts.unpublished(verdict, now)

    # Decisions.

    def cycle(self, now: float, wall: float = 0.0) -> Proposals:
        """Plan placements for the active jobs. While the ledger is frozen or holds plans, the cycle plans nothing. `wall`: seconds since the epoch, for the
        policy's plugins."""
        out = Proposals()
        self.decisions.begin(now)
        self._facts.now = wall
        self._clocks = now, wall
        self._resolve_renamed()
        if self.columns.rests:
            self.columns.end_rests(wall)
        if self._facts.fabrics.aging and self._facts.fabrics.age(wall, self.limits.fabric_max_age_s):
            self._placer.invalidate()
        self._tree.refresh()
        if self._facts.expire_refused(now):
            self._preemptor.invalidate()
        self._queue.due(self.index, now)
        changed = self._queues_changed
        freed = self.queues.freed(changed | self.bookings.queues_freed | self.queues.eased())
        self._queues_changed, self.bookings.queues_freed = set(), set()
        if not self.frozen and not self.held:
            out.plans += self._preemptor.keep(self.index, now)
            if self._class_quotas_pending is not None and self.index >= self._class_quotas_pending[0]:
                self._queue.recheck_classes(self.class_quotas.put(self._class_quotas_pending[1]))
                self._class_quotas_pending = None
            self._reservations.run(now, wall)
            self._queue.reroute(changed)
            self._queue.requota(self._quotas_changed)
            quotas_freed, self._quotas_changed, self.bookings.namespaces_freed = self.bookings.namespaces_freed, set(), set()
            if freed or changed or quotas_freed:
                self._placer.invalidate()
            self._placer.activate_waiting(self.index, now)
            self._queue.activate_unschedulable(freed, changed, quotas_freed)
            self._activate_reported()
            out.admitted, out.repeated = self.admission.run(now)
            spent = _Spent()
            for entry in self._elsewhere.take_due():
                if self._plan(out, now, spent, ahead_of=entry.order):
                    out.plans += self._elsewhere.place(entry, now)
                else:
                    self._elsewhere.postpone(entry)
            self._plan(out, now, spent)
            out.more |= self._elsewhere.behind and self._flights.placements < self.limits.outstanding
            out.more |= self._unschedulable.behind and self._flights.placements < self.limits.outstanding
            self._verdicts.put_all(self._placer.changed_verdicts(now), now)
            self._preemptor.add_all(freed, quotas_freed, rules_changed=bool(changed))
            out.plans += self._elsewhere.search(self.index, now)
            out.plans += self._preemptor.run(self.index, now, wall)
            out.more |= self._preemptor.activated
            out.plans += self._shuffling.run(now)
        else:
            self._queues_changed, self.bookings.queues_freed = changed, freed
        self.decisions.end(out.plans, wall)
        out.resend = self._flights.due(now)
        out.given_up = self._preemptor.take_given_up()
        out.verdicts = self._verdicts.due(now)
        times = chain(
            self._flights.next_at(),
            self._facts.may_not_leave.values(),
            self._verdicts.next_at(),
            self._queue.next_at(),
            self._placer.next_at(self.index),
            self._preemptor.next_at(self.index, now),
            self._elsewhere.next_at(self.index, now),
            self._shuffling.next_at() if not self.frozen else (),
            self.admission.next_at() if not self.frozen else (),
            self._reservations.next_at() if not self.frozen else (),
            (now + (one.until - wall) / self.limits.clock_rate for kinds in self.columns.rests.values() for one in kinds),
        )
        out.wake_at = min(times, default=None)
        if (self.held or self.frozen) and out.wake_at is not None:
            out.wake_at = max(out.wake_at, now + HELD_S)
        return out

    def _activate_reported(self) -> None:
        """Once every node has sent its first report, retry the jobs whose verdict names nodes without one, so that they get a new verdict."""
        if self._unreported and not self.columns.unreported_rows:
            for job in self._unreported:
                if (entry := self._queue.entries.get(job)) is not None and entry.state is JobState.UNSCHEDULABLE:
                    self._queue.activate(entry)
            self._unreported.clear()

    def _plan(self, out: Proposals, now: float, spent: "_Spent", *, ahead_of: Order | None = None) -> bool:
        """Run sessions until no active job is left (True) or the limits of a cycle are reached (False). `spent`: counts of earlier calls in the same
        cycle; `ahead_of`: plan only for jobs that precede it in the order."""
        most = self.limits.session_failures if self._sessions.by_shape else self.limits.session_jobs
        while self._flights.placements < self.limits.outstanding:
            if spent.placed >= self.limits.placements or spent.failures >= most:
                out.more = self._queue.waits
                return False
            attempt = self._placer.place(
                self._preemptor.nominations,
                self.limits.placements - spent.placed,
                after_others=spent.placed > 0,
                ahead_of=ahead_of,
            )
            if attempt is None:
                out.more = spent.placed > 0 and self._queue.waits
                return True
            out.plans += attempt.plans
            spent.placed += attempt.placements
            spent.failures += attempt.failures
            for plan in attempt.plans:
                self._flights.open(plan, now)
                self._placer.planned(plan)
                self._preemptor.placed(plan)
            self._conclude(attempt, now)
        return False

    def _conclude(self, attempt: Attempt, now: float) -> None:
        for entry in attempt.proposed:
            entry.state = JobState.PROPOSED
            self._queue.recount(entry)
            if entry.activated_from is not None and len(entry.activated_from[1]) > 1:
                self._unschedulable.retry_class(entry)
            entry.activated_from = None
        for entry in attempt.settled:
            self._unschedulable.leave(entry, JobState.SETTLED)
            self._queue.recount(entry)
        for entry, verdict in attempt.failed:
            if entry.problem():
                self._unschedulable.leave(entry, JobState.UNSCHEDULABLE)
            else:
                if self._placer.retries(entry.job.id):
                    self._unschedulable.leave(entry, JobState.UNSCHEDULABLE)
                else:
                    self._unschedulable.add(entry)
                if self.columns.unreported_rows and Label.KUBELET_POLICY in verdict.reasons:
                    self._unreported[entry.job.id] = None
                self._reservations.add(entry)
                self._preemptor.add(entry, self._placer.represented(entry.job.id))
            if not self._groups.blocked_reason(entry.job.id):  # otherwise admission publishes the reason
                self._verdicts.put(verdict, now)

    def _add(self, job: Job) -> None:
        entry = self._queue.add(job)
        for task, spec in zip(entry.tasks, job.tasks, strict=True):
            self.policy.learn(task, len(spec.pods))
            self._demand.add(task.cards, len(spec.pods))
        self._reservations.add_new(entry)
        if sum(len(spec.pods) for spec in job.tasks) >= LARGE:
            self._sessions.prepare(entry)

    def _remove(self, entry: Entry) -> None:
        self._queue.remove(entry)
        self._preemptor.remove(entry.job.id)
        self._placer.remove(entry.job.id)
        self._reservations.remove(entry.job.id)
        self._verdicts.drop(entry.job.id)

    # Bookings.

    def _claimed(self, claims: Iterable[Claim], index: Index, now: float) -> None:
        """Replace bookings with the ledger's claims. Plans are atomic, so one claim of a plan proves that the ledger accepted the plan."""
        given: set[NodeName] = set()
        for claim in claims:
            self.bookings.put(Booking.of(claim, self.bookings.get(claim.pod_uid)))
            entry = self._queue.entries.get(claim.job)
            if entry is not None and claim.state is ClaimState.POSTED:
                entry.refusals = 0
            if (plan := self._flights.get(claim.plan)) is not None:
                self._flights.commit(plan.id, index)
                self._preemptor.accepted(plan)
                if entry is not None:
                    self._queue.plan_answered(entry, claim.plan, self.index, now)
            if claim.reason == KUBELET_GAVE:
                given.add(claim.node)
        if given:
            self._preemptor.cards_given(given)

    def _restart(self, now: float, nominated: Set[PlanId]) -> None:
        """Start a new epoch: plan again all proposals of the old epoch that have no claim and are not among the `nominated`. Indexes of the old epoch are
        invalid."""
        for plan in self._flights.restart():
            if not plan.placements:
                self._shuffling.refused(plan, float("-inf"))
                continue
            entry = self._entry_of(plan)
            if plan.id in nominated:
                self._preemptor.accepted(plan)
                if entry is not None:
                    entry.plans.discard(plan.id)
                continue
            if self._preemptor.nominate_again(plan, entry, None, now):
                continue
            self._undo(plan)
            self._preemptor.refused(plan, None)
            if entry is None:
                self._freed(plan.job, now)
                continue
            if plan.victims:
                entry.state = JobState.PROPOSED
            self._queue.plan_answered(entry, plan.id, self.index, now)
        for entry in self._queue.entries.values():
            entry.refresh = Index(0)
        self._preemptor.restarted()

    def _void(self, pod: PodUid, now: float) -> None:
        """Remove the booking of a claim that ended. If the job still lists the pod, place it again, with a backoff that grows with each repetition."""
        if (ended := self.bookings.get(pod)) is not None:
            self._reservations.pod_ended(ended.held, self._clocks[1] + (now - self._clocks[0]) * self.limits.clock_rate)
        booking = self.bookings.remove(pod)
        self.admission.invalidate()
        self._preemptor.pod_left(pod)
        entry = None if booking is None else self._queue.entries.get(booking.job)
        if entry is None or entry.state not in (JobState.SETTLED, JobState.UNSCHEDULABLE):
            return
        entry.refusals += 1
        self._queue.retry(entry, self.index, now)

    def _entry_of(self, plan: Plan) -> Entry | None:
        """The job that waits for the plan's answer; None if the job was deleted, even if a new job has its id."""
        entry = self._queue.entries.get(plan.job)
        return entry if entry is not None and plan.id in entry.plans else None

    def _freed(self, job: JobId, now: float) -> None:
        """Retry the job after the bookings of a plan that it no longer waits for were reverted: the job may have counted them."""
        entry = self._queue.entries.get(job)
        if entry is not None and entry.state in (JobState.SETTLED, JobState.UNSCHEDULABLE):
            self._queue.retry(entry, self.index, now)

    def _undo(self, plan: Plan) -> None:
        self.bookings.take_back(plan.id, (placement.pod_uid for placement in plan.placements))

    def _settle(self, now: float) -> None:
        """Settle the plans whose claims are known at the current index, and activate the jobs that waited for this index."""
        for plan in self._flights.reached(self.index):
            for placement in plan.placements:
                booking = self.bookings.get(placement.pod_uid)
                if booking is not None and booking.plan == plan.id and not booking.claim:
                    self._void(placement.pod_uid, now)
        self._queue.reached(self.index)

    # Fragmentation.

    @property
    def moves_pods(self) -> bool:
        """Whether the policy searches for moves, for which it needs the requests of running pods (`on_placed`)."""
        return self._runner.moves_mode is not Mode.OFF

    def fragmentation(self) -> Fragmentation:
        """Fragmentation of the idle cards at present."""
        return fragmentation(self.columns, self._sessions.mix())

    def defragmentation(self, wall: float) -> Defragmentation:
        """Preview the moves that would make room for each pending job on its own, and their gain. Changes no state. `wall`: seconds since the epoch."""
        measured, mode = self.fragmentation(), self._runner.moves_mode
        unknown = sum(1 for booking in self.bookings.all().values() if booking.claim and booking.queue and booking.task is None)
        if self.frozen:
            return Defragmentation(mode, measured, (), 0, unknown)
        waiting = sorted(
            (entry for entry in self._queue.entries.values() if entry.state in (JobState.UNSCHEDULABLE, JobState.ACTIVE)),
            key=attrgetter("order"),
        )
        looked_at = waiting[:PREVIEWED]
        found = self._runner.preview_moves(looked_at, self.queues.all(), self._preemptor.nominations, wall)
        proposals = tuple(Proposal(entry.job, moves) for entry, moves in found)
        return Defragmentation(mode, measured, proposals, len(waiting) - len(looked_at), unknown)

    def card_reasons(self, job: JobId) -> list[tuple[list[str], CardReasons]]:
        """Why the cards of all nodes do not fit the job's pods, with the pods' names, one item per shape. Takes as long as a session."""
        entry = self._queue.entries.get(job)
        if entry is None or self.frozen:
            return []
        return self._runner.card_reasons(entry, self.queues.all(), self._preemptor.nominations)

    # For reports and tests.

    @property
    def waiting(self) -> Mapping[WaitKey, int]:
        """Counts of pending pods by queue and requests, as a live view."""
        return self._queue.waiting

    @property
    def reservations(self) -> Sequence[Reservation]:
        """Nodes reserved for large gangs."""
        return self._facts.reservations

    @property
    def jobs_by_state(self) -> dict[JobState, int]:
        return self._queue.by_state()

    @property
    def size(self) -> int:
        """Known jobs plus booked pods, to which the memory use is proportional."""
        return len(self._queue.entries) + len(self.bookings)

    def oldest_job(self, state: JobState) -> float | None:
        """Creation time of the oldest job in this state, in seconds since the epoch; None if there is none."""
        return self._queue.oldest(state)

    def entry(self, job: JobId) -> Entry | None:
        return self._queue.entries.get(job)

    def is_claimed(self, pod: PodUid) -> bool:
        """Whether the ledger has a claim for this pod."""
        return (booking := self.bookings.get(pod)) is not None and bool(booking.claim)

    def placed_on(self) -> dict[PodUid, NodeName]:
        """The node of every booked pod, with or without the ledger's answer."""
        return {uid: booking.node for uid, booking in self.bookings.all().items()}

    def outstanding(self) -> list[PlanId]:
        """Plans without an answer."""
        return [plan.id for plan in self._flights.outstanding()]
