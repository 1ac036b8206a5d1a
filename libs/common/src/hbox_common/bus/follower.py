"""Following: reading without acknowledgements, for state (the last value of each subject) and for live feeds.

The reader is an ephemeral consumer in the broker's memory. After every new connection it is recreated within milliseconds, from the message after the last one
received; the library's ordered consumers need 13 to 17 s for that (sources: nats-py-watch). Before each start the stream is examined: if it
was recreated (another creation time) or ends before the last message received, messages were missed. A follower of last values then replays all of them; for
other followers `on_gap` is called before any newer message is delivered. Before each start, and every second while reading (`continuity`), the follower also
checks whether the stream dropped undelivered messages, and then calls `on_missed`.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NoReturn

from hbox_common.clock import monotonic_s
from hbox_common.errors import Bug, HBoxError, InvalidRequest, Unavailable
from hbox_common.events import Event
from hbox_common.pace import in_slices

from . import metrics, sizes
from .connection import Connection, Patience
from .continuity import Continuity
from .dead_letters import DeadLetters
from .delivery import Delivery, Raw, deliver
from .errors import STREAM_NOT_FOUND, Broken, Outdated, StreamApiError
from .pull import Pull
from .puller import RETRY_S, Handle, unavailable_delay_s
from .streams import CLOSED_S, LIMITS, stream_of

log = logging.getLogger(__name__)

BATCH = 512

#: The broker forgets a reader that asked for nothing for so long.
INACTIVE_S = 30


class Start(StrEnum):
    """Where a follower begins. NEW: with what is stored after the start."""

    NEW = "new"
    LAST_PER_SUBJECT = "last-per-subject"
    ALL = "all"


class Follower:
    """One reader of one process."""

    def __init__(
        self,
        connection: Connection,
        types: Sequence[type[Event]],
        handle: Handle,
        letters: DeadLetters,
        *,
        heal: Callable[[], Awaitable[None]],
        start: Start,
        on_ready: Callable[[], None] | None,
        on_gap: Callable[[], Awaitable[None]] | None,
        on_missed: Callable[[], Awaitable[None]] | None = None,
        writers_only: bool = False,
        keys: Mapping[type[Event], tuple[str | None, ...]] | None = None,
    ) -> None:
        self._keys = keys or {}
        self._connection, self._types, self._handle, self._letters = connection, tuple(types), handle, letters
        self._stream = stream_of(self._types)
        self._heal, self._start, self._on_ready, self._on_gap = heal, start, on_ready, on_gap
        self._writers_only = writers_only
        self._on_missed = on_missed or on_gap
        self._continuity = Continuity(connection, self._stream, self._missed)
        self._read_at = monotonic_s()  #: last, by a clock that is never set
        self._patience = Patience()
        self._created = ""
        self._seen = 0  #: the highest sequence that need not be read any more
        self._history = 0  #: messages that existed at the start and were not handed over yet

    async def run(self) -> NoReturn:
        """Until cancelled. Raises Bug, Outdated (a reader of last values was away for so long that it has to begin anew, as a process), and what `on_gap` and
        `on_missed` raise but Unavailable."""
        try:
            async with asyncio.TaskGroup() as tasks:
                last_value = LIMITS[self._stream].last_value
                tasks.create_task(sizes.watch(self._connection, self._stream) if last_value else self._continuity.run())
                await self._follow()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        raise AssertionError("following has no end")

    async def _missed(self) -> None:
        if self._on_missed is not None:
            await self._on_missed()

    async def _follow(self) -> NoReturn:
        while True:
            await self._connection.connected.wait()
            consumer = f"{self._connection.name}-{secrets.token_hex(6)}"
            attached = False
            try:
                try:
                    await self._attach(consumer)
                    attached = True
                    self._patience.kept()
                    async with Pull(self._connection, self._stream, consumer, batch=BATCH) as pull:
                        await self._read(pull)
                finally:
                    self._continuity.pause()
                    self._read_at = monotonic_s() if attached else self._read_at
                    await self._detach(consumer)
            except (Broken, Unavailable, StreamApiError) as e:
                if not attached:
                    self._patience.lost()
                log.info("following %s anew: %s", self._stream.value, e)
                await asyncio.sleep(RETRY_S)

    async def _attach(self, consumer: str) -> None:
        try:
            info = await self._connection.api(f"STREAM.INFO.{self._stream.value}", timeout_s=self._patience.seconds)
        except StreamApiError as e:
            if e.err_code == STREAM_NOT_FOUND:
                await self._heal()
            raise
        await self._place(info["created"], first=int(info["state"]["first_seq"]), last=int(info["state"]["last_seq"]))
        if LIMITS[self._stream].last_value and self._seen and monotonic_s() - self._read_at > CLOSED_S / 2:
            raise Outdated(
                f"{self._stream.value} was not read for {monotonic_s() - self._read_at:.0f} s: deletions since then are no longer in the stream"
            )
        filters = sorted(t.filter(*self._keys.get(t, ())) for t in self._types)
        config: dict[str, object] = {
            "name": consumer,
            "ack_policy": "none",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "replay_policy": "instant",
            "inactive_threshold": INACTIVE_S * 10**9,
        }
        config |= {"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters}
        if self._start is Start.LAST_PER_SUBJECT and not self._seen:
            config |= {"deliver_policy": "last_per_subject"}
        else:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self._seen + 1}
        made = await self._connection.api(
            f"CONSUMER.CREATE.{self._stream.value}.{consumer}",
            {"stream_name": self._stream.value, "config": config},
            timeout_s=self._patience.seconds,
        )
        self._continuity.begin(consumer, created=self._created, complete=max(self._seen, int(info["state"]["first_seq"]) - 1))
        self._history = int(made["num_pending"])
        if not self._history:
            self._ready()

    async def _place(self, created: str, *, first: int, last: int) -> None:
        """Find out whether messages were missed since the last connection, and where to continue."""
        if not self._created:
            self._seen = last if self._start is Start.NEW else 0
            self._created = created
            return
        if created == self._created and last >= self._seen:
            # Messages delivered but lost with the connection cannot be distinguished: a reader that was idle for long may be notified although it missed
            # nothing.
            if first > self._seen + 1 and not LIMITS[self._stream].last_value:
                log.warning("following %s: it begins at %d, %d was the last seen", self._stream.value, first, self._seen)
                await self._missed()
            return
        missed = "the stream was made anew" if created != self._created else f"the stream ends at {last}, {self._seen} was seen"
        log.warning("following %s: messages were missed: %s", self._stream.value, missed)
        if self._on_gap is not None:
            await self._on_gap()
        self._seen = 0
        self._created = created

    def _ready(self) -> None:
        ready, self._on_ready = self._on_ready, None
        if ready is not None:
            ready()

    async def _detach(self, consumer: str) -> None:
        try:
            await self._connection.api(f"CONSUMER.DELETE.{self._stream.value}.{consumer}", timeout_s=0.5)
        except HBoxError as e:
            log.debug("the broker forgets %s by itself: %s", consumer, e)

    async def _read(self, pull: Pull) -> NoReturn:
        expected = 1
        while True:
            raws = await pull.take(BATCH)
            for i, raw in enumerate(raws):
                if raw.consumer_sequence != expected + i:
                    # Handed over is what came before the hole; the rest is read again.
                    await self._pass_on(raws[:i])
                    raise Broken(f"deliveries {expected + i} to {raw.consumer_sequence - 1} were lost on the way")
            expected += len(raws)
            await self._pass_on(raws)

    async def _pass_on(self, raws: Sequence[Raw]) -> None:
        if not raws:
            return
        deliveries: list[tuple[Raw, Delivery]] = []
        unreadable: list[tuple[Raw, str]] = []

        def decode(some: Iterable[Raw]) -> None:
            for raw in some:
                parts: list[str] = []
                try:
                    deliveries.append((raw, deliver(raw, self._types, parts.append, writers_only=self._writers_only)))
                except InvalidRequest as e:
                    parts.append(e.message)
                unreadable.extend((raw, reason) for reason in parts)

        await in_slices(raws, decode)
        for raw, reason in unreadable:
            await self._letters.bury(raw, reason)
        if deliveries:
            await self._hand_over(deliveries)
        self._seen = raws[-1].sequence
        if self._history:
            self._history = 0 if raws[-1].pending == 0 else max(0, self._history - len(raws))
            if not self._history:
                self._ready()

    async def _hand_over(self, pairs: Sequence[tuple[Raw, Delivery]]) -> None:
        attempt = 0
        while True:
            try:
                await self._handle([delivery for _, delivery in pairs])
            except Unavailable as e:
                delay_s = unavailable_delay_s(attempt)
                attempt += 1
                log.warning("following %s: trying again in %.1f s: %s", self._stream.value, delay_s, e)
                await asyncio.sleep(delay_s)
            except Bug:
                raise
            except Exception as e:  # whatever a handler makes of a message must not stop the others
                log.exception("following %s: a batch of %d messages failed", self._stream.value, len(pairs))
                if len(pairs) == 1:
                    await self._letters.bury(pairs[0][0], f"failed: {type(e).__name__}: {e}")
                    return
                for pair in pairs:
                    await self._hand_over([pair])
                return
            else:
                for _, delivery in pairs:
                    metrics.consumed("", type(delivery.event)).inc()
                return
