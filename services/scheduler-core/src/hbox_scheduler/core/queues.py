"""What a queue still allows, by its rules and by what is booked in it: a check before planning, so that the ledger rarely has to refuse."""

from collections.abc import Mapping
from dataclasses import dataclass

from hbox_common.model import DEFAULT_QUEUE, Queue, QueueName, QueuePhase, Resources
from hbox_common.model.devices import GPU

from .explain.labels import Label
from .state import Bookings

#: The queue of pods that name none is there without anybody making it, as in the ledger.
_DEFAULT = Queue(DEFAULT_QUEUE)


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many pods may still start (None = no limit), and why no more."""

    pods: int | None
    message: str = ""


class Queues:
    """The rules as the ledger announced them. Use is counted from the bookings: they are the ledger's claims and our own plans."""

    def __init__(self, bookings: Bookings) -> None:
        self._bookings = bookings
        self._queues: dict[QueueName, Queue] = {}

    def put(self, queue: Queue) -> bool:
        """Take new rules. Returns whether they differ from the old."""
        changed = self._queues.get(queue.name) != queue
        self._queues[queue.name] = queue
        return changed

    def drop(self, name: QueueName) -> None:
        self._queues.pop(name, None)

    def all(self) -> Mapping[QueueName, Queue]:
        """Every queue that was announced."""
        return self._queues

    def allowance(self, name: QueueName, each: Resources) -> Allowance:
        """How many times `each` fits under the queue's capability."""
        queue = self._queues.get(name) or (_DEFAULT if name == DEFAULT_QUEUE else None)
        if queue is None:
            return Allowance(0, f"{Label.QUEUE_NOT_FOUND}: there is no queue {name}; create it, or name another in the job")
        if queue.phase is not QueuePhase.OPEN:
            return Allowance(0, f"{Label.QUEUE_CLOSED}: queue {name} is closed and takes no new work")
        if queue.stopped and each.get(GPU, 0) > 0:
            return Allowance(0, f"{Label.QUEUE_BUDGET}: {queue.stopped}")
        used = self._bookings.queue_used.get(name, {})
        pods: int | None = None
        message = ""
        for resource, limit in queue.capability.items():
            units = each.get(resource, 0)
            if units <= 0:
                continue
            left = max(limit - used.get(resource, 0), 0) // units
            if pods is None or left < pods:
                pods = left
                message = (
                    f"{Label.QUEUE_CAPABILITY}: queue {name} may use {limit} of {resource}, {used.get(resource, 0)} are in use and "
                    f"{units} more are asked for"
                )
        return Allowance(pods, message)
