"""The bus as services see it."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NoReturn, Self, TypeVar

from pydantic import BaseModel

from hbox_common.clock import new_id
from hbox_common.errors import InvalidRequest
from hbox_common.events import Event
from hbox_common.insisting import insist

from . import certificates, rpc
from .access import Access
from .connection import OPEN, Connection
from .dead_letters import DeadLetters, set_aside_unsent
from .delivery import Delivery
from .errors import NotPermitted
from .follower import Follower, Start
from .last import count_by_subject, last_value, last_value_of_stream, last_values, messages_since
from .lastvalue import follow_last
from .micro import Directory, Endpoint, MicroServer, call
from .parts import HEADERS, parts
from .publisher import Publisher
from .puller import ACK_WAIT_S, RETRY_S, Consumer, Handle, Puller
from .streams import ensure_streams, stream_of

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Event)
P = TypeVar("P", bound=Event)
M = TypeVar("M", bound=BaseModel)


class Bus:
    """Made by `connect`; one an event loop, shared by all of its tasks."""

    def __init__(self, connection: Connection, *, ensure: bool, replicas: int) -> None:
        self._connection, self._ensure, self._replicas = connection, ensure, replicas
        self._publisher = Publisher(connection, heal=self._heal)
        self._directory = Directory()

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        instance: str,
        access: Access = OPEN,
        user: str = "",
        ensure: bool = True,
        replicas: int = 1,
    ) -> AsyncIterator[Self]:
        """A bus, once the broker is there; kept up for ever, and drained at the end.

        url: several servers are joined by commas. `user`: the broker's user, if it is not `name`.
        `ensure`: make streams that are missing, now and whenever one is found missing, with so many
        `replicas`.
        Raises InvalidRequest for a bad address, user or certificate, or when our streams are refused. The block is cancelled, and Unavailable raised, when
        the broker ends the connection for good.
        """

        async def prepare(connection: Connection) -> None:
            if ensure:
                await _prepare(connection, replicas)

        async with Connection.open(url, name=name, instance=instance, access=access, user=user, prepare=prepare) as connection:
            yield cls(connection, ensure=ensure, replicas=replicas)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection.connected.is_set()

    @property
    def connections(self) -> int:
        """Number of connections made so far. A broker that restarted may have lost its last acknowledged messages."""
        return self._connection.epoch

    async def publish(
        self, event: Event, *keys: str, message_id: str | None = None, traceparent: str = "", timeout_s: float = 30.0
    ) -> None:
        """Return when JetStream has stored `event` under its subject with `keys`; tried again, with one message id, until then.

        Raises InvalidRequest when it is too large, ValueError for keys that do not fit the subject, Unavailable after `timeout_s`: whether it was
        stored is unknown then, and the caller may go on with the same `message_id`.
        """
        await self._publisher.publish(event, *keys, message_id=message_id, traceparent=traceparent, timeout_s=timeout_s)

    async def publish_parts(
        self, event: Event, *keys: str, message_id: str | None = None, timeout_s: float = 30.0
    ) -> list[Event]:
        """As `publish`, split into several messages if one would be too large. An item that does not fit into any message goes to HBOX_DLQ, with the reason.

        Returns the messages that were not sent, each with its single item. Raises Unavailable: if the caller retries with the same `message_id`, messages that
        are stored already are not stored twice.
        """
        message_id = message_id or new_id()
        refused: list[tuple[Event, InvalidRequest]] = []
        most = self._connection.max_payload - HEADERS  # while no broker is there, what the last one took
        for number, (part, body) in enumerate(parts(event, most, lambda one, why: refused.append((one, why)))):
            part_id = f"{message_id}.{number}" if number else message_id
            await self._publisher.publish_raw(type(part), body, *keys, message_id=part_id, timeout_s=timeout_s)
        for number, (one, why) in enumerate(refused):
            await set_aside_unsent(self._publisher, one, keys, why, message_id=f"unsent-{message_id}.{number}")
        return [one for one, _ in refused]

    async def publish_raw(
        self,
        type_: type[Event],
        body: bytes,
        *keys: str,
        message_id: str,
        traceparent: str = "",
        timeout_s: float = 30.0,
    ) -> None:
        """As `publish`, for a body that `encode` made before: an outbox's letter."""
        await self._publisher.publish_raw(
            type_, body, *keys, message_id=message_id, traceparent=traceparent, timeout_s=timeout_s
        )

    async def consume(
        self,
        durable: str,
        types: Sequence[type[Event]],
        handle: Handle,
        *,
        batch: int = 256,
        window_s: float = 0.0,
        ack_wait_s: float = ACK_WAIT_S,
        max_deliver: int = 5,
        writers_only: bool = False,
        from_last_s: float | None = None,
        last_of_each: bool = False,
        on_missed: Callable[[], Awaitable[None]] | None = None,
    ) -> NoReturn:
        """Deliver every message of `types` (of one stream) to `handle` at least once, in batches of the messages available, and acknowledge after `handle`
        returned.

        durable: the consumer's name; processes with the same name share its messages. window_s: pause between the starts of two batches. If `handle` raises
        Unavailable, the batch is retried with growing delay. If it raises anything else but Bug, each message is handled again alone; a message that fails
        alone is redelivered with growing delay and goes to HBOX_DLQ at its `max_deliver`-th delivery. Messages that cannot be decoded go there at once.
        ack_wait_s: after this time the messages of a dead process are redelivered to another one; a live process may take longer. writers_only: messages whose
        source is not one of the type's writers go to HBOX_DLQ. from_last_s: a consumer that does not exist yet starts with the messages stored in the last so
        many seconds; last_of_each: with the last message of each subject; otherwise with the first message of the stream. on_missed: awaited when the stream
        dropped messages before they were delivered; only for a durable that a single process reads. Runs until cancelled. Raises Bug, ValueError.
        """
        consumer = Consumer(
            durable, tuple(types), batch, window_s, ack_wait_s, max_deliver, writers_only, from_last_s, last_of_each
        )
        letters = DeadLetters(self._publisher, consumer=durable, stream=consumer.stream)
        await Puller(self._connection, consumer, handle, letters, heal=self._heal, on_missed=on_missed).run()

    async def follow(
        self,
        types: Sequence[type[Event]],
        handle: Handle,
        *,
        start: Start = Start.NEW,
        on_ready: Callable[[], None] | None = None,
        on_gap: Callable[[], Awaitable[None]] | None = None,
        on_missed: Callable[[], Awaitable[None]] | None = None,
        writers_only: bool = False,
        keys: Mapping[type[Event], tuple[str | None, ...]] | None = None,
    ) -> NoReturn:
        """Deliver the messages of `types` (of one stream) to `handle` in order, without acknowledgements.

        on_ready: called once, after all messages that existed at the start were delivered (NEW: when the start position is fixed).
        on_gap: awaited when the stream was recreated or lost its end; a follower of last values then replays all of them.
        on_missed: awaited within two seconds after the stream dropped messages before they were delivered; default: `on_gap`. If `handle` raises Unavailable,
        the batch is retried. If it raises anything else but Bug, each message is handled alone, and a message that fails goes to HBOX_DLQ. writers_only: as in
        `consume`. keys: by type, the keys whose messages are delivered (None: all); types not listed are delivered completely. Runs until cancelled. Raises
        Bug, ValueError.
        """
        letters = DeadLetters(self._publisher, consumer=self._connection.name, stream=stream_of(types))
        await Follower(
            self._connection,
            types,
            handle,
            letters,
            heal=self._heal,
            start=start,
            on_ready=on_ready,
            on_gap=on_gap,
            on_missed=on_missed,
            writers_only=writers_only,
            keys=keys,
        ).run()

    async def serve(self, request: type[R], answer: Callable[[R], AsyncIterator[Event]]) -> NoReturn:
        """Answer every `request` with the pages that `answer` yields. Runs until cancelled.

        If `answer` raises InvalidRequest or Unavailable, the client receives that error; any other exception is reported as an internal failure.
        """
        subject = request.subject()
        listed = self._directory.enter(
            subject.rsplit(".", 1)[1],
            subject,
            lambda: {"about": (request.__doc__ or "").strip().split("\n")[0], "format": "msgpack, in pages"},
        )
        await rpc.Server(self._connection, request, answer, listed).run()

    async def offer(self, endpoints: Sequence[Endpoint] = (), *, version: str, about: str) -> NoReturn:
        """Answer these endpoints in JSON as a NATS micro service, and list the requests answered with `serve` among them. Runs until cancelled."""
        await MicroServer(self._connection, self._directory, endpoints, version=version, about=about).run()

    async def ask(
        self,
        request: Event,
        page: type[P],
        *,
        timeout_s: float = 10.0,
        on_page: Callable[[int, P], Awaitable[None]] | None = None,
        keep_items: bool = True,
    ) -> list[P]:
        """All pages of the answer. `on_page` is awaited for each page and its number when it arrives; number 0 again: an earlier answer broke off and is
        void. `keep_items`: False returns the pages without their items, which `on_page` has received. Raises Unavailable (at once if there is no responder),
        InvalidRequest if the responder rejects the request."""
        return await rpc.ask(self._connection, request, page, timeout_s=timeout_s, on_page=on_page, keep_items=keep_items)

    async def call(self, service: str, name: str, request: BaseModel, response: type[M], *, timeout_s: float = 10.0) -> M:
        """The answer of an endpoint that a service `offer`s, in JSON. Raises InvalidRequest if the service rejects the request, Unavailable (at once if there
        is no responder)."""
        return await call(self._connection, service, name, request, response, timeout_s=timeout_s)

    async def last(
        self, type_: type[Event], keys: Sequence[tuple[str | None, ...]], *, timeout_s: float = 10.0
    ) -> list[Delivery]:
        """The last message of each subject of `type_` that has one of these keys (None: any), in the stream's order; 1,024 at most. Messages that cannot
        be read, or were copied by the broker, are logged and left out.

        Raises Unavailable, ValueError for keys that do not fit.
        """
        return await self.last_of_subjects(type_, [type_.filter(*one) for one in keys], timeout_s=timeout_s)

    async def last_one(self, type_: type[Event], *keys: str, timeout_s: float = 10.0) -> Delivery | None:
        """The last message of one subject; None if there is none. Needs the right to read this subject alone.

        Raises Unavailable, ValueError for keys that do not fit, InvalidRequest if the message cannot be read.
        """
        try:
            return await last_value(self._connection, type_, type_.subject(*keys), timeout_s=timeout_s)
        except NotPermitted:  # permissions of an earlier version, until the client is admitted again
            return await self.last_in_stream(type_, *keys, timeout_s=timeout_s)

    async def last_in_stream(self, type_: type[Event], *keys: str, timeout_s: float = 10.0) -> Delivery | None:
        """As `last_one`, with the right to read the whole stream instead."""
        return await last_value_of_stream(self._connection, type_, type_.subject(*keys), timeout_s=timeout_s)

    async def last_of_subjects(self, type_: type[Event], subjects: Sequence[str], *, timeout_s: float = 10.0) -> list[Delivery]:
        """`last` for subjects, as in `count_by_subject`."""
        return await last_values(self._connection, type_, subjects, timeout_s=timeout_s)

    async def follow_last(
        self, type_: type[Event], *keys: str, handle: Callable[[Delivery | None], Awaitable[None]], every_s: float
    ) -> NoReturn:
        """Call `handle` with the last message of one subject when it changes; None: there is none. Needs the right to read this subject alone.

        Reads the message after each publication, at each new connection, and every `every_s` seconds. A message that cannot be decoded is skipped. Runs until
        cancelled. Raises ValueError for keys that do not fit, and what `handle` raises.
        """
        await follow_last(self._connection, type_, type_.subject(*keys), handle, every_s=every_s)

    async def count_by_subject(self, type_: type[Event]) -> dict[str, int]:
        """Number of messages of each subject of `type_` that its stream has. Raises Unavailable."""
        return await count_by_subject(self._connection, type_)

    async def since(
        self, type_: type[Event], keys: tuple[str, ...], since_s: float, *, timeout_s: float = 10.0
    ) -> list[Delivery]:
        """The messages of one subject of `type_` that were stored since then (seconds since the epoch), in order. Messages that cannot be read, or
        were copied by the broker, are logged and left out.

        Raises Unavailable, ValueError for keys that do not fit.
        """
        since = datetime.fromtimestamp(since_s, UTC)
        return await messages_since(self._connection, type_, type_.subject(*keys), since, timeout_s=timeout_s)

    async def watch_certificates(self, access: Access) -> NoReturn:
        """Export expiry metrics of the broker's, this client's and their authorities' certificates. Runs until cancelled."""
        await certificates.watch(self._connection, access)

    async def ensure_streams(self, *, replicas: int | None = None) -> None:
        """Create missing streams, once JetStream answers. Idempotent. `replicas`: of each stream; None: the value given to `connect` for a new stream,
        unchanged for existing ones. Raises InvalidRequest."""
        await _prepare(self._connection, replicas or self._replicas, change=replicas is not None)

    async def _heal(self) -> None:
        if self._ensure:
            await ensure_streams(self._connection, self._replicas)


async def _prepare(connection: Connection, replicas: int, *, change: bool = False) -> None:
    # JetStream starts a moment after the server.
    await insist(
        lambda: ensure_streams(connection, replicas, change=change),
        on_unavailable=lambda e: log.info("the streams cannot be made now: %s", e),
        every_s=RETRY_S,
    )
