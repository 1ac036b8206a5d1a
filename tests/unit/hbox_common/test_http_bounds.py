"""What a stranger can cost a service by its port for health and metrics: asked of a running service, with no more than sockets."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hbox_common.runtime import Health
from hbox_common.runtime.health import CONNECTION_BYTES, LINE_BYTES, MOST_CONNECTIONS, HealthServer

from ...waiting import until

LIVES_S = 1.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """A running job-controller, which has neither a broker nor a cluster: the port and the process's id."""
    tmp_path = tmp_path_factory.mktemp("service")
    log = tmp_path / "log"
    env = os.environ | {"HBOX_NATS_URL": "nats://127.0.0.1:1", "HBOX_KUBECONFIG": str(tmp_path / "none")}
    (tmp_path / "none").write_text(
        '{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [],'
        ' "contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}'
    )
    with (
        log.open("wb") as out,
        subprocess.Popen([sys.executable, "-m", "hbox_jobs"], env=env, stdout=out, stderr=out) as process,
    ):
        try:
            while not (found := re.search(r'"health_port": ?(\d+)', log.read_text())):
                assert process.poll() is None, log.read_text()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            yield int(found[1]), process.pid
        finally:
            process.kill()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Of a server whose connections live for LIVES_S."""
    health = Health("test")
    health.condition("all").ok()
    async with HealthServer(health, host="127.0.0.1", port=0, connection_s=LIVES_S) as server:
        yield server.port


async def asked(port: int, text: str | bytes, *, timeout_s: float = 20.0) -> bytes:
    """All that comes back until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError):
            writer.write(text.encode() if isinstance(text, str) else text)
            await writer.drain()
        async with asyncio.timeout(timeout_s):
            got = b""
            with suppress(ConnectionError):
                while some := await reader.read(65536):
                    got += some
            return got
    finally:
        writer.transport.abort()


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.[01] (\d+)", answer)
    return int(found[1]) if found else 0


GET = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


def rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def test_a_service_answers_and_is_bound_where_it_was_told(service: tuple[int, int]) -> None:
    port, _ = service
    assert status(await asked(port, GET + "\r\n")) == 200
    # 127.0.0.1 unless it is told otherwise: on no other address of this machine.
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asyncio.open_connection("127.0.0.2", port)


