"""Volcano's Queue objects as the ledger's queues."""

from collections.abc import Mapping
from datetime import datetime

from hbox_common.errors import InvalidRequest
from hbox_common.kube import Queue as QueueObject
from hbox_common.model import POOLS, Queue, QueueName, QueuePhase, Resources, capacity_units, is_model, parse_quantity
from hbox_common.model.annotations import BUDGET, NAMESPACES, parse_names


def queue_of(found: QueueObject) -> Queue:
    """The rules of one Queue. A state other than Open (or none yet) takes no new work: Volcano's Closed, Closing, Unknown. Which of these it
    is follows from what it holds.

    Raises InvalidRequest where one of its shares holds something that is not a quantity, or a negative one.
    """
    spec = found.spec
    return Queue(
        name=QueueName(found.metadata.name),
        phase=QueuePhase.OPEN if found.status.state in ("", "Open") else QueuePhase.CLOSED,
        capability=_amounts("capability", spec.capability),
        weight=spec.weight,
        priority=spec.priority,
        deserved=_amounts("deserved", spec.deserved),
        guarantee=_amounts("guarantee", spec.guarantee.resource),
        reclaimable=spec.reclaimable,
        parent=spec.parent,
        pools=_names(POOLS, found),
        namespaces=_names(NAMESPACES, found),
        budget_card_hours=_budget(found.metadata.annotations.get(BUDGET)),
        created_at=_seconds(found.metadata.creation_timestamp),
    )


def closed(found: QueueObject, fault: str) -> Queue:
    """A queue whose rules cannot be read: nothing new is given to it until they can be, and nothing is taken from it."""
    return Queue(
        QueueName(found.metadata.name),
        QueuePhase.CLOSED,
        {},
        found.spec.weight,
        found.spec.priority,
        reclaimable=False,
        parent=found.spec.parent,
        fault=fault,
    )


def _amounts(share: str, quantities: Mapping[str, str | float]) -> Resources:
    amounts: Resources = {}
    for name, quantity in quantities.items():
        try:
            amounts[name] = capacity_units(name, quantity)
        except InvalidRequest as e:
            raise InvalidRequest(f"{share} of {name}: {e.message}", hint=e.hint) from e
        if amounts[name] < 0:
            raise InvalidRequest(f"{share} of {name}: {quantity} is negative")
        if is_model(name) and amounts[name] != parse_quantity(quantity):
            raise InvalidRequest(f"{share} of {name}: {quantity} is no whole number of cards")
    return amounts


def _names(annotation: str, found: QueueObject) -> tuple[str, ...]:
    text = found.metadata.annotations.get(annotation)
    return () if text is None else parse_names(annotation, text)


def _budget(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise InvalidRequest(f"{BUDGET} is {text!r}, which is no number of card-hours", hint="write it like 1000")
    return int(text)


def _seconds(timestamp: str | None) -> float:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
