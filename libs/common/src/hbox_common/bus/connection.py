"""One connection to the broker, re-established for ever; pending requests fail as soon as it is lost.

The request() of nats-py waits for the whole timeout if the broker dies meanwhile, its publish_async does not report rejections, and its buffers fill up while
the connection is down (sources: nats-py-outages). So requests use an inbox and futures of this module, which fail as soon as the connection is
lost; nothing is buffered (`pending_size=-1`); and `epoch` increases with every connection, so that readers know that the broker forgot their requests.

A client that nats-py closes for good (protocol error) cannot be used again: the block of `open` is cancelled and ends with Unavailable, so that the process
exits and is restarted. The same happens if the broker rejects the credentials, with one exception: a client that was connected before retries for REFUSED_S,
because a renewed key reaches its file and the broker's configuration at different times (kubelet needs a minute or two to update a mounted Secret).
"""

import asyncio
import base64
import json
import logging
import random
import re
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.command import hpub_cmd

from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.events import token_of

from . import metrics
from .access import Access
from .copies import COPIED, COPY_HEADERS
from .errors import NotPermitted, StreamApiError

log = logging.getLogger(__name__)

API_S = 5.0  #: how long a JetStream API call may take

#: How long a question is waited for first that may be asked again: brokers of a cluster that choose a leader for a stream answer nothing about it.
ASK_S = 1.5
DRAIN_S = 5.0
#: Seconds for which a client that was connected before retries rejected credentials, with the present content of its files.
REFUSED_S = 180.0
#: Between two tries of it: each is a line in the broker's log.
REFUSED_AGAIN_S = 2.0
#: A broker that does not answer this many pings is unreachable (power failure, lost connection state on the path): detected after 6 to 9 s.
PING_S, PINGS = 3, 2
DEFAULT_PORT = 4222
NO_RESPONDERS = "503"


class NoResponder(Unavailable):
    """No process subscribes to the subject of a request."""


#: How the broker refuses what a user may not say or hear.
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)


class _Client(Client):
    """The library's own reading of headers looks at each character of each name: a tenth of the time of services that read much. And for nkeys it needs a
    package that has no wheel. What `hand_over` names is handed over as it is read: the library's queue and task for each subscription cost more than that.
    Certificates are read anew for each connection."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access
        self._seed: str | None = None  #: as last read
        self.hand_over: dict[int, Callable[[Msg], None]] = {}  #: by subscription

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        take = self.hand_over.get(sid)
        if take is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        try:
            take(self._build_message(sid, subject, reply, data, await self._process_headers(headers)))
        except Exception as e:  # noqa: BLE001  the library's own way with what a callback raises: the next message is read
            await self._error_cb(e)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        try:
            return await super()._flush_pending(force_flush)
        except RuntimeError as e:  # uvloop's word for what is written to a socket that is closed
            raise ConnectionResetError(str(e)) from e

    def _setup_nkeys_seed_connect(self) -> None:
        """`_connect_command` signs with the seed."""

    def _connect_command(self) -> bytes:
        """Sign with the present content of the seed file at each connection; if the file holds no valid seed, for example while it is replaced, with the
        previous one."""
        if self._nkeys_seed is not None:
            from hbox_common.brokerkeys import public_key, read_seed, signature  # noqa: PLC0415  only where the broker is closed

            try:
                seed = self._seed = read_seed(Path(self._nkeys_seed))
            except InvalidRequest as e:
                if self._seed is None:
                    raise
                seed = self._seed
                log.warning("%s; the one read before is used", e)
            self._public_nkey = public_key(seed)
            self._signature_cb = lambda nonce: base64.b64encode(signature(seed, nonce.encode()))
        return super()._connect_command()

    async def _process_err(self, err_msg: str) -> None:
        """If the broker rejects the key, or a callout's permissions end, reconnect with the present content of the file; the library would close the client for
        good."""
        if (
            any(error in err_msg.lower() for error in ("authorization violation", "authentication expired"))
            and self.is_connected
        ):
            await self._process_op_err(nats.errors.AuthorizationError())
            return
        await super()._process_err(err_msg)

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Built from the present content of the certificate files, if any; if they are unusable, for example while they are replaced, the previous context."""
        try:
            context = self._access.context()
        except InvalidRequest as e:
            log.warning("%s; those read before are used", e)
            context = None
        return context or super().ssl_context

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        out = {}
        for line in raw.decode("utf-8", "replace").split("\r\n"):
            name, colon, value = line.partition(":")
            name = name.strip()
            if colon and name.isascii() and " " not in name and "\t" not in name:
                if name in out and name in COPY_HEADERS:
                    out[COPIED] = "1"
                out[name] = value.strip()
        return out

    async def _send_publish(
        self, subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, Any] | None
    ) -> None:
        """Write all headers at once if no value contains a line break; the library checks and appends them one by one."""
        text = "NATS/1.0\r\n" + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) if headers else ""
        if not headers or text.count("\r") != len(headers) + 1 or text.count("\n") != len(headers) + 1:
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await self._send_command(hpub_cmd(subject, reply, f"{text}\r\n".encode(), payload))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()


