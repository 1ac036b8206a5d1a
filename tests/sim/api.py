"""Door of the API server: `KubeClient.request` and `stream` on the store of `hbox_sandbox.api`, called directly, with the faults of a network and of servers.

A request arrives after a delay, is performed in the world's context, whether or not its client still lives, and its answer takes as long. A watch is a
subscription of the store, read by the client.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import msgspec

from hbox_common.kube import KubeClient, Response
from hbox_common.kube.http1 import MAX_BODY_BYTES
from hbox_common.kube.status import error_of
from hbox_common.kube.transport import JSON, TooLarge
from hbox_sandbox.api.cluster import Cluster
from hbox_sandbox.api.controllers import Controllers
from hbox_sandbox.api.discovery import discover
from hbox_sandbox.api.errors import ApiError, bad_request, too_old
from hbox_sandbox.api.handlers import Call, perform, route
from hbox_sandbox.api.reads import bookmark, error_line, event_line, open_watch, query_from
from hbox_sandbox.api.store import Event, Store, Subscription
from hbox_sandbox.kubelet import Kubelets

from .broker import Sink
from .loop import EPOCH_S, PROCESS, Process, VirtualLoop, replaced

DELAY_S = (0.0005, 0.003)
BOOKMARK_S = 10.0
#: So long before its end a watch gets a bookmark.
BEFORE_THE_END_S = 2.0
SILENT_S = 0.1


@dataclass(eq=False, slots=True)
class Trouble:
    """What happens to a service's requests now: probabilities of each, and conditions. `stale_at`: revision of the watch cache of the server that it reads."""

    slow: float = 1.0  #: factor of the delay
    before: float = 0.0  #: no answer, and nothing done
    after: float = 0.0  #: done, and no answer
    conflict: float = 0.0  #: of writes
    invalid: float = 0.0  #: of writes: 422, as of an admission webhook
    error: float = 0.0  #: 500 or 503
    gone: float = 0.0  #: of watches: 410
    silent: bool = False
    stale_at: int | None = None


@dataclass(eq=False, slots=True)
class _Client:
    agent: str
    timeout_s: float


