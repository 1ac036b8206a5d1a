import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.clock import monotonic_s
from hbox_common.kube.http1 import CLOSE_S, Answer, BrokenHttp, Pool, _Parser

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PLAIN = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;name=value\r\nhello\r\nA\r\n, it is me\r\n0\r\nExpires: never\r\n\r\n"
)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + PLAIN
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [(PLAIN, 201, b"hello"), (CHUNKED, 200, b"hello, it is me"), (INTERIM, 201, b"hello"), (EMPTY, 204, b"")],
)
@given(st.lists(st.integers(1, 150), max_size=20))
def test_an_answer_is_the_same_wherever_it_is_cut(sent: bytes, status: int, body: bytes, cuts: list[int]) -> None:
    parser = _Parser(bodiless=False)
    edges = sorted({0, len(sent), *(c for c in cuts if c < len(sent))})
    answers = [parser.feed(sent[a:b]) for a, b in pairwise(edges)]
    assert answers[:-1] == [None] * (len(answers) - 1)
    answer = answers[-1]
    assert isinstance(answer, Answer)
    assert (answer.status, answer.body, parser.rest, parser.close) == (status, body, 0, False)


def test_names_of_fields_are_lower_case() -> None:
    answer = _Parser(bodiless=False).feed(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After:  7 \r\nContent-Length: 0\r\n\r\n")
    assert answer is not None
    assert answer.fields["retry-after"] == "7"


def test_a_body_without_a_length_lasts_until_the_end() -> None:
    parser = _Parser(bodiless=False)
    assert parser.feed(b"HTTP/1.1 200 OK\r\n\r\nall of ") is None
    assert parser.feed(b"it") is None
    answer = parser.end()
    assert answer is not None
    assert answer.body == b"all of it"


def test_a_head_asked_for_alone_has_no_body() -> None:
    answer = _Parser(bodiless=True).feed(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
    assert answer is not None
    assert answer.body == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        _Parser(bodiless=False).feed(sent)


@asynccontextmanager
async def serving(serve: Serve, *, limit: int = 4) -> AsyncIterator[Pool]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Pool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", tls=None, server_name=None, limit=limit)
    try:
        yield pool
    finally:
        await pool.close()
        server.close()
        await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
    return head + await reader.readexactly(length)


async def test_one_connection_serves_requests_one_after_another() -> None:
    connections: list[list[bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests: list[bytes] = []
        connections.append(requests)
        try:
            while True:
                requests.append(await read_request(reader))
                writer.write(PLAIN)
        except asyncio.IncompleteReadError:
            writer.close()

    async with serving(serve) as pool:
        for _ in range(3):
            answer = await pool.request("POST", "/api/v1/pods?dryRun=All", {"X-Name": "v"}, b"{}")
            assert answer.body == b"hello"
    (requests,) = connections
    assert len(requests) == 3
    first, *fields = requests[0].removesuffix(b"\r\n\r\n{}").split(b"\r\n")
    assert first == b"POST /api/v1/pods?dryRun=All HTTP/1.1"
    assert {f.split(b":")[0] for f in fields} == {b"Host", b"X-Name", b"Content-Length"}


async def test_no_more_connections_than_allowed() -> None:
    together = most = 0
    both, gate = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        if together == 2:
            both.set()
        try:
            while True:
                await read_request(reader)
                await gate.wait()
                writer.write(PLAIN)
        except asyncio.IncompleteReadError:
            writer.close()

    async with serving(serve, limit=2) as pool, asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(pool.request("GET", "/", {}, None))
        async with asyncio.timeout(60):
            await both.wait()
        gate.set()
    assert most == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 201 Created\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf of",
        b"220 mail ready\r\n\r\n",
    ],
)
async def test_an_answer_cut_short_or_none_at_all_is_broken_and_the_next_request_works(sent: bytes) -> None:
    first = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        await read_request(reader)
        writer.write(sent if first else PLAIN)
        first = False
        writer.close()

    async with serving(serve) as pool:
        with pytest.raises(BrokenHttp):
            await pool.request("POST", "/", {}, b"")
        assert (await pool.request("POST", "/", {}, b"")).status == 201


async def test_a_connection_that_the_server_ends_or_talks_on_is_not_used_again() -> None:
    talk = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        await read_request(reader)
        served += 1
        writer.write(PLAIN.replace(b"Content-Type", b"Connection: close\r\nContent-Type") if served == 1 else PLAIN + talk)
        await writer.drain()
        await reader.read()
        writer.close()

    async with serving(serve) as pool:
        for _ in range(3):
            assert (await pool.request("GET", "/", {}, None)).status == 201
    assert served == 3


async def test_a_read_on_a_connection_that_just_ended_is_sent_again_and_a_write_is_not() -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(PLAIN)
        requests.append(await read_request(reader))  # and ends, as if it had not come in time
        writer.close()

    async with serving(serve) as pool:
        for _ in range(2):
            assert (await pool.request("GET", "/", {}, None)).status == 201
        with pytest.raises(BrokenHttp):
            await pool.request("POST", "/", {}, b"")
        assert len(requests) == 4  # the second read twice


async def test_a_request_given_up_takes_its_connection_with_it() -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await read_request(reader)
        asked += 1
        if asked > 1:
            writer.write(PLAIN)
        await reader.read()
        writer.close()

    async with serving(serve, limit=1) as pool:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pool.request("GET", "/", {}, None)
        assert (await pool.request("GET", "/", {}, None)).body == b"hello"
    assert asked == 2


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="there is no uvloop here")
def test_a_pool_closes_at_once_whenever_a_request_was_given_up_on_uvloop_too() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def give_up_and_close() -> None:
        for turns in range(12):  # of the loop, so that each moment of connecting is hit
            async with serving(serve) as pool:
                asking = asyncio.ensure_future(pool.request("GET", "/", {}, None))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                began = monotonic_s()
                await pool.close()
                assert monotonic_s() - began < CLOSE_S, turns

    uvloop = importlib.import_module("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(give_up_and_close())
