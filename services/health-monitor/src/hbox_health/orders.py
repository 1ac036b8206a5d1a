"""Orders of operators: checked, applied to the judgement, stored with what they changed, published, and only then answered.

A client repeats a request whose answer is lost, also after a kill -9 between storing and answering. The order's id is the client's, so the repeated request
receives the stored order, and nothing is applied twice.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.events import Event, HealthOrderAsked, HealthOrdersAsked, HealthOrdersPage, HealthOrderTaken, HealthPolicyPage
from hbox_common.model.healthorder import Exemption, HealthOrder, OrderVerb

from . import metrics
from .adapters.incidentstore import IncidentStore
from .core.judge.courses import MAINTENANCE
from .core.judge.happenings import Event as Happening
from .core.judge.happenings import Exempted, ExemptionEnds, JobEnded, Maintenance, OperatorAccepts, OperatorCloses
from .core.judge.memory import Memory
from .core.judge.work import NODE, key_of
from .judging import Judging
from .rulebook import RuleBook

#: An id is part of a message's headers.
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
#: Orders in one page of the answer.
PAGE = 500
MOST_TEXT = 1000


class Orders:
    """Requests are handled one after the other: a repeated one waits for the first."""

    def __init__(self, judging: Judging, store: IncidentStore, rules: RuleBook) -> None:
        self._judging, self._store, self._rules = judging, store, rules
        self._one = asyncio.Lock()

    async def take(self, asked: Event) -> AsyncIterator[Event]:
        """Raises InvalidRequest; Unavailable if the database does not answer: the order then is applied and will be stored."""
        assert isinstance(asked, HealthOrderAsked)
        async with self._one:
            known = self._judging.pending(asked.order.id)
            if known is not None:
                await self._judging.flush()
            else:
                known = await self._store.order(asked.order.id)
            if known is None:
                known, happening = decided(asked.order, self._judging.memory, wall_s())
                await self._judging.order(known, happening)
                metrics.ORDERS.labels(known.verb).inc()
        yield HealthOrderTaken(order=known)

    async def list(self, asked: Event) -> AsyncIterator[Event]:
        assert isinstance(asked, HealthOrdersAsked)
        found = await self._store.orders(since=asked.since, node=asked.node)
        for first in range(0, max(1, len(found)), PAGE):
            yield HealthOrdersPage(orders=tuple(found[first : first + PAGE]))

    async def policy(self, _: Event) -> AsyncIterator[Event]:
        """The rules in force, and the exemptions that have not ended."""
        now = wall_s()
        yield HealthPolicyPage(
            version=self._rules.policies.version,
            values=self._rules.values,
            tables=self._rules.tables,
            fault=self._rules.fault,
            exemptions=tuple(one for one in self._judging.memory.exemptions if now < one.until),
        )


def decided(order: HealthOrder, memory: Memory, now: float) -> tuple[HealthOrder, Happening]:
    """The order with its time and effect, and what the judgement is given. Raises InvalidRequest."""
    if not _ID.fullmatch(order.id):
        raise InvalidRequest("the order has no usable id: letters, digits and -, at most 64")
    for name in ("operator", "reason", *(("owner",) if order.verb is OrderVerb.EXEMPT else ())):
        value = getattr(order, name).strip()
        if not value or len(value) > MOST_TEXT:
            raise InvalidRequest(f"an order states its {name}, in 1 to {MOST_TEXT} characters")
    happening, effect = _DECIDE[order.verb](order, memory, now)
    node = order.node or getattr(happening, "node", order.node)
    return replace(order, at=now, effect=effect, node=node), happening


def _exempt(order: HealthOrder, _: Memory, now: float) -> tuple[Happening, str]:
    named = {"node": order.node, "label": order.label, "check": order.check, "code": order.code}
    shown = ", ".join(f"{key} {value}" for key, value in named.items() if value)
    if not shown:
        raise InvalidRequest("an exemption names a node, a label, a check or a code")
    _future(order.until, now)
    exemption = Exemption(order.owner, order.reason, order.until, order.node, order.label, order.check, order.code, order.id)
    return Exempted(exemption), f"exempt until {_time(order.until)}: {shown}"


def _end_exemption(order: HealthOrder, memory: Memory, now: float) -> tuple[Happening, str]:
    if not any(one.id == order.target and now < one.until for one in memory.exemptions if one.id):
        raise InvalidRequest(f"no exemption {order.target} is in force", hint="hbox health exemptions")
    return ExemptionEnds(order.target), f"exemption {order.target} ended"


def _maintenance(order: HealthOrder, memory: Memory, now: float) -> tuple[Happening, str]:
    _known(order, memory)
    _future(order.until, now)
    why = f"maintenance by {order.operator}: {order.reason}"
    return Maintenance(order.node, order.until, why), f"node {order.node} in maintenance until {_time(order.until)}"


def _end_maintenance(order: HealthOrder, memory: Memory, now: float) -> tuple[Happening, str]:
    _known(order, memory)
    if key_of(NODE, MAINTENANCE) not in memory.nodes[order.node].open or memory.nodes[order.node].maintenance_until <= now:
        raise InvalidRequest(f"node {order.node} is not in maintenance")
    return Maintenance(order.node, 0.0), f"maintenance of node {order.node} ended: it is checked"


def _close(order: HealthOrder, memory: Memory, _: float) -> tuple[Happening, str]:
    """Searches all nodes, since operators close few incidents."""
    for name, node in memory.nodes.items():
        for incident in node.open.values():
            if incident.id == order.target and incident.published is not None:
                return OperatorCloses(incident.published.node, incident=incident.id), f"incident {incident.id} of {name} closed"
    for job, incident in memory.jobs.items():
        if incident.id == order.target:
            return JobEnded(job), f"incident {incident.id} of job {job} closed"
    if any(group.incident is not None and group.incident.id == order.target for group in memory.groups.values()):
        raise InvalidRequest(f"{order.target} is an incident of several nodes: it closes when fewer nodes are affected")
    raise InvalidRequest(f"there is no open incident {order.target}", hint="hbox health incidents")


def _accept(order: HealthOrder, memory: Memory, _: float) -> tuple[Happening, str]:
    _known(order, memory)
    counted = memory.nodes[order.node].counted
    if counted.cards is None:
        raise InvalidRequest(
            f"the agent of node {order.node} has listed no cards since its boot", hint=f"hbox check node {order.node}"
        )
    missing = len(set(memory.nodes[order.node].parts.cards) - {card.removeprefix("gpu:") for card in counted.cards})
    without = f", without {missing} that it had" if missing else ""
    return OperatorAccepts(order.node), f"node {order.node} accepted with {counted.count} cards{without}"


_DECIDE = {
    OrderVerb.EXEMPT: _exempt,
    OrderVerb.END_EXEMPTION: _end_exemption,
    OrderVerb.MAINTENANCE: _maintenance,
    OrderVerb.END_MAINTENANCE: _end_maintenance,
    OrderVerb.CLOSE: _close,
    OrderVerb.ACCEPT: _accept,
}


def _known(order: HealthOrder, memory: Memory) -> None:
    if order.node not in memory.nodes:
        raise InvalidRequest(f"there is no node {order.node}", hint="hbox nodes")


def _future(until: float, now: float) -> None:
    if until <= now:
        raise InvalidRequest(f"{_time(until)} is not in the future")


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
