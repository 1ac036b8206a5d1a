"""job-controller, wired: watches in, jobs and facts out, verdicts back to Kubernetes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from importlib.metadata import version
from typing import Any, NoReturn

from hbox_common import kube
from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.events import (
    BindDecided,
    BindOutcome,
    DeviceErrorSeen,
    Event,
    EvictionReceipt,
    JobsAdmitted,
    JobsAsked,
    JobsPage,
    JobsPending,
    JobsWaiting,
    JobsWithdrawn,
    OutcomesObserved,
    PolicyFollowed,
    QueueStateChanged,
)
from hbox_common.insisting import insist
from hbox_common.kube import (
    NAMESPACES,
    PODDISRUPTIONBUDGETS,
    PODGROUPS,
    PODS,
    PRIORITYCLASSES,
    Delta,
    DeltaKind,
    Informer,
    KubeClient,
)
from hbox_common.model import PodUid, QueueName, scheduler_names
from hbox_common.model.annotations import QUEUE_NAME
from hbox_common.model.bounds import is_name
from hbox_common.model.shards import Shards, shard_of
from hbox_common.runtime import Condition, Health, LongLived, complaints, connected, turn
from hbox_common.workloads import Kinds

from . import metrics
from .adapters.announcer import Announcer, last_revision, pages
from .adapters.budgets import BudgetTeller, budget_view
from .adapters.counts import CountsTeller
from .adapters.groupreads import GroupReader
from .adapters.objects import GROUP_FIELDS, NEVER, PodReader, group_view, identity
from .adapters.owners import OwnerWatch
from .adapters.paced import paced
from .adapters.phasepublisher import PhasePublisher
from .adapters.rests import RestPublisher
from .adapters.rivals import Rivals
from .adapters.traces import JobTraces, trace_of
from .adapters.volumes import VolumeWatch
from .adapters.waits import WaitPublisher
from .adapters.writes import KubeWriter
from .api import Api
from .core.feedback import Feedback
from .core.jobs import Jobs
from .core.routing import Routing
from .settings import JobControllerSettings

log = logging.getLogger(__name__)

HEALTH_S = 1.0
STARTING_S = 0.05
#: Seconds between two checks for rollouts that wait for ever.
ROLLOUTS_S = 2.0
#: What a listing of jobs shows.
LISTING = JobsAsked(asker="cli", jobs=True, pods=True, verdicts=True, held=True, waits=True)
#: Maximum seconds at the start until the owners of pods are read.
OWNERS_S = 10.0
CONDITIONS = ("kube", "bus", "synced")
#: Seconds between two repetitions of jobs without a verdict after verdicts were lost.
ASK_AGAIN_S = 30.0

#: Outcomes that show that the plan was based on an old view of the job.
_OLD_VIEW = frozenset({BindOutcome.GONE, BindOutcome.CONFLICT})

#: Outcomes after which a pod waits again.
_NOT_BOUND = frozenset({BindOutcome.CONFLICT, BindOutcome.REJECTED, BindOutcome.EXPIRED, BindOutcome.REVOKED})


async def run(settings: JobControllerSettings, health: Health) -> None:
    """The service, until cancelled."""
    async with (
        KubeClient.connect(settings.kubeconfig, user_agent="hbox-job-controller") as client,
        connected(settings) as bus,
    ):
        await turn()
        await JobController(settings, health, client, bus).run()


class JobController:
    """All tasks of the service run on one loop, and the core is only touched between awaits: it needs no lock."""

    def __init__(self, settings: JobControllerSettings, health: Health, client: KubeClient, bus: Bus) -> None:
        self._settings, self._health, self._bus = settings, health, bus
        self._routing = Routing(Shards.parse(settings.shards), began=monotonic_s())
        self._queues_read = asyncio.Event()
        if not self._routing.by_queue:
            self._queues_read.set()
        self.jobs = Jobs(
            publish_after_s=settings.condition_delay_s,
            trace=trace_of,
            most_pending=settings.pending_per_namespace,
            most_pending_mib=settings.pending_mib_per_namespace,
            routing=self._routing,
            system_namespaces=settings.namespaces_of_the_system,
            proves_groups=True,
            indexed_gangs=settings.indexed_jobs == "gang",
        )
        self._traces = JobTraces()
        if self._traces.on:
            self.jobs.waits.on_end = self._traces.waited
        self.feedback = Feedback(self.jobs)
        schedulers = scheduler_names(settings.scheduler_names)
        self._reader = PodReader(schedulers)
        self._rivals = Rivals(client, schedulers, volcano_namespace=settings.volcano_namespace)
        self._writer = KubeWriter(client, component="hbox", instance=settings.instance)
        self._pods = Informer(client, PODS, kube.Pod, keep=identity)
        self._groups = Informer(client, PODGROUPS, kube.PodGroup, enrich=GROUP_FIELDS.note)
        self._classes = Informer(client, PRIORITYCLASSES, kube.PriorityClass)
        self._namespaces = Informer(client, NAMESPACES, kube.KubeObject)
        self._budgets = Informer(client, PODDISRUPTIONBUDGETS, kube.PodDisruptionBudget)
        self._asked_again_at = -ASK_AGAIN_S
        self._wake, self._behind = asyncio.Event(), asyncio.Event()
        self._volumes = VolumeWatch(client, self.jobs, self.feedback, wake=self._wake, behind=self._behind)
        self._informers: dict[str, Informer[Any]] = {
            "pods": self._pods,
            "podgroups": self._groups,
            "priorityclasses": self._classes,
            "namespaces": self._namespaces,
            "poddisruptionbudgets": self._budgets,
            **self._volumes.informers,
        }
        self._counts = CountsTeller(bus)
        self._rests = RestPublisher(bus)
        self._queue_names: set[QueueName] = set()
        self._waits = WaitPublisher(bus, self.jobs.waits, self._queue_names)
        health.texts["queues"] = self._waits.text
        self._budget_teller = BudgetTeller(bus, self.jobs.budgets)
        self._group_reader = GroupReader(client, self.jobs, wake=self._wake)
        self._owners = OwnerWatch(client, self.jobs, Kinds.builtin(), wake=self._wake, kinds_dir=settings.kinds_dir)
        self._group_lists = 0
        self._announcer = Announcer(
            self.jobs,
            self.feedback,
            self._traces,
            bus,
            wake=self._wake,
            behind=self._behind,
            groups_delivered=lambda: self._groups.delivered,
            unread=self._group_reader.unread,
        )

    @property
    def synced(self) -> bool:
        """Whether the caches were filled from the API. Nothing is published before: a gang would be incomplete, and the owners of pods unknown."""
        return self._queues_read.is_set() and all(i.synced.is_set() for i in self._informers.values())

    async def run(self) -> None:
        if self._rivals.any:
            await self._rivals.refuse()
        async with asyncio.TaskGroup() as group:
            if self._rivals.any:
                group.create_task(self._rivals.watch(self._health.condition("alone")))
            group.create_task(self._classes.run(self._on_classes))
            group.create_task(self._namespaces.run(self._on_namespaces))
            group.create_task(self._budgets.run(self._on_budgets))
            group.create_task(self._groups.run(self._on_groups))
            group.create_task(self._pods.run(self._on_pods))
            self._volumes.start(group)
            group.create_task(self._watch_health())
            group.create_task(self._bus.serve(JobsAsked, self._answer))
            group.create_task(
                self._bus.offer(
                    Api(self.jobs, lambda: self.synced, lambda: list(self._pages(LISTING))).endpoints(),
                    version=version("hbox-jobs"),
                    about="Jobs: what waits, and what runs where",
                )
            )
            resumed = group.create_task(self._resume())
            group.create_task(self._rests.resume())
            waits_read = group.create_task(self._waits.resume())
            group.create_task(
                self._bus.follow(
                    [QueueStateChanged], self._on_queues, start=Start.LAST_PER_SUBJECT, on_ready=self._queues_read.set
                )
            )
            for informer in self._informers.values():
                await informer.synced.wait()
            await self._queues_read.wait()
            await resumed
            await waits_read
            self.jobs.pods_listed(monotonic_s())
            group.create_task(self._owners.follow_files())
            group.create_task(self._owners.run())
            await self._owners_read()
            self.jobs.waits.keep(self.jobs.ids(), wall_s())
            self.jobs.listed()
            log.info("synced", extra=dict(self.jobs.counts()))
            group.create_task(self._announcer.run())
            group.create_task(self._group_reader.run())
            group.create_task(self._counts.run())
            group.create_task(self._rests.run())
            group.create_task(self._waits.run())
            group.create_task(self._budget_teller.run())
            group.create_task(self._watch_rollouts())
            group.create_task(
                self._bus.follow(
                    [JobsWaiting, JobsAdmitted],
                    self._on_verdicts,
                    start=Start.NEW,
                    on_gap=self._streams_lost,
                    on_missed=self._verdicts_missed,
                )
            )
            group.create_task(self._bus.follow([PolicyFollowed], self._on_policy, start=Start.LAST_PER_SUBJECT))
            group.create_task(self._bus.follow([OutcomesObserved], self._on_outcomes, start=Start.NEW))
            group.create_task(self._bus.follow([BindDecided], self._on_decided, start=Start.NEW))
            group.create_task(
                self._bus.follow([EvictionReceipt, DeviceErrorSeen], self._on_notices, start=Start.NEW, writers_only=True)
            )
            phases = PhasePublisher(
                self._bus,
                self.jobs,
                self._traces,
                self._announcer.busy,
                behind=self._behind,
                rate_per_s=self._settings.phases_per_s,
            )
            group.create_task(phases.run())
            group.create_task(phases.finish_deleted())
            for task in self._feedback_tasks():
                group.create_task(task)

    async def _owners_read(self) -> None:
        """Wait until the owners of listed pods are read, so that running gangs are not published as single pods; but not for a kind that does not answer."""
        try:
            async with asyncio.timeout(OWNERS_S):
                while not self._owners.settled:  # noqa: ASYNC110  one look is enough for all kinds
                    await asyncio.sleep(STARTING_S)
        except TimeoutError:
            log.warning("%d owners of pods are not read yet; their pods wait", self.jobs.owners.waiting)

    async def _resume(self) -> None:
        """Revisions go on above those of earlier processes."""

        async def last() -> list[Delivery]:  # of all shards that there are, or ever were
            return [*await self._bus.last(JobsPending, [(None,)]), *await self._bus.last(JobsWithdrawn, [(None,)])]

        last_published = await insist(last, on_unavailable=lambda e: log.warning("the last revision is not known yet: %s", e))
        self.jobs.resume(max((last_revision(delivery.event) for delivery in last_published), default=0))

    # --- Kubernetes in

    async def _on_pods(self, deltas: Sequence[Delta[kube.Pod]]) -> None:
        await self._rests.resumed()
        now, wall, listed = monotonic_s(), wall_s(), not self._pods.synced.is_set()
        to_place = 0
        for delta in deltas:
            if delta.new is None:
                assert delta.old is not None
                self.jobs.pod_gone(PodUid(delta.old.metadata.uid), now)
                continue
            old = self.jobs.view(PodUid(delta.new.metadata.uid))
            new = self._reader.view(delta.new, old)
            self._traces.pod(old, new, wall)
            new = self.jobs.pod(new, now)
            if new.ours:
                self._rivals.pod(old, new, now)
                self.feedback.pod(old, new, now)
                self._rests.pod(old, new, wall, listed=listed)
                to_place += old is None and new.placeable
        self._announcer.came(to_place)
        self._wake.set()
        self._behind.set()

    async def _on_groups(self, deltas: Sequence[Delta[kube.PodGroup]]) -> None:
        now = monotonic_s()
        if self._group_lists != self._groups.relists:
            self._group_lists = self._groups.relists
            self.jobs.groups_relisted()
        for delta in deltas:
            if delta.new is not None:
                view = group_view(delta.new)
                self.jobs.group(view, now)
                self._counts.put(view)
            elif delta.old is not None:
                gone = group_view(delta.old)
                self.jobs.group_gone(gone.key, gone.uid, now)
                self._counts.gone(gone)
        self._wake.set()

    async def _on_classes(self, deltas: Sequence[Delta[kube.PriorityClass]]) -> None:
        now = monotonic_s()
        for delta in deltas:
            thing = delta.new or delta.old
            assert thing is not None
            value = delta.new.value if delta.new is not None and delta.kind is not DeltaKind.DELETED else None
            never = delta.new is not None and delta.new.preemption_policy == NEVER
            self.jobs.priority_class(thing.metadata.name, value, now, never=never)
        self._wake.set()

    async def _on_namespaces(self, deltas: Sequence[Delta[kube.KubeObject]]) -> None:
        now = monotonic_s()
        for delta in deltas:
            if delta.new is not None and delta.kind is not DeltaKind.DELETED:
                meta = delta.new.metadata
                queue = meta.annotations.get(QUEUE_NAME, "")
                self.jobs.namespace(
                    meta.name,
                    meta.labels,
                    now,
                    terminating=meta.deletion_timestamp is not None,
                    queue=QueueName(queue if is_name(queue) else ""),
                )
            elif (thing := delta.new or delta.old) is not None:
                self.jobs.namespace_gone(thing.metadata.name, now)
        self._wake.set()

    async def _on_budgets(self, deltas: Sequence[Delta[kube.PodDisruptionBudget]]) -> None:
        for delta in deltas:
            if delta.new is not None and delta.kind is not DeltaKind.DELETED:
                self.jobs.budget(budget_view(delta.new))
            elif (thing := delta.new or delta.old) is not None:
                self.jobs.budget_gone(thing.metadata.namespace, thing.metadata.name)
        self._budget_teller.moved()
        self._wake.set()

    # --- the bus in

    async def _on_verdicts(self, deliveries: Sequence[Delivery]) -> None:
        now = monotonic_s()
        for delivery in deliveries:
            match delivery.event:
                case JobsWaiting(verdicts=verdicts, scores=scores):
                    self.feedback.scored(scores)
                    for verdict in verdicts:
                        record = self.jobs.verdict(verdict, now, delivery.key)
                        if record is not None:
                            self.feedback.settled(record, now)
                case JobsAdmitted(scheduler=scheduler, jobs=jobs):
                    self.jobs.admit(scheduler, jobs, now)
        self._wake.set()
        self._behind.set()

    async def _on_policy(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            assert isinstance(delivery.event, PolicyFollowed)
            self._routing.received(delivery.key, monotonic_s())
            self.jobs.gated(delivery.event.gated, monotonic_s(), delivery.key)
        self._wake.set()

    async def _on_queues(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            assert isinstance(delivery.event, QueueStateChanged)
            queue, gone = delivery.event.queue, delivery.event.gone
            (self._queue_names.discard if gone else self._queue_names.add)(queue.name)
            if self._routing.by_queue:
                self.jobs.queue(queue, monotonic_s(), gone=gone)
        self._wake.set()

    async def _on_outcomes(self, deliveries: Sequence[Delivery]) -> None:
        now, wall = monotonic_s(), wall_s()
        for delivery in deliveries:
            assert isinstance(delivery.event, OutcomesObserved)
            for outcome in delivery.event.outcomes:
                if outcome.outcome is BindOutcome.EVICTED:
                    self.jobs.evicted(outcome.job, outcome.reason or outcome.message, wall)
                elif outcome.outcome in _OLD_VIEW:
                    self.jobs.repeat(outcome.job, now)
                if outcome.blocked:
                    record = self.jobs.blocked(outcome.job, outcome.pod_uid, outcome.reason, outcome.message, now)
                elif outcome.outcome is not BindOutcome.UNKNOWN:
                    record = self.jobs.unblocked(outcome.job, outcome.pod_uid, now)
                else:
                    record = None
                if record is not None:
                    self.feedback.settled(record, now)
                if outcome.outcome in _NOT_BOUND:
                    self.feedback.not_bound(outcome.pod_uid, now)
        self._wake.set()
        self._behind.set()

    async def _on_decided(self, deliveries: Sequence[Delivery]) -> None:
        now = monotonic_s()
        for delivery in deliveries:
            assert isinstance(delivery.event, BindDecided)
            self.feedback.decided((bind.pod_uid for bind in delivery.event.binds), now)

    async def _on_notices(self, deliveries: Sequence[Delivery]) -> None:
        now = monotonic_s()
        for delivery in deliveries:
            if isinstance(delivery.event, DeviceErrorSeen):
                self.feedback.device_error(delivery.event, now)
            else:
                assert isinstance(delivery.event, EvictionReceipt)
                self.feedback.evicted(delivery.event, now)
        self._behind.set()

    async def _streams_lost(self) -> None:
        log.warning("the stream of jobs was lost or re-created: publishing all jobs again")
        self.jobs.repeat_all(monotonic_s())
        self._rests.republish()
        self.jobs.waits.mark_changed()
        self._wake.set()

    async def _verdicts_missed(self) -> None:
        """After a repeated announcement the scheduler publishes again why jobs wait, and which it admitted. Many jobs are many messages, so this is rare."""
        now = monotonic_s()
        if now >= self._asked_again_at + ASK_AGAIN_S:
            self._asked_again_at = now
            log.warning("verdicts were lost: publishing jobs without one again")
            self.jobs.repeat_unexplained(now)
            self._wake.set()

    async def _answer(self, asked: JobsAsked) -> AsyncIterator[Event]:
        if asked.gatekeeper and self.synced:
            self.jobs.admission.admitting_schedulers[shard_of(asked.gatekeeper)] = asked.gatekeeper
        for page in self._pages(asked):
            yield page

    def _pages(self, asked: JobsAsked) -> Iterator[JobsPage]:
        without = self._routing.without_scheduler(monotonic_s())
        return pages(asked, self.jobs, self._pods.freshness(), synced=self.synced, without=without)

    # --- behind the hot path

    def _feedback_tasks(self) -> list[Coroutine[Any, Any, None]]:
        settings, feedback, writer, behind = self._settings, self.feedback, self._writer, self._behind
        return [
            paced(
                "condition",
                take=feedback.conditions,
                next_due=feedback.next_condition,
                write=writer.condition,
                again=feedback.again_condition,
                wake=behind,
                rate_per_s=settings.conditions_per_s,
            ),
            paced(
                "selection",
                take=feedback.selections,
                next_due=feedback.next_selection,
                write=writer.selection,
                again=feedback.again_selection,
                wake=behind,
                rate_per_s=settings.conditions_per_s,
                insist=True,
            ),
            paced(
                "status",
                take=lambda now, limit: feedback.statuses(now, limit, kube.rfc3339(wall_s())),
                next_due=feedback.next_status,
                write=writer.status,
                again=feedback.again_status,
                wake=behind,
                rate_per_s=settings.conditions_per_s,
                insist=True,
            ),
            paced(
                "declared",
                take=feedback.declared,
                next_due=feedback.next_declared,
                write=writer.declared,
                again=feedback.again_declared,
                wake=behind,
                rate_per_s=settings.conditions_per_s,
                insist=True,
            ),
            paced(
                "event",
                take=feedback.events,
                next_due=feedback.next_event,
                write=writer.event,
                again=feedback.again_event,
                wake=behind,
                rate_per_s=settings.events_per_s,
                busy=self._announcer.busy,
            ),
        ]

    async def _watch_rollouts(self) -> NoReturn:
        while True:
            if self.feedback.rollouts(monotonic_s()):
                self._behind.set()
            await asyncio.sleep(ROLLOUTS_S)

    async def _watch_health(self) -> None:
        conditions = {name: self._health.condition(name) for name in CONDITIONS}
        memory = LongLived()
        while True:
            wrong = {name: complaint for name, i in self._informers.items() if (complaint := _complaint(i))}
            _set(conditions["kube"], good=not wrong, message=complaints(wrong))
            _set(conditions["bus"], good=self._bus.connected, message="NATS cannot be reached")
            missing = [name for name, i in self._informers.items() if not i.synced.is_set()]
            missing += [] if self._queues_read.is_set() else ["queues, by whose pools jobs go to shards"]
            _set(conditions["synced"], good=not missing, message=f"not listed yet: {', '.join(missing)}")
            counts = self.jobs.counts()
            metrics.JOBS.set(counts["jobs"])
            metrics.PODS.set(counts["pods"])
            memory.holds(counts["pods"])
            metrics.HELD.set(counts["held"])
            if self._routing.shards.several:
                self._watch_shards()
            metrics.BACKLOG.set(self.feedback.waiting() + len(self.jobs.phases))
            await asyncio.sleep(HEALTH_S if self._health.ready else STARTING_S)

    def _watch_shards(self) -> None:
        """Report shards without a scheduler. They do not affect readiness, since the other shards' jobs continue."""
        now = monotonic_s()
        self._health.condition("shards").ok("; ".join(self._routing.without_scheduler(now).values()))
        for shard, silent in self._routing.silent_s(now).items():
            metrics.SILENT.labels(shard).set(silent)
        for shard, count in self.jobs.waiting_by_shard().items():
            metrics.WAITING.labels(shard).set(count)


def _complaint(informer: Informer[Any]) -> str:
    seen = informer.freshness()
    if seen.old and informer.synced.is_set():
        return f"last seen {seen.age_s:.0f} s ago{f': {seen.why}' if seen.why else ''}"
    return seen.why


def _set(condition: Condition, *, good: bool, message: str) -> None:
    if good:
        condition.ok()
    else:
        condition.bad(message)
