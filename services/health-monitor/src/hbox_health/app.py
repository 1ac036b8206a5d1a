"""The health-monitor process: receives node states, publishes verdicts, and cordons nodes.

Of several processes one leads, by the lease; the others have their connection to the broker and do nothing. The leader stores incidents in its database, reads
its last verdicts back from the stream, and finds its cordons by the nodes' marks. If it is killed, its standby, or its next start, publishes differences again.
While none leads, the last verdicts stay in force, and reports wait in their stream.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import NoReturn

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import Conflict
from hbox_common.events import (
    FabricChanged,
    GateJobObserved,
    GateJobsDecided,
    HealthEvictionAsked,
    HealthOrderAsked,
    HealthOrdersAsked,
    HealthPolicyAsked,
    HealthReport,
    HealthVerdict,
    NodeObserved,
    NodeOutcome,
    NodeStateChanged,
    RemediesDecided,
    RemedyObserved,
)
from hbox_common.runtime import Health, connected, current_secret, turn
from hbox_common.store import Store

from . import metrics
from .adapters import tables
from .adapters.claims import Claims
from .adapters.incidentstore import IncidentStore
from .adapters.outbox import Outbox
from .core import Breaker, Decide, Event, Monitor, NodeSeen, Publish, Retire, Synced, Ticked, VerdictHeard, VerdictsLost
from .core.units import Units
from .judging import Judging
from .orders import Orders
from .rulebook import RuleBook
from .settings import HealthSettings

log = logging.getLogger(__name__)

TICK_S = 1.0
STARTING_S = 0.05
#: Between the starts of two batches of reports: those of 1,250 agents come 8 ms apart, and each batch costs as much as a report of eight cards.
WINDOW_S = 0.05
#: Seconds between two readings of the folder of rules.
RULES_S = 5.0


async def run(settings: HealthSettings, health: Health) -> None:
    """The service, until cancelled. Raises Conflict if another process has taken over the database."""
    async with AsyncExitStack() as stack:
        if not settings.leader_election:  # reports a wrong database address even if there is no broker
            store = await stack.enter_async_context(_store(settings))
        bus = await stack.enter_async_context(connected(settings))
        await turn()
        if settings.leader_election:  # opening the database ends the sessions of other processes
            store = await stack.enter_async_context(_store(settings))
        await HealthMonitor(settings, health, bus, IncidentStore(store)).run()


def _store(settings: HealthSettings) -> AbstractAsyncContextManager[Store]:
    return Store.open(
        lambda: current_secret(settings, "health_database_url"),
        metadata=tables.metadata,
        versions=tables.VERSIONS,
        exclusive=not settings.leader_election,  # a hanging leader would otherwise block its standby; the epoch fences transactions
    )


def report_held_back(nodes: int) -> None:
    """Publish the number of faulty nodes that the cordon limit keeps from being cordoned."""
    metrics.HELD_BACK.set(nodes)
    if nodes:
        log.warning("%d unhealthy nodes are not cordoned, since too many are", nodes)
    else:
        log.info("the limit of cordons keeps no unhealthy node from being cordoned any more")


class HealthMonitor:
    """One loop runs it all, and the core is only touched between awaits: it needs no lock."""

    def __init__(self, settings: HealthSettings, health: Health, bus: Bus, store: IncidentStore) -> None:
        self.core = Monitor(settings.rules())
        self._health, self._bus = health, bus
        self._outbox = Outbox(bus, store.confirm if settings.leader_election else None)
        self._units = Units()
        self._rules = RuleBook(settings.rules_folder, settings.policies())
        self._judging = Judging(
            store,
            self._outbox,
            self._step,
            state_of=self.core.state_of,
            unit_of=self._units.of,
            policies=self._rules.policies,
            rules=self._rules.rules,
            policy=settings.on_sick_hardware,
        )
        self._orders = Orders(self._judging, store, self._rules)
        self._claims = Claims(bus, self._judging.pods, self._judging.pods_known)
        self._read = asyncio.Event()  #: what the stream held at the start

    async def run(self) -> None:
        await self._judging.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._judge())
            group.create_task(self._stop_when_taken_over())
            group.create_task(self._outbox.run())
            group.create_task(self._keep_time())
            group.create_task(self._follow_rules())
            group.create_task(
                self._bus.follow(
                    [NodeStateChanged, FabricChanged, HealthVerdict, HealthEvictionAsked, RemediesDecided, GateJobsDecided],
                    self._on_messages,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=self._synced,
                    on_gap=self._lost,
                )
            )
            group.create_task(self._bus.follow([NodeObserved], self._answered, start=Start.NEW))

    async def _follow_rules(self) -> NoReturn:
        """Use changed files of the folder of rules. A file that cannot be used changes nothing but what is reported."""
        self._report_rules(changed=bool(self._rules.fault))
        while True:
            await asyncio.sleep(RULES_S)
            if await asyncio.to_thread(self._rules.read):
                self._judging.use(self._rules.rules, self._rules.policies)
                self._report_rules(changed=True)

    def _report_rules(self, *, changed: bool) -> None:
        version, fault = self._rules.policies.version, self._rules.fault
        metrics.RULES_VALID.set(not fault)
        if changed:
            self._outbox.rules(version, fault, wall=wall_s())
            if fault:
                log.error("rules %s stay in force: %s", version, fault)
            else:
                log.info("rules %s are in force", version)

    def _step(self, event: Event) -> None:
        wall = wall_s()
        for effect in self.core.step(event, now=monotonic_s(), wall=wall):
            match effect:
                case Publish(verdict, changed):
                    self._outbox.verdict(verdict)
                    if changed:
                        self._outbox.changed(verdict, wall=wall)
                        log.info(
                            "%s is %s: %s", verdict.node, "healthy" if verdict.healthy else "unhealthy", verdict.reason or "all good",
                            extra={"node": verdict.node, "bad_cards": list(verdict.bad_cards)},
                        )  # fmt: skip
                case Retire(verdict):
                    self._outbox.verdict(verdict, node_gone=True)
                case Decide():
                    self._outbox.decided(effect, wall=wall)
                case Breaker(held_back):
                    report_held_back(held_back)

    async def _on_messages(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            event = delivery.event
            if isinstance(event, NodeStateChanged):
                self._step(NodeSeen(event.node))
                self._judging.node(event.node)
            elif isinstance(event, FabricChanged):
                for name in self._units.put(event.fabric, event.hypernodes):
                    if (state := self.core.state_of(name)) is not None:
                        self._judging.node(state)
            elif isinstance(event, HealthEvictionAsked | RemediesDecided | GateJobsDecided):
                self._judging.note(event)
            else:
                assert isinstance(event, HealthVerdict)
                self._step(VerdictHeard(event.verdict))
                self._judging.verdict_seen(event.verdict)

    async def _judge(self) -> None:
        await self._read.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._judging.run())
            group.create_task(self._claims.run())
            group.create_task(self._bus.serve(HealthOrderAsked, self._orders.take))
            group.create_task(self._bus.serve(HealthOrdersAsked, self._orders.list))
            group.create_task(self._bus.serve(HealthPolicyAsked, self._orders.policy))
            group.create_task(self._take_reports())
            group.create_task(self._take_remedies())
            group.create_task(self._take_jobs())

    async def _stop_when_taken_over(self) -> NoReturn:
        """A consumer survives what its handler raises."""
        await self._judging.taken_over.wait()
        raise Conflict("another health-monitor has taken over the database", hint="this one starts anew, as a standby")

    async def _take_reports(self) -> NoReturn:
        await self._bus.consume(
            "health-monitor-reports", [HealthReport], self._judging.on_reports, window_s=WINDOW_S, writers_only=True
        )

    async def _take_remedies(self) -> NoReturn:
        await self._bus.consume("health-monitor-remedies", [RemedyObserved], self._judging.on_remedies, writers_only=True)

    async def _take_jobs(self) -> NoReturn:
        await self._bus.consume("health-monitor-gate", [GateJobObserved], self._judging.on_jobs, writers_only=True)

    def _synced(self) -> None:
        self._step(Synced())
        self._judging.synced()
        self._read.set()
        log.info("synced", extra={"nodes": len(self.core.nodes), "verdicts": len(self.core.verdicts)})

    async def _lost(self) -> None:
        log.warning("the stream of verdicts was lost or re-created: publishing all current verdicts")
        self._step(VerdictsLost())
        self._judging.republish()

    async def _answered(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            answer = delivery.event
            assert isinstance(answer, NodeObserved)
            metrics.ANSWERS.labels(answer.action, answer.outcome).inc()
            if answer.outcome is not NodeOutcome.DONE:
                log.warning("%s %s: %s: %s", answer.action, answer.node, answer.outcome, answer.message)

    async def _keep_time(self) -> NoReturn:
        on_bus, on_synced = self._health.condition("bus"), self._health.condition("synced")
        while True:
            if self._bus.connected:
                on_bus.ok()
            else:
                on_bus.bad("NATS cannot be reached")
            if self.core.synced:
                on_synced.ok()
            else:
                on_synced.bad("node states and verdicts are not read yet")
            self._step(Ticked())
            verdicts = [self.core.verdicts.get(name) for name in self.core.nodes]
            unhealthy = sum(verdict is not None and not verdict.healthy for verdict in verdicts)
            metrics.NODES.labels("true").set(len(verdicts) - unhealthy)
            metrics.NODES.labels("false").set(unhealthy)
            metrics.BAD_CARDS.set(sum(len(verdict.bad_cards) for verdict in verdicts if verdict is not None))
            await asyncio.sleep(TICK_S if self._health.ready else STARTING_S)
