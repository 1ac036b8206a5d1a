"""Jobs of `hbox up` over its HTTP API: pages, and what is left to the broker."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hbox_cli.access.localjobs import local_jobs
from hbox_cli.access.serversource import JOB, PAGE
from hbox_cli.access.source import Wanted
from hbox_cli.platform.layout import Running


def job(name: str) -> dict[str, Any]:
    return {**dict.fromkeys(JOB), "name": name}


@contextmanager
def api(*, status: int = 200, token: str = "t") -> Iterator[str]:
    """An API with two pages of one job each."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            known = (
                self.headers["Authorization"] == f"Bearer {token}"
                and url.path == "/api/v1/jobs"
                and query["limit"] == [str(PAGE)]
            )
            second = "continue" in query
            page = {"items": [job("ml/b" if second else "ml/a")], "metadata": {"continue": "" if second else "c"}}
            self.send_response(status if known else 401)
            self.end_headers()
            self.wfile.write(json.dumps(page).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def running(
    tmp_path: Path, console: str, kubeconfig: str = json.dumps({"users": [{"name": "u", "user": {"token": "t"}}]})
) -> Running:
    (tmp_path / "kubeconfig").write_text(kubeconfig)
    return Running(1, "nats://n", str(tmp_path / "kubeconfig"), "sqlite:///x", emulated=True, policy="binpack", console=console)


def test_all_pages_are_read(tmp_path: Path) -> None:
    with api() as console:
        assert local_jobs(running(tmp_path, console), Wanted()) == [job("ml/a"), job("ml/b")]


@pytest.mark.parametrize("status", [401, 403, 503])
def test_an_answer_that_is_no_list_is_left_to_the_broker(tmp_path: Path, status: int) -> None:
    with api(status=status) as console:
        assert local_jobs(running(tmp_path, console), Wanted()) is None


def test_items_of_another_service_are_left_to_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "JOB", ("name",))
    with api() as console:
        assert local_jobs(running(tmp_path, console), Wanted()) is None


def test_a_wrong_token_is_left_to_the_broker(tmp_path: Path) -> None:
    with api(token="other") as console:
        assert local_jobs(running(tmp_path, console), Wanted()) is None


@pytest.mark.parametrize("console", ["", "http://127.0.0.1:9"])
def test_a_platform_without_an_api_is_left_to_the_broker(tmp_path: Path, console: str) -> None:
    assert local_jobs(running(tmp_path, console), Wanted()) is None


@pytest.mark.parametrize("kubeconfig", ["", "users: []", '{"users": []}', '{"users": [{"user": {"exec": {}}}]}', "[]"])
def test_a_kubeconfig_without_a_token_is_left_to_the_broker(tmp_path: Path, kubeconfig: str) -> None:
    with api() as console:
        assert local_jobs(running(tmp_path, console, kubeconfig), Wanted()) is None