async def test_bodies_are_refused_and_cost_nothing(service: tuple[int, int]) -> None:
    port, pid = service
    await asked(port, GET + "\r\n")
    before = rss_mib(pid)
    assert status(await asked(port, f"{GET}Content-Length: {2**30}\r\n\r\n")) == 413
    assert status(await asked(port, f"{GET}Transfer-Encoding: chunked\r\n\r\n")) == 413
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: {2**30}\r\n\r\n".encode())
    sent = 0
    with suppress(ConnectionError):
        while sent < 64 * 2**20:
            writer.write(b"x" * 2**20)
            async with asyncio.timeout(20):
                await writer.drain()
            sent += 2**20
    writer.transport.abort()
    assert sent < 64 * 2**20, "it went on reading"
    assert rss_mib(pid) < before + 16


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/"])
async def test_nothing_can_be_changed_through_it(service: tuple[int, int], method: str, path: str) -> None:
    port, _ = service
    answer = await asked(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert status(answer) in (404, 405)


async def test_heads_are_bounded(service: tuple[int, int]) -> None:
    port, pid = service
    await asked(port, GET + "\r\n")
    before = rss_mib(pid)
    assert status(await asked(port, f"GET /{'x' * 2 * LINE_BYTES} HTTP/1.1\r\nHost: x\r\n\r\n")) in (400, 414)
    assert status(await asked(port, f"{GET}Big: {'x' * 2 * LINE_BYTES}\r\n\r\n")) in (400, 431)
    many = "".join(f"H{i}: {'x' * 100}\r\n" for i in range(CONNECTION_BYTES // 50))
    assert status(await asked(port, GET + many)) in (0, 400, 431)
    assert rss_mib(pid) < before + 16
    assert status(await asked(port, GET + "\r\n")) == 200


@pytest.mark.parametrize(
    "said", ["", "GET /hea", "GET /healthz HTTP/1.1\r\nHost: x\r\n", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"]
)
async def test_a_connection_ends_whoever_is_slow_in_it(port: int, said: str) -> None:
    """Nothing said, a head that does not end, one that is kept open behind its answer."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asked(port, said, timeout_s=20 * LIVES_S)
    assert loop.time() - began >= 0.9 * LIVES_S


async def test_who_does_not_read_its_answer_is_cut(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
    await asyncio.sleep(2 * LIVES_S)
    async with asyncio.timeout(20):
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
    writer.transport.abort()
    assert status(await asked(port, GET + "\r\n")) == 200


async def test_no_more_than_so_many_connections_are_open_and_the_next_comes_in_as_they_end(port: int) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CONNECTIONS)]
    assert await asked(port, GET + "\r\n") == b""
    for _, writer in idle:
        writer.transport.abort()

    async def answered() -> bool:
        return status(await asked(port, GET + "\r\n")) == 200

    await until(answered, "there is room again")


async def test_a_connection_says_so_many_bytes_and_no_more(service: tuple[int, int]) -> None:
    port, _ = service
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    answers = (await asked(port, one * (4 * CONNECTION_BYTES // len(one)))).count(b"HTTP/1.1 200")
    assert answers * len(one) <= CONNECTION_BYTES
    assert status(await asked(port, GET + "\r\n")) == 200


async def test_a_page_is_told_to_one_at_a_time() -> None:
    health, go_on = Health("test"), asyncio.Event()

    async def page() -> AsyncIterator[bytes]:
        yield b"begun\n"
        await go_on.wait()

    health.pages["cards"] = page
    async with HealthServer(health, host="127.0.0.1", port=0) as server:
        first = asyncio.ensure_future(asked(server.port, "GET /metrics/cards HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        await asyncio.sleep(0.1)
        second = await asked(server.port, "GET /metrics/cards HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert second.startswith(b"HTTP/1.1 429 ")
        go_on.set()
        assert b"begun\n" in await first
        assert (await asked(server.port, "GET /metrics/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).startswith(
            b"HTTP/1.1 404 "
        )
        third = await asked(server.port, "GET /metrics/cards HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert third.startswith(b"HTTP/1.1 200 ")


async def _page() -> AsyncIterator[bytes]:
    yield b'hbox_x{queue="secret"} 1\n'


async def _text() -> bytes:
    return b'hbox_y{queue="secret"} 1\n'


@pytest.mark.parametrize(
    ("host", "token", "given", "expected"),
    [
        ("127.0.0.1", "", "", 200),
        ("0.0.0.0", "", "", 403),
        ("0.0.0.0", "", "Bearer ", 403),
        ("0.0.0.0", "right", "", 401),
        ("0.0.0.0", "right", "Bearer wrong", 401),
        ("0.0.0.0", "right", "Bearer r\u00efght", 401),
        ("0.0.0.0", "right", "Bearer right", 200),
        ("127.0.0.1", "right", "", 401),
    ],
)
async def test_pages_with_names_need_the_token_except_on_loopback(host: str, token: str, given: str, expected: int) -> None:
    health = Health("test")
    health.pages["cards"], health.texts["queues"] = _page, _text
    authorization = f"Authorization: {given}\r\n" if given else ""
    async with HealthServer(health, host=host, port=0, token=lambda: token) as server:
        for path in ("/metrics/cards", "/metrics/queues"):
            answer = await asked(server.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n")
            assert (status(answer), b"secret" in answer) == (expected, expected == 200)
        answer = await asked(server.port, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (status(answer), b"secret" in answer) == (200, False)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/", "/console"])
async def test_a_browser_has_no_session_here_and_other_sites_read_nothing(service: tuple[int, int], path: str) -> None:
    """Threat T14: there is no console. A page of another site that calls the port finds nothing to act with, and its scripts may not read the answer."""
    visitor = "Host: x\r\nOrigin: https://other.example\r\nCookie: session=1\r\nConnection: close\r\n"
    form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n"
    for method, more, body in (
        ("GET", "", ""),
        ("OPTIONS", "Access-Control-Request-Method: POST\r\n", ""),
        ("POST", form, "a=b"),
    ):
        answer = await asked(service[0], f"{method} {path} HTTP/1.1\r\n{visitor}{more}\r\n{body}")
        assert (status(answer) in (200, 404, 503)) if method == "GET" else (400 <= status(answer) < 500), answer
        said = answer.lower()
        assert not [word for word in (b"set-cookie", b"access-control-allow", b"text/html", b"location:") if word in said]
