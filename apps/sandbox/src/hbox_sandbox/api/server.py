"""The HTTP server around the emulated cluster.

async with ApiServer() as api:
    api.kubeconfig(path)        # for kubectl and client libraries
    ...                         # api.url, api.cluster, api.faults
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from hbox_common.clock import wall_s

from .cluster import Cluster
from .controllers import Controllers
from .discovery import discover
from .errors import ApiError, bad_request, method_not_allowed, unknown_path
from .faults import Faults, Rule, refusal
from .handlers import Answer, Call, perform, route, too_large_body
from .openapi import EMPTY_V2, OPENAPI_V2, PROTOBUF_V2
from .podlogs import serve_log
from .reviews import MASTERS, TOKEN, user_of
from .store import Store
from .streams import WRITE_TIMEOUT_S, serve_watch
from .tables import table_form

_BODY_LIMIT = 3 * 1024 * 1024
_READ_TIMEOUT_S = 30.0
_HEALTH = ("/healthz", "/readyz", "/livez")


class ApiServer:
    """Serves on `host` while its context is open; `port` 0 takes a free one. It lets everybody in: other hosts than loopback are for networks of one's own.

    `seed`: of uids and generated names; `history`: events remembered per resource; `bookmark_s`: interval of bookmarks on quiet watches.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int | None = None,
        history: int = 20_000,
        bookmark_s: float = 10.0,
    ) -> None:
        self.cluster = Cluster(clock=wall_s, random=Random(seed), store=Store(history=history))
        self.faults = Faults()
        self.port = port
        self._host = host
        self._bookmark_s = bookmark_s
        self._controllers = Controllers(self.cluster)
        self._watching: dict[int, web.BaseRequest] = {}  #: by id: a request cannot be hashed
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=1.0)
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._running.append(self._tasks.create_task(self._controllers.run(), name="controllers"))
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        await self._runner.cleanup()
        # An error of the block is its own affair and passes as it is; only a cancellation concerns the group (a task of ours may have failed).
        if kind is not None and not issubclass(kind, asyncio.CancelledError):
            kind = error = trace = None
        await self._tasks.__aexit__(kind, error, trace)

    def kubeconfig(self, path: Path, *, server: str = "") -> Path:
        """Write a kubeconfig for this server (JSON, which is YAML); returns `path`. `server`: its address for those elsewhere; "" for its own."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hbox-sandbox", "cluster": {"server": server or self.url}}],
            "users": [{"name": "hbox-sandbox", "user": {"token": f"{TOKEN}admin:{MASTERS}"}}],
            "contexts": [
                {"name": "hbox-sandbox", "context": {"cluster": "hbox-sandbox", "user": "hbox-sandbox", "namespace": "default"}}
            ],
            "current-context": "hbox-sandbox",
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
        return path

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                body = await self._body(request)
            if request.path.startswith("/_sandbox/"):
                return self._control(request.method, request.path, request.query, body)
            if request.method == "GET" and (known := self._well_known(request.path)) is not None:
                return known
            params = request.query
            call = route(self.cluster, request.method, request.path, params)
            faults, name = self.faults, call.target.name or ""
            fault = faults.draw(call.verb, call.subject, _agent(request), name) if faults.plan.rules else None
            if fault is not None:
                await self._before(request, fault)
            if call.verb == "watch":
                return await self._watch(request, call, params, fault)
            if call.target.subresource == "log":
                return await serve_log(self.cluster, request, call.target, params)
            stale_at = self.faults.stale_at if fault is not None and fault.stale else None
            answer = self._perform(request, call, params, body, stale_at)
            if fault is not None:
                self._after(request, fault)
            return await self._reply(request, answer)
        except ApiError as error:
            return _refusal(error)
        except (ConnectionError, TimeoutError):
            _abort(request)
            return web.Response(status=503)  # the client has disconnected
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # The emulator knows no schema of built-in kinds: an object of the wrong shape surfaces where a rule first reads it.
            return _refusal(bad_request(f"the object cannot be decoded: {type(error).__name__}: {error}"))

    async def _watch(
        self, request: web.BaseRequest, call: Call, params: Mapping[str, str], fault: Rule | None
    ) -> web.StreamResponse:
        self._watching[id(request)] = request
        try:
            return await serve_watch(
                self.cluster,
                request,
                call.target,
                params,
                fault=fault,
                bookmark_s=self._bookmark_s,
                silent=lambda: self.faults.silent(call.subject, _agent(request)),
                stale_at=self.faults.stale_at,
                table=table_form(request.headers.get("Accept", ""), params),
            )
        finally:
            del self._watching[id(request)]

    async def _body(self, request: web.BaseRequest) -> bytes:
        if not request.can_read_body:
            return b""
        chunks, size = [], 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > _BODY_LIMIT:
                raise too_large_body(_BODY_LIMIT)
            chunks.append(chunk)
        return b"".join(chunks)

    def _perform(
        self, request: web.BaseRequest, call: Call, params: Mapping[str, str], body: bytes, stale_at: int | None
    ) -> Answer:
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        return perform(
            self.cluster,
            call,
            params,
            content_type=content_type,
            body=body,
            agent=_agent(request),
            stale_at=stale_at,
            table=table_form(request.headers.get("Accept", ""), params),
            user=user_of(request.headers),
        )

    async def _reply(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        if isinstance(answer.pieces, list):
            response = web.Response(status=answer.code, body=answer.pieces[0], content_type="application/json")
            for text in answer.warnings:
                response.headers.add("Warning", '299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
            return response
        stream = web.StreamResponse(status=answer.code, headers={"Content-Type": "application/json"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        for piece in answer.pieces:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await stream.write(piece)
            await asyncio.sleep(0)
        return stream

    async def _before(self, request: web.BaseRequest, fault: Rule) -> None:
        if fault.latency_s:
            await asyncio.sleep(fault.latency_s)
        if fault.reset:
            _abort(request)
            raise ConnectionResetError
        if fault.status:
            raise refusal(fault.status, fault)

    def _after(self, request: web.BaseRequest, fault: Rule) -> None:
        if fault.applied_reset:
            _abort(request)
            raise ConnectionResetError
        if fault.applied_status:
            raise refusal(fault.applied_status, fault)

    def _well_known(self, path: str) -> web.Response | None:
        if path in _HEALTH:
            return web.Response(text="ok")
        if path == OPENAPI_V2:
            return web.Response(body=EMPTY_V2, headers={"Content-Type": PROTOBUF_V2})
        document = discover(self.cluster.registry, path.rstrip("/"))
        return None if document is None else web.Response(body=msgspec.json.encode(document), content_type="application/json")

    def _control(self, method: str, path: str, params: Mapping[str, str], body: bytes) -> web.Response:
        """The sandbox's own switches: faults (GET, PUT), compact (POST: forget the history that watches and tokens reach back to),
        sever (POST: break the open watches of clients whose User-Agent begins with ?client=; a fault plan takes new ones alone), workloads (POST:
        ?controllers=off or on, for tests that play the controllers of Deployments and the like)."""
        if path == "/_sandbox/faults":
            if method == "PUT":
                self.faults.load(body, revision=self.cluster.store.revision)
            elif method != "GET":
                raise method_not_allowed()
            return web.Response(body=self.faults.report(), content_type="application/json")
        if path == "/_sandbox/compact" and method == "POST":
            self.cluster.store.compact()
            return web.Response(status=204)
        if path == "/_sandbox/workloads" and method == "POST":
            self._controllers.runs_workloads = params.get("controllers") != "off"
            return web.Response(body=b"{}", content_type="application/json")
        if path == "/_sandbox/sever" and method == "POST":
            for request in list(self._watching.values()):
                if _agent(request).startswith(params.get("client", "")):
                    _abort(request)
            return web.Response(status=204)
        raise unknown_path()


def _refusal(error: ApiError) -> web.Response:
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return web.Response(
        status=error.code, body=msgspec.json.encode(error.status()), content_type="application/json", headers=headers
    )


def _agent(request: web.BaseRequest) -> str:
    return request.headers.get("User-Agent", "unknown")


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
