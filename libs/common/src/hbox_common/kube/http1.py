"""A minimal HTTP/1.1 client for a known server: kept-alive connections, one request at a time on each.

A binding through aiohttp needs twice the processor time (measured; sources: pipeline-prototype), most of it for features that an API server never uses:
redirects, cookies, form data, proxies, compression. The checks here guard against a broken or hostile server: endless heads and bodies, lengths that are not
numbers, unsolicited answers, connections that end in the middle of an answer.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from hbox_common.clock import monotonic_s

from .deadpeers import detect_dead_peers

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 512 * 2**20  #: a list of everything without pages stays far below
_MAX_CHUNK_LINE_BYTES = 1024

#: A connection that was idle for longer is not used again: the server, or something on the way, may be about to end it.
IDLE_S = 45.0

#: Seconds to wait for closing connections.
CLOSE_S = 1.0

_UNTIL_THE_END = -1
_NO_BODY = frozenset({204, 304})
_READS = ("GET", "HEAD")


class BrokenHttp(Exception):
    """The connection ended, or what came on it is no HTTP/1.1, before there was an answer. The request may have been done."""


class OversizedBody(BrokenHttp):
    """The answer's body has more bytes than its reader takes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`fields`: header fields by their lower-case names; of repeated ones the last."""

    status: int
    fields: Mapping[str, str]
    body: bytes


class Pool:
    """Connections to one server: at most `limit` at once, made when needed."""

    def __init__(self, base: str, *, tls: ssl.SSLContext | None, server_name: str | None, limit: int) -> None:
        url = urlsplit(base)
        self._host = url.hostname or ""
        self._port = url.port or (443 if tls is not None else 80)
        self._tls = tls
        self._server_name = (server_name or self._host) if tls is not None else None
        self._room = asyncio.Semaphore(limit)
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._host_field = url.netloc.rpartition("@")[2]
        self._retired = False

    async def request(
        self, method: str, target: str, fields: Mapping[str, str], body: bytes | None, *, most_bytes: int = MAX_BODY_BYTES
    ) -> Answer:
        """The answer to one request, of `most_bytes`. `target`: path and query, escaped. The caller sets the time limit.

        A read that met a connection which the server was about to end is sent once more, on a new one.
        Raises OSError (ssl.SSLError among them) where there is no connection, and BrokenHttp where it failed later.
        """
        head = [f"{method} {target} HTTP/1.1\r\nHost: {self._host_field}\r\n"]
        head += [f"{name}: {value}\r\n" for name, value in fields.items()]
        if body is not None or method in ("POST", "PUT", "PATCH"):
            head.append(f"Content-Length: {len(body or b'')}\r\n")
        head.append("\r\n")
        message = "".join(head).encode("latin-1") + (body or b"")
        async with self._room:
            connection = self._reusable()
            if connection is not None:
                try:
                    return await self._exchange(connection, message, method, most_bytes)
                except OversizedBody:
                    raise
                except BrokenHttp:
                    if method not in _READS:
                        raise
            return await self._exchange(await self._connect(), message, method, most_bytes)

    def retire(self) -> None:
        """Another pool takes over: idle connections end now, the others with the answers that they wait for."""
        self._retired = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def close(self) -> None:
        """End all connections, and whatever is under way on them."""
        self._idle.clear()
        for connection in self._all:
            connection.abort()
        if self._all:
            await asyncio.wait([connection.lost for connection in self._all], timeout=CLOSE_S)

    async def _exchange(self, connection: "_Connection", message: bytes, method: str, most_bytes: int) -> Answer:
        try:
            answer = await connection.exchange(message, bodiless=method == "HEAD", most_bytes=most_bytes)
        except BaseException:
            connection.abort()  # further bytes belong to no request
            raise
        if self._retired:
            connection.abort()
        elif connection.usable:
            self._idle.append(connection)
        return answer

    def _reusable(self) -> "_Connection | None":
        oldest = monotonic_s() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.used_at >= oldest:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        connection = _Connection(loop, self._all)
        try:
            await loop.create_connection(
                lambda: connection, self._host, self._port, ssl=self._tls, server_hostname=self._server_name
            )
        except BaseException:
            # If its caller is cancelled, uvloop closes the transport without notifying the protocol.
            connection.abort()
            self._all.discard(connection)
            raise
        return connection


