"""gRPC calls of one question and one answer over a unix socket, as the kubelet's services take them (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).

HTTP/2 is h2's, which does no I/O of its own; here are the socket, the framing of messages and the status in the trailers. grpcio does the
same with 20 MB of C++, threads of its own and children that may not be forked, for two questions a minute.

A kubelet's answer beyond 4 MiB is no error here: grpcio's and Go's default limit is (kubernetes/kubernetes#121123).

Paths of unix sockets have 107 bytes at most: longer ones are reached by an open folder's entry in /proc.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError

from hbox_common.errors import HBoxError, InvalidRequest, Unavailable

log = logging.getLogger(__name__)

#: Of one answer, with all frames around it: a node's list is some kilobytes a pod, a quarter of a million devices are 15 MiB.
MOST_BYTES = 16 * 2**20
_CHUNK = 64 * 1024
#: Of a stream and of a connection: a list of a full node at once.
_WINDOW = 2**24
_PREFIX_BYTES = 5
_PATH_BYTES = 107

Call: TypeAlias = Callable[[bytes], Awaitable[bytes]]


class GrpcCode(IntEnum):
    """The codes of a kubelet's answers that are distinguished here."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class Refused(HBoxError):
    """The other side answered with a status that is not OK."""

    def __init__(self, code: int, message: str) -> None:
        name = GrpcCode(code).name if code in list(GrpcCode) else f"status {code}"
        super().__init__(f"{name}: {message}" if message else name)
        self.code = code


async def call(socket: Path, method: str, request: bytes = b"", *, timeout_s: float = 10.0) -> bytes:
    """The answer to one request, on a connection of its own.

    Raises Unavailable if there is no answer in time; Refused with the status; InvalidRequest if the answer is not gRPC.
    """
    try:
        async with asyncio.timeout(timeout_s), _connected(socket) as (reader, writer):
            return await _ask(reader, writer, method, request)
    except TimeoutError as e:
        raise Unavailable(f"{socket}: no answer to {method} within {timeout_s:g} s") from e
    except ProtocolError as e:
        raise InvalidRequest(f"{socket} does not speak HTTP/2: {e}") from e
    except OSError as e:
        raise Unavailable(f"{socket}: {e.strerror or type(e).__name__}") from e


@asynccontextmanager
async def _connected(socket: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    with _short(socket) as path:
        reader, writer = await asyncio.open_unix_connection(path, limit=_CHUNK)
    try:
        yield reader, writer
    finally:
        await _abort(writer)


async def _abort(writer: asyncio.StreamWriter) -> None:
    """Ends a connection without a farewell, and returns when its socket is closed."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


class _short:  # noqa: N801  used as a function
    """The socket's path, or one through /proc that is short enough, while the block runs."""

    def __init__(self, socket: Path) -> None:
        self._socket, self._folder = socket, -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._socket)) <= _PATH_BYTES:
            return str(self._socket)
        self._folder = os.open(self._socket.parent, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{self._socket.name}"

    def __exit__(self, *_: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, request: bytes) -> bytes:
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    connection.initiate_connection()
    connection.increment_flow_control_window(_WINDOW)
    stream = connection.get_next_available_stream_id()
    connection.send_headers(
        stream,
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("user-agent", "hbox"),
        ],
    )
    connection.send_data(stream, _framed(request), end_stream=True)
    writer.write(connection.data_to_send())
    headers: dict[str, str] = {}
    body = bytearray()
    taken = 0
    while True:
        received = await reader.read(_CHUNK)
        taken += len(received)
        if taken > MOST_BYTES:
            raise InvalidRequest(f"the answer to {method} has more than {MOST_BYTES >> 20} MiB")
        if not received:
            raise Unavailable(f"the connection ended before {method} was answered")
        for event in connection.receive_data(received):
            match event:
                case ResponseReceived() | TrailersReceived():
                    headers.update((str(name), str(value)) for name, value in event.headers or ())
                case DataReceived():
                    body += event.data or b""
                    connection.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                case StreamReset() | ConnectionTerminated():
                    raise Unavailable(f"{method} was broken off (HTTP/2 error {int(event.error_code or 0)})")
                case StreamEnded():
                    return _answer(headers, bytes(body))
        writer.write(connection.data_to_send())


def _answer(headers: Mapping[str, str], body: bytes) -> bytes:
    status = headers.get(":status", "")
    if status != "200":
        raise InvalidRequest(f"the answer is HTTP status {status or 'none'}, and no gRPC")
    code = headers.get("grpc-status", "")
    if not (code.isascii() and code.isdigit()):
        raise InvalidRequest("the answer has no gRPC status")
    if int(code):
        raise Refused(int(code), unquote(headers.get("grpc-message", ""))[:512])
    return _unframed(body)


