"""Events for the output. Pure."""

from datetime import datetime
from typing import Any

from hbox_common.errors import Bug
from hbox_common.events import (
    REGISTRY,
    BudgetUsed,
    CloudEvent,
    Event,
    EvictionReceipt,
    HealthChanged,
    HealthOrdered,
    HealthRulesChanged,
    JobEvicted,
    JobFinished,
    JobPhase,
    JobPhaseChanged,
    JobPlaced,
    JobRejected,
    JobStarted,
    NodeDrained,
    Places,
    PlanRefused,
    QueueQuota,
    QueueReclaimed,
    QueueRefused,
    QuotaChanged,
)

#: The types of events in the old format.
TYPES = (JobPhaseChanged, HealthChanged, HealthOrdered, HealthRulesChanged, QueueRefused, BudgetUsed, EvictionReceipt)

#: The public events, and the types in the old format of which some have no public event (`has_successor`).
PUBLIC_TYPES = tuple(type_ for type_ in REGISTRY.values() if issubclass(type_, CloudEvent))
OLD_TYPES = (JobPhaseChanged, HealthChanged, HealthOrdered, HealthRulesChanged, BudgetUsed)

#: Nodes named in a text.
_NAMED = 4


def has_successor(event: Event) -> bool:
    """Whether a public event reports the same."""
    if isinstance(event, JobPhaseChanged):
        return event.phase not in (JobPhase.PENDING, JobPhase.WAITING)
    return isinstance(event, QueueRefused | EvictionReceipt)


def at_of(event: Event) -> float:
    """When it happened, in seconds since the epoch."""
    at: float = datetime.fromisoformat(event.time).timestamp() if isinstance(event, CloudEvent) else getattr(event, "at", 0.0)
    return at


def document_of(event: Event) -> dict[str, Any]:
    """All of its fields, as in JSON; a public event as the CloudEvent that it is."""
    if isinstance(event, CloudEvent):
        return event.attributes()
    return {"type": event.ce_type(), **event.model_dump(mode="json", by_alias=True)}


def item_of(event: Event) -> dict[str, Any]:
    """When it happened, what it is about, and its text for people."""
    if isinstance(event, CloudEvent):
        return {"at": at_of(event), **_public(event)}
    match event:
        case JobPhaseChanged():
            name = f"{event.namespace}/{event.name}"
            text = f"{name}  {event.phase}  {event.bound}/{event.members} pods  queue {event.queue}  {event.message}"
            return {"at": event.at, "about": "job", "name": name, "text": text.rstrip()}
        case HealthChanged():
            state = "healthy" if event.healthy else "unhealthy"
            cards = f" cards {list(event.bad_cards)}" if event.bad_cards else ""
            text = f"{event.node}  {state}{cards}  {event.reason}"
            return {"at": event.at, "about": "node", "name": event.node, "text": text.rstrip()}
        case HealthOrdered(order=order):
            text = f"{order.operator}: {order.effect}"
            return {"at": event.at, "about": "node", "name": order.node, "text": text}
        case HealthRulesChanged():
            text = (
                f"rules {event.version} of health in force{f'; a newer file is refused: {event.fault}' if event.fault else ''}"
            )
            return {"at": event.at, "about": "node", "name": "", "text": text}
        case QueueRefused():
            text = f"refused {event.job}  {event.reason}: {event.message}"
        case EvictionReceipt():
            pods = ", ".join(f"{event.namespace}/{one.pod}" for one in event.pods)
            text = f"evicted {pods}  {event.message}"
        case BudgetUsed():
            text = f"budget {event.percent} %  {event.message}"
        case _:
            raise Bug(f"an event of type {event.ce_type()} among those that were asked for")
    return {"at": event.at, "about": "queue", "name": event.queue, "text": f"{event.queue}  {text}".rstrip()}


def _public(event: CloudEvent) -> dict[str, Any]:
    match event:
        case JobPlaced(data=data) | JobStarted(data=data):
            name = f"{data.namespace}/{data.name}"
            text = f"{name}  {event.kind.partition('.')[2]}  {_places(data)}  queue {data.queue}"
            return {"about": "job", "name": name, "text": text}
        case JobFinished(data=data):
            name = f"{data.namespace}/{data.name}"
            text = f"{name}  finished {data.code}  {_places(data)}  queue {data.queue}"
            return {"about": "job", "name": name, "text": text}
        case JobEvicted(data=data):
            pods = [f"{data.namespace}/{pod}" for pod in data.pods]
            text = f"evicted {', '.join(pods)}  rule {data.code}  {_places(data)}  queue {data.queue}"
            return {"about": "job", "name": pods[0] if pods else data.job, "text": text}
        case JobRejected(data=data):
            name = f"{data.namespace}/{data.name}"
            return {"about": "job", "name": name, "text": f"{name}  rejected {data.code}: {data.message}"}
        case NodeDrained(data=data):
            why = f"cordoned by {data.cordoned_by or 'an unknown user'}  {data.reason}"
            return {"about": "node", "name": data.node, "text": f"{data.node}  drained  {why}".rstrip()}
        case QueueReclaimed(data=data):
            queue, text = data.queue, f"reclaimed {_places(data)}  for {data.namespace}/{data.name}"
        case QuotaChanged(data=data):
            queue, text = data.queue, f"quota {_quota(data.old)} -> {_quota(data.new)}"
        case PlanRefused(data=data):
            queue, text = data.queue, f"refused {data.job}  {data.code}"
        case _:
            raise Bug(f"an event of type {event.ce_type()} among those that were asked for")
    return {"about": "queue", "name": queue, "text": f"{queue}  {text}"}


def _places(data: Places) -> str:
    named = [place.node for place in data.nodes[:_NAMED]]
    more = f" and {data.node_count - len(named)} more" if data.node_count > len(named) else ""
    on = f" on {', '.join(named)}{more}" if named else ""
    return f"{data.pod_count} pods, {data.card_count} cards{on}"


def _quota(quota: QueueQuota | None) -> str:
    if quota is None:
        return "none"
    amounts = {"deserved": quota.deserved, "guarantee": quota.guarantee, "capability": quota.capability}
    texts = [f"{name} {resource}={units}" for name, some in amounts.items() for resource, units in sorted(some.items())]
    return ", ".join(texts) or "no amounts"
