"""HTTPS for API servers: `POST /mutate` and `POST /validate` with an AdmissionReview.

Any client that reaches the port may send requests, and one event loop answers all. So a request has BODY_S and MOST_BODY_BYTES for its body, all bodies
together have MOST_HELD_BYTES, an idle connection ends after IDLE_S, and if there are too many, the one that has been idle longest is closed, so that an API
server can always connect. A request affects only its sender: it changes no state and causes no call of another service.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import cast

import msgspec
from aiohttp import web

from hbox_common.errors import InvalidRequest
from hbox_common.runtime.certificate import Certificate
from hbox_common.runtime.guarded import Bounds, Guarded

from .. import metrics
from ..core import NO_DEFAULTS, Outcome, Rules, Verdict, namespace_of_new_pod, parse_review, review
from .cluster import Cluster
from .validating import validated

log = logging.getLogger(__name__)

PATH, VALIDATE_PATH = "/mutate", "/validate"

#: An API server takes 3 MiB of a request; the same in JSON, in a review, is no more than this.
MOST_BODY_BYTES = 8 << 20
MOST_HELD_BYTES = 64 << 20
#: The chart has API servers wait for 5 s.
BODY_S = 5.0
HANDSHAKE_S = 5.0
IDLE_S = 120.0
MOST_CONNECTIONS = 512
_LINE_BYTES = 8 * 1024

_encode = msgspec.json.Encoder().encode


class AdmissionServer:
    """Answers by `rules()` on host:port; `port` is the one bound. `cluster`: what is known of namespaces and queues, if anything. Raises OSError where the port
    cannot be bound."""

    def __init__(
        self,
        certificate: Certificate,
        rules: Callable[[], Rules],
        *,
        host: str,
        port: int,
        cluster: Cluster | None = None,
        body_s: float = BODY_S,
        idle_s: float = IDLE_S,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        self._certificate, self._rules, self._host, self.port = certificate, rules, host, port
        self._cluster = cluster
        self._body_s = body_s
        self._bounds = Bounds(connections=most_connections, bytes_=MOST_BODY_BYTES + 64 * 1024, lives_s=idle_s, makes_way=True)
        self._open: set[Guarded] = set()
        self._held = 0
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "AdmissionServer":
        app = web.Application()
        app.router.add_post(PATH, partial(self._answer, self._mutate))
        app.router.add_post(VALIDATE_PATH, partial(self._answer, self._validate))
        self._runner = runner = web.AppRunner(
            app, access_log=None, max_line_size=_LINE_BYTES, max_field_size=_LINE_BYTES, lingering_time=0
        )
        await runner.setup()

        def guarded() -> asyncio.Protocol:
            assert runner.server is not None
            return Guarded(runner.server(), self._open, self._bounds)

        self._server = await asyncio.get_running_loop().create_server(
            guarded,
            self._host,
            self.port,
            ssl=self._certificate.context,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=1.0,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: BaseException | type[BaseException] | TracebackType | None) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _mutate(self, body: bytes) -> Verdict:
        namespace = namespace_of_new_pod(body) if self._cluster is not None else ""
        defaults = await self._cluster.defaults(namespace) if self._cluster is not None and namespace else NO_DEFAULTS
        return review(parse_review(body), self._rules(), defaults)

    async def _validate(self, body: bytes) -> Verdict:
        return validated(parse_review(body), self._cluster.queues if self._cluster is not None else None)

    async def _answer(self, judge: Callable[[bytes], Awaitable[Verdict]], request: web.Request) -> web.Response:
        began = perf_counter()
        held: list[bytes] = []
        read = 0
        try:
            async with asyncio.timeout(self._body_s):
                async for part in request.content.iter_any():
                    held.append(part)
                    read += len(part)
                    self._held += len(part)
                    if read > MOST_BODY_BYTES:
                        return _refused(413, "too-large", f"at most {MOST_BODY_BYTES} bytes are read")
                    if self._held > MOST_HELD_BYTES:
                        return _refused(503, "busy", "too many bytes of requests are held at this moment; send it again")
            body = b"".join(held)
            verdict = await judge(body)
        except TimeoutError:
            return _refused(408, "late", f"the body was not there after {self._body_s:g} s")
        except InvalidRequest as e:
            return _refused(400, "malformed", str(e))
        finally:
            self._held -= read
        _count(verdict, began)
        if request.transport is not None:
            cast("Guarded", request.transport.get_protocol()).renew()
        return web.Response(body=_encode(verdict.answer), content_type="application/json")


def _count(verdict: Verdict, began: float) -> None:
    counted = metrics.REVIEWS if isinstance(verdict.outcome, Outcome) else metrics.VALIDATIONS
    counted.labels(verdict.outcome.value).inc()
    metrics.WARNINGS.inc(verdict.warnings)
    metrics.REVIEW_SECONDS.observe(perf_counter() - began)


def _refused(status: int, why: str, message: str) -> web.Response:
    metrics.REFUSED.labels(why).inc()
    answer = web.Response(status=status, text=f"{message}\n")
    answer.force_close()
    return answer
