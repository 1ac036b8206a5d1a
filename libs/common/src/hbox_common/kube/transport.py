"""Transport to the API server: one pool of connections, a timeout on every request, errors mapped to HBox's.

Requests use `http1`; watches (and all requests through a proxy) use aiohttp: the official client's call path costs more than twice aiohttp's per bind (3,370/s
against 8,050/s; sources: kubernetes-client), and aiohttp's twice that of `http1`. Credentials and address come from `access`, and from `renewal` when they
change.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Container, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from yarl import URL

from hbox_common.clock import monotonic_s
from hbox_common.errors import Unavailable

from .access import Access, find_access
from .deadpeers import detect_dead_peers
from .http1 import MAX_BODY_BYTES, BrokenHttp, OversizedBody, Pool
from .lines import LineSplitter
from .nesting import decoded
from .renewal import Renewal
from .status import error_of

T = TypeVar("T")

JSON: Final = "application/json"
#: always named: the default, strategic merge, is refused by custom resources
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"  #: of built-in kinds alone; conditions merge by type
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

_READ_BUFFER_BYTES = 2**20  #: how much of a watch is taken in one go after a pause


class TooLarge(Unavailable):
    """The answer has more bytes than were to be taken: the same question will have no other. What was written may be done."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    headers: Mapping[str, str]  #: by lower-case names

    def decode(self, type_: type[T]) -> T:
        """The body as `type_`, a msgspec type. Raises Unavailable when it is something else: an answer that we cannot read."""
        try:
            return decoded(msgspec.json.Decoder(type_), self.body)
        except msgspec.DecodeError as e:
            raise Unavailable(f"the Kubernetes API answered with something that is no {type_.__name__}: {e}") from e


