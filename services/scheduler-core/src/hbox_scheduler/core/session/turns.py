"""Whose turn it is: the queue that is served first now, and in it the gang that is served first. Keys are asked anew every turn, for each outcome
changes shares.

Gangs that were promised places come before all others: others have left for them.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hbox_common.model import QueueName

from .nouns import Gang, QueueInfo, Status

if TYPE_CHECKING:
    from .session import Session


class Turns:
    """Gangs that wait for their turn, by queue. Gangs whose queue does not exist have none."""

    def __init__(self, session: "Session", gangs: Iterable[Gang]) -> None:
        self._session = session
        self._waiting: dict[QueueName, list[Gang]] = {}
        self._promised: set[Gang] = set()
        self._promises: Counter[QueueName] = Counter()  # gangs that wait and were promised places
        for gang in gangs:
            if gang.queue in session.queues:
                if _promised(gang):
                    self._promised.add(gang)
                    self._promises[gang.queue] += 1
                self._waiting.setdefault(gang.queue, []).append(gang)

    def next(self) -> Gang | None:
        """The gang whose turn it is; it waits no longer."""
        queue = self.next_queue()
        return None if queue is None else self.of(queue)

    def next_queue(self) -> QueueInfo | None:
        """The queue whose turn it is, of those with gangs that wait."""
        names = [name for name, gangs in self._waiting.items() if gangs]
        if not names:
            return None
        queues = self._session.queues
        key = self._session.queue_key
        return queues[min(names, key=lambda name: (not self._promises[name], key(queues[name])))]

    def of(self, queue: QueueInfo) -> Gang | None:
        """The queue's gang that is served first; it waits no longer."""
        gangs = self._waiting.get(queue.name)
        if not gangs:
            return None
        promised = self._promised if self._promises[queue.name] else ()
        gang = min((one for one in gangs if one in promised) if promised else gangs, key=self._session.gang_key)
        gangs.remove(gang)
        self._promises[queue.name] -= gang in self._promised
        return gang

    def put_back(self, gang: Gang) -> None:
        """The gang waits for another turn."""
        self._waiting[gang.queue].append(gang)
        if gang in self._promised and not _promised(gang):
            self._promised.discard(gang)
        self._promises[gang.queue] += gang in self._promised

    def drop(self, queue: QueueInfo) -> None:
        """The queue has no more turns."""
        self._waiting.pop(queue.name, None)


def _promised(gang: Gang) -> bool:
    return any(member.nominated is not None and member.status is Status.PENDING for member in gang.members)
