"""Messages on their way to the bus: kept until they are stored, in order, of one key the newest alone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import (
    DeviceErrorSeen,
    GateJobsDecided,
    HealthChanged,
    HealthEvictionAsked,
    HealthOrdered,
    HealthRulesChanged,
    HealthVerdict,
    IncidentChanged,
    NodeAction,
    NodeDecided,
    RemediesDecided,
)
from hbox_common.model import DecisionId, Incident, Verdict
from hbox_common.model.healthorder import HealthOrder

from .. import metrics
from ..core import OWNER, Decide

log = logging.getLogger(__name__)

RETRY_S = 0.5
#: Seconds for which a process that was confirmed to lead need not confirm it again.
CONFIRM_S = 1.0

_Message = (
    HealthVerdict
    | DeviceErrorSeen
    | NodeDecided
    | HealthChanged
    | IncidentChanged
    | HealthEvictionAsked
    | HealthOrdered
    | HealthRulesChanged
    | RemediesDecided
    | GateJobsDecided
)


class Outbox:
    """The core counts its messages as published, so none may be dropped, however long the broker is unavailable.

    `confirm`: raises Conflict if another process leads, Unavailable if that is unknown. It is called before a message that is published CONFIRM_S or more after
    the last call: a leader that was paused publishes nothing when it continues. None: this process runs alone.
    """

    def __init__(self, bus: Bus, confirm: Callable[[], Awaitable[None]] | None = None) -> None:
        self._bus, self._confirm = bus, confirm
        self._confirmed_at = float("-inf")
        self.sent: set[str] = set()  #: ids of notices to owners that were published, or never can be; the caller removes them
        self._waiting: dict[tuple[str, str], _Message] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def verdict(self, verdict: Verdict, *, node_gone: bool = False) -> None:
        self._put("verdict", verdict.node, HealthVerdict(verdict=verdict, node_gone=node_gone))

    def changed(self, verdict: Verdict, *, wall: float) -> None:
        event = HealthChanged(
            node=verdict.node,
            healthy=verdict.healthy,
            bad_cards=verdict.bad_cards,
            reason=verdict.reason,
            at=wall,
            cards=verdict.cards,
        )
        self._put("event", f"{verdict.node}.{verdict.generation}", event)

    def incident(self, incident: Incident) -> None:
        self._put("incident", f"{incident.id}.{incident.changed}", IncidentChanged(incident=incident))

    def device_error(self, error: DeviceErrorSeen) -> None:
        self._put("pod", error.own_id, error)

    def ordered(self, order: HealthOrder) -> None:
        self._put("order", order.id, HealthOrdered(order=order, at=order.at))

    def rules(self, version: str, fault: str, *, wall: float) -> None:
        self._put("rules", "", HealthRulesChanged(version=version, fault=fault, at=wall))

    def evict(self, asked: HealthEvictionAsked) -> None:
        self._put("evict", asked.incident, asked)

    def remedies(self, decided: RemediesDecided) -> None:
        self._put("remedy", decided.node, decided)

    def gate(self, decided: GateJobsDecided) -> None:
        self._put("gate", decided.node, decided)

    def decided(self, decide: Decide, *, wall: float) -> None:
        id_ = DecisionId(f"{decide.action}.{decide.node}.{int(wall * 1000)}")
        decided = NodeDecided(
            id=id_, node=decide.node, action=decide.action, owner=OWNER, reason=decide.reason, taint=decide.taint
        )
        self._put("node", decided.key, decided)

    def _put(self, kind: str, key: str, message: _Message) -> None:
        self._waiting.pop((kind, key), None)
        self._waiting[kind, key] = message
        self._wake.set()

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            self._wake.clear()
            if not self._waiting:
                await self._wake.wait()
            key = next(iter(self._waiting))
            message = self._waiting[key]
            try:
                await self._confirm_lead()
                await self._publish(message)
            except Unavailable as e:
                log.warning("%d messages wait: %s", len(self), e)
                await asyncio.sleep(RETRY_S)
                continue
            except InvalidRequest as e:  # it would keep all others back, for ever
                log.error("%s cannot be published, and is dropped: %s", type(message).__name__, e)
                metrics.REJECTED.labels(type(message).__name__).inc()
                if isinstance(message, DeviceErrorSeen):
                    self.sent.add(message.own_id)  # else its row is tried again at every start
            if self._waiting.get(key) is message:
                del self._waiting[key]
            metrics.UNSAID.set(len(self))

    async def _confirm_lead(self) -> None:
        if self._confirm is not None and monotonic_s() >= self._confirmed_at + CONFIRM_S:
            began = monotonic_s()
            await self._confirm()
            self._confirmed_at = began

    async def _publish(self, message: _Message) -> None:
        match message:
            case HealthVerdict():
                verdict = message.verdict
                await self._bus.publish(message, verdict.node)
                metrics.VERDICTS.inc()
            case HealthChanged():
                await self._bus.publish(message, message.node)
            case IncidentChanged(incident=incident):
                await self._bus.publish(message, incident.node, message_id=f"{incident.id}.{incident.changed}")
            case HealthOrdered(order=order):
                await self._bus.publish(message, order.node)
            case HealthRulesChanged():
                await self._bus.publish(message)
            case HealthEvictionAsked():
                await self._bus.publish(message, message.node, message.incident)
            case DeviceErrorSeen():
                await self._bus.publish(message, message.node)
                self.sent.add(message.own_id)
            case RemediesDecided() | GateJobsDecided():
                await self._bus.publish(message, message.node)
            case NodeDecided():
                await self._bus.publish(message, message.key, message_id=message.id)
                metrics.DECISIONS.labels(message.action).inc()
                closing = message.action is NodeAction.CORDON
                log.log(
                    logging.WARNING if closing else logging.INFO, "%s %s: %s", message.action, message.node, message.reason,
                    extra={"node": message.node},
                )  # fmt: skip
