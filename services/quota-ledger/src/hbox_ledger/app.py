"""The quota-ledger process: connects the ledger to its database, the bus and Kubernetes."""

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import NoReturn

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import Conflict, HBoxError, InvalidRequest, Unavailable
from hbox_common.events import (
    MOST_PODS_READ,
    ClaimsAsked,
    EpochAsked,
    FabricChanged,
    HealthEvictionAsked,
    HealthVerdict,
    JobDemandPending,
    JobsAsked,
    JobsPage,
    JobsWithdrawn,
    JobTermsPending,
    NodeDevicesChanged,
    NodeStateChanged,
    OutcomesObserved,
    PlansProposed,
    PodGroupsCounted,
    PodsAsked,
    PodsObserved,
    PodsRead,
    UsageAsked,
)
from hbox_common.kube import OLD_S, KubeClient
from hbox_common.model.shards import ONE_SHARD, shard_of
from hbox_common.runtime import Condition, Health, LongLived, WatchedFile, connected, current_secret, turn
from hbox_common.store import Store

from . import metrics
from .adapters import load, tables
from .adapters.policyfile import policy_file
from .adapters.quota_publisher import QuotaPublisher
from .adapters.rollup import DAY_S
from .adapters.statuses import StatusWriter
from .adapters.streams import read_streams
from .api import Api
from .cardmetrics import cards_page
from .core.accounts.history import Decay
from .core.recovery import Position, StreamHistory
from .deferred_plans import DeferredPlans
from .ledger import Ledger, Numbered
from .publisher import Publisher
from .relay import Relay
from .rules import Rules
from .settings import LedgerSettings
from .views import Views

log = logging.getLogger(__name__)

TICK_S = 1.0
METER_S = 60.0
SEAL_S = 60.0
#: Seconds between two turns over outcomes or pod facts: no component waits for a single one, and each turn is a commit.
EVIDENCE_S = 0.1
#: Seconds until the comparison that follows a requested one: the first may have missed changes that were in progress.
FOLLOWS_S = 10.0
#: Seconds until pods that could not be read are requested again.
READ_AGAIN_S = 2.0
#: Seconds between two requests whether job-controller sees the pods.
LOOK_S = 1.0
#: Timeouts in seconds of job-controller's and of the binder's answers.
ANSWER_S, READ_S = 5.0, 60.0
#: A bound pod is published within a second. If it was not, it was created and deleted while job-controller did not watch.
UNSEEN_TICKS = 3
ASK_AGAIN_S = 0.5
#: Seconds before now at which a recreated consumer of outcomes begins: an older decision that is still open is sent again within two minutes, and its
#: outcome is published again.
RESENT_S = 600.0
#: Timeout in seconds for a list of all pods: 100,000 pods took 14 s on a crowded machine. A missing job-controller is noticed long before.
LIST_S = 60.0
#: Seconds between two requests for all jobs because a plan names an unknown job.
ASK_TERMS_S = 10.0
PLACEMENTS = 512  #: maximum in one turn: about 0.1 s
#: Whether queues have shares by weight, per setting; with `policy`, the policy file decides.
BY_WEIGHT = {"weight": True, "deserved": None}


async def run(settings: LedgerSettings, health: Health) -> None:
    """Serve until cancelled. Raises Conflict if another ledger has taken over the database."""
    policy = (
        policy_file(settings.scheduler_conf) if settings.shares == "policy" and settings.scheduler_conf is not None else None
    )
    async with AsyncExitStack() as stack:
        if not settings.leader_election:  # reports a wrong database address even if there is no broker
            store = await stack.enter_async_context(_store(settings))
        kube = await stack.enter_async_context(KubeClient.connect(settings.kubeconfig, user_agent="hbox-quota-ledger"))
        bus = await stack.enter_async_context(connected(settings))
        await turn()
        if settings.leader_election:  # opening the database ends the sessions of other ledgers
            store = await stack.enter_async_context(_store(settings))
        await _serve(settings, health, policy, store, kube, bus)


def _store(settings: LedgerSettings) -> AbstractAsyncContextManager[Store]:
    return Store.open(
        lambda: current_secret(settings, "database_url"),
        metadata=tables.metadata,
        versions=tables.VERSIONS,
        exclusive=not settings.leader_election,  # a hanging leader would otherwise block its standby; epoch and index fence transactions
    )


