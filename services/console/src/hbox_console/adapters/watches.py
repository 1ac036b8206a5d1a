"""`/watch`: changes of objects that the client may see, as server-sent events.

Each event has the object as lists show it; `event` is its kind, `id` is where a client resumes with Last-Event-ID. Several changes of an object within a moment
are one event. An object that is gone, or that the client may no longer see, is an event with `object: null`. If changes behind an id are no longer kept, or are
of another process, the first event is `reset`: the client lists again. Rights and token are reviewed again as for requests, so that a revoked right ends within
the same time.
"""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from hbox_common.clock import wall_s
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.model import JobId, NodeName, QueueName

from .. import metrics
from ..core.model import Change, Kind, ReadModel
from ..core.rights import Identity, jobs_in, queue_named
from ..core.withheld import (
    Item,
    job_seen,
    named_in_jobs,
    named_in_nodes,
    named_in_queues,
    node_seen,
    queue_seen,
    veil_of,
)
from .gate import Gate
from .handlers import Handlers
from .reviews import Reviews

#: Between two looks at changes, and between two comments that keep the connection open.
PAUSE_S, KEEP_S = 0.5, 15.0
#: A client that takes nothing for so long is disconnected.
WRITE_S = 10.0
MOST_PER_CLIENT = 16
#: Events in one go: some milliseconds of computation.
MAX_EVENTS = 25

Renew = Callable[[web.Request], None]
Identify = Callable[[web.Request], Awaitable[Identity]]


class Watches:
    """`identify`: reviews the client of a request again. `most`: streams at a time."""

    def __init__(self, model: ReadModel, reviews: Reviews, handlers: Handlers, gate: Gate, *, most: int) -> None:
        self._model, self._reviews, self._handlers, self._gate, self._most = model, reviews, handlers, gate, most
        self._process = secrets.token_hex(4)
        self._open: Counter[str] = Counter()
        self.renew: Renew = lambda _: None
        self.identify: Identify | None = None

    async def watch(self, request: web.Request, identity: Identity) -> web.StreamResponse:
        kinds = _kinds(request.query.get("kind", ""))
        namespace = request.query.get("namespace", "")
        if self._open.total() >= self._most or self._open[identity.user] >= MOST_PER_CLIENT:
            metrics.WATCHES_CUT.labels("too-many").inc()
            raise Unavailable("too many streams of changes are open", hint="close one, or ask again", retry_after_s=5.0)
        self._open[identity.user] += 1
        metrics.WATCHES.set(self._open.total())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        try:
            await response.prepare(request)
            await self._stream(request, response, identity, kinds, namespace)
        except TimeoutError:
            metrics.WATCHES_CUT.labels("slow").inc()
        except ConnectionError:
            pass  # the client left
        except HBoxError as e:  # the answer has begun: its end is all that can be sent
            metrics.WATCHES_CUT.labels("refused" if isinstance(e, InvalidRequest) else "unavailable").inc()
        finally:
            self._open[identity.user] -= 1
            self._open += Counter()
            metrics.WATCHES.set(self._open.total())
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, identity: Identity, kinds: frozenset[Kind], namespace: str
    ) -> None:
        position = self._position(request.headers.get("Last-Event-ID", ""))
        if position is None:
            position = self._model.revision
            await self._write(response, f"id: {self._process}.{position}\nevent: reset\ndata: {{}}\n\n")
        quiet_s = 0.0
        while True:
            changes = self._model.changes_since(position)
            if changes is None:
                position = self._model.revision
                await self._write(response, f"id: {self._process}.{position}\nevent: reset\ndata: {{}}\n\n")
                continue
            for start in range(0, len(changes), MAX_EVENTS):
                some = changes[start : start + MAX_EVENTS]
                identity = await self._identified(request, identity)
                await self._gate.enter(identity.user)
                wanted = [one for one in some if one.kind in kinds and (not namespace or one.namespace in ("", namespace))]
                text = "".join(
                    f"id: {self._process}.{change.revision}\nevent: {change.kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"
                    for change, content in await self._contents(identity, wanted)
                )
                position = some[-1].revision
                if text:
                    await self._write(response, text)
                    quiet_s = 0.0
            identity = await self._identified(request, identity)
            if (quiet_s := quiet_s + PAUSE_S) >= KEEP_S:
                await self._write(response, f": {self._process}.{position}\n\n")
                quiet_s = 0.0
            self.renew(request)
            await asyncio.sleep(PAUSE_S)

    async def _identified(self, request: web.Request, identity: Identity) -> Identity:
        return await self.identify(request) if self.identify is not None else identity

    async def _write(self, response: web.StreamResponse, text: str) -> None:
        async with asyncio.timeout(WRITE_S):
            await response.write(text.encode())

    def _position(self, last: str) -> int | None:
        """Behind which revision to begin; None for an id of another process. A client without one begins with what changes from now on."""
        if not last:
            return self._model.revision
        process, _, revision = last.partition(".")
        if process != self._process or not revision.isascii() or not revision.isdigit() or len(revision) > 18:
            return None
        return int(revision)

    async def _contents(self, identity: Identity, changes: Sequence[Change]) -> list[tuple[Change, Item]]:
        """What the client sees of the changed objects; nothing of those that it may not see."""
        found: list[tuple[Change, Item]] = []
        for change in changes:
            if not await self._sees(identity, change):
                continue
            name = f"{change.namespace}/{change.name}" if change.kind is Kind.JOB else change.about
            found.append((change, {"kind": change.kind.value, "name": name, "object": await self._object(identity, change)}))
        return found

    async def _sees(self, identity: Identity, change: Change) -> bool:
        match change.kind:
            case Kind.JOB:
                return await self._reviews.any_allowed(identity, jobs_in(change.namespace))
            case Kind.QUEUE:
                return await self._reviews.any_allowed(identity, queue_named(change.about))
            case Kind.NODE:
                return await self._reviews.nodes(identity)

    async def _object(self, identity: Identity, change: Change) -> Any:
        model, now = self._model, wall_s()
        match change.kind:
            case Kind.JOB:
                if not model.knows_job(JobId(change.about)):
                    return None
                item = model.job_item(JobId(change.about), now=now)
                return job_seen(item, veil_of(await self._handlers.scope_of(identity, named_in_jobs([item], model)), model))
            case Kind.QUEUE:
                queue = model.queue_item(QueueName(change.about), now=now)
                if queue is None:
                    return None
                scope = await self._handlers.scope_of(identity, named_in_queues([queue], model))
                return queue_seen(queue, scope, veil_of(scope, model))
            case Kind.NODE:
                node = model.node_item(NodeName(change.about), now=now)
                if node is None:
                    return None
                scope = await self._handlers.scope_of(identity, named_in_nodes([node], model))
                return node_seen(node, scope, veil_of(scope, model))


def _kinds(text: str) -> frozenset[Kind]:
    if not text:
        return frozenset(Kind)
    named = {part.strip() for part in text.split(",")}
    if unknown := named - {kind.value for kind in Kind}:
        raise InvalidRequest(f"kind: {sorted(unknown)[0][:40]!r} is none of {', '.join(Kind)}")
    return frozenset(Kind(part) for part in named)