class KubeClient:
    """One API server. Made by `connect`; safe to share by all tasks of a loop."""

    def __init__(
        self,
        access: Access,
        renewal: Renewal,
        session: aiohttp.ClientSession,
        *,
        user_agent: str,
        timeout_s: float,
        connections: int,
    ) -> None:
        self.timeout_s = timeout_s
        self._renewal, self._session, self._connections = renewal, session, connections
        self._pool: Pool | None = None
        self._go_by(access)
        # Compression would be paid by the API server's CPU, which is the scarcest part of the whole platform.
        self._fields = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, kubeconfig: str | None, *, user_agent: str, timeout_s: float = 10.0, connections: int = 64
    ) -> AsyncIterator[Self]:
        """A client for the cluster of `kubeconfig` (None: the one we run in). Nothing is sent yet.

        `connections`: watches hold one each; 32 for binds are right, fewer starve (measured; sources: pipeline-prototype).
        Raises InvalidRequest when the kubeconfig is missing or broken.
        """
        access = await find_access(kubeconfig)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, socket_factory=_open_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER_BYTES,
        )
        renewal = Renewal(kubeconfig, access)
        async with session:
            self = cls(access, renewal, session, user_agent=user_agent, timeout_s=timeout_s, connections=connections)
            try:
                yield self
            finally:
                if self._pool is not None:
                    await self._pool.close()

    def _go_by(self, access: Access) -> None:
        """From the next request on, on connections of its own."""
        former = self._pool
        self._access, self.base, self._prefix = access, access.base, urlsplit(access.base).path
        self._pool = None
        if access.proxy is None:
            self._pool = Pool(access.base, tls=access.tls, server_name=access.server_name, limit=self._connections)
        if former is not None:
            former.retire()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
        most_bytes: int = MAX_BODY_BYTES,
    ) -> Response:
        """One request, whatever its HTTP status. `path` is escaped already (`Resource.path`); a body that is no bytes becomes JSON.

        Raises Unavailable when no answer comes within `timeout_s` (default: the client's), with `outcome_unknown` when it was
        a write and may have been done all the same; TooLarge when the answer has more than `most_bytes`.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                target, fields, data = await self._prepare(path, params, body, content_type)
                if self._pool is not None:
                    answer = await self._pool.request(method, self._prefix + target, fields, data, most_bytes=most_bytes)
                    self._look_at(answer.status)
                    return Response(answer.status, answer.body, answer.fields)
                async with await self._send(method, target, fields, data) as response:
                    self._look_at(response.status)
                    return Response(response.status, await _body(response, most_bytes), _lower(response))
        except OversizedBody as e:
            raise TooLarge(f"Kubernetes API, {method} {path}: {e}", outcome_unknown=method != "GET") from e
        except _FAILURES as e:
            raise self._unavailable(e, method, path, limit_s) from e

    async def json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
        expect: Container[int] = (200, 201),
    ) -> Any:
        """The decoded answer.

        Raises NotFound (404), Conflict (409; Expired for 410), InvalidRequest (400, 403, 422 and other refusals), and Unavailable
        (401, 429 with `retry_after_s`, 5xx, no answer), each with the server's own message.
        """
        return (
            await self.expected(
                method, path, params=params, body=body, content_type=content_type, timeout_s=timeout_s, expect=expect
            )
        ).decode(object)

    async def expected(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
        expect: Container[int] = (200, 201),
        most_bytes: int = MAX_BODY_BYTES,
    ) -> Response:
        """As `json`, with the body left as bytes, so that the caller can decode it into a slim type. `most_bytes`: as for `request`."""
        response = await self.request(
            method, path, params=params, body=body, content_type=content_type, timeout_s=timeout_s, most_bytes=most_bytes
        )
        if response.status not in expect:
            raise error_of(
                response.status, response.body, what=f"{method} {path}", retry_after=response.headers.get("retry-after")
            )
        return response

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], lasts_s: float
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """A watch (or a log): yields the complete lines of all that the socket held, again and again, until the server ends it.

        Raises on opening as `json` does, and Unavailable when the connection breaks or the server has not ended it after `lasts_s`.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                target, fields, _ = await self._prepare(path, params, None, JSON)
                response = await self._send("GET", target, fields, None)
                self._look_at(response.status)
                refusal = None if response.status == 200 else await response.read()
        except (aiohttp.ClientError, TimeoutError) as e:
            raise self._unavailable(e, "GET", path, self.timeout_s) from e
        try:
            if refusal is not None:
                raise error_of(response.status, refusal, what=f"GET {path}", retry_after=response.headers.get("Retry-After"))
            async with aclosing(self._lines(response, path, lasts_s)) as lines:
                yield lines
        finally:
            response.close()

    async def _lines(self, response: aiohttp.ClientResponse, path: str, lasts_s: float) -> AsyncGenerator[list[bytes]]:
        splitter = LineSplitter()
        until = monotonic_s() + lasts_s
        while True:
            try:
                async with asyncio.timeout(max(0.0, until - monotonic_s())):
                    chunk = await response.content.readany()
            except (aiohttp.ClientError, TimeoutError) as e:
                raise self._unavailable(e, "GET", path, lasts_s) from e
            if not chunk:
                return
            if lines := splitter.feed(chunk):
                yield lines

    async def _prepare(
        self, path: str, params: Mapping[str, str] | None, body: object, content_type: str
    ) -> tuple[str, dict[str, str], bytes | None]:
        """Path and query, header fields, body."""
        if (access := await self._renewal.access()) is not self._access:
            self._go_by(access)
        fields = dict(self._fields)
        if self._access.authorize is not None:
            await self._access.authorize(fields)
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
            fields["Content-Type"] = content_type
        return f"{path}?{urlencode(params)}" if params else path, fields, data

    async def _send(self, method: str, target: str, fields: Mapping[str, str], data: bytes | None) -> aiohttp.ClientResponse:
        return await self._session.request(
            method,
            URL(self.base + target, encoded=True),
            data=data,
            headers=fields,
            allow_redirects=False,
            timeout=_NO_TIMEOUT,
            ssl=self._access.tls if self._access.tls is not None else True,
            proxy=self._access.proxy,
            server_hostname=self._access.server_name,
        )

    def _look_at(self, status: int) -> None:
        if status == HTTPStatus.UNAUTHORIZED:
            self._renewal.refused()

    def _unavailable(self, e: Exception, method: str, path: str, limit_s: float) -> Unavailable:
        if isinstance(e, aiohttp.ClientSSLError | ssl.SSLError):
            self._renewal.refused()
            hint = "check certificate-authority and tls-server-name in the kubeconfig"
            return Unavailable(f"the Kubernetes API at {self.base} cannot be trusted: {e}", hint=hint)
        unconnected = isinstance(e, OSError) and not isinstance(e, aiohttp.ClientError | TimeoutError)
        if unconnected or isinstance(e, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            hint = "is it running, and is the address right?"
            return Unavailable(f"the Kubernetes API at {self.base} cannot be reached: {e}", hint=hint)
        message = (
            f"no answer, or no end of it, within {limit_s:g} s" if isinstance(e, TimeoutError) else str(e) or type(e).__name__
        )
        return Unavailable(f"Kubernetes API, {method} {path}: {message}", outcome_unknown=method != "GET")


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    family, type_, protocol, _, _ = address
    opened = socket.socket(family, type_, protocol)
    detect_dead_peers(opened)
    return opened


async def _body(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    found, size = [], 0
    async for chunk in response.content.iter_any():
        found.append(chunk)
        size += len(chunk)
        if size > most_bytes:
            response.close()
            raise OversizedBody(f"a body of more than {most_bytes} bytes")
    return b"".join(found)


def _lower(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


_FAILURES = (aiohttp.ClientError, BrokenHttp, OSError)  # TimeoutError is an OSError
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # ours is around the whole request, credentials included
