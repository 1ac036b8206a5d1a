"""A proxy in front of a real API server that makes one client blind: what it watches falls silent, or is refused.

It ends TLS and speaks to the API server as its administrator, so that whoever goes through it needs no credentials. Everybody beside it sees what is
true.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from hbox_common.kube.access import find_access

_HOP_BY_HOP = ("Host", "Connection", "Transfer-Encoding", "Content-Length", "Keep-Alive")
_LOOK_S = 0.1

Blind = Callable[["Asked"], bool]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `open`: a watch that was open when the fault began."""

    client: str
    path: str
    watch: bool
    open: bool = False

    @property
    def pods(self) -> bool:
        """Whether it lists or watches pods."""
        return self.path.endswith("/pods")


@dataclass(eq=False)
class FaultProxy:
    """`silent` and `refused` say whom the fault that is on concerns; None: nobody."""

    url: str = ""
    silent: Blind | None = None
    refused: Blind | None = None
    fired: int = 0  #: requests refused, and watches that were kept silent
    _number: int = 0
    _began: int = 0

    def begin(self, *, silent: Blind | None = None, refused: Blind | None = None) -> None:
        """A fault; watches that `refused` is about end at once."""
        self._began = self._number
        self.silent, self.refused = silent, refused

    def heal(self) -> None:
        self.silent = self.refused = None

    def kubeconfig(self, path: Path) -> Path:
        """For a client that goes through it."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "blind", "cluster": {"server": self.url}}],
            "users": [{"name": "blind", "user": {}}],
            "contexts": [{"name": "blind", "context": {"cluster": "blind", "user": "blind"}}],
            "current-context": "blind",
        }
        path.write_text(json.dumps(config))
        return path

    def _is(self, fault: Blind | None, asked: Asked, number: int) -> bool:
        return fault is not None and fault(Asked(asked.client, asked.path, asked.watch, number <= self._began))

    async def handle(self, base: str, session: aiohttp.ClientSession, request: web.BaseRequest) -> web.StreamResponse:
        self._number += 1
        number = self._number
        watch = request.query.get("watch") in ("1", "true")
        asked = Asked(request.headers.get("User-Agent", ""), request.path, watch)
        if request.method == "GET" and self._is(self.refused, asked, number):
            self.fired += 1
            said = {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "the fault proxy refuses"}
            return web.json_response(said, status=503)
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP}
        body = await request.read()
        async with session.request(
            request.method, base + request.path_qs, headers=headers, data=body or None, allow_redirects=False
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name not in _HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            response.enable_chunked_encoding()
            await response.prepare(request)
            if not watch:
                await response.write(await answer.read())
                return response
            silenced = False
            reading = asyncio.ensure_future(answer.content.readany())
            try:
                while not self._is(self.refused, asked, number):
                    await asyncio.wait([reading], timeout=_LOOK_S)
                    if self._is(self.silent, asked, number):
                        self.fired += not silenced
                        silenced = True
                        await asyncio.sleep(_LOOK_S)
                        continue
                    if silenced:  # what was to come meanwhile is lost with the connection
                        break
                    if not reading.done():
                        continue
                    if not (chunk := reading.result()):
                        return response
                    await response.write(chunk)
                    reading = asyncio.ensure_future(answer.content.readany())
            finally:
                reading.cancel()
            if request.transport is not None:
                request.transport.abort()
            return response


@asynccontextmanager
async def fault_proxy(kubeconfig: Path) -> AsyncIterator[FaultProxy]:
    """In front of the API server of `kubeconfig`, while the block runs."""
    access = await find_access(str(kubeconfig))
    proxy = FaultProxy()
    headers: dict[str, str] = {}
    if access.authorize is not None:
        await access.authorize(headers)
    connector = aiohttp.TCPConnector(limit=0, ssl=access.tls if access.tls is not None else True)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
    ) as session:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await proxy.handle(access.base, session, request)

        runner = web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield proxy
        finally:
            await runner.cleanup()
