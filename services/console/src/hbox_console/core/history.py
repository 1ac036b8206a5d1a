"""The newest public events and receipts of evictions, for `/events` and `/evictions`."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from hbox_common.events import CloudEvent, EvictionReceipt

MAX_EVENTS, MAX_RECEIPTS = 20_000, 5_000


@dataclass(frozen=True, slots=True)
class Past:
    """`sequence`: of the stream, by which clients continue."""

    sequence: int
    at: float
    event: CloudEvent


@dataclass(slots=True)
class History:
    events: deque[Past] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    receipts: deque[EvictionReceipt] = field(default_factory=lambda: deque(maxlen=MAX_RECEIPTS))

    def since(self, at: float, *, after: int = 0) -> Iterator[Past]:
        """Events from that time on, oldest first. `after`: only those behind this sequence."""
        return (past for past in self.events if past.at >= at and past.sequence > after)
