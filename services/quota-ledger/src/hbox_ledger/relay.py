"""The relay: publishes what was committed, in order, until the broker has stored it.

Each stream has a lane of its own, so that a slow one holds up no other; within a lane the order is that of the outbox, with up to AT_ONCE letters
under way. (One of these that has to be sent again comes behind its followers: readers of the feed take that for a gap, and binds and evictions
carry generations.) A letter is deleted from the outbox in batches, behind the publishing: what a crash leaves there is published again under the
same message id, which the broker and every consumer's inbox know. A decision's row ends here; that its *result* is outstanding is kept with
the claim (`ClaimRecord.intent`), from which it is sent again.

While the broker is away a lane fills. It holds WINDOW letters, or WINDOW_BYTES, and no more: what comes behind is in the outbox, and is read from there when
the lane is empty again. So memory does not grow with the outage.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import REGISTRY, Event, Stream, content_type, decode
from hbox_common.insisting import insist
from hbox_common.store import Letter, Store

from . import metrics
from .adapters import tables

log = logging.getLogger(__name__)

FLUSH_S = 0.5
RETRY_S = 1.0

AT_ONCE = 16

#: What a lane holds at most, and what is read from the outbox at once.
WINDOW, WINDOW_BYTES, READ = 1024, 16 * 2**20, 64

LANES = (Stream.PLANS, Stream.DECISIONS, Stream.EVENTS, Stream.CLOUD_EVENTS)


class Publisher(Protocol):
    """The part of the bus that the relay needs."""

    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None: ...


def message_id(letter: str) -> str:
    """By which the broker and consumers recognise repetitions of the letter with this id."""
    return f"ledger-{letter}"


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
        self._lanes: dict[Stream, asyncio.Queue[Outgoing]] = {stream: asyncio.Queue() for stream in LANES}
        self._bytes = dict.fromkeys(LANES, 0)  #: in the lanes
        self._last = dict.fromkeys(LANES, (0, 0))  #: the letter that came into each last
        self._more = dict.fromkeys(LANES, False)  #: whether the outbox has letters behind that one
        self._came = dict.fromkeys(LANES, False)  #: while the outbox was read
        self._refused = dict.fromkeys(LANES, 0)  #: messages being published whose last attempt failed
        self._sent: deque[Letter] = deque()
        self._held: set[str] = set()  #: ids of letters in the lanes or published and not deleted yet

    def reaches(self, stream: Stream) -> bool:
        """Whether the stream stores what is published."""
        return not self._refused[stream] and not self._more[stream]

    def restore(self, letters: Sequence[Letter]) -> None:
        """Take in the first of the outbox that is not held yet: left by an earlier run, or by a commit that was thought to have failed. What is behind these
        is read when they are published."""
        for letter in letters:
            if letter.id not in self._held and (outgoing := self._read(letter)) is not None:
                self.send(outgoing)
        if len(letters) >= WINDOW:
            self._more = dict.fromkeys(LANES, True)

    def _read(self, letter: Letter) -> Outgoing | None:
        try:
            event = decode(letter.body, {"ce-type": letter.type, "content-type": content_type(letter.type)})
        except InvalidRequest as e:
            log.error("outbox: letter %s cannot be read and is dropped: %s", letter.id, e)
            self._held.add(letter.id)
            self._sent.append(letter)
            return None
        return Outgoing(event, letter.body, letter.keys, letter.id, letter)

    def send(self, outgoing: Outgoing) -> None:
        """Publish it when its turn comes. One without a letter is dropped while the lane is full: who misses it asks again."""
        stream = outgoing.event.about.stream
        assert stream is not None
        lane = self._lanes[stream]
        if self._more[stream] or lane.qsize() >= WINDOW or self._bytes[stream] >= WINDOW_BYTES:
            if outgoing.letter is not None:
                self._more[stream] = self._came[stream] = True
            return
        self._put(stream, outgoing)

    def _put(self, stream: Stream, outgoing: Outgoing) -> None:
        if outgoing.letter is not None:
            self._held.add(outgoing.letter.id)
            self._last[stream] = outgoing.letter.epoch, outgoing.letter.number
        self._bytes[stream] += len(outgoing.body)
        self._lanes[stream].put_nowait(outgoing)

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for stream in self._lanes:
                tasks.create_task(self._publish(stream))
            tasks.create_task(self._forget())

    async def _publish(self, stream: Stream) -> NoReturn:
        lane = self._lanes[stream]
        while True:
            while lane.empty() and self._more[stream]:
                await self._refill(stream)
            batch = [await lane.get()]
            while len(batch) < AT_ONCE and not lane.empty():
                batch.append(lane.get_nowait())
            metrics.OUTBOX.set(sum(queue.qsize() for queue in self._lanes.values()))
            async with asyncio.TaskGroup() as group:
                for outgoing in batch:
                    group.create_task(self._deliver(stream, outgoing))
            self._bytes[stream] -= sum(len(outgoing.body) for outgoing in batch)
            self._sent.extend(outgoing.letter for outgoing in batch if outgoing.letter is not None)

    async def _refill(self, stream: Stream) -> None:
        types = [type_.ce_type() for type_ in REGISTRY.values() if type_.about.stream is stream]
        after = self._last[stream]
        self._came[stream] = False
        try:
            letters = await self._store.read(lambda c: tables.outbox.unsent(c, after=after, types=types, most=READ))
        except Unavailable as e:
            log.warning("outbox: %s", e)
            await asyncio.sleep(RETRY_S)
            return
        for letter in letters:
            if letter.id in self._held:
                self._last[stream] = letter.epoch, letter.number
            elif (outgoing := self._read(letter)) is not None:
                self._put(stream, outgoing)
        self._more[stream] = self._came[stream] or len(letters) == READ

    async def _deliver(self, stream: Stream, outgoing: Outgoing) -> None:
        refused = False

        def waits(e: Unavailable) -> None:
            nonlocal refused
            log.warning("outbox: %s waits: %s", outgoing.event.ce_type(), e)
            self._refused[stream] += not refused
            refused = True

        try:
            await insist(
                lambda: self._bus.publish_raw(
                    type(outgoing.event),
                    outgoing.body,
                    *outgoing.keys,
                    message_id=outgoing.event.own_id or message_id(outgoing.id),
                ),
                on_unavailable=waits,
                every_s=RETRY_S,
            )
        except InvalidRequest as e:  # it would block its lane forever; snapshots and re-sent decisions repeat its content
            log.error("outbox: %s is dropped: %s", outgoing.event.ce_type(), e)
        finally:
            self._refused[stream] -= refused

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
