"""Volcano's Queue objects as the ledger's queues."""

from hbox_common.errors import InvalidRequest
from hbox_common.kube import Queue as QueueObject
from hbox_common.model import Queue, QueueName, QueuePhase, Resources, capacity_units


def queue_of(found: QueueObject) -> Queue:
    """The rules of one Queue. A state other than Open (or none yet) takes no new work: Volcano's Closed, Closing, Unknown.

    Raises InvalidRequest where its capability holds something that is not a quantity.
    """
    capability: Resources = {}
    for name, quantity in found.spec.capability.items():
        try:
            capability[name] = capacity_units(name, quantity)
        except InvalidRequest as e:
            raise InvalidRequest(f"queue {found.metadata.name}: capability of {name}: {e.message}", hint=e.hint) from e
    phase = QueuePhase.OPEN if found.status.state in ("", "Open") else QueuePhase.CLOSED
    return Queue(QueueName(found.metadata.name), phase, capability, found.spec.weight, found.spec.priority)


def closed(found: QueueObject) -> Queue:
    """A queue whose rules cannot be read: nothing new is given to it until they can be."""
    return Queue(QueueName(found.metadata.name), QueuePhase.CLOSED, {}, found.spec.weight, found.spec.priority)
