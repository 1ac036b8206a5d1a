"""DCGM's exporter as a hostile server on a socket: each call ends in time with an error, or with values that are some."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from hbox_agent.adapters import exporter
from hbox_agent.adapters.exporter import Exporter
from hbox_common.errors import Unavailable
from hbox_common.health.dcgm import card_states, parse_exporter

OK = b"HTTP/1.1 200 OK\r\n"
ROW = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 90\n'


LENGTH = b"Content-Length: %d\r\n\r\n" % len(ROW)


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                client, _ = server.accept()
                with client:
                    client.recv(65536)
                    answer(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        thread.join(5)
        assert not thread.is_alive()


def slowly(head: bytes) -> Callable[[socket.socket], None]:
    def answer(client: socket.socket) -> None:
        client.sendall(head)
        while True:
            client.sendall(b"x")
            time.sleep(0.05)

    return answer


def endless(client: socket.socket) -> None:
    client.sendall(OK + b"Content-Length: 1000000000000\r\n\r\n")
    while True:
        client.sendall(ROW * 1000)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (slowly(b""), "not complete within"),
        (slowly(OK + b"X: "), "not complete within"),
        (slowly(OK + b"Content-Length: 100000\r\n\r\n"), "not complete within"),
        (endless, "more than 8 MiB"),
        (lambda c: c.sendall(OK + b"Content-Length: 104857600\r\n\r\n" + ROW), "not complete"),
        (lambda c: c.sendall(OK + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b"), "compressed"),
        (lambda c: c.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"), "status 302"),
        (lambda c: c.sendall(b"\xff\xff\r\n"), "does not answer"),
    ],
)
def test_a_hostile_answer_ends_in_time_and_is_no_text(
    answer: Callable[[socket.socket], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "_WHOLE_S", 1.0)
    began = time.monotonic()
    with serving(answer) as url, pytest.raises(Unavailable, match=why):
        Exporter(url).read()
    assert time.monotonic() - began < 4


def test_a_whole_text_is_read() -> None:
    with serving(lambda client: client.sendall(OK + LENGTH + ROW)) as url:
        assert Exporter(url).read() == ROW.decode()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "9223372036854775794", "2147483632", "1e999", "x"])
def test_a_value_that_is_none_is_no_state(value: str) -> None:
    text = f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-1"}} {value}\n'
    assert card_states(parse_exporter(text)).get("GPU-1", {}) == {}


def test_duplicate_series_and_long_lines_are_bounded() -> None:
    began = time.monotonic()
    states = card_states(parse_exporter(ROW.decode() * 10_000 + "a{" + "} " * 2_000_000 + "\n"))
    assert states == {"GPU-1": {"DCGM_FI_DEV_GPU_TEMP": 90.0}}
    assert time.monotonic() - began < 5
