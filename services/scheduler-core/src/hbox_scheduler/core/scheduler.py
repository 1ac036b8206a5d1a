"""The scheduler: messages update its view, and `cycle` turns the view into proposals.

Theory of operation. The ledger owns the state; the scheduler keeps a view of it (`ledgerview`), plus placements that the ledger has not answered yet.
`queueing` orders the jobs, the `preemptor` frees occupied resources by eviction, and the `placer` places jobs on free ones. All of them search for nodes in
sessions of the policy (`framework`). `reports` has what others read of the scheduler.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hbox_common.events import JobVerdict
from hbox_common.model import (
    CardQuota,
    ClassQuota,
    GroupState,
    HeldImage,
    HyperNode,
    Index,
    Job,
    JobId,
    MissingPods,
    Neighbour,
    NodeName,
    NodeRest,
    NodeState,
    NodeUsage,
    NodeZones,
    PodBudget,
    PodUid,
    Queue,
    QueueName,
    RanFor,
    ResourceQuota,
    SchedulerId,
    Verdict,
    by_pool,
)

from .cluster import Bookings, Columns
from .cluster.bookedbefore import BookedBefore
from .cluster.facts import ClusterFacts, DisruptionBudget
from .cluster.runtimes import RunTimes
from .cluster.tasks import Tasks
from .devices.models import Demand
from .explain.decisions import Decisions
from .explain.labels import Label
from .framework.conf import Conf
from .framework.views import Views
from .framework.webhooks import Ask, no_webhooks
from .ledgerview import LedgerView
from .placement.domains import PlanDomains
from .placement.plans import Plans, reclaims
from .placement.runner import PLACE, SessionRunner
from .placement.sessions import Sessions
from .policy import Policy, policy_from
from .protocol.inflight import InFlight, Verdicts
from .protocol.limits import Limits, Proposals
from .queueing.groups import Groups
from .queueing.jobs import Entry, JobState, Order
from .queueing.schedulingqueue import SchedulingQueue
from .queueing.unschedulable import UnschedulableJobs
from .quotas.classes import ClassQuotas
from .quotas.namespaces import NamespaceQuota
from .quotas.queues import Queues
from .reports import Reports
from .starttimes import StartTimes
from .steps.admission import Admission
from .steps.context import SchedulerContext
from .steps.headlinereviews import HeadlineReviews
from .steps.placer import Attempt, Placer
from .steps.preemptor import Preemptor
from .steps.renominations import Renominations
from .steps.reservations import Reservations
from .steps.shuffling import Shuffling
from .steps.successions import Successions
from .topology.known import KnownTree

#: Minimum seconds to the next cycle while the ledger holds plans or is frozen: the scheduler plans nothing until the ledger's next message, which wakes it.
HELD_S = 1.0


#: Claims that one call of `Scheduler.advance` counts: some 10 ms.
ADVANCED = 1000

#: Minimum pods of a job whose gang is built when the job is received, not in a session: some hundreds of pods take a millisecond.
LARGE = 32


@dataclass(slots=True)
class _Spent:
    """What counts against the limits of one cycle: placements, failures, and jobs of sessions."""

    placed: int = 0
    failures: int = 0
    examined: int = 0


class Scheduler(LedgerView):
    """One scheduler's view and its decisions. Single-threaded; the caller passes the time as `now`, in monotonic seconds."""

    def __init__(
        self,
        *,
        id: SchedulerId,
        policy: Policy,
        limits: Limits | None = None,
        conf: Conf | None = None,
        ask: Ask = no_webhooks,
    ) -> None:
        """`policy`: the masks and scores that depend on a pod's shape only, with their learned state. `conf`: the full policy from which `policy` was made;
        None = the configuration of `policy` without actions that evict. `ask`: calls an external service for the policy's plugins."""
        self.id = id
        limits = limits or Limits()
        self.policy = policy
        self.columns = Columns()
        self.columns.in_use = self._resources_in_use
        bookings = Bookings(self.columns)
        self.queues = Queues(bookings)
        self.views = Views(self.columns, policy)
        #: Explanations of recent placements.
        self.decisions = Decisions(self.columns, self.views.terms, (conf or policy.conf).summary)
        self.columns.choices = self.decisions
        self.tasks = Tasks(self.columns)
        quota = NamespaceQuota(self.columns, bookings.card_quotas)
        self._groups = Groups(self.columns)
        self.class_quotas = ClassQuotas()
        self._class_quotas_pending: tuple[Index, Sequence[ClassQuota]] | None = (
            None  #: apply once the claims are known up to this index
        )
        self._unschedulable = UnschedulableJobs(
            self.columns,
            self.views,
            self.queues,
            quota,
            lambda entry: self._runner.reservations.passes(entry, self.queues.all()),
        )
        queue = SchedulingQueue(
            self.tasks,
            bookings,
            self._unschedulable,
            self.queues,
            self.class_quotas,
            groups=self._groups,
            limits=limits,
        )
        flights = InFlight(limits.resend_after_s)
        verdicts = Verdicts(limits.verdict_every_s)
        self._unreported: dict[JobId, None] = {}  #: jobs whose verdict names nodes that wait for a first report
        self._demand = Demand()
        self._queues_changed: set[QueueName] = set()
        self._quotas_changed: set[str] = set()  #: namespaces
        neighbours: dict[PodUid, Neighbour] = {}
        self._tree = KnownTree(self.columns)
        self._booked_before = BookedBefore()
        facts = ClusterFacts(demand=self._demand.cards, booked_before=self._booked_before)
        domains = PlanDomains(self._tree, facts.fabrics, heeded=lambda: self._runner.heeds_domains)
        plans = Plans(id, self.columns, bookings, limits.deadline_s, domains)
        sessions = Sessions(
            columns=self.columns,
            bookings=bookings,
            tasks=self.tasks,
            neighbours=neighbours,
            facts=facts,
            known_tree=self._tree,
            groups=self._groups,
            views=self.views,
            demand=queue.waiting,
            ask=ask,
        )
        self._runner = SessionRunner(
            sessions=sessions,
            columns=self.columns,
            bookings=bookings,
            neighbours=neighbours,
            facts=facts,
            quota=quota,
            conf=conf or replace(policy.conf, actions=PLACE),
            policy=policy,
        )
        context = SchedulerContext(
            sessions=sessions,
            runner=self._runner,
            plans=plans,
            views=self.views,
            bookings=bookings,
            queues=self.queues,
            queue=queue,
            unschedulable=self._unschedulable,
            flights=flights,
            limits=limits,
        )
        preemptor = Preemptor(context)
        nominations = preemptor.nominations
        admission = Admission(context, groups=self._groups, verdicts=verdicts, nominations=nominations)
        admission.follow(enqueues=self._runner.enqueues)
        super().__init__(
            context,
            facts=facts,
            verdicts=verdicts,
            preemptor=preemptor,
            shuffling=Shuffling(context, nominations=nominations),
            reservations=Reservations(context, nominations=nominations),
            admission=admission,
            successions=Successions(context, nominations),
        )
        self._renominations = Renominations(context, preemptor)
        self._placer = Placer(context, neighbours=neighbours)
        self._reviews = HeadlineReviews(context, verdicts)
        self.start_times = StartTimes(
            runner=self._runner,
            queue=queue,
            queues=self.queues,
            bookings=bookings,
            leaving=lambda: list(nominations),
            frozen=lambda: self.frozen or bool(self.held),
        )
        self.reports = Reports(context, columns=self.columns, facts=facts, preemptor=preemptor, ledger=self)

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
        resolved = self._queue.resolve_again()
        self.bookings.resolve_again(resolved)
        self._preemptor.nominations.resolve_again(resolved)
        self._sessions.resolve_again()
        self._placer.resolve_again()
        self.views.clear()

    def _resources_in_use(self) -> set[str]:
        """The resources that pods hold, and that sessions count by the rules of queues. A resource that jobs only request has no column."""
        tree = self.queues.all()
        names = {name for used in self.bookings.queue_used.values() for name, units in used.items() if units}
        for amounts in map(tree.amounts, tree):
            names.update(amounts.capability, amounts.deserved, amounts.guarantee)
        if tree.by_model:
            names.update(self.columns.model_resources)
        return names.union(self.columns.shares, (by_pool(name)[0] for name in names))

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
        known = self.queues.all().get(queue.name)
        before = _resources_of(known) if known is not None else frozenset()
        if gone:
            self._facts.recent_use.drop(queue.name)
            self._queues_changed.update(self.queues.drop(queue.name))
            self.bookings.forget_unused(queue.name)
            self.columns.refer(before, frozenset())
        else:
            self._facts.recent_use.put(queue.name, recent_cards)
            if self.queues.put(queue):
                self._queues_changed.add(queue.name)
                self.columns.refer(before, _resources_of(queue))
        self._resolve_renamed()
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
            self._booked_before.measured(usages, self.columns)
            self.invalidate_sessions()

    def mark(self) -> int:
        """The mark to take before requesting a snapshot of jobs; pass it as `since` to `on_jobs_snapshot`."""
        return self._queue.touched

    def on_jobs(self, jobs: Iterable[Job]) -> None:
        """Record the current state of jobs. A revision that is not higher than the known one is ignored."""
        self._queue.touched += 1
        for job in jobs:
            self._record(job)

    def on_jobs_page(self, jobs: Iterable[Job], *, since: int) -> None:
        """Record jobs of a snapshot that is still arriving; `on_jobs_snapshot` follows with the same mark `since`. Jobs that it does not name are removed by
        it: an answer that broke off names jobs that may be gone."""
        for job in jobs:
            known = self._queue.entries.get(job.id)
            touched = since if known is None else known.touched
            self._record(job)
            if (entry := self._queue.entries.get(job.id)) is not None:
                entry.touched = touched

    def _record(self, job: Job) -> None:
        known = self._queue.entries.get(job.id)
        if known is not None and job.revision <= known.job.revision:
            known.touched = self._queue.touched
            return
        if known is None and not self._queue.is_withdrawn(job):
            self._add(job)
            self._successions.job(job)
        elif known is not None:
            self._queue.update(known, job)
            self._placer.revised(job.id)
            self._verdicts.republish(job.id)
            self._successions.job(job)

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

    def on_missing(self, missing: Iterable[MissingPods]) -> None:
        """Record how many pods the controllers of these workloads are about to create."""
        self._successions.missing(missing)

    def on_missing_snapshot(self, missing: Iterable[MissingPods]) -> None:
        """Replace what is known of missing pods."""
        self._successions.forget_missing()
        self._successions.missing(missing)

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

    def on_budgets(self, budgets: Iterable[PodBudget]) -> None:
        """Record the allowed disruptions of all PodDisruptionBudgets."""
        found = [DisruptionBudget(one.namespace, one.name, {}, one.allowed) for one in budgets]
        if found != self._facts.budgets:
            self._facts.budgets = found
            self._preemptor.invalidate()

    def unpublished(self, verdicts: Iterable[JobVerdict], now: float) -> None:
        """Keep verdicts that could not be published: a later cycle returns them again."""
        for verdict in verdicts:
            if verdict.job in self._queue.entries or verdict.job in self._groups:
                self._verdicts.unpublished(verdict, now)

    def advance(self, limit: int = ADVANCED) -> bool:
        """Prepare sessions for up to `limit` claims that changed: the next cycle has so much less to do. Call it after claims arrived, and again while it
        returns True."""
        return self._sessions.advance(limit)

    # Decisions.

    def cycle(self, now: float, wall: float = 0.0) -> Proposals:
        """Plan placements for the active jobs. While the ledger is frozen or holds plans, the cycle plans nothing. `wall`: seconds since the epoch, for the
        policy's plugins."""
        out = Proposals()
        # 1. Apply the time: no message reports what ends with it.
        self._apply_time(now, wall)
        # 2. Collect the queues whose rules or free limits changed: several steps need them.
        if not (self.frozen or self.held):
            self._successions.release(now)
        changed = self._queues_changed
        freed = self.queues.freed(changed | self.bookings.queues_freed | self.queues.eased())
        self._queues_changed, self.bookings.queues_freed = set(), set()
        if self.frozen or self.held:
            self._queues_changed, self.bookings.queues_freed = changed, freed  # for the next cycle that plans
        else:
            # 3. Continue nominations: their resources are free for no other job.
            out.plans += self._preemptor.keep(self.index, now)
            self._successions.begin()
            # 4. Reserve nodes for large gangs, before smaller jobs take them.
            self._apply_class_quotas()
            self._reservations.run(now, wall)
            # 5. Activate the waiting jobs that the changes may help: the next steps serve active jobs only.
            quotas_freed = self._activate(changed, freed, now)
            # 6. Admit PodGroups: the policy decides about admission before placement.
            out.admitted, out.repeated = self.admission.run(now)
            # 7. Place jobs on free resources: it costs no pod its place.
            self._place(out, now)
            # 8. Search victims for jobs without a place: after placement, so that no pod is evicted for resources that were free.
            self._make_room(out, now, wall, changed=changed, freed=freed, quotas_freed=quotas_freed)
            # 9. Move pods that the policy wants elsewhere: last, since pending jobs come first.
            out.plans += self._shuffling.run(now)
        # 10. Hand over the messages that are due, and the time of the next cycle: nothing else wakes the caller.
        self.decisions.end(out.plans, wall)
        out.resend = self._flights.due(now)
        out.given_up = self._preemptor.take_given_up()
        out.verdicts = self._verdicts.due(now)
        out.wake_at = self._wake_at(now, wall)
        return out

    def _apply_time(self, now: float, wall: float) -> None:
        """Set the clocks; end rests, refusals of evictions, backoffs and the age of fabrics."""
        self.decisions.begin(now)
        self._facts.now = wall
        self._clocks = now, wall
        self._resolve_renamed()
        self.views.expire(now)
        if self.columns.rests:
            self.columns.end_rests(wall)
        if self._facts.fabrics.aging and self._facts.fabrics.age(wall, self.limits.fabric_max_age_s):
            self._placer.invalidate()
        self._tree.refresh()
        if self._facts.expire_refused(now):
            self._preemptor.invalidate()
        self._queue.due(self.index, now)

    def _apply_class_quotas(self) -> None:
        """Apply the last received quotas of PriorityClasses once the claims up to their index are known."""
        if self._class_quotas_pending is not None and self.index >= self._class_quotas_pending[0]:
            self._queue.recheck_classes(self.class_quotas.put(self._class_quotas_pending[1]))
            self._class_quotas_pending = None

    def _activate(self, changed: set[QueueName], freed: set[QueueName], now: float) -> set[str]:
        """Activate waiting jobs. `changed`: queues with new rules; `freed`: queues with more headroom. Returns the namespaces with more headroom."""
        self._queue.reroute(changed)
        self._queue.requota(self._quotas_changed)
        quotas_freed, self._quotas_changed, self.bookings.namespaces_freed = self.bookings.namespaces_freed, set(), set()
        if freed or changed or quotas_freed:
            self._placer.invalidate()
        self._placer.activate_waiting(self.index, now)
        self._queue.activate_unschedulable(freed, changed, quotas_freed)
        self._reviews.activate(now, self._placer.state(self.index))
        self._activate_reported()
        return quotas_freed

    def _place(self, out: Proposals, now: float) -> None:
        """Place active jobs in their order, and nominated jobs on other resources that became free, each after the active jobs that precede it. Pods on the
        places of their predecessors precede all jobs of their priority."""
        spent = _Spent()
        for order, succession in self._successions.due():
            if self._plan(out, now, spent, ahead_of=order):
                out.plans += self._successions.place(succession, now)
        self._successions.finish()
        for entry in self._renominations.take_due():
            if self._plan(out, now, spent, ahead_of=entry.order):
                out.plans += self._renominations.place(entry, now)
            else:
                self._renominations.postpone(entry)
        self._plan(out, now, spent)
        out.more |= self._renominations.behind and self._flights.placements < self.limits.outstanding
        out.more |= self._unschedulable.behind and self._flights.placements < self.limits.outstanding
        self._verdicts.put_all(self._placer.changed_verdicts(now), now)

    def _make_room(
        self, out: Proposals, now: float, wall: float, *, changed: set[QueueName], freed: set[QueueName], quotas_freed: set[str]
    ) -> None:
        """Propose evictions for jobs without a place, and other places or victims for nominated jobs."""
        self._preemptor.add_all(freed, quotas_freed, rules_changed=bool(changed))
        plans = [*self._renominations.search(self.index, now), *self._preemptor.run(self.index, now, wall)]
        self._verdicts.put_all((reclaims(plan) for plan in plans if plan.placements), now)
        out.plans += plans
        out.more |= self._preemptor.activated

    def _wake_at(self, now: float, wall: float) -> float | None:
        """The time of the next cycle if no message arrives before; None: no cycle is needed then."""
        times = chain(
            self._flights.next_at(),
            self._facts.may_not_leave.values(),
            self._verdicts.next_at(),
            self._queue.next_at(),
            self._placer.next_at(self.index),
            self._reviews.next_at(self._placer.state(self.index)),
            self._preemptor.next_at(self.index, now),
            self._renominations.next_at(self.index, now),
            self._successions.next_at() if not self.frozen else (),
            self._shuffling.next_at() if not self.frozen else (),
            self.admission.next_at() if not self.frozen else (),
            self._reservations.next_at() if not self.frozen else (),
            (now + (one.until - wall) / self.limits.clock_rate for kinds in self.columns.rests.values() for one in kinds),
        )
        wake_at = min(times, default=None)
        if (self.held or self.frozen) and wake_at is not None:
            wake_at = max(wake_at, now + HELD_S)
        return wake_at

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
            if spent.examined >= self.limits.cycle_jobs and self._precedes(ahead_of):
                out.more = True
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
            spent.examined += attempt.examined
            for plan in attempt.plans:
                self._flights.open(plan, now)
                self._placer.planned(plan)
                self._preemptor.placed(plan)
            self._conclude(attempt, now)
        return False

    def _precedes(self, order: Order | None) -> bool:
        """Whether an active job precedes this order; None: whether any job is active."""
        first = self._queue.first_active()
        return first is not None and (order is None or first < order)

    def _conclude(self, attempt: Attempt, now: float) -> None:
        for entry in (*attempt.proposed, *attempt.settled):
            self._reviews.left(entry.job.id)
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
                self._reviews.left(entry.job.id)
            else:
                if self._placer.retries(entry.job.id):
                    self._unschedulable.leave(entry, JobState.UNSCHEDULABLE)
                else:
                    self._unschedulable.add(entry)
                if self.columns.unreported_rows and Label.KUBELET_POLICY in verdict.reasons:
                    self._unreported[entry.job.id] = None
                self._reservations.add(entry)
                if not self._reviews.failed(entry, verdict, now, self._placer.state(self.index)):
                    self._preemptor.add(entry, self._placer.represented(entry.job.id))
            if not self._groups.blocked_reason(entry.job.id):  # otherwise admission publishes the reason
                self._verdicts.put(verdict, now)
        for entry in attempt.blocked:
            self._reviews.blocked(entry, now, self._placer.state(self.index))

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
        self._successions.removed(entry.job)
        self._preemptor.remove(entry.job.id)
        self._placer.remove(entry.job.id)
        self._reservations.remove(entry.job.id)
        self._verdicts.drop(entry.job.id)
        self._reviews.left(entry.job.id)


def _resources_of(queue: Queue) -> frozenset[str]:
    """The resources that the queue's rules name, also without their pools."""
    amounts = (queue.capability, queue.deserved, queue.guarantee, *queue.pool_amounts.values())
    names = {name for some in amounts for name in some}
    return frozenset(names.union(by_pool(name)[0] for name in names))
