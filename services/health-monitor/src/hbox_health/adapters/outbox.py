"""Messages on their way to the bus: kept until they are stored, in order, of one key the newest alone."""

import asyncio
import logging
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import (
    DeviceErrorSeen,
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
from hbox_common.model import DecisionId, Incident, JobId, Verdict
from hbox_common.model.healthorder import HealthOrder

from .. import metrics
from ..core import OWNER, Decide
from ..core.judge.happenings import TellOwner

log = logging.getLogger(__name__)

RETRY_S = 0.5

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
)


class Outbox:
    """The core counts its messages as published, so none may be dropped, however long the broker is unavailable."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
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

    def device_error(self, seen: TellOwner, *, wall: float) -> None:
        error = DeviceErrorSeen(
            node=seen.node, incident=seen.incident, pod=seen.pod, job=JobId(seen.job), card=seen.card, code=seen.code, message=seen.text, at=wall
        )  # fmt: skip
        self._put("pod", f"{seen.incident}.{seen.pod}.{seen.code}", error)

    def ordered(self, order: HealthOrder) -> None:
        self._put("order", order.id, HealthOrdered(order=order, at=order.at))

    def rules(self, version: str, fault: str, *, wall: float) -> None:
        self._put("rules", "", HealthRulesChanged(version=version, fault=fault, at=wall))

    def evict(self, asked: HealthEvictionAsked) -> None:
        self._put("evict", asked.incident, asked)

    def remedies(self, decided: RemediesDecided) -> None:
        self._put("remedy", decided.node, decided)

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
                await self._publish(message)
            except Unavailable as e:
                log.warning("%d messages wait: %s", len(self), e)
                await asyncio.sleep(RETRY_S)
                continue
            except InvalidRequest as e:  # it would keep all others back, for ever
                log.error("%s cannot be published: %s", type(message).__name__, e)
            if self._waiting.get(key) is message:
                del self._waiting[key]
            metrics.UNSAID.set(len(self))

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
            case DeviceErrorSeen() | RemediesDecided():
                await self._bus.publish(message, message.node)
            case NodeDecided():
                await self._bus.publish(message, message.key, message_id=message.id)
                metrics.DECISIONS.labels(message.action).inc()
                closing = message.action is NodeAction.CORDON
                log.log(
                    logging.WARNING if closing else logging.INFO, "%s %s: %s", message.action, message.node, message.reason,
                    extra={"node": message.node},
                )  # fmt: skip