async def _serve(  # noqa: PLR0917  everything that `run` has opened
    settings: LedgerSettings, health: Health, policy: WatchedFile[bool] | None, store: Store, kube: KubeClient, bus: Bus
) -> None:
    conditions = Conditions(*(health.condition(name) for name in ("database", "bus", "queues", "books", "pods", "evictions")))
    relay = Relay(store, bus)
    position = await store.read(load.position)
    conditions.database.ok()
    decay = Decay(settings.usage_half_life_h, settings.usage_window_h)
    history = await _read_streams(bus, position, conditions.bus)
    ledger = await Ledger.begin(
        store,
        relay,
        clock=wall_s,
        history=history,
        decay=decay,
        evictions_most=settings.evictions_most,
        notice_s=settings.notice_s,
        clock_rate=settings.time_scale,
        by_weight=policy.value if policy is not None else BY_WEIGHT[settings.shares],
    )
    conditions.state.bad("waiting for nodes, queues and pods")
    statuses = StatusWriter(kube, instance=settings.instance, per_s=settings.queue_statuses_per_s)
    quotas = QuotaPublisher(bus)
    rules = Rules(kube, ledger, statuses, quotas, bound=settings.queues == "bound")
    shell = Shell(settings, ledger, bus, rules, statuses)
    views = Views(ledger, store)
    publisher = Publisher(ledger, views, bus, statuses)
    health.texts["queues"] = lambda: ledger.queue_metrics.text(lambda: ledger.state)
    health.pages["cards"] = partial(
        cards_page, lambda: ledger.state, pods=settings.pods_in_card_metrics, label=ledger.queue_metrics.label
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(relay.run())
            tasks.create_task(rules.run(conditions.queues))
            tasks.create_task(
                bus.follow(
                    [NodeStateChanged, HealthVerdict, HealthEvictionAsked, PodGroupsCounted, NodeDevicesChanged, FabricChanged],
                    shell.on_state,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=shell.state_read.set,
                )
            )
            tasks.create_task(
                bus.follow(
                    [JobTermsPending if settings.shares == "deserved" else JobDemandPending, JobsWithdrawn],
                    shell.on_jobs,
                    on_ready=shell.jobs_followed.set,
                    on_gap=shell.jobs_missed,
                    writers_only=True,
                )
            )
            if policy is not None:
                tasks.create_task(policy.watch(shell.on_policy))
            tasks.create_task(shell.deferred.run())
            tasks.create_task(bus.consume("quota-ledger-plans", [PlansProposed], shell.on_plans))
            tasks.create_task(
                bus.consume(
                    "quota-ledger-outcomes",
                    [OutcomesObserved],
                    shell.on_outcomes,
                    window_s=EVIDENCE_S,
                    from_last_s=RESENT_S,
                )
            )
            tasks.create_task(
                bus.consume(
                    "quota-ledger-pods",
                    [PodsObserved],
                    shell.on_pods,
                    window_s=EVIDENCE_S,
                    writers_only=True,
                    on_missed=shell.pods_missed,
                )
            )
            tasks.create_task(bus.serve(ClaimsAsked, publisher.claims))
            tasks.create_task(bus.serve(EpochAsked, publisher.epoch))
            tasks.create_task(bus.serve(UsageAsked, publisher.usage))
            about = "The bank: queues, claims, usage"
            tasks.create_task(bus.offer(Api(views).endpoints(), version=version("hbox-ledger"), about=about))
            tasks.create_task(shell.reconcile(conditions.state))
            tasks.create_task(shell.read_suspects())
            tasks.create_task(shell.look(conditions.pods))
            tasks.create_task(publisher.publish_queues())
            tasks.create_task(publisher.publish_quotas())
            tasks.create_task(quotas.run(rules.read))
            tasks.create_task(statuses.run())
            tasks.create_task(shell.tick(conditions))
            tasks.create_task(shell.meter())
            tasks.create_task(shell.forget())
            tasks.create_task(shell.seal())
            tasks.create_task(shell.stop_when_taken_over())
    finally:
        await relay.flush()


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the ledger needs to be ready."""

    database: Condition
    bus: Condition
    queues: Condition
    state: Condition
    pods: Condition  #: job-controller sees the pods: plans are not held
    evictions: Condition  #: always true; its reason reports that evictions are paused


class Shell:
    """Passes messages and the clock's ticks to the ledger."""

    def __init__(self, settings: LedgerSettings, ledger: Ledger, bus: Bus, rules: Rules, statuses: StatusWriter) -> None:
        self.state_read, self.jobs_followed = asyncio.Event(), asyncio.Event()
        self.deferred = DeferredPlans(lambda plan, by: ledger.state.records.refusal(plan, shard_of(by)) is None, self._propose)
        self._settings, self._ledger, self._bus, self._rules, self._statuses = settings, ledger, bus, rules, statuses
        self._compare = asyncio.Event()  #: pods may have ended without a message
        self._due = asyncio.Event()  #: do not wait for the next tick
        self._doubt = asyncio.Event()  #: the last list lacks pods of some claims
        self._watchers: set[str] = set()  #: job-controllers that have published; one more at each of their starts
        self._pods_read = 0  #: stream sequence
        self._ask_terms = True  #: request all jobs with the next comparison
        self._asked_terms_at = -ASK_TERMS_S
        self._unknown = 0

    async def on_state(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if isinstance(delivery.event, NodeStateChanged):
                self._ledger.node(delivery.event.node)
            elif isinstance(delivery.event, NodeDevicesChanged):
                self._ledger.devices(delivery.event.devices)
            elif isinstance(delivery.event, FabricChanged):
                self._ledger.fabric(delivery.event.fabric, delivery.event.version, delivery.event.hypernodes)
            elif isinstance(delivery.event, HealthVerdict):
                self._ledger.verdict(delivery.event.verdict)
            elif isinstance(delivery.event, HealthEvictionAsked):
                self._ledger.evict_from(delivery.event)
                self._due.set()
            elif isinstance(delivery.event, PodGroupsCounted):
                self._statuses.counted(delivery.subject, delivery.event.queues)

    def on_policy(self, by_weight: bool) -> None:
        """The policy file gained or lost the plugin that divides shares by weight."""
        self._ledger.state.records.by_weight = by_weight
        log.info(
            "what queues may take back from now on: %s", "their shares by weight too" if by_weight else "what they deserve"
        )

    async def on_jobs(self, deliveries: Sequence[Delivery]) -> None:
        records = self._ledger.state.records
        for delivery in deliveries:
            match delivery.event:
                case JobTermsPending(anew=True):
                    await self.jobs_missed()  # jobs that it does not name may be gone
                case JobTermsPending(jobs=jobs):
                    records.receive(jobs, delivery.key)
                case JobsWithdrawn(jobs=ids, revisions=revisions):
                    records.withdraw(ids, revisions)
        metrics.JOBS.set(len(records))
        self.deferred.jobs_changed()

    async def jobs_missed(self) -> None:
        """Messages about jobs or pods were lost: request all of them."""
        self._ask_terms = True
        self._compare.set()

    async def pods_missed(self) -> None:
        """Pod facts were lost: request all pods."""
        self._compare.set()

    async def on_plans(self, deliveries: Sequence[Delivery]) -> None:
        proposals = [self.deferred.take_out(d.event) for d in deliveries if isinstance(d.event, PlansProposed)]
        await self._propose([proposed for proposed in proposals if proposed.plans or proposed.given_up])

    async def _propose(self, proposals: Sequence[PlansProposed]) -> None:
        for some in _turns(proposals):
            await self._ledger.propose(some)
        unknown = self._ledger.unknown_jobs
        if unknown != self._unknown and monotonic_s() >= self._asked_terms_at + ASK_TERMS_S:
            self._unknown = unknown
            await self.jobs_missed()

    async def on_outcomes(self, deliveries: Sequence[Delivery]) -> None:
        await self._ledger.outcomes(
            [Numbered(d.message_id, d.event, d.deliveries > 1) for d in deliveries if isinstance(d.event, OutcomesObserved)]
        )

    async def on_pods(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            # No message reports pods that ended between the crash of one job-controller and the first list of the next, nor pods whose end was in a lost
            # stream. Their
            # claims would hold cards until the next regular comparison.
            again = delivery.deliveries == 1 and delivery.sequence < self._pods_read
            if again or delivery.source not in self._watchers:
                self._watchers.add(delivery.source)
                self._compare.set()
            self._pods_read = delivery.sequence
        await self._ledger.observed(
            [Numbered(d.message_id, d.event, d.deliveries > 1) for d in deliveries if isinstance(d.event, PodsObserved)]
        )
        if self._ledger.state.contradicted:
            self._doubt.set()

    async def reconcile(self, condition: Condition) -> NoReturn:
        """Compare with all pods: first to open the books, then periodically."""
        await self.state_read.wait()
        await self.jobs_followed.wait()
        await self._rules.read.wait()
        follows_s = min(FOLLOWS_S, self._settings.reconcile_s)
        triggered = False
        while True:
            self._compare.clear()
            try:
                as_of, asked_at = self._ledger.index, monotonic_s()
                terms, self._ask_terms = self._ask_terms, False
                self._ledger.state.records.ask()
                try:
                    pages = await self._bus.ask(
                        JobsAsked(
                            asker=self._settings.instance,
                            jobs=False,
                            pods=True,
                            ended=True,
                            complete=True,
                            terms=terms,
                            demand=terms and self._ledger.state.demand is not None,
                        ),
                        JobsPage,
                        timeout_s=LIST_S,
                    )
                    if not pages or not all(page.complete for page in pages):
                        message = f": {pages[0].why}" if pages and pages[0].why else ""
                        raise Unavailable(f"job-controller does not see all pods{message}")
                except Unavailable:
                    self._ask_terms = self._ask_terms or terms
                    raise
                if terms:
                    self._asked_terms_at = asked_at
                    listed = [(one, page.shard) for page in pages for one in (*page.terms, *page.demand)]
                    elsewhere = {one.id: shard for one, shard in listed if shard != ONE_SHARD}
                    self._ledger.state.records.only((one for one, _ in listed), elsewhere)
                    metrics.JOBS.set(len(self._ledger.state.records))
                    self.deferred.jobs_changed()
                pods = [pod for page in pages for pod in page.pods]
                opens = self._ledger.state.frozen
                await self._ledger.reconcile(pods, as_of=as_of)
                if opens:
                    gc.freeze()  # the books stay; with 100,000 claims each garbage collection over them would block the process for a second
            except (HBoxError, OverflowError, ValueError) as e:
                if not isinstance(e, Unavailable):
                    log.error("the books cannot be compared: %s", e)
                if not condition.good:
                    condition.bad(f"waiting for all pods: {e}")
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            condition.ok()
            self._ledger.touch_all()
            if self._ledger.suspects():
                self._doubt.set()
            pause_s = asked_at + follows_s - monotonic_s() if triggered else self._settings.reconcile_s
            triggered = False
            try:
                async with asyncio.timeout(min(max(pause_s, ASK_AGAIN_S), self._settings.reconcile_s)):
                    await self._compare.wait()
                triggered = True
            except TimeoutError:
                pass  # time for the regular comparison

    async def read_suspects(self) -> NoReturn:
        """Have the binder read the pods that lists lack: their claims are voided only if the API server confirms that the pods are gone."""
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            suspects = self._ledger.suspects()
            try:
                for first in range(0, len(suspects), MOST_PODS_READ):
                    asked = PodsAsked(asker=self._settings.instance, pods=tuple(suspects[first : first + MOST_PODS_READ]))
                    pages = await self._bus.ask(asked, PodsRead, timeout_s=READ_S)
                    await self._ledger.read([pod for page in pages for pod in page.pods])
            except (Unavailable, InvalidRequest) as e:
                log.warning("%d pods are in doubt, and cannot be read: %s", len(suspects), e)
            if self._ledger.suspects():
                await asyncio.sleep(READ_AGAIN_S)
                self._doubt.set()

    async def look(self, condition: Condition) -> NoReturn:
        """Hold plans while job-controller does not see the pods: another scheduler may have bound a pod to the same cards meanwhile."""
        seen_at, why = monotonic_s(), "no message from job-controller yet"
        while True:
            asked_at = monotonic_s()
            try:
                pages = await self._bus.ask(JobsAsked(asker=self._settings.instance, jobs=False), JobsPage, timeout_s=ANSWER_S)
            except (Unavailable, InvalidRequest) as e:
                why = str(e)
            else:
                seen_at = max(seen_at, asked_at - max((page.age_s for page in pages), default=OLD_S))
                why = next((page.why for page in pages if page.why), "")
            unseen_s = monotonic_s() - seen_at
            if unseen_s > OLD_S:
                held = f"pods were last seen {unseen_s:.0f} s ago{f': {why}' if why else ''}"
                self._ledger.hold(held)
                condition.bad(held)
            else:
                self._ledger.hold("")
                condition.ok()
            await asyncio.sleep(LOOK_S)

    async def tick(self, conditions: Conditions) -> NoReturn:
        connections = self._bus.connections
        indexes = deque([self._ledger.index], UNSEEN_TICKS)  #: at the previous ticks
        memory = LongLived()
        while True:
            if self._bus.connected:
                conditions.bus.ok()
                # No message reports what the broker lost to a full disk or a power cut.
                if self._bus.connections != connections:
                    connections = self._bus.connections
                    self._compare.set()
            else:
                conditions.bus.bad("NATS cannot be reached")
            if len(indexes) == UNSEEN_TICKS and self._ledger.has_unconfirmed(indexes[0]):
                self._compare.set()
            indexes.append(self._ledger.index)
            self._watch_evictions(conditions.evictions)
            memory.holds(len(self._ledger.state.records) + len(self._ledger.state.live))
            try:
                await self._ledger.tick()
                conditions.database.ok()
            except Unavailable as e:
                conditions.database.bad(str(e))
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._due.wait()
            self._due.clear()

    def _watch_evictions(self, condition: Condition) -> None:
        paused = self._ledger.state.brake.paused
        if bool(paused) != bool(condition.message) or not condition.good:
            metrics.EVICTIONS_PAUSED.set(bool(paused))
            if paused:
                log.error("evictions pause: %s", paused)
            elif condition.good:
                log.warning("evictions go on")
        condition.ok(paused)

    async def meter(self) -> NoReturn:
        """Accrue usage regularly, so that a query or a queue change has little to add."""
        while True:
            await asyncio.sleep(METER_S)
            try:
                await self._ledger.meter()
            except Unavailable as e:
                log.warning("usage is accrued later: %s", e)

    async def forget(self) -> NoReturn:
        while True:
            try:
                await self._ledger.forget(before=wall_s() - self._settings.kept_s)
                if self._settings.usage_hours_kept_d:
                    await self._ledger.thin(before=wall_s() - DAY_S * self._settings.usage_hours_kept_d)
            except Unavailable as e:
                log.warning("old rows stay: %s", e)
            await asyncio.sleep(self._settings.kept_s / 24)

    async def seal(self) -> NoReturn:
        """Seal old history, a segment at a time."""
        kept_d, most = self._settings.history_kept_d, self._settings.history_records
        while True:
            await asyncio.sleep(SEAL_S)
            try:
                if not self._ledger.state.frozen:
                    await self._ledger.seal(before=wall_s() - DAY_S * kept_d if kept_d else 0.0, most=most)
            except Unavailable as e:
                log.warning("old history is sealed later: %s", e)

    async def stop_when_taken_over(self) -> NoReturn:
        await self._ledger.taken_over.wait()
        raise Conflict(self._ledger.over, hint="one ledger may run on a database; it has to be started anew")


def _turns(proposals: Sequence[PlansProposed]) -> Iterator[list[PlansProposed]]:
    """Split a backlog into parts of at most PLACEMENTS placements (more only if a single message has more), so that other turns run in between."""
    part: list[PlansProposed] = []
    size = 0
    for proposed in proposals:
        placements = sum(len(plan.placements) for plan in proposed.plans)
        if part and size + placements > PLACEMENTS:
            yield part
            part, size = [], 0
        part.append(proposed)
        size += placements
    if part:
        yield part


async def _read_streams(bus: Bus, position: Position, condition: Condition) -> StreamHistory:
    while True:
        try:
            return await read_streams(bus, position, now=wall_s())
        except (Unavailable, InvalidRequest) as e:
            condition.bad(f"what was decided before cannot be read: {e}")
            await asyncio.sleep(ASK_AGAIN_S)
