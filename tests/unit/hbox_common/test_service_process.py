"""The life of a service process, as its keeper sees it: readiness, metrics, signals, exit statuses."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

BODY = """
import asyncio
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.runtime import Settings, Health, main
from hbox_common.telemetry import counter
THINGS = counter("test_things", "things")
async def run(settings, health):
    THINGS.inc(3)
    health.condition("bus").ok("connected")
    {body}
main("binder", Settings, run)
"""


@contextmanager
def service(body: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A service process whose run() ends in `body`, and the port of its health endpoints (0: it ended before)."""
    child = subprocess.Popen(
        [sys.executable, "-c", BODY.format(body=body)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HBOX_LOG_FORMAT": "json", **env},
    )
    assert child.stderr is not None
    try:
        first = child.stderr.readline()
        yield child, json.loads(first).get("health_port", 0) if first.startswith("{") else 0
    finally:
        child.kill()
        child.wait()
        child.stderr.close()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read().decode()


def test_a_ready_service_says_so_counts_and_stops_on_sigterm() -> None:
    with service("await asyncio.sleep(60)") as (child, port):
        assert get(port, "/healthz") == (200, "ok\n")
        status, body = get(port, "/readyz")
        assert status == 200
        assert json.loads(body)["conditions"]["bus"] == {"good": True, "message": "connected"}
        assert "hbox_test_things_total 3.0" in get(port, "/metrics")[1]
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0


def test_a_bad_condition_makes_it_unready_and_names_itself() -> None:
    with service("health.condition('kube').bad('no answer from the API'); await asyncio.sleep(60)") as (_, port):
        status, body = get(port, "/readyz")
        assert status == 503
        assert json.loads(body)["conditions"]["kube"]["message"] == "no answer from the API"


def test_a_process_whose_health_port_is_taken_ends_at_once_whatever_its_work_does() -> None:
    deaf = "while True:\n        try: await asyncio.sleep(60)\n        except asyncio.CancelledError: pass"
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        service(deaf, HBOX_HEALTH_PORT=str(taken.getsockname()[1])) as (child, port),
    ):
        assert port == 0
        assert child.wait(30) == 1


def test_failures_end_the_process_with_their_status_and_one_line_without_a_traceback() -> None:
    for body, status, says in (
        ("raise InvalidRequest('no such table', hint='run the migration')", 2, "run the migration"),
        ("raise Unavailable('broker away')", 6, "broker away"),
        ("return", 1, "ended by itself"),
    ):
        with service(body) as (child, _):
            assert child.stderr is not None
            rest = child.stderr.read()
            assert child.wait(10) == status
            assert says in rest
            assert "Traceback" not in rest


def test_a_failure_in_one_task_of_a_group_is_one_line_too() -> None:
    body = """
    async def part():
        raise Unavailable("broker away")
    async with asyncio.TaskGroup() as group:
        group.create_task(part())
        group.create_task(asyncio.sleep(60))
    """.strip()
    with service(body) as (child, _):
        assert child.stderr is not None
        rest = child.stderr.read()
        assert child.wait(10) == 6
        assert "broker away" in rest
        assert "Traceback" not in rest


def test_a_wrong_setting_is_one_line_and_status_2() -> None:
    with service("pass", HBOX_HEALTH_PORT="many") as (child, port):
        assert child.wait(10) == 2
        assert port == 0
