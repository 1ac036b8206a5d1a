"""Incidents as health-monitor published them, and what of nodes may not be used."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.errors import NotFound, Unavailable
from hbox_common.events import Event, HealthVerdict, IncidentChanged, NodeStateChanged
from hbox_common.model import Incident, IncidentState
from hbox_common.views.nodes import scopes_item, scopes_text

from ..session import last_values

Item: TypeAlias = dict[str, Any]

ASK_S = 30.0


async def changes(bus: Bus, node: str | None = None) -> list[Incident]:
    """Every change of the stream (30 days), oldest first; of one node if it is named. A change that was published twice is there once."""
    found: dict[tuple[str, float], Incident] = {}
    read = asyncio.Event()

    async def take(deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            assert isinstance(delivery.event, IncidentChanged)
            incident = delivery.event.incident
            found[incident.id, incident.changed] = incident

    keys: dict[type[Event], tuple[str | None, ...]] | None = {IncidentChanged: (node,)} if node is not None else None
    reading = asyncio.create_task(bus.follow([IncidentChanged], take, start=Start.ALL, on_ready=read.set, keys=keys))
    try:
        async with asyncio.timeout(ASK_S):
            await read.wait()
    except TimeoutError as e:
        raise Unavailable(f"the broker did not deliver all incidents within {ASK_S:g} s") from e
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return sorted(found.values(), key=lambda one: (one.changed, one.id))


async def incidents(bus: Bus, node: str | None = None, *, closed: bool = False) -> list[Item]:
    """The last state of each incident, the newest first."""
    last = {one.id: one for one in await changes(bus, node)}
    wanted = [one for one in last.values() if closed or one.state is not IncidentState.CLOSED]
    return [incident_item(one) for one in sorted(wanted, key=lambda one: (-one.opened, one.id))]


async def sick_nodes(bus: Bus) -> list[Item]:
    """Nodes of which something may not be used."""
    verdicts = [event.verdict for event in await last_values(bus, [HealthVerdict]) if isinstance(event, HealthVerdict)]
    return [
        {
            "node": one.node,
            "health": (item := scopes_item(one)),
            "text": scopes_text(item),
            "reason": one.reason,
            "since": one.since,
        }
        for one in sorted(verdicts, key=lambda one: one.node)
        if one.restricts
    ]


async def sick_node(bus: Bus, name: str) -> Item:
    """What of one node may not be used, with its incidents. Raises NotFound for a node of which nothing is known."""
    verdicts = [one.event.verdict for one in await bus.last(HealthVerdict, [(name,)]) if isinstance(one.event, HealthVerdict)]
    found = await incidents(bus, name)
    if not verdicts and not found and not await bus.last(NodeStateChanged, [(name,)]):
        raise NotFound(f"there is no node {name}", hint="`hbox nodes` lists them")
    verdict = verdicts[-1] if verdicts else None
    item = scopes_item(verdict)
    return {
        "node": name,
        "health": item,
        "text": scopes_text(item),
        "reason": verdict.reason if verdict else "",
        "bootId": verdict.boot_id if verdict else "",
        "incidents": found,
    }


def incident_item(incident: Incident) -> Item:
    return {
        "id": incident.id,
        "node": incident.node,
        "entity": incident.entity,
        "kind": incident.kind,
        "code": incident.code,
        "state": incident.state.value,
        "severity": incident.severity,
        "blame": incident.blame,
        "scope": incident.scope,
        "action": incident.action,
        "actionDone": incident.action_done,
        "authority": incident.authority,
        "ruleVersion": incident.rule_version,
        "opened": incident.opened,
        "changed": incident.changed,
        "closed": incident.closed,
        "heldBy": list(incident.held_by),
        "evidence": list(incident.evidence),
        "checks": list(incident.checks),
        "steps": [
            {"name": step.name, "result": step.result.value, "attempt": step.attempt, "at": step.at, "text": step.text}
            for step in incident.steps
        ],
        "why": incident.why,
    }
