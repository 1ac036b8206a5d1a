"""One watch as a chunked HTTP response: initial lines, events as they come, bookmarks, the end; and the faults that watches can have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from aiohttp import web

from .cluster import Cluster
from .errors import too_old
from .faults import Rule
from .reads import bookmark, error_line, event_line, open_watch, query_from
from .store import Event, Subscription
from .tables import TableForm
from .writes import Target

_DEFAULT_TIMEOUT_S = 1800.0
_BATCH_BYTES = 256 * 1024
WRITE_TIMEOUT_S = 30.0
#: So long before its end a watch gets a bookmark, if it lasts longer than that (k8s.io/apiserver storage/cacher, nextBookmarkTime).
_BEFORE_THE_END_S = 2.0
#: How often a silent watch looks whether it still is.
_SILENT_S = 0.1


async def serve_watch(
    cluster: Cluster,
    request: web.BaseRequest,
    target: Target,
    params: Mapping[str, str],
    *,
    fault: Rule | None,
    bookmark_s: float,
    silent: Callable[[], bool],
    stale_at: int,
    table: TableForm | None = None,
) -> web.StreamResponse:
    """Serve a watch until `timeoutSeconds`, a fault, an overflow or a disconnect ends it. Errors before the first byte are raised as `ApiError`.

    `silent`: whether the watch sends nothing at present, not even its end. `stale_at`: the last revision that a lagging API server has in its cache.
    `table`: send each object as a table.
    """
    query = query_from(target.resource, target.namespace, target.name, params)
    fault = fault or Rule()
    if fault.watch_gone == "http":
        raise too_old(int(query.revision or 0), cluster.store.revision)
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    subscription = Subscription(match=query.match, wake=woken.set)
    knows = stale_at if fault.stale else None
    revision = cluster.store.revision
    first = open_watch(cluster, target.resource, query, subscription, until=knows)
    lines = _Lines(cluster, target, table)
    try:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        writer = _Writer(response, chunk=fault.watch_chunk)
        if fault.watch_gone == "stream":
            await writer.write(error_line(too_old(int(query.revision or 0), cluster.store.revision)))
            return response
        await writer.write_all(lines.of(first))
        if query.initial_events:
            await writer.write(bookmark(target.resource, revision, initial_end=True))
        if fault.watch_stall_s:
            await asyncio.sleep(fault.watch_stall_s)
        ends_at = loop.time() + min(query.timeout_s or _DEFAULT_TIMEOUT_S, fault.watch_end_s or _DEFAULT_TIMEOUT_S)

        def next_bookmark() -> float:
            before_the_end = ends_at - _BEFORE_THE_END_S
            return min(loop.time() + bookmark_s, before_the_end if loop.time() < before_the_end else ends_at)

        bookmark_at = next_bookmark()
        while not subscription.ended and (loop.time() < ends_at or silent()):
            if silent():
                await asyncio.sleep(_SILENT_S)
                continue
            if knows is not None:
                subscription.events.clear()
            if subscription.events:
                woken.clear()
                events = list(subscription.events)
                subscription.events.clear()
                await writer.write_all(lines.of(events))
                continue
            if query.bookmarks and loop.time() >= bookmark_at:
                await writer.write(bookmark(target.resource, cluster.store.revision if knows is None else knows))
                bookmark_at = next_bookmark()
            wait_until = min(ends_at, bookmark_at) if query.bookmarks else ends_at
            try:
                async with asyncio.timeout_at(wait_until):
                    await woken.wait()
            except TimeoutError:
                continue
            woken.clear()
        if query.bookmarks and knows is None and not (subscription.ended or subscription.events or fault.watch_end_s):
            await writer.write(bookmark(target.resource, cluster.store.revision))
        return response
    finally:
        cluster.store.unsubscribe(target.resource.storage, subscription)


class _Lines:
    """A watch's events as lines."""

    def __init__(self, cluster: Cluster, target: Target, table: TableForm | None) -> None:
        self._cluster = cluster
        self._resource = target.resource
        self._table = table
        self._headers = True

    def of(self, events: Iterable[Event]) -> list[bytes]:
        if self._table is None:
            return [event_line(self._resource, event) for event in events]
        lines = []
        for event in events:
            lines.append(self._table.of_event(self._resource, event, self._cluster.clock(), headers=self._headers))
            self._headers = False
        return lines


class _Writer:
    """Writes lines in batches; with `chunk`, in pieces of that many bytes, so that lines are cut in the middle."""

    def __init__(self, response: web.StreamResponse, *, chunk: int) -> None:
        self._response = response
        self._chunk = chunk

    async def write_all(self, lines: list[bytes]) -> None:
        start = size = 0
        for at, line in enumerate(lines):
            size += len(line)
            if size > _BATCH_BYTES:
                await self.write(b"".join(lines[start : at + 1]))
                start, size = at + 1, 0
        if start < len(lines):
            await self.write(b"".join(lines[start:]))

    async def write(self, data: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            if not self._chunk:
                await self._response.write(data)
                return
            for at in range(0, len(data), self._chunk):
                await self._response.write(data[at : at + self._chunk])
                await asyncio.sleep(0)
