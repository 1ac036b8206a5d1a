"""A server of HBox's HTTP API and an API server of Kubernetes, by their contracts, each with TLS on a port of its own; and the user's files."""

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

TOKEN = "token-of-alice"


def job(name: str, *, waiting: bool = False, queue: str = "research", pod: str = "") -> dict[str, Any]:
    pod = pod or f"{name.partition('/')[2]}-0"
    return {
        "name": name,
        "id": f"uid-{name}",
        "queue": queue,
        "priority": 0,
        "state": "WAITING" if waiting else "RUNNING",
        "pods": {"bound": 0 if waiting else 1, "members": 1, "min": 1},
        "placed": {} if waiting else {pod: "node-0001"},
        "waiting": [pod] if waiting else [],
        "cards": 8,
        "ageSeconds": 60.0,
        "reason": "all cards in use" if waiting else "",
    }


@dataclass
class Console:
    """What it serves, and what it was asked. `status`: the answer to all requests, if not 200."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    items: dict[str, Any] = field(default_factory=dict)  #: path -> document
    events: list[dict[str, Any] | None] = field(default_factory=list)  #: None: of others
    status: int = 200
    page: int = 2  #: jobs or events of one page at most
    seen: list[web.Request] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}" and request.transport is not None:
            certificate = request.transport.get_extra_info("peercert")
            if not certificate:
                return problem(401, "Unauthorized", "no valid credentials")
        if self.status != 200:
            return problem(self.status, "No", "the answer is no")
        if not 1 <= int(request.query.get("limit", "1")) <= 500:
            return problem(400, "Bad Request", "limit: not a number from 1 to 500")
        path = request.path.removeprefix("/api/v1")
        if path == "/jobs":
            return self._jobs(request)
        if path == "/events":
            return self._events(request)
        if path in self.items:
            return web.json_response(self.items[path])
        if path.startswith("/jobs/"):
            found = next((one for one in self.jobs if one["name"] == path.removeprefix("/jobs/")), None)
            if found is not None:
                return web.json_response({"apiVersion": "hbox.io/v1", "kind": "Job", **found})
            if path.endswith("/explanation"):
                return web.json_response(
                    {"apiVersion": "hbox.io/v1", "kind": "JobExplanation", "explanation": {"code": "CardsInUse"}}
                )
        return problem(404, "Not Found", f"there is no {path}")

    def _jobs(self, request: web.Request) -> web.Response:
        query = request.query
        items = [
            one
            for one in self.jobs
            if query.get("namespace") in (None, one["name"].partition("/")[0])
            and query.get("queue") in (None, one["queue"])
            and ("state" not in query or one["state"] in query["state"].split(","))
        ]
        start, size = int(query.get("continue", "0")), min(self.page, int(query["limit"]))
        more = str(start + size) if start + size < len(items) else ""
        body = {"apiVersion": "hbox.io/v1", "kind": "JobList", "metadata": {"revision": 7, "continue": more}}
        return web.json_response({**body, "items": items[start : start + size]})

    def _events(self, request: web.Request) -> web.Response:
        """The cursor also passes events of others."""
        start = int(request.query.get("continue", "0"))
        some = self.events[start : start + min(self.page, int(request.query["limit"]))]
        metadata = {"revision": 7, "continue": str(start + len(some))}
        items = [one for one in some if one is not None]
        return web.json_response({"apiVersion": "hbox.io/v1", "kind": "EventList", "metadata": metadata, "items": items})


@dataclass
class Kubernetes:
    """Its ConfigMap of HBox's server, and lists by path."""

    announced: Mapping[str, str] | None = None
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    seen: list[web.Request] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized")
        if request.path in self.forbidden:
            return _status(403, f'forbidden: User "alice" cannot list {request.path}')
        if request.path == "/api/v1/namespaces/kube-public/configmaps/hbox-access" and self.announced is not None:
            return web.json_response({"kind": "ConfigMap", "data": dict(self.announced)})
        if request.path in self.lists:
            return web.json_response({"kind": "List", "metadata": {}, "items": self.lists[request.path]})
        return _status(404, "the server could not find the requested resource")


def problem(status: int, title: str, detail: str) -> web.Response:
    body = {"type": "about:blank", "status": status, "title": title, "detail": detail, "code": title.replace(" ", "")}
    return web.json_response(body, status=status, content_type="application/problem+json")


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


class Served:
    """A handler on a port of 127.0.0.1, in a thread of its own. Close it with `stop`."""

    def __init__(self, handler: Handler, *, certificates: Path | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner, port = asyncio.run_coroutine_threadsafe(self._start(handler, certificates), self._loop).result(30)
        self.url = f"{'http' if certificates is None else 'https'}://127.0.0.1:{port}"

    async def _start(self, handler: Handler, certificates: Path | None) -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        context = None
        if certificates is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.pem")
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_cert_chain(certificates / "broker.pem", certificates / "broker.key")
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port: int = runner.addresses[0][1]
        return runner, port

    def stop(self) -> None:
        """Once more does nothing."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


def kubeconfig(path: Path, server: str, ca: Path, user: Mapping[str, Any], **cluster: Any) -> Path:
    """A kubeconfig with one context, `prod`, of namespace ml."""
    content = {
        "current-context": "prod",
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": _data(ca), **cluster}}],
        "users": [{"name": "u", "user": dict(user)}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def exec_plugin(folder: Path, *, expires: str, token: str = TOKEN) -> Path:
    """A program that prints a credential and counts its runs in `folder`/runs."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": expires},
    }
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\necho run >> {folder}/runs\ncat <<'JSON'\n{json.dumps(credential)}\nJSON\n")
    path.chmod(0o700)
    return path
