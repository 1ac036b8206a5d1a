"""Events for the output. Pure."""

from typing import Any

from hbox_common.errors import Bug
from hbox_common.events import BudgetUsed, Event, EvictionReceipt, HealthChanged, JobPhaseChanged, QueueRefused

#: The types of events that are shown.
TYPES = (JobPhaseChanged, HealthChanged, QueueRefused, BudgetUsed, EvictionReceipt)


def item_of(event: Event) -> dict[str, Any]:
    """When it happened, what it is about, and its text for people."""
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