class SimApi:
    """`cluster`: the state. `on_write`: called after each write."""

    def __init__(self, loop: VirtualLoop, chance: Random, sink: Sink) -> None:
        self._loop, self._chance, self._sink = loop, chance, sink
        self.cluster = Cluster(clock=lambda: EPOCH_S + loop.now, random=Random(chance.getrandbits(64)), store=Store())
        self.kubelets = Kubelets(self.cluster, clock=loop.time, start_s=0.05, stop_s=0.05)
        self._controllers = Controllers(self.cluster)
        self._context = copy_context()
        self.trouble: dict[str, Trouble] = {}  #: by service
        self.on_write: list[Callable[[str, Event], None]] = []
        self.failed: Exception | None = None  #: the first error of an observer
        self.requests = self.writes = 0
        self.cluster.store.listeners.append(self._note)

    @property
    def store(self) -> Store:
        return self.cluster.store

    def tasks(self) -> Iterable[Awaitable[None]]:
        """What the control plane and the nodes do of themselves."""
        return self._controllers.run(), self.kubelets.run()

    def _note(self, storage: str, event: Event) -> None:
        self.writes += 1
        self._sink.add("write", storage, str(event.type), event.version.key, event.version.body)
        try:
            for listener in self.on_write:
                listener(storage, event)
        except Exception as e:  # a fault of an observer must not become an answer of the API server
            self.failed = self.failed or e

    def _trouble_of(self, process: Process | None) -> Trouble | None:
        return None if process is None else self.trouble.get(process.service)

    def _delay_s(self, trouble: Trouble | None) -> float:
        return self._chance.uniform(*DELAY_S) * (1.0 if trouble is None else trouble.slow)

    # --- requests

    async def request(
        self, client: _Client, method: str, path: str, params: Mapping[str, str], content_type: str, body: bytes
    ) -> Response:
        """Raises TimeoutError where no answer comes."""
        process = PROCESS.get()
        answered: asyncio.Future[Response] = self._loop.create_future()

        def arrive() -> None:
            trouble = self._trouble_of(process)
            self.requests += 1
            if trouble is not None and self._happens(trouble.before):
                return
            answer = self._serve(client.agent, method, path, params, content_type, body, trouble)
            if trouble is not None and self._happens(trouble.after):
                return
            self._loop.call_later(self._delay_s(trouble), settle, answer, context=self._context)

        def settle(answer: Response) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._loop.call_later(self._delay_s(self._trouble_of(process)), arrive, context=self._context)
        return await answered

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._chance.random() < probability

    def _serve(
        self,
        agent: str,
        method: str,
        path: str,
        params: Mapping[str, str],
        content_type: str,
        body: bytes,
        trouble: Trouble | None,
    ) -> Response:
        try:
            if method == "GET" and (document := discover(self.cluster.registry, path.rstrip("/"))) is not None:
                return Response(200, msgspec.json.encode(document), {})
            call = route(self.cluster, method, path, params)
            if trouble is not None:
                self._refuse(trouble, call)
            stale_at = None if trouble is None else trouble.stale_at
            answer = perform(self.cluster, call, params, content_type=content_type, body=body, agent=agent, stale_at=stale_at)
            return Response(answer.code, b"".join(answer.pieces), {})
        except ApiError as error:
            return _refusal(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return _refusal(bad_request(f"the object cannot be decoded: {type(error).__name__}: {error}"))

    def _refuse(self, trouble: Trouble, call: Call) -> None:
        writes = call.verb not in ("get", "list", "watch")
        if writes and self._happens(trouble.conflict):
            raise ApiError(409, "Conflict", "Operation cannot be fulfilled: simulated conflict")
        if writes and self._happens(trouble.invalid):
            raise ApiError(422, "Invalid", "simulated refusal of an admission webhook")
        if self._happens(trouble.error):
            code = self._chance.choice((500, 503))
            raise ApiError(code, "InternalError" if code == 500 else "ServiceUnavailable", f"simulated status {code}")

    # --- watches

    async def watch(self, client: _Client, path: str, params: Mapping[str, str], lasts_s: float) -> AsyncIterator[list[bytes]]:
        """First an empty list once it is open. Raises ApiError on opening, TimeoutError where the server does not end it in time."""
        process = PROCESS.get()
        trouble = self._trouble_of(process)
        await asyncio.sleep(self._delay_s(trouble) * 2)
        self.requests += 1
        trouble = self._trouble_of(process)
        call = route(self.cluster, "GET", path, params)
        if trouble is not None:
            if self._happens(trouble.before):
                await asyncio.sleep(client.timeout_s)
                raise TimeoutError
            self._refuse(trouble, call)
        resource = call.target.resource
        query = query_from(resource, call.target.namespace, call.target.name, params)
        if trouble is not None and self._happens(trouble.gone):
            raise too_old(int(query.revision or 0), self.store.revision)
        woken = asyncio.Event()
        subscription = Subscription(match=query.match, wake=woken.set)
        knows = None if trouble is None else trouble.stale_at
        events = open_watch(self.cluster, resource, query, subscription, until=knows)
        first = [event_line(resource, event) for event in events]
        if query.initial_events:
            first.append(bookmark(resource, self.store.revision, initial_end=True))
        loop = self._loop
        began = loop.now
        ends_at = began + (query.timeout_s or 1800.0)
        until = began + lasts_s
        try:
            yield []
            if first:
                yield first
            bookmark_at = min(began + BOOKMARK_S, ends_at - BEFORE_THE_END_S)
            while not subscription.ended:
                trouble = self._trouble_of(process)
                if trouble is not None and trouble.silent:
                    if loop.now >= until:
                        raise TimeoutError
                    await asyncio.sleep(SILENT_S)
                    continue
                if loop.now >= ends_at:
                    break
                if trouble is not None and self._happens(trouble.gone / 4):
                    yield [error_line(too_old(1, self.store.revision))]
                    return
                if knows is not None:
                    subscription.events.clear()
                if subscription.events:
                    woken.clear()
                    await asyncio.sleep(self._delay_s(trouble))
                    lines = [event_line(resource, event) for event in subscription.events]
                    subscription.events.clear()
                    yield lines
                    continue
                if query.bookmarks and loop.now >= bookmark_at:
                    yield [bookmark(resource, self.store.revision if knows is None else knows)]
                    before_the_end = ends_at - BEFORE_THE_END_S
                    bookmark_at = min(loop.now + BOOKMARK_S, before_the_end if loop.now < before_the_end else ends_at)
                woken.clear()
                try:
                    async with asyncio.timeout_at(min(ends_at, bookmark_at) if query.bookmarks else ends_at):
                        await woken.wait()
                except TimeoutError:
                    pass
            if query.bookmarks and knows is None and not (subscription.ended or subscription.events):
                yield [bookmark(resource, self.store.revision)]
        finally:
            self.store.unsubscribe(resource.storage, subscription)

    # --- clients

    def client(self, agent: str, *, timeout_s: float = 10.0) -> KubeClient:
        """A client of this API server, as `KubeClient.connect` makes it."""
        made = object.__new__(KubeClient)
        made.timeout_s = timeout_s
        made.base = "https://sim"
        made._sim = _Client(agent, timeout_s)  # type: ignore[attr-defined]
        return made

    def installed(self) -> AbstractContextManager[None]:
        """`KubeClient` with this door, while the context is open."""
        api = self

        @asynccontextmanager
        async def connect(
            cls: type[KubeClient], kubeconfig: str | None, *, user_agent: str, timeout_s: float = 10.0, connections: int = 64
        ) -> AsyncIterator[KubeClient]:
            yield api.client(user_agent, timeout_s=timeout_s)

        async def request(
            self: KubeClient,
            method: str,
            path: str,
            *,
            params: Mapping[str, str] | None = None,
            body: object | bytes | None = None,
            content_type: str = JSON,
            timeout_s: float | None = None,
            most_bytes: int = MAX_BODY_BYTES,
        ) -> Response:
            limit_s = self.timeout_s if timeout_s is None else timeout_s
            data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
            client = cast(_Client, self._sim)  # type: ignore[attr-defined]
            try:
                async with asyncio.timeout(limit_s):
                    answer = await api.request(client, method, path, params or {}, content_type if data else "", data)
            except TimeoutError as e:
                raise self._unavailable(e, method, path, limit_s) from e
            if len(answer.body) > most_bytes:
                raise TooLarge(f"Kubernetes API, {method} {path}: a body of more than {most_bytes} bytes")
            return answer

        @asynccontextmanager
        async def stream(
            self: KubeClient, path: str, *, params: Mapping[str, str], lasts_s: float
        ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
            client = cast(_Client, self._sim)  # type: ignore[attr-defined]

            async def lines() -> AsyncIterator[list[bytes]]:
                try:
                    async for some in watching:
                        yield some
                except TimeoutError as e:
                    raise self._unavailable(e, "GET", path, lasts_s) from e

            async with aclosing(cast(Any, api.watch(client, path, params, lasts_s))) as watching:
                try:
                    await anext(watching)
                except ApiError as error:
                    answer = _refusal(error)
                    raise error_of(answer.status, answer.body, what=f"GET {path}", retry_after=None) from None
                except TimeoutError as e:
                    raise self._unavailable(e, "GET", path, self.timeout_s) from e
                async with aclosing(cast(Any, lines())) as some:
                    yield some

        return replaced(
            (KubeClient, "connect", classmethod(connect)), (KubeClient, "request", request), (KubeClient, "stream", stream)
        )


def _refusal(error: ApiError) -> Response:
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return Response(error.code, msgspec.json.encode(error.status()), headers)
