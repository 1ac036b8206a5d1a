"""The relay: publishes what was committed, in order, until the broker has stored it.

Each stream has a lane of its own, so that a slow one holds up no other; within a lane the order is that of the outbox, with up to AT_ONCE letters
under way. (One of these that has to be sent again comes behind its followers: readers of the feed take that for a gap, and binds and evictions
carry generations.) A letter is deleted from the outbox in batches, behind the publishing: what a crash leaves there is published again under the
same message id, which the broker and every consumer's inbox know. A decision's row ends here; that its *result* is outstanding is kept with
the claim (`Holding.intent`), from which it is sent again.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import NoReturn, Protocol

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import CONTENT_TYPE, Event, Stream, decode
from hbox_common.store import Letter, Store

from . import metrics
from .adapters import tables

log = logging.getLogger(__name__)

FLUSH_S = 0.5
RETRY_S = 1.0

AT_ONCE = 16

LANES = (Stream.PLANS, Stream.DECISIONS, Stream.EVENTS)


class Publisher(Protocol):
    """The part of the bus that the relay needs."""

    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish, and its body as encoded. `letter` is its row in the outbox; a transient one has none."""

    event: Event
    body: bytes
    keys: tuple[str, ...]
    id: str
    letter: Letter | None


class Relay:
    """Owns what is committed and not yet published."""

    def __init__(self, store: Store, bus: Publisher) -> None:
        self._store, self._bus = store, bus
        # Unbounded by type, bounded by nature: while the broker is away no message comes in that could make another go out.
        self._lanes: dict[Stream, asyncio.Queue[Outgoing]] = {stream: asyncio.Queue() for stream in LANES}
        self._sent: deque[Letter] = deque()
        self._held: set[str] = set()  #: ids of letters in the lanes or published and not deleted yet

    def restore(self, letters: list[Letter]) -> None:
        """Take in what is in the outbox and not held yet: left by an earlier run, or by a commit that was thought to have failed."""
        for letter in letters:
            if letter.id in self._held:
                continue
            try:
                event = decode(letter.body, {"ce-type": letter.type, "content-type": CONTENT_TYPE})
            except InvalidRequest as e:
                log.error("outbox: letter %s cannot be read and is dropped: %s", letter.id, e)
                self._held.add(letter.id)
                self._sent.append(letter)
                continue
            self.send(Outgoing(event, letter.body, letter.keys, letter.id, letter))

    def send(self, outgoing: Outgoing) -> None:
        stream = outgoing.event.about.stream
        assert stream is not None
        if outgoing.letter is not None:
            self._held.add(outgoing.letter.id)
        self._lanes[stream].put_nowait(outgoing)

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for lane in self._lanes.values():
                tasks.create_task(self._publish(lane))
            tasks.create_task(self._forget())

    async def _publish(self, lane: asyncio.Queue[Outgoing]) -> NoReturn:
        while True:
            batch = [await lane.get()]
            while len(batch) < AT_ONCE and not lane.empty():
                batch.append(lane.get_nowait())
            metrics.OUTBOX.set(sum(queue.qsize() for queue in self._lanes.values()))
            async with asyncio.TaskGroup() as group:
                for outgoing in batch:
                    group.create_task(self._deliver(outgoing))
            self._sent.extend(outgoing.letter for outgoing in batch if outgoing.letter is not None)

    async def _deliver(self, outgoing: Outgoing) -> None:
        while True:
            try:
                return await self._bus.publish_raw(
                    type(outgoing.event), outgoing.body, *outgoing.keys, message_id=f"ledger-{outgoing.id}"
                )
            except Unavailable as e:
                log.warning("outbox: %s waits: %s", outgoing.event.ce_type(), e)
            except InvalidRequest as e:  # it would block its lane for ever; snapshots and re-sent decisions tell it again
                log.error("outbox: %s is dropped: %s", outgoing.event.ce_type(), e)
                return None
            await asyncio.sleep(RETRY_S)

    async def _forget(self) -> NoReturn:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Delete what was published from the outbox."""
        done = list(self._sent)
        if not done:
            return
        try:
            await self._store.write(lambda connection: tables.outbox.sent(connection, done))
        except Unavailable as e:
            log.warning("outbox: %s", e)
            return
        for _ in done:
            self._held.discard(self._sent.popleft().id)
