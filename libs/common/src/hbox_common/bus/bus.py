"""The bus as services see it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn, Self, TypeVar

from hbox_common.events import Event

from . import rpc
from .connection import Connection, connected
from .delivery import Delivery
from .follower import Follower, Start
from .publisher import Publisher
from .puller import ConsumerSpec, Puller

R = TypeVar("R", bound=Event)
P = TypeVar("P", bound=Event)

Handler = Callable[[Sequence[Delivery]], Awaitable[None]]


class Bus:
    """Publish, consume, follow, ask and serve over one connection. Made by `connect`; all of one event loop."""

    def __init__(self, connection: Connection, *, name: str, instance: str) -> None:
        self._connection, self._name = connection, name
        self._source = f"/hbox/{name}/{instance}"
        self._publisher = Publisher(connection, source=self._source)

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, *, name: str, instance: str, ensure: bool = True) -> AsyncIterator[Self]:
        """Wait for the broker, make the streams (unless not to `ensure`), and drain at the end. Raises InvalidRequest for a bad address."""
        async with connected(url, name=name, instance=instance) as connection:
            if ensure:
                await connection.ensure_all()
            yield cls(connection, name=name, instance=instance)

    @property
    def connected(self) -> bool:
        return self._connection.connected

    async def ensure_streams(self) -> None:
        """Make the streams that are not there."""
        await self._connection.ensure_all()

    async def publish(
        self, event: Event, *keys: str, message_id: str | None = None, traceparent: str = "", timeout_s: float = 30.0
    ) -> None:
        """Stored by the broker when this returns. Raises InvalidRequest (too large), Unavailable (outcome unknown) after `timeout_s`."""
        await self._publisher.publish(event, *keys, message_id=message_id, traceparent=traceparent, timeout_s=timeout_s)

    async def publish_raw(
        self, event: type[Event], body: bytes, *keys: str, message_id: str, traceparent: str = "", timeout_s: float = 30.0
    ) -> None:
        """As `publish`, of a body encoded before: what an outbox keeps."""
        await self._publisher.publish_raw(
            event, body, *keys, message_id=message_id, traceparent=traceparent, timeout_s=timeout_s
        )

    async def consume(
        self,
        durable: str,
        types: Sequence[type[Event]],
        handle: Handler,
        *,
        batch: int = 256,
        ack_wait_s: float = 30.0,
        max_deliver: int = 5,
    ) -> NoReturn:
        """A durable consumer of `types`, all of one stream, until cancelled; see `puller` for what becomes of errors."""
        spec = ConsumerSpec(durable, tuple(types), batch=batch, ack_wait_s=ack_wait_s, max_deliver=max_deliver)
        await Puller(self._connection, self._publisher, spec, handle).run()

    async def follow(
        self,
        types: Sequence[type[Event]],
        handle: Handler,
        *,
        start: Start = Start.NEW,
        on_ready: Callable[[], None] | None = None,
        on_gap: Callable[[], Awaitable[None]] | None = None,
    ) -> NoReturn:
        """A reader without acknowledgements, until cancelled; see `follower`. `on_ready` once what existed at the start was handed over."""
        await Follower(
            self._connection, self._publisher, self._name, types, handle, start=start, on_ready=on_ready, on_gap=on_gap
        ).run()

    async def serve(self, request: type[R], answer: Callable[[R], AsyncIterator[Event]]) -> NoReturn:
        """Answer requests with pages, until cancelled."""
        await rpc.serve(self._connection, self._source, request, answer)

    async def ask(self, request: Event, page: type[P], *, timeout_s: float = 10.0) -> list[P]:
        """All pages of the answer. Raises Unavailable."""
        return await rpc.ask(self._connection, self._source, request, page, timeout_s=timeout_s)
