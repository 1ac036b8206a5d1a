"""An API server that says exactly what a test wants, down to where the chunks are cut."""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from hbox_common.kube import KubeClient

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def drop(request: web.Request) -> None:
    """Resets the connection."""
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.abort()


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass
class ScriptedApi:
    """Answers are used up in order; the last one of a path is given for ever. `asked` keeps what came in. Lists of one item, by which informers prove
    their watches, have a script of their own, "SAMPLE"."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    script: dict[tuple[str, str], deque[Answer]] = field(default_factory=lambda: defaultdict(deque))
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def reply(self, method: str, path: str, status: int = 200, body: Any = None, **headers: str) -> None:
        async def answer(_request: web.Request) -> web.StreamResponse:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
            return web.Response(status=status, body=data, headers=names, content_type="application/json")

        self.script[method, path].append(answer)

    def refuse(self, method: str, path: str, status: int, reason: str, message: str = "no", **headers: str) -> None:
        self.reply(method, path, status, {"kind": "Status", "code": status, "reason": reason, "message": message}, **headers)

    def reset(self, method: str, path: str) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            drop(request)
            return web.Response()

        self.script[method, path].append(answer)

    def hang(self, method: str, path: str) -> None:
        async def answer(_request: web.Request) -> web.StreamResponse:
            await self.closing.wait()
            return web.Response()

        self.script[method, path].append(answer)

    def stream(self, path: str, *chunks: bytes, then: str = "hang") -> None:
        """A watch: the chunks, each in a write of its own, then `hang`, `end` or `reset`."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for chunk in chunks:
                await response.write(chunk)
                await asyncio.sleep(0)
            if then == "hang":
                await self.closing.wait()
            elif then == "reset":
                drop(request)
            return response

        self.script["WATCH", path].append(answer)

    def queries(self, method: str, path: str) -> list[dict[str, str]]:
        return [a.query for a in self.asked if (a.method, a.path) == (method, path)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = (
            "WATCH" if request.query.get("watch") else "SAMPLE" if dict(request.query) == {"limit": "1"} else request.method
        )
        raw = await request.read()
        self.asked.append(
            Asked(method, request.path, dict(request.query), json.loads(raw) if raw else None, dict(request.headers))
        )
        answers = self.script[method, request.path]
        if not answers and method == "SAMPLE":  # nothing happened that a watch would have to show
            return web.json_response({"metadata": {"resourceVersion": "0"}})
        if not answers:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}, status=404)
        answer = answers.popleft() if len(answers) > 1 else answers[0]
        return await answer(request)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    scripted = ScriptedApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    scripted.closing.set()
    await runner.cleanup()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Any:
    """Writes a kubeconfig for a URL; returns its path."""

    def write(url: str, **user: Any) -> Any:
        path = tmp_path / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(json.dumps(config))
        return str(path)

    return write


@pytest.fixture
async def client(api: ScriptedApi, kubeconfig: Any) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(kubeconfig(api.url), user_agent="hbox-test/1", timeout_s=5.0) as connected:
        yield connected


class Impatient(Random):
    """A generator whose waits are all short."""

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * 0.01


@pytest.fixture
def impatient() -> Random:
    return Impatient()