def _framed(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4) + body


def _unframed(body: bytes) -> bytes:
    """The one message in a body. Raises InvalidRequest."""
    if len(body) < _PREFIX_BYTES or len(body) - _PREFIX_BYTES != int.from_bytes(body[1:_PREFIX_BYTES]):
        raise InvalidRequest("a body is not one gRPC message")
    if body[0]:
        raise InvalidRequest("a gRPC message is compressed, although the request allows no compression")
    return body[_PREFIX_BYTES:]


class StaysOpen(bytes):
    """The first message of an answer in several, of which the others have not come yet: ListAndWatch of a device plugin whose devices are well."""


class GrpcServer:
    """Answers methods on a unix socket: the emulated kubelet's side."""

    def __init__(self, methods: Mapping[str, Call]) -> None:
        self._methods = methods
        self._callers: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def close(self) -> None:
        """Ends all connections."""
        for writer in self._callers.values():
            writer.transport.abort()
        if self._callers:
            await asyncio.wait(self._callers, timeout=1.0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._callers[task] = writer
        try:
            await self._serve(reader, writer)
        finally:
            del self._callers[task]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        asked: dict[int, tuple[str, bytearray]] = {}
        left: dict[int, tuple[bytes, list[tuple[str, str]] | None]] = {}
        try:
            while True:
                writer.write(connection.data_to_send())
                await writer.drain()
                received = await reader.read(_CHUNK)
                if not received:
                    return
                for event in connection.receive_data(received):
                    match event:
                        case RequestReceived():
                            headers = {str(name): str(value) for name, value in event.headers or ()}
                            asked[event.stream_id or 0] = headers.get(":path", ""), bytearray()
                        case DataReceived() if event.stream_id in asked:
                            asked[event.stream_id][1].extend(event.data or b"")
                            connection.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
                        case StreamEnded() if event.stream_id in asked:
                            method, body = asked.pop(event.stream_id)
                            left[event.stream_id] = await self._begin(connection, event.stream_id, method, bytes(body))
                        case StreamReset():
                            asked.pop(event.stream_id or 0, None)
                            left.pop(event.stream_id or 0, None)
                        case WindowUpdated():
                            pass  # what is left is tried below
                        case ConnectionTerminated():
                            return
                for stream in list(left):
                    _send_on(connection, stream, left)
        except (OSError, ProtocolError) as e:
            log.debug("a caller is gone: %s", e)
        finally:
            await _abort(writer)

    async def _begin(
        self, connection: H2Connection, stream: int, method: str, body: bytes
    ) -> tuple[bytes, list[tuple[str, str]] | None]:
        """Sends headers; returns the body to be sent behind them, trailers last; None: the stream stays open."""
        code, message, answer, stays = GrpcCode.OK, "", b"", False
        try:
            handler = self._methods.get(method)
            if handler is None:
                raise Refused(GrpcCode.UNIMPLEMENTED, f"unknown method {method}")
            response = await handler(_unframed(body))
            answer, stays = _framed(response), isinstance(response, StaysOpen)
        except Refused as e:
            code, message = GrpcCode(e.code), e.message
        except HBoxError as e:
            code, message = GrpcCode.INTERNAL, e.message
        connection.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        return answer, None if stays else [("grpc-status", str(int(code))), ("grpc-message", quote(message))]


def _send_on(connection: H2Connection, stream: int, left: dict[int, tuple[bytes, list[tuple[str, str]] | None]]) -> None:
    """As much of an answer as the caller's window takes, and the trailers behind the last of it."""
    answer, trailers = left[stream]
    sent = 0
    while (
        sent < len(answer)
        and (most := min(connection.local_flow_control_window(stream), connection.max_outbound_frame_size)) > 0
    ):
        connection.send_data(stream, answer[sent : sent + most])
        sent += most
    if sent < len(answer):
        left[stream] = answer[sent:], trailers
        return
    del left[stream]
    if trailers is not None:
        connection.send_headers(stream, trailers, end_stream=True)


@asynccontextmanager
async def listening(socket: Path, methods: Mapping[str, Call]) -> AsyncIterator[None]:
    """Answers at `socket`, which only our user may reach, while the block runs. Raises Unavailable where it cannot be made."""
    server = GrpcServer(methods)
    _clear(socket)
    try:
        with _short(socket) as path:
            listener = await asyncio.start_unix_server(server.serve, path, limit=_CHUNK)
    except OSError as e:
        raise Unavailable(f"{socket}: {e.strerror}") from e
    try:
        yield
    finally:
        listener.close()
        await server.close()
        _clear(socket)


def _clear(socket: Path) -> None:
    with suppress(OSError):
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
