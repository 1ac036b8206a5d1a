"""The health-monitor process: receives node states, publishes verdicts, and cordons nodes.

It stores nothing: it reads its last verdicts back from the stream, and the nodes' marks show its cordons. If it is killed, it publishes differences
again on its next start. If it is stopped for good, the last verdicts stay in force: no fault is forgotten, and none is detected.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NoReturn

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.events import HealthVerdict, NodeObserved, NodeOutcome, NodeStateChanged
from hbox_common.runtime import Health, connected

from . import metrics
from .adapters.outbox import Outbox
from .core import Breaker, Decide, Event, Monitor, NodeSeen, Publish, Retire, Synced, Ticked, VerdictHeard, VerdictsLost
from .settings import HealthSettings

log = logging.getLogger(__name__)

TICK_S = 1.0
STARTING_S = 0.05


async def run(settings: HealthSettings, health: Health) -> None:
    """The service, until cancelled."""
    async with connected(settings) as bus:
        await HealthMonitor(settings, health, bus).run()


class HealthMonitor:
    """One loop runs it all, and the core is only touched between awaits: it needs no lock."""

    def __init__(self, settings: HealthSettings, health: Health, bus: Bus) -> None:
        self.core = Monitor(settings.rules())
        self._health, self._bus = health, bus
        self._outbox = Outbox(bus)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._outbox.run())
            group.create_task(self._keep_time())
            group.create_task(
                self._bus.follow(
                    [NodeStateChanged, HealthVerdict],
                    self._on_messages,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=self._synced,
                    on_gap=self._lost,
                )
            )
            group.create_task(self._bus.follow([NodeObserved], self._answered, start=Start.NEW))

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
                    metrics.HELD_BACK.set(held_back)
                    log.warning("%d unhealthy nodes are not cordoned, since too many are", held_back)

    async def _on_messages(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            event = delivery.event
            if isinstance(event, NodeStateChanged):
                self._step(NodeSeen(event.node))
            else:
                assert isinstance(event, HealthVerdict)
                self._step(VerdictHeard(event.verdict))

    def _synced(self) -> None:
        self._step(Synced())
        log.info("synced", extra={"nodes": len(self.core.nodes), "verdicts": len(self.core.verdicts)})

    async def _lost(self) -> None:
        log.warning("the stream of verdicts was lost or re-created: publishing all current verdicts")
        self._step(VerdictsLost())

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
