"""Durable consumption: each message is retried until it is handled, and then acknowledged.

Theory of operation. Messages of this process that are not settled are `held`: waiting, being handled, or postponed. Every third of ack_wait the broker receives
an in-progress acknowledgement for all of them (except those received within the last sixth: most are settled before the next time, and the broker writes each
acknowledgement to the disk). So ack_wait may be short: it expires only if this process is dead or hangs. If a message is redelivered nevertheless (its
acknowledgement was lost, or the broker was killed), it is recognised as held or as one of the last REMEMBERED settled ones, and this process does not handle it
twice. Another process may: handlers are idempotent, by an inbox where needed.

If handle() raises Unavailable, its batch is postponed here with growing delay, without a negative acknowledgement: so the delivery count counts only failures
and crashes, and after an outage of an hour no message looks like poison. If it raises anything else, each message is handled again alone; one that fails alone
is returned with growing delay and moved to HBOX_DLQ at the `max_deliver`-th delivery. A message that kills the process leaves no trace but its count: from the
third delivery on it is handled alone, and above twice `max_deliver` it is moved to HBOX_DLQ unhandled. Bug is not caught: then the process is wrong, not the
message.

After each new connection the stream is examined. If it was recreated (its creation time differs), all held messages belong to the deleted stream and are
forgotten: an old acknowledgement would hit a new message with the same sequence.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NoReturn

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import Bug, InvalidRequest, Unavailable
from hbox_common.events import Event, Stream
from hbox_common.pacing import backoff_s

from . import metrics
from .connection import Connection, Patience
from .continuity import Continuity
from .dead_letters import DeadLetters
from .delivery import Delivery, Raw, deliver
from .errors import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND, Broken, StreamApiError
from .pull import Pull
from .streams import stream_of

log = logging.getLogger(__name__)

Handle = Callable[[Sequence[Delivery]], Awaitable[None]]

RETRY_S = 0.05

#: For so long a process may be silent before another gets its messages: about what it takes to start one anew.
ACK_WAIT_S = 1.5

ACK, IN_PROGRESS, TERM = b"+ACK", b"+WPI", b"+TERM"

#: Settled messages that are recognised when they come again.
REMEMBERED = 8192

#: Configuration keys of a consumer's start position.
_START = ("deliver_policy", "opt_start_seq", "opt_start_time")

#: Deliveries up to which a message may share a batch.
IN_COMPANY = 2


def nak(delay_s: float) -> bytes:
    """Negative acknowledgement: redeliver after `delay_s`."""
    return b'-NAK {"delay": %d}' % int(delay_s * 1e9) if delay_s else b"-NAK"


def nak_delay_s(deliveries: int) -> float:
    """Seconds until a message that failed alone is redelivered: 0.1, 0.4, 1.6, 6.4, 10."""
    return backoff_s(deliveries - 1, base_s=0.1, cap_s=10.0, factor=4.0)


def unavailable_delay_s(attempt: int) -> float:
    """Seconds until a batch is retried whose handler raised Unavailable: 0.1, 0.2, ... 5."""
    return backoff_s(attempt, base_s=0.1, cap_s=5.0)


@dataclass(frozen=True, slots=True)
class Consumer:
    """Configuration of a durable consumer."""

    durable: str
    types: tuple[type[Event], ...]
    batch: int = 256
    window_s: float = 0.0
    ack_wait_s: float = ACK_WAIT_S
    max_deliver: int = 5
    writers_only: bool = False
    from_last_s: float | None = None
    last_of_each: bool = False

    @property
    def stream(self) -> Stream:
        return stream_of(self.types)

    def config(self, start: Mapping[str, object]) -> dict[str, object]:
        """As JetStream's API takes it. `start`: where it begins, which cannot be changed later."""
        filters = sorted(t.filter() for t in self.types)
        return (
            dict(start)
            | {
                "durable_name": self.durable,
                "name": self.durable,
                "ack_policy": "explicit",
                "ack_wait": int(self.ack_wait_s * 1e9),
                "max_deliver": -1,  # counted here: at the broker's own limit a message is skipped without a word
                "max_ack_pending": max(1000, 8 * self.batch),
                "replay_policy": "instant",
            }
            | ({"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters})
        )


@dataclass(slots=True)
class _Item:
    raw: Raw
    delivery: Delivery


@dataclass(slots=True, order=True)
class _PutOff:
    due: float
    order: int
    items: list[_Item] = field(compare=False)
    attempt: int = field(compare=False)


class Puller:
    """One durable consumer of one process. Several processes with the same durable share its messages."""

    def __init__(
        self,
        connection: Connection,
        consumer: Consumer,
        handle: Handle,
        letters: DeadLetters,
        *,
        heal: Callable[[], Awaitable[None]],
        on_missed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._connection, self._consumer, self._handle, self._letters, self._heal = connection, consumer, handle, letters, heal
        self._name, self._stream = consumer.durable, consumer.stream
        self._continuity = Continuity(connection, consumer.stream, on_missed) if on_missed is not None else None
        self._waiting, self._behind_s = metrics.WAITING.labels(self._name), metrics.BEHIND_S.labels(self._name)
        self._patience = Patience()
        self._created = ""
        self._held: dict[tuple[int, int], Raw] = {}
        self._settled: dict[tuple[int, int], bytes] = {}  #: the last acknowledgement of each, in order of sending
        self._put_off: list[_PutOff] = []
        self._order = itertools.count()
        self._pull: Pull | None = None

    async def run(self) -> NoReturn:
        """Runs until cancelled; then held messages are returned for redelivery. Raises Bug."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep())
                if self._continuity is not None:
                    tasks.create_task(self._continuity.run())
                await self._read()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await self._give_back()
        raise AssertionError("reading has no end")

    async def _read(self) -> NoReturn:
        while True:
            await self._connection.connected.wait()
            attached = False
            try:
                await self._attach()
                attached = True
                self._patience.kept()
                async with Pull(self._connection, self._stream, self._name, batch=self._consumer.batch) as self._pull:
                    await self._work(self._pull)
            except (Broken, Unavailable, StreamApiError) as e:
                if not attached:
                    self._patience.lost()
                log.info("%s: reading anew: %s", self._name, e)
                await asyncio.sleep(RETRY_S)

    async def _attach(self) -> None:
        try:
            info = await self._connection.api(f"STREAM.INFO.{self._stream.value}", timeout_s=self._patience.seconds)
        except StreamApiError as e:
            if e.err_code == STREAM_NOT_FOUND:
                await self._heal()
            raise
        if info["created"] != self._created:
            if self._created:
                log.warning("%s: stream %s is a new one; starting from its beginning", self._name, self._stream.value)
            self._created = info["created"]
            self._held.clear()
            self._settled.clear()
            self._put_off.clear()
        made = await self._connection.api(
            f"CONSUMER.DURABLE.CREATE.{self._stream.value}.{self._name}",
            {"stream_name": self._stream.value, "config": self._consumer.config(await self._start(info["ts"]))},
            timeout_s=self._patience.seconds,
        )
        if self._continuity is not None:
            had = max(int(made["delivered"]["stream_seq"]), int(info["state"]["first_seq"]) - 1)
            self._continuity.begin(self._name, created=self._created, complete=max(had, self._continuity.complete))

    async def _start(self, now: str) -> Mapping[str, object]:
        """Where the consumer begins: as it was made, if it is there. `now`: by the broker's clock, which messages are stored by."""
        try:
            found = await self._connection.api(
                f"CONSUMER.INFO.{self._stream.value}.{self._name}", timeout_s=self._patience.seconds
            )
        except StreamApiError as e:
            if e.err_code != CONSUMER_NOT_FOUND:
                raise
        else:
            return {key: found["config"][key] for key in _START if key in found["config"]}
        if self._consumer.last_of_each:
            return {"deliver_policy": "last_per_subject"}
        if self._consumer.from_last_s is None:
            return {"deliver_policy": "all"}
        log.info("%s: a new consumer of %s begins %.0f s ago", self._name, self._stream.value, self._consumer.from_last_s)
        since = datetime.fromisoformat(now) - timedelta(seconds=self._consumer.from_last_s)
        return {"deliver_policy": "by_start_time", "opt_start_time": since.isoformat()}

    async def _work(self, pull: Pull) -> NoReturn:
        batch, window_s = self._consumer.batch, self._consumer.window_s
        while True:
            wait_s = max(0.0, self._put_off[0].due - monotonic_s()) if self._put_off else None
            if self._put_off and len(self._held) >= 4 * batch:
                await asyncio.sleep(wait_s or 0.0)
                raws: list[Raw] = []
            else:
                raws = await pull.take(batch, timeout_s=wait_s)
            started = monotonic_s()
            if raws:
                self._waiting.set(raws[-1].pending)
                self._behind_s.set(max(0.0, wall_s() - raws[0].stored_ns / 1e9))
                await self._accept(raws)
            if self._put_off and self._put_off[0].due <= monotonic_s():
                due = heapq.heappop(self._put_off)
                await self._hand_over(due.items, due.attempt)
            if window_s:
                await asyncio.sleep(started + window_s - monotonic_s())

    async def _keep(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._consumer.ack_wait_s / 3)
            waiting = self._pull.waiting if self._pull is not None else ()
            until = monotonic_s() - self._consumer.ack_wait_s / 6
            for raw in [raw for raw in (*waiting, *self._held.values()) if raw.came <= until]:
                await self._reply(raw, IN_PROGRESS)

    # --- handling

    async def _accept(self, raws: Sequence[Raw]) -> None:
        together: list[_Item] = []
        alone: list[_Item] = []
        for raw in raws:
            if (held := self._held.get(raw.key)) is not None:
                held.reply = raw.reply
                continue
            if (word := self._settled.get(raw.key)) is not None:
                await self._reply(raw, word)
                continue
            self._held[raw.key] = raw
            if raw.deliveries > 2 * self._consumer.max_deliver:
                await self._bury(raw, f"delivered {raw.deliveries} times, and no consumer acknowledged it")
                continue
            parts: list[str] = []
            try:
                item = _Item(raw, deliver(raw, self._consumer.types, parts.append, writers_only=self._consumer.writers_only))
                for reason in parts:
                    await self._letters.bury(raw, reason)
            except InvalidRequest as e:
                await self._bury(raw, e.message)
                continue
            except Unavailable as e:
                log.warning("%s: part of %s cannot be set aside yet: %s", self._name, raw.subject, e)
                await self._retry(raw, 5.0)
                continue
            (together if raw.deliveries <= IN_COMPANY else alone).append(item)
        if together:
            await self._hand_over(together, 0)
        for item in alone:
            await self._hand_over([item], 0)

    async def _hand_over(self, items: list[_Item], attempt: int) -> None:
        try:
            await self._handle([item.delivery for item in items])
        except Unavailable as e:
            delay_s = unavailable_delay_s(attempt)
            log.warning("%s: %d messages are put off by %.1f s: %s", self._name, len(items), delay_s, e)
            heapq.heappush(self._put_off, _PutOff(monotonic_s() + delay_s, next(self._order), items, attempt + 1))
        except Bug:
            raise
        except Exception as e:  # whatever a handler makes of a message must not stop the others
            if len(items) == 1:
                await self._failed(items[0], e)
                return
            log.warning("%s: a batch of %d messages failed; each is handled alone", self._name, len(items), exc_info=e)
            for item in items:
                await self._hand_over([item], attempt)
        else:
            for item in items:
                metrics.consumed(self._name, type(item.delivery.event)).inc()
                await self._settle(item.raw, ACK)

    async def _failed(self, item: _Item, error: Exception) -> None:
        raw = item.raw
        log.error("%s: %s (delivery %d) failed", self._name, raw.subject, raw.deliveries, exc_info=error)
        if raw.deliveries >= self._consumer.max_deliver:
            await self._bury(raw, f"failed {raw.deliveries} times: {type(error).__name__}: {error}")
        else:
            await self._retry(raw, nak_delay_s(raw.deliveries))

    async def _bury(self, raw: Raw, reason: str) -> None:
        try:
            await self._letters.bury(raw, reason)
        except Unavailable as e:
            log.warning("%s: %s cannot be set aside yet: %s", self._name, raw.subject, e)
            await self._retry(raw, 5.0)
        else:
            await self._settle(raw, TERM)

    # --- acknowledgements

    async def _settle(self, raw: Raw, word: bytes) -> None:
        """Send the final acknowledgement of a message. If it is lost, the message is redelivered and acknowledged again."""
        if self._held.get(raw.key) is not raw:
            return  # of a stream that is gone
        del self._held[raw.key]
        self._settled[raw.key] = word
        if len(self._settled) > REMEMBERED:
            del self._settled[next(iter(self._settled))]
        await self._reply(raw, word)

    async def _retry(self, raw: Raw, delay_s: float) -> None:
        if self._held.get(raw.key) is raw:
            del self._held[raw.key]
            await self._reply(raw, nak(delay_s))

    async def _reply(self, raw: Raw, word: bytes) -> None:
        if self._pull is None or self._pull.broken:
            return  # the stream may be another one by now
        try:
            await self._connection.send(raw.reply, word)
        except Unavailable:
            pass  # the message comes again

    async def _give_back(self) -> None:
        """So that the next process need not wait for ack_wait."""
        waiting = self._pull.waiting if self._pull is not None else ()
        for raw in [*self._held.values(), *waiting]:
            await self._reply(raw, nak(0))