class _Connection(asyncio.Protocol):
    """One connection and its answer parser."""

    def __init__(self, loop: asyncio.AbstractEventLoop, register: "set[_Connection]") -> None:
        self.lost: asyncio.Future[None] = loop.create_future()
        self.used_at = 0.0  #: monotonic seconds
        self._loop, self._register = loop, register
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._parser: _Parser | None = None
        self._closing = False

    @property
    def usable(self) -> bool:
        return not self._closing and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, message: bytes, *, bodiless: bool, most_bytes: int) -> Answer:
        if self._transport is None or not self.usable:
            raise BrokenHttp("the server has ended the connection")
        self._parser = _Parser(bodiless=bodiless, most_bytes=most_bytes)
        self._waiting = self._loop.create_future()
        self._transport.write(message)
        answer = await self._waiting
        self.used_at = monotonic_s()
        return answer

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no subclasses
        if self._closing:  # the caller is gone
            transport.abort()  # type: ignore[attr-defined]
            return
        if (opened := transport.get_extra_info("socket")) is not None:
            detect_dead_peers(opened)
        self._register.add(self)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:  # an unsolicited answer, such as a time-out sent to an idle client
            self.abort()
            return
        try:
            answer = self._parser.feed(data)
        except OversizedBody as e:
            self._fail(e)
            return
        except ValueError as e:
            self._fail(BrokenHttp(f"what the server sent is no HTTP/1.1: {e}"))
            return
        if answer is not None:
            self._finish(answer)

    def eof_received(self) -> None:
        self._closing = True

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        answer = self._parser.end() if self._parser is not None and error is None else None
        if answer is not None:
            self._finish(answer)
        else:
            self._fail(BrokenHttp(f"the connection ended{f': {error}' if error else ''}"))
        self._register.discard(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def _finish(self, answer: Answer) -> None:
        assert self._parser is not None
        if self._parser.close or self._parser.rest:
            self._closing = True
        waiting, self._waiting, self._parser = self._waiting, None, None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
        if self._closing:
            self.abort()

    def _fail(self, why: BrokenHttp) -> None:
        waiting, self._waiting, self._parser = self._waiting, None, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(why)
        self.abort()


class _Parser:
    """One answer, from chunks cut anywhere."""

    __slots__ = ("_bodiless", "_body", "_buffer", "_chunked", "_fields", "_left", "_most_bytes", "_size", "_status", "close")

    def __init__(self, *, bodiless: bool, most_bytes: int = MAX_BODY_BYTES) -> None:
        self.close = False  #: the server ends the connection after this answer
        self._bodiless, self._most_bytes = bodiless, most_bytes
        self._buffer = bytearray()
        self._status = 0  #: 0 until the head is through
        self._fields: dict[str, str] = {}
        self._chunked = False
        self._left = 0  #: bytes of the body or of the chunk that are still to come
        self._body: list[bytes] = []
        self._size = 0

    @property
    def rest(self) -> int:
        """Bytes that came behind the answer."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Answer | None:
        """The answer once it is whole. Raises ValueError for what is no HTTP/1.1, and OversizedBody."""
        self._buffer += data
        while not self._status:
            if not self._head():
                return None
        if self._chunked:
            return self._chunks()
        if self._left == _UNTIL_THE_END:
            self._take(len(self._buffer))
            return None
        self._left -= self._take(min(self._left, len(self._buffer)))
        return None if self._left else self._answer()

    def end(self) -> Answer | None:
        """The answer, where it was to last until the end of the connection."""
        return self._answer() if self._status and self._left == _UNTIL_THE_END and not self._chunked else None

    def _answer(self) -> Answer:
        return Answer(self._status, self._fields, b"".join(self._body))

    def _take(self, size: int) -> int:
        if size:
            self._size += size
            if self._size > self._most_bytes:
                raise OversizedBody(f"a body of more than {self._most_bytes} bytes")
            self._body.append(bytes(self._buffer[:size]))
            del self._buffer[:size]
        return size

    def _head(self) -> bool:
        """Read a head if there is one. An interim one (1xx) is skipped."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD_BYTES:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise ValueError(f"a head of more than {MAX_HEAD_BYTES} bytes")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit()) or rest[3:4] not in ("", " "):
            raise ValueError(f"it begins with {first[:40]!r}")
        status = int(code)
        if 100 <= status < 200:
            if status == 101:
                raise ValueError("it changes to another protocol")
            return True
        fields: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise ValueError(f"a header field {line[:40]!r}")
            key, value = name.lower(), value.strip()
            if key == "content-length" and fields.get(key, value) != value:
                raise ValueError("two lengths")
            fields[key] = value
        self._status, self._fields = status, fields
        options = fields.get("connection", "").lower()
        self.close = "close" in options or (version == "HTTP/1.0" and "keep-alive" not in options)
        self._measure()
        return True

    def _measure(self) -> None:
        """How long the body is (RFC 9112 §6.3)."""
        if self._bodiless or self._status in _NO_BODY:
            return
        coding = self._fields.get("transfer-encoding", "").lower()
        length = self._fields.get("content-length")
        if coding:
            if coding != "chunked":
                raise ValueError(f"a transfer coding {coding[:40]!r}")
            self._chunked = True
        elif length is None:
            self._left, self.close = _UNTIL_THE_END, True
        elif length.isascii() and length.isdigit() and len(length) <= 12:
            self._left = int(length)
        else:
            raise ValueError(f"a length of {length[:40]!r}")

    def _chunks(self) -> Answer | None:
        while True:
            if self._left > 2:
                self._left -= self._take(min(self._left - 2, len(self._buffer)))
                if self._left > 2:
                    return None
            if self._left:  # the end of the line behind the chunk
                if len(self._buffer) < 2:
                    return None
                if self._buffer[:2] != b"\r\n":
                    raise ValueError("a chunk longer than its length")
                del self._buffer[:2]
                self._left = 0
            end = self._buffer.find(b"\r\n")
            if end < 0 or end > _MAX_CHUNK_LINE_BYTES:
                if len(self._buffer) > _MAX_CHUNK_LINE_BYTES:
                    raise ValueError("a chunk's length without end")
                return None
            size = bytes(self._buffer[:end]).split(b";", 1)[0].strip()
            if not size or len(size) > 8 or size.strip(b"0123456789abcdefABCDEF"):
                raise ValueError(f"a chunk's length of {size[:20]!r}")
            if int(size, 16):
                del self._buffer[: end + 2]
                self._left = int(size, 16) + 2
                continue
            return self._trailers(end)

    def _trailers(self, end: int) -> Answer | None:
        """Read the trailer section behind the last chunk, whose line ends at `end`: ignored fields and an empty line."""
        if self._buffer[end + 2 : end + 4] == b"\r\n":
            del self._buffer[: end + 4]
            return self._answer()
        last = self._buffer.find(b"\r\n\r\n", end)
        if last < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise ValueError("trailers without end")
            return None
        del self._buffer[: last + 4]
        return self._answer()
