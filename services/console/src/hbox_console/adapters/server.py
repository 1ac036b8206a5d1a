"""The HTTP server: authentication, limits, conditional requests and errors around the handlers.

Any client that reaches the port may send requests. Requests have no body; a connection ends after IDLE_S without a request, and where there are too many, the
one that has been idle longest makes room; at most AT_ONCE requests are answered concurrently.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from time import perf_counter
from types import TracebackType
from typing import Any, TypeAlias, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.runtime import Health
from hbox_common.runtime.certificate import Certificate
from hbox_common.runtime.guarded import Bounds, Guarded

from .. import metrics
from ..api import BASE
from ..core.pages import matches, tag_of
from ..core.rights import Identity
from ..openapi import ROUTES, Route, openapi
from .gate import Gate
from .problems import problem, problem_of
from .reviews import Reviews, Unauthenticated

log = logging.getLogger(__name__)

IDLE_S = 75.0
HANDSHAKE_S = 5.0
AT_ONCE = 256
ANSWER_S = 30.0
#: A token with many groups is in one header.
_LINE_BYTES = 24 * 1024
_CONNECTION_BYTES = 256 * 1024

Answer: TypeAlias = Callable[[Identity, Mapping[str, str]], Awaitable[Any]]
Stream: TypeAlias = Callable[[web.Request, Identity], Awaitable[web.StreamResponse]]


class ApiServer:
    """Serves `answers` (by operation) on host:port, `*` = all addresses; `port` is the one bound. Raises OSError where it cannot be bound."""

    def __init__(
        self,
        answers: Mapping[str, Answer],
        streams: Mapping[str, Stream],
        reviews: Reviews,
        health: Health,
        gate: Gate,
        *,
        certificate: Certificate | None,
        host: str,
        port: int,
        connections: int,
        idle_s: float = IDLE_S,
    ) -> None:
        self._answers, self._streams, self._reviews, self._health = answers, streams, reviews, health
        self._gate = gate
        self._certificate, self._host, self.port = certificate, host, port
        self._bounds = Bounds(connections=connections, bytes_=_CONNECTION_BYTES, lives_s=idle_s, makes_way=True)
        self._open: set[Guarded] = set()
        self._busy = 0
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._openapi = json.dumps(openapi()).encode()

    async def __aenter__(self) -> "ApiServer":
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/openapi.json", self._document)
        for route in ROUTES:
            app.router.add_get(f"{BASE}{route.path}", self._handler(route))
        self._runner = runner = web.AppRunner(
            app, access_log=None, max_line_size=_LINE_BYTES, max_field_size=_LINE_BYTES, lingering_time=0
        )
        await runner.setup()

        def guarded() -> asyncio.Protocol:
            assert runner.server is not None
            return Guarded(runner.server(), self._open, self._bounds)

        tls: dict[str, Any] = {}
        if self._certificate is not None:
            tls = {
                "ssl": self._certificate.context,
                "ssl_handshake_timeout": HANDSHAKE_S,
                "ssl_shutdown_timeout": 1.0,
            }
        self._server = await asyncio.get_running_loop().create_server(
            guarded, None if self._host == "*" else self._host, self.port, **tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: BaseException | type[BaseException] | TracebackType | None) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self._health.ready else web.Response(status=503, text="not ready\n")

    async def _document(self, _: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type="application/json")

    def _handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            query = _query(request, route)
            identity = await self.identity(request)
            if not self._health.ready:
                raise Unavailable("the service has not read the platform's state yet", hint="ask again in a moment")
            if route.operation in self._streams:
                return await self._streams[route.operation](request, identity)
            async with asyncio.timeout(ANSWER_S):
                await self._gate.enter(identity.user)
                content = await self._answers[route.operation](identity, query)
            tag = tag_of(content)
            headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization"}
            if matches(request.headers.get("If-None-Match"), tag):
                return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
            body = json.dumps(content, ensure_ascii=False).encode()
            return web.Response(body=body, content_type="application/json", charset="utf-8", headers=headers)

        return handle

    async def identity(self, request: web.Request) -> Identity:
        """Raises Unauthenticated, Unavailable."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind:
            if kind.lower() != "bearer" or len(request.headers.getall("Authorization")) > 1:
                raise Unauthenticated("Authorization: only one bearer token is accepted")
            return await self._reviews.identity(token.strip())
        if (identity := _of_certificate(request)) is not None:
            return identity
        raise Unauthenticated(
            "the request names no client",
            hint="send `Authorization: Bearer TOKEN`, or a certificate of the cluster's client CA",
        )

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Limits, metrics, and errors as problems."""
        began = perf_counter()
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "unknown"
        counted = not route.endswith("/watch")
        if request.can_read_body:
            answer: web.StreamResponse = problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "requests have no body", code="invalid-request"
            )
            answer.force_close()
        elif counted and self._busy >= AT_ONCE:
            answer = problem_of(Unavailable("too many requests are in progress", hint="ask again", retry_after_s=1.0))
        else:
            self._busy += counted
            try:
                answer = await self._answer(request, handler)
            finally:
                self._busy -= counted
        metrics.REQUESTS.labels(route, str(answer.status)).inc()
        if counted:
            metrics.REQUEST_SECONDS.labels(route).observe(perf_counter() - began)
        renew(request)
        return answer

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except HBoxError as e:
            return problem_of(e)
        except TimeoutError:
            return problem_of(Unavailable("the answer took too long", hint="ask for a smaller page", retry_after_s=1.0))
        except web.HTTPException as e:
            status = HTTPStatus(e.status)
            code = "not-found" if status is HTTPStatus.NOT_FOUND else "invalid-request"
            return problem(status, f"{request.method} is not served here", code=code, hint="/openapi.json has all paths")
        except ConnectionError:
            raise
        except Exception:  # the last handler: the client gets no details
            log.exception("a request failed")
            return problem(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed; the service's log has the reason", code="internal"
            )


def renew(request: web.Request) -> None:
    """The connection was of use."""
    if request.transport is not None and isinstance(protocol := request.transport.get_protocol(), Guarded):
        protocol.renew()


def _query(request: web.Request, route: Route) -> dict[str, str]:
    """The parameters of path and query. Raises InvalidRequest for unknown and repeated ones."""
    found = dict(request.match_info)
    for name in request.query:
        if name not in route.query:
            raise InvalidRequest(
                f"{name[:40]!r} is no parameter of this list", hint=f"known: {', '.join(route.query) or 'none'}"
            )
        if len(request.query.getall(name)) > 1:
            raise InvalidRequest(f"{name} may be given once")
        found[name] = request.query[name]
    return found


def _of_certificate(request: web.Request) -> Identity | None:
    """The name of a certificate that the handshake verified: its common name is the user, its organizations are the groups."""
    certificate = cast("Mapping[str, Any] | None", request.get_extra_info("peercert"))
    if not certificate:
        return None
    parts = [pair for name in certificate.get("subject", ()) for pair in name]
    users = [value for key, value in parts if key == "commonName"]
    if len(users) != 1 or not users[0]:
        return None
    groups = tuple(value for key, value in parts if key == "organizationName")
    return Identity(users[0], (*groups, "system:authenticated"))
