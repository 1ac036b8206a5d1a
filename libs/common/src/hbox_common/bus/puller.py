"""A durable consumer: batches in, effects, then acknowledgements.

Theory of operation. The pull is our own: a request to the consumer's NEXT subject with an inbox, whose callback puts messages on a queue; one
pull is always open, and is asked for again when it ran out, expired, or the connection came back (PullSubscription.fetch stalls instead,
and never asks again after a reconnect; reference reliability M4). Whatever the queue holds is one batch.

 - handle() returned            -> every message of the batch is acknowledged
 - handle() raised Unavailable  -> redelivered later, with growing delay, without end: it is not the message's fault
 - handle() raised anything else-> each message alone, so that the one at fault is found; that one is redelivered with growing delay, and after
                                   `max_deliver` deliveries becomes a dead letter
 - cannot be decoded            -> dead letter at once
While handle() works, the broker is told so, and does not redeliver.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import Event
from hbox_common.telemetry import counter

from .connection import CALL_S, Connection, describe
from .dead_letters import bury
from .delivery import Delivery, read
from .publisher import Publisher
from .streams import STREAMS

log = logging.getLogger(__name__)

CONSUMED = counter("bus_consumed", "Messages handled", ("durable", "type"))

Handler = Callable[[Sequence[Delivery]], Awaitable[None]]

_PULL_EXPIRES_S = 20.0
_CONFIG = {config.name: config for config in STREAMS}


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """`ack_wait_s`: after so long without a sign of life the broker delivers to somebody else."""

    durable: str
    types: tuple[type[Event], ...]
    batch: int = 256
    ack_wait_s: float = 30.0
    max_deliver: int = 5

    @property
    def stream(self) -> str:
        streams = {t.about.stream for t in self.types}
        if len(streams) != 1 or None in streams:
            raise ValueError(f"{self.durable}: a consumer reads types of one stream, not {streams}")
        return str(next(iter(streams)))


class Puller:
    def __init__(self, connection: Connection, publisher: Publisher, spec: ConsumerSpec, handle: Handler) -> None:
        self._connection, self._publisher, self._spec, self._handle = connection, publisher, spec, handle
        self._types = {t.ce_type(): t for t in spec.types}
        self._stream = spec.stream
        self._messages: asyncio.Queue[Msg] = asyncio.Queue()
        self._wanted = 0  # messages that the open pull may still bring
        self._expires_at = 0.0
        self._wake = asyncio.Event()
        self._gone = False
        self._outages = 0

    async def run(self) -> NoReturn:
        """Until cancelled."""
        prefix = self._connection.client.new_inbox()
        subscription = await self._subscribe(prefix)
        forget = self._connection.on_reconnect(self._reconnected)
        try:
            await self._ensure()
            while True:
                await self._pull(prefix)
                batch = self._take()
                if batch:
                    await self._work(batch)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.05, self._expires_at - monotonic_s())):
                        await self._wake.wait()
                self._wake.clear()
                if self._gone:
                    await self._ensure()
        finally:
            forget()
            with suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()

    async def _subscribe(self, inbox: str) -> Subscription:
        while True:
            try:
                return await self._connection.client.subscribe(inbox, cb=self._arrived)
            except (nats.errors.Error, OSError):
                await asyncio.sleep(0.1)

    def _reconnected(self) -> None:
        self._wanted = 0
        self._gone = True  # a broker that came back may have lost its streams: look
        self._wake.set()

    async def _ensure(self) -> None:
        """The stream and the consumer, tried until both are there."""
        spec, pause = self._spec, 0.05
        config = ConsumerConfig(
            durable_name=spec.durable,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=spec.ack_wait_s,
            max_deliver=-1,  # we count ourselves: at the limit the broker would drop silently
            max_ack_pending=max(1000, 4 * spec.batch),
            filter_subjects=[t.filter() for t in spec.types],
        )
        while True:
            try:
                await self._connection.jetstream.add_consumer(self._stream, config)
                self._gone = False
                return
            except nats.js.errors.NotFoundError:
                with suppress(Unavailable):
                    await self._connection.ensure(_CONFIG[self._stream])
            except (nats.errors.Error, nats.js.errors.APIError, OSError, TimeoutError) as e:
                log.warning("consumer %s is not there yet: %s", spec.durable, describe(e))
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _pull(self, inbox: str) -> None:
        """Keep one pull open, asked for again at half of what it may bring."""
        now = monotonic_s()
        if self._wanted > self._spec.batch // 2 and now < self._expires_at:
            return
        ask = {"batch": self._spec.batch, "expires": int(_PULL_EXPIRES_S * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._spec.durable}"
        try:
            await self._connection.client.publish(subject, json.dumps(ask).encode(), reply=inbox)
        except (nats.errors.Error, OSError):
            self._expires_at = now + 0.25  # no connection: `_reconnected` wakes us
            return
        self._wanted = max(0, self._wanted) + self._spec.batch
        self._expires_at = now + _PULL_EXPIRES_S + CALL_S

    async def _arrived(self, message: Msg) -> None:
        status = (message.headers or {}).get("Status")
        if status is None:
            self._wanted -= 1
            self._messages.put_nowait(message)
        elif status in ("404", "408"):
            self._wanted = 0  # this pull is over; another one may still be open, and asking once more does no harm
            self._expires_at = 0.0
        elif status != "100":
            self._wanted, self._expires_at, self._gone = 0, 0.0, True  # 409 or 503: consumer or stream is gone
        self._wake.set()

    def _take(self) -> list[Msg]:
        out: list[Msg] = []
        while len(out) < self._spec.batch and not self._messages.empty():
            out.append(self._messages.get_nowait())
        return out

    async def _work(self, messages: list[Msg]) -> None:
        good: list[tuple[Msg, Delivery]] = []
        for message in messages:
            try:
                good.append((message, read(message, self._types)))
            except InvalidRequest as e:
                await self._bury(message, e.message)
        if not good:
            return
        async with asyncio.TaskGroup() as tasks:
            alive = tasks.create_task(self._keep([m for m, _ in good]))
            try:
                await self._offer(good)
            finally:
                alive.cancel()

    async def _offer(self, good: list[tuple[Msg, Delivery]]) -> None:
        try:
            await self._handle([d for _, d in good])
        except Unavailable as e:
            self._outages += 1
            delay = min(30.0, 0.1 * 2 ** min(self._outages, 9))
            log.warning("%s: not now: %s; again in %.1f s", self._spec.durable, e, delay)
            for message, _ in good:
                await self._answer(message, "nak", delay)
            return
        except Exception as e:  # noqa: BLE001  the handler's fault becomes this message's fate, whatever it is
            if len(good) > 1:
                for one in good:
                    await self._offer([one])
                return
            await self._fault(*good[0], e)
            return
        self._outages = 0
        for message, delivery in good:
            CONSUMED.labels(self._spec.durable, delivery.event.ce_type()).inc()
            await self._answer(message, "ack")

    async def _fault(self, message: Msg, delivery: Delivery, error: Exception) -> None:
        log.exception(
            "%s: a message failed",
            self._spec.durable,
            exc_info=error,
            extra={"subject": message.subject, "id": delivery.message_id},
        )
        if delivery.deliveries >= self._spec.max_deliver or isinstance(error, InvalidRequest):
            await self._bury(message, f"{type(error).__name__}: {error}")
        else:
            await self._answer(message, "nak", min(10.0, 0.2 * 2**delivery.deliveries))

    async def _bury(self, message: Msg, reason: str) -> None:
        if await bury(self._publisher, self._spec.durable, message, reason):
            await self._answer(message, "term")
        else:
            await self._answer(message, "nak", 5.0)

    async def _keep(self, messages: Sequence[Msg]) -> None:
        while True:
            await asyncio.sleep(self._spec.ack_wait_s / 3)
            for message in messages:
                await self._answer(message, "in_progress")

    async def _answer(self, message: Msg, how: str, delay: float = 0.0) -> None:
        """Tell the broker; if it cannot hear us now it delivers again, which every handler takes."""
        with suppress(nats.errors.Error, OSError):
            if how == "ack":
                await message.ack()
            elif how == "nak":
                await message.nak(delay=delay)
            elif how == "term":
                await message.term()
            else:
                await message.in_progress()