OPEN = Access()


class Connection:
    """Made by `open`; used by one event loop."""

    def __init__(self, url: str, *, name: str, instance: str, access: Access = OPEN, user: str = "") -> None:
        self.name, self.instance = name, instance
        self._identity = access.options()
        self.connected = asyncio.Event()
        self.epoch = 0  #: rises with every connection made
        self._servers = _servers_of(url)
        self._url = ",".join(server.rsplit("@", 1)[-1] for server in self._servers)  # without the password
        self._client = _Client(access)
        #: A callout that does not answer looks like one that refuses, so a new client with a token tries again too.
        self._tries_again = access.token is not None
        self._life: asyncio.Timeout | None = None
        self._fatal: HBoxError | None = None
        self._closing = self._complained = False
        self._refused_since: float | None = None
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg]]] = {}  #: subject and answer, by token
        self._requests = 0
        self._prefix = f"_INBOX_{token_of(user or name)}"
        self._inbox = f"{self._prefix}.{secrets.token_hex(8)}"
        self._watchers: set[Callable[[], None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        name: str,
        instance: str,
        access: Access = OPEN,
        user: str = "",
        prepare: Callable[[Self], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Self]:
        """A connection, once there is one and `prepare` is through; it waits for the broker without end. `user`: the broker's user, if it is not `name`.

        Raises InvalidRequest for a bad address, user or certificate, and, by cancelling the block, Unavailable when the client is closed for good.
        """
        self = cls(url, name=name, instance=instance, access=access, user=user)
        try:
            async with asyncio.timeout(None) as self._life:
                try:
                    await self._make(prepare)
                    yield self
                finally:
                    self._closing = True
                    await self._close()
        except TimeoutError as e:
            if self._life is None or not self._life.expired():
                raise
            raise self._fatal or Unavailable(f"the broker at {self._url} ended the connection for good") from e

    async def _make(self, prepare: Callable[[Self], Awaitable[None]] | None) -> None:
        await self._client.connect(
            self._servers,
            name=f"{self.name}/{self.instance}",
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
            max_reconnect_attempts=-1,
            reconnect_time_wait=random.uniform(0.2, 0.3),  # type: ignore[arg-type]  # passed to sleep()
            ping_interval=PING_S,
            max_outstanding_pings=PINGS,
            pending_size=-1,
            drain_timeout=int(DRAIN_S),
            inbox_prefix=self._prefix,
            **self._identity,
        )
        await self.listen(f"{self._inbox}.*", self._on_reply)
        if self._client.is_connected:
            self._established()
        if prepare is not None:
            await prepare(self)

    # --- callbacks of nats-py

    async def _on_error(self, error: Exception) -> None:
        if self._client.is_connecting or self._client.is_reconnecting:
            self._close_transport()  # of a try that failed: the library leaves it open, and opens another
        if isinstance(error, nats.errors.SlowConsumerError):
            log.error("the broker sends faster than we read; a message was dropped", extra={"subject": error.subject})
        elif "authorization" in str(error).lower():
            await self._not_let_in(error)
        elif denied := _DENIED.search(str(error)):
            self._refused(denied[1].lower(), denied[2])
        elif not self._complained and not self._closing:
            self._complained = True
            log.warning("no connection to the broker at %s (%s); trying again", self._url, describe(error))
        else:
            log.debug("nats: %s", describe(error))

    async def _not_let_in(self, error: Exception) -> None:
        """Waits where there is another try."""
        now = monotonic_s()
        if self._refused_since is None:
            self._refused_since = now
            if self.epoch or self._tries_again:
                log.warning("the broker at %s refuses us now (%s); trying again for %g s", self._url, error, REFUSED_S)
        if (self.epoch or self._tries_again) and now < self._refused_since + REFUSED_S:
            await asyncio.sleep(REFUSED_AGAIN_S)
            return
        self._end(
            InvalidRequest(
                f"the broker at {self._url} refuses us: {error}",
                hint="check HBOX_NATS_SEED (of `hbox up`: --nats-users), HBOX_NATS_TOKEN, or user and password in HBOX_NATS_URL",
            )
        )

    def _refused(self, verb: str, subject: str) -> None:
        """Fail the pending requests on this subject: the broker sends them no answer."""
        log.error("the broker does not let %s have its %s on %s", self.name, verb, subject)
        for asked, future in self._waiting.values():
            if verb == "publish" and asked.lower() == subject.lower() and not future.done():
                future.set_exception(NotPermitted(f"the broker does not let {self.name} publish on {subject}"))

    async def _on_disconnected(self) -> None:
        self._lost()

    async def _on_reconnected(self) -> None:
        metrics.RECONNECTS.inc()
        log.info("connected to the broker at %s again", self._url)
        self._established()

    async def _on_closed(self) -> None:
        self._lost()
        why = self._client.last_error
        self._end(Unavailable(f"the broker at {self._url} ended the connection for good: {why}", hint="see the broker's log"))

    def _end(self, error: HBoxError) -> None:
        if self._closing or self._life is None or self._fatal is not None:
            return
        self._fatal = error
        self._life.reschedule(asyncio.get_running_loop().time())

    def _established(self) -> None:
        self.epoch += 1
        self._complained = False
        self._refused_since = None
        self.connected.set()
        self._notify_watchers()

    def _lost(self) -> None:
        self.connected.clear()
        waiting, self._waiting = self._waiting, {}
        for _, future in waiting.values():
            if not future.done():
                future.set_exception(Unavailable("the connection to the broker was lost", outcome_unknown=True))
        self._notify_watchers()

    def _notify_watchers(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_S):
                if self._client.is_connected:
                    await self._client.drain()
                else:
                    await self._client.close()
        except (TimeoutError, nats.errors.Error, OSError, RuntimeError) as e:  # RuntimeError: as in `_Client._flush_pending`
            log.debug("closing the bus: %s", describe(e))
        finally:
            self._close_transport()  # a client that was cancelled while connecting counts as closed, and leaves its socket open

    def _close_transport(self) -> None:
        if (transport := self._client._transport) is not None:
            transport.close()  # type: ignore[no-untyped-call]

    # --- for the rest of the bus

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` at every loss and every new connection, until the function returned is called."""
        self._watchers.add(watcher)
        return lambda: self._watchers.discard(watcher)

    @property
    def server_version(self) -> str:
        """Version reported by the connected broker."""
        return str(self._client._server_info.get("version", "?"))

    @property
    def servers(self) -> list[tuple[str, int]]:
        """Host and port of each known broker: the configured ones, then those that brokers advertised."""
        return [(server.hostname or "", server.port or DEFAULT_PORT) for server in self._client.servers]

    @property
    def by_tls(self) -> bool:
        """Whether the broker that we are connected to asks for TLS."""
        return bool(self._client._server_info.get("tls_required"))

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body together that the broker takes."""
        return self._client.max_payload

    async def send(self, subject: str, body: bytes = b"", *, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Hand a message to the socket. Raises Unavailable while there is no connection, InvalidRequest where it is too large."""
        try:
            await self._client.publish(subject, body, reply=reply, headers=dict(headers) if headers else None)
        except nats.errors.MaxPayloadError as e:
            raise InvalidRequest(
                f"{subject}: {len(body)} bytes, the broker takes {self.max_payload}", hint="raise its max_payload"
            ) from e
        except (nats.errors.Error, OSError) as e:
            raise Unavailable("there is no connection to the broker", hint=f"is nats-server running at {self._url}?") from e

    async def flush(self, *, timeout_s: float = API_S) -> None:
        """Return when the broker has taken all that was sent. Raises Unavailable."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._client.flush(timeout=int(timeout_s) + 1)
        except (TimeoutError, nats.errors.Error, OSError) as e:
            raise Unavailable("the broker does not take what is sent to it") from e

    async def subscribe(self, subject: str, on_message: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """A plain subscription, which is made again at every reconnect. Raises Unavailable when the client is closed."""
        try:
            # No limit by bytes: pulls and pages bound what is under way, and 8 MiB messages would exceed the library's default too early.
            return await self._client.subscribe(subject, cb=on_message, pending_bytes_limit=0)
        except (nats.errors.Error, OSError) as e:
            raise Unavailable("the bus is closed") from e

    async def listen(self, subject: str, take: Callable[[Msg], None]) -> Subscription:
        """As `subscribe`, for a function that only puts messages away: it is called as they are read from the socket."""

        async def later(message: Msg) -> None:
            take(message)  # one that was read before we knew the subscription's number

        subscription = await self.subscribe(subject, later)
        self._client.hand_over[subscription._id] = take
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; no effect if it has ended already."""
        self._client.hand_over.pop(subscription._id, None)
        try:
            await subscription.unsubscribe()
        except (nats.errors.Error, OSError) as e:
            log.debug("unsubscribe: %s", describe(e))

    def new_inbox(self) -> str:
        """A subject of this connection's own, outside of the one for `request`."""
        self._requests += 1
        return f"{self._inbox}.own.{self._requests}"

    async def request(
        self, subject: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None, timeout_s: float = API_S
    ) -> Msg:
        """The one answer to a message.

        Raises Unavailable: no responder, no connection, or (with `outcome_unknown`) a timeout or a connection lost meanwhile; NotPermitted.
        """
        self._requests += 1
        token = str(self._requests)
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = (subject, future)
        try:
            await self.send(subject, body, reply=f"{self._inbox}.{token}", headers=headers)
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError as e:
            raise Unavailable(f"no answer on {subject} within {timeout_s:.3g} s", outcome_unknown=True) from e
        finally:
            self._waiting.pop(token, None)
            if future.done() and not future.cancelled():
                future.exception()  # looked at, also where something else was raised first
        if answer.headers and not answer.data and answer.headers.get("Status") == NO_RESPONDERS:
            raise NoResponder(f"no responder on {subject}")
        return answer

    def _on_reply(self, message: Msg) -> None:
        waiting = self._waiting.get(message.subject.rsplit(".", 1)[1])
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(message)

    async def api(self, what: str, request: Mapping[str, object] | None = None, *, timeout_s: float = API_S) -> dict[str, Any]:
        """The answer to a JetStream API call, e.g. `STREAM.INFO.HBOX_STATE`.

        Raises StreamApiError when it is refused, Unavailable when JetStream does not answer (it may be starting).
        """
        answer = await self.request(f"$JS.API.{what}", json.dumps(request).encode() if request else b"", timeout_s=timeout_s)
        return answer_of(answer.data)


class Patience:
    """How long to wait for an answer: longer where several did not come, for longer than it takes a cluster to choose leaders."""

    def __init__(self) -> None:
        self._failed = 0

    @property
    def seconds(self) -> float:
        return min(API_S, ASK_S * (1 + self._failed // 8))

    def lost(self) -> None:
        self._failed += 1

    def kept(self) -> None:
        self._failed = 0


def _servers_of(url: str) -> list[str]:
    servers = [part.strip() for part in url.split(",")]
    for server in servers:
        parts = urlsplit(server)
        try:
            good = parts.scheme in ("nats", "tls") and parts.hostname and parts.port != 0
        except ValueError:  # of .port
            good = False
        if not good:
            raise InvalidRequest(f"{server.rsplit('@', 1)[-1]!r} is no address of a broker", hint="write nats://HOST:PORT")
    return servers


def describe(error: Exception) -> str:
    """The error's message, or its class name: some of the library's errors have no message."""
    return str(error) or type(error).__name__


def answer_of(body: bytes) -> dict[str, Any]:
    """JetStream's JSON answer. Raises StreamApiError if JetStream rejects the request, Unavailable if it is temporarily unable to serve it."""
    try:
        answer: dict[str, Any] = json.loads(body)
    except ValueError as e:
        raise Unavailable("JetStream answered with something that is not JSON", outcome_unknown=True) from e
    if refusal := answer.get("error"):
        code, description = int(refusal.get("code", 0)), str(refusal.get("description", ""))
        if code == 503:
            raise Unavailable(f"JetStream: {description}", hint="is it enabled, and does the cluster have a leader?")
        raise StreamApiError(code=code, err_code=int(refusal.get("err_code", 0)), description=description)
    return answer
