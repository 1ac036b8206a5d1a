"""One connection to the broker: never given up, every default of nats-py that loses messages or waits for minutes overridden.

Measured traps (reference ecosystem §2, reliability §0 and §2): the client closes for good after 60 attempts; a dead peer is noticed after
four minutes; publishes while reconnecting are buffered and stored later although the caller saw a time-out (`pending_size=-1` makes
them fail at once instead); replies on the shared `_INBOX` can be read by everyone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import token_of
from hbox_common.telemetry import counter

from .streams import STREAMS

log = logging.getLogger(__name__)

RECONNECTS = counter("bus_reconnects", "Connections to the broker that were lost and made again")

#: How long one call to the broker may take before it counts as lost.
CALL_S = 5.0
_STREAM_NOT_FOUND = 10059


@dataclass(slots=True)
class Connection:
    """The client, and who wants to know when it is back. `generation` counts connections made."""

    client: Client
    jetstream: JetStreamContext
    generation: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _on_reconnect: list[Callable[[], None]] = field(default_factory=list)

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    def on_reconnect(self, call: Callable[[], None]) -> Callable[[], None]:
        """`call()` after each reconnection; returns how to stop that."""
        self._on_reconnect.append(call)
        return lambda: self._on_reconnect.remove(call)

    def reconnected(self) -> None:
        self.generation += 1
        RECONNECTS.inc()
        for call in list(self._on_reconnect):
            call()

    async def ensure(self, config: StreamConfig) -> None:
        """Create or update one stream. Raises Unavailable."""
        try:
            try:
                await self.jetstream.update_stream(config)
            except nats.js.errors.NotFoundError:
                await self.jetstream.add_stream(config)
        except nats.js.errors.BadRequestError as e:
            raise InvalidRequest(
                f"stream {config.name}: {e.description}", hint="an older one is in the way: delete it, or use another broker"
            ) from e
        except (nats.errors.Error, nats.js.errors.APIError, OSError, TimeoutError) as e:
            raise Unavailable(f"stream {config.name} cannot be made: {describe(e)}") from e

    async def ensure_all(self) -> None:
        """All of our streams, tried until they are there: the broker may still be starting. Raises InvalidRequest."""
        for config in STREAMS:
            while True:
                try:
                    await self.ensure(config)
                    break
                except Unavailable as e:
                    log.warning("%s; trying again", e)
                    await asyncio.sleep(0.25)


def describe(error: BaseException) -> str:
    """What an error of the broker or its client says, in words: some of them say nothing themselves."""
    return getattr(error, "description", None) or str(error) or type(error).__name__


@asynccontextmanager
async def connected(url: str, *, name: str, instance: str) -> AsyncIterator[Connection]:
    """A connection that lasts as long as the block; waits for the broker without end, saying so. Raises InvalidRequest for a bad address."""
    holder: list[Connection] = []

    async def on_error(error: Exception) -> None:
        if not isinstance(error, (nats.errors.StaleConnectionError, ConnectionError, nats.errors.UnexpectedEOF)):
            log.warning("broker connection: %s", describe(error))

    async def on_disconnect() -> None:
        log.warning("the broker at %s went away", url)

    async def on_reconnect() -> None:
        log.info("connected to the broker again")
        for connection in holder:
            connection.reconnected()

    client = Client()
    warned = False
    while True:
        try:
            await client.connect(
                [part.strip() for part in url.split(",")],
                name=f"{name} {instance}",
                error_cb=on_error,
                disconnected_cb=on_disconnect,
                reconnected_cb=on_reconnect,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.25,  # type: ignore[arg-type]
                connect_timeout=2,
                ping_interval=10,
                max_outstanding_pings=2,
                pending_size=-1,
                drain_timeout=5,
                inbox_prefix=f"_INBOX_{token_of(name)}",
            )
            break
        except (nats.errors.Error, OSError, TimeoutError) as e:
            if isinstance(e, nats.errors.Error) and "authorization" in str(e).lower():
                raise InvalidRequest(f"the broker at {url} refuses us: {e}", hint="check its users and HBOX_NATS_URL") from e
            if not warned:
                log.warning(
                    "no broker at %s yet (%s); trying again",
                    url,
                    describe(e),
                    extra={"hint": "is nats-server running? check HBOX_NATS_URL"},
                )
                warned = True
            await asyncio.sleep(0.25)
        except ValueError as e:
            raise InvalidRequest(f"{url!r} is no address of a broker: {e}", hint="write nats://HOST:PORT") from e
    connection = Connection(client, client.jetstream(timeout=CALL_S))
    holder.append(connection)
    try:
        yield connection
    finally:
        with suppress(nats.errors.Error, OSError, TimeoutError):
            await (client.drain() if client.is_connected else client.close())
