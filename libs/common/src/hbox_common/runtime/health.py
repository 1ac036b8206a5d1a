"""Health of a process, for kubelets and people: /healthz (the event loop runs), /readyz (every condition is good), /metrics, and /metrics/PAGE if a service has
more. Pages contain names of queues, namespaces and nodes: they need the bearer token `metrics_token`, or a server that listens on loopback (ADR 98).

Any client in the network can connect, and the service does its work on the same event loop. So connections are limited before HTTP begins (`guarded`): their
number, lifetime and bytes.
"""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from aiohttp import web
from aiohttp.typedefs import Handler

from hbox_common.redaction import redacted
from hbox_common.telemetry import exposition, gauge, series

from .guarded import Bounds, Guarded

CONDITIONS = gauge("condition", "1 if a readiness condition of /readyz is met, 0 if not", ["condition"])


#: The media type of a format that has exemplars. Prometheus prefers it.
OPENMETRICS = "application/openmetrics-text"
#: Connections at a time. One kubelet, Prometheus and a few people are fewer.
MOST_CONNECTIONS = 64
#: Maximum lifetime of a connection: probes and scrapes open another one.
CONNECTION_S = 30.0
#: Maximum bytes received on a connection: a probe is 150 bytes, a scrape 500, one a second.
CONNECTION_BYTES = 64 * 1024
#: Of a request's first line and of each header.
LINE_BYTES = 4 * 1024


#: Kinds of faults that are reported in full.
MAX_FULL_COMPLAINTS = 2


def complaints(wrong: Mapping[str, str]) -> str:
    """The faults by kind, in full for the first two: usually many kinds cannot be read for the same reason."""
    parts = [f"{name}: {complaint}" for name, complaint in list(wrong.items())[:MAX_FULL_COMPLAINTS]]
    if others := list(wrong)[MAX_FULL_COMPLAINTS:]:
        parts.append(f"and {', '.join(others)} likewise or otherwise")
    return "; ".join(parts)


@dataclass(slots=True)
class Condition:
    """One thing that has to be good before the service is ready: `bus`, `kube`, `synced`, ..."""

    name: str
    good: bool = False
    message: str = "starting"

    def ok(self, message: str = "") -> None:
        self.good, self.message = True, redacted(message)

    def bad(self, message: str) -> None:
        self.good, self.message = False, redacted(message)


@dataclass(slots=True)
class Health:
    """The conditions of this process. No condition at all is not ready: a service names what it needs."""

    service: str
    conditions: dict[str, Condition] = field(default_factory=dict)
    #: metrics by the last part of their path below /metrics: too large for every scrape, or with names; each call generates the text again
    pages: dict[str, Callable[[], AsyncIterator[bytes]]] = field(default_factory=dict)
    #: the same of functions that bound their own cost, however often they are called
    texts: dict[str, Callable[[], Awaitable[bytes]]] = field(default_factory=dict)
    #: remarks shown with the conditions without effect on readiness, by name; an empty text is left out
    remarks: dict[str, Callable[[], str]] = field(default_factory=dict)

    def condition(self, name: str) -> Condition:
        """The condition of that name; made, as not yet good, when it is new."""
        return self.conditions.setdefault(name, Condition(name))

    @property
    def ready(self) -> bool:
        return bool(self.conditions) and all(c.good for c in self.conditions.values())

    @property
    def stage(self) -> str:
        """`ready`, or the conditions that are not met."""
        missing = [c.name for c in self.conditions.values() if not c.good]
        return f"not ready: {', '.join(missing) or 'starting'}" if missing or not self.conditions else "ready"

    def report(self) -> dict[str, object]:
        notes = {name: text for name, remark in self.remarks.items() if (text := remark())}
        return {
            "service": self.service,
            "ready": self.ready,
            "conditions": {c.name: {"good": c.good, "message": c.message} for c in self.conditions.values()}
            | {name: {"good": True, "message": redacted(text)} for name, text in notes.items()},
        }


class HealthServer:
    """Serves `health` on host:port; `port` is the one bound. `connection_s`: for so long a connection lives. `token`: returns what pages require; empty:
    they are served on loopback only. Raises OSError where it cannot be bound."""

    def __init__(
        self,
        health: Health,
        *,
        host: str,
        port: int,
        connection_s: float = CONNECTION_S,
        token: Callable[[], str] = lambda: "",
    ) -> None:
        self._health, self._host, self.port, self._connection_s, self._token = health, host, port, connection_s, token
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._open: set[Guarded] = set()
        self._asked: set[str] = set()  #: pages being generated

    async def __aenter__(self) -> "HealthServer":
        app = web.Application(middlewares=[_without_bodies])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/metrics/{page}", self._page)
        self._runner = runner = web.AppRunner(
            app, access_log=None, max_line_size=LINE_BYTES, max_field_size=LINE_BYTES, lingering_time=0
        )
        await runner.setup()

        bounds = Bounds(MOST_CONNECTIONS, CONNECTION_BYTES, self._connection_s)

        def guarded() -> asyncio.Protocol:
            assert runner.server is not None
            return Guarded(runner.server(), self._open, bounds)

        self._server = await asyncio.get_running_loop().create_server(guarded, self._host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        report = self._health.report()
        return web.json_response(
            report, status=200 if self._health.ready else 503, dumps=lambda o: json.dumps(o, indent=1) + "\n"
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        for condition in self._health.conditions.values():
            CONDITIONS.labels(condition.name).set(condition.good)
        openmetrics = _accepts_openmetrics(request)
        return _text(exposition(openmetrics=openmetrics), openmetrics=openmetrics)

    def _check(self, request: web.Request) -> None:
        """Reject clients that may not read names."""
        if token := self._token():
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), f"Bearer {token}".encode()):
                raise web.HTTPUnauthorized(
                    text="this page needs the bearer token of metrics_token\n", headers={"WWW-Authenticate": "Bearer"}
                )
        elif not _is_loopback(self._host):
            raise web.HTTPForbidden(text="this page is served to clients with a token: set metrics_token\n")

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """One request at a time: clients must not be able to multiply its cost."""
        self._check(request)
        name = request.match_info["page"]
        if (text := self._health.texts.get(name)) is not None:
            openmetrics = _accepts_openmetrics(request)
            return _text((series.openmetrics if openmetrics else series.plain)(await text()), openmetrics=openmetrics)
        begin = self._health.pages.get(name)
        if begin is None:
            raise web.HTTPNotFound(text="no such metrics\n")
        if name in self._asked:
            raise web.HTTPTooManyRequests(
                text="another request for this page is in progress; retry\n", headers={"Retry-After": "1"}
            )
        self._asked.add(name)
        try:
            response = web.StreamResponse()
            response.content_type, response.charset = "text/plain", "utf-8"
            await response.prepare(request)
            async for part in begin():
                await response.write(part)
            await response.write_eof()
            return response
        finally:
            self._asked.discard(name)


def _accepts_openmetrics(request: web.Request) -> bool:
    return OPENMETRICS in request.headers.get("Accept", "")


def _text(body: bytes, *, openmetrics: bool) -> web.Response:
    kind = f"{OPENMETRICS}; version=1.0.0" if openmetrics else "text/plain"
    return web.Response(body=body, headers={"Content-Type": f"{kind}; charset=utf-8"})


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@web.middleware
async def _without_bodies(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not request.can_read_body:
        return await handler(request)
    answer = web.Response(status=413, text="nothing is read here but what is asked for\n")
    answer.force_close()
    return answer
