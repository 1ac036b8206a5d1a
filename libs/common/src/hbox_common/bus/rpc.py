"""Requests answered with pages, over core NATS.

A page is an ordinary message with the header `hbox-page: n`; the end is an empty message with `hbox-pages: count`, or `hbox-error: kind` and the text in
`hbox-message`. If there is no responder, the broker reports it at once (503). Only leaders answer. All responders receive a request, and the first answer
counts: a leader that hangs is still subscribed, and in a queue group with its successor it would receive half of the requests.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from time import perf_counter_ns
from typing import NoReturn, Self, TypeVar

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.events import Event, decode, encode, headers
from hbox_common.model.bounds import sanitized

from . import metrics
from .agreement import AGREEMENT
from .connection import NO_RESPONDERS, Connection
from .copies import is_request
from .micro import Listed
from .parts import HEADERS, emptied, parts

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Event)
P = TypeVar("P", bound=Event)

#: The error kind of a full server, in addition to `invalid`, `unavailable` and `bug`. Clients of older versions treat it as a failure.
BUSY = "busy"

PAGE, PAGES, ERROR, MESSAGE, HINT = "hbox-page", "hbox-pages", "hbox-error", "hbox-message", "hbox-hint"

#: An answer begins within milliseconds, and its pages follow each other; these are long even on a busy machine, where a page of megabytes takes a second.
SILENCE_S, BETWEEN_PAGES_S = 3.0, 6.0

#: Seconds before the first retry of a request whose answer was lost or whose server is full; doubled with each retry.
RETRY_S = 0.2

#: Requests that a server handles concurrently, and requests in its queue. If the queue is full, the server answers `BUSY`.
AT_ONCE, WAITING = 8, 64


class _Lost(Unavailable):
    """The attempt got no complete answer. A retry may: the state of the server is unknown."""


class _TooMany(Unavailable):
    """The server's request queue is full."""


class Server:
    """Answers the questions of one type."""

    def __init__(
        self, connection: Connection, request: type[R], answer: Callable[[R], AsyncIterator[Event]], listed: Listed
    ) -> None:
        self._connection, self._request, self._listed = connection, request, listed
        self._source = f"/hbox/{connection.name}/{connection.instance}"
        self._answer: Callable[[R], AsyncIterator[Event]] = answer
        self._questions: asyncio.Queue[Msg] = asyncio.Queue(WAITING)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        await self._connection.connected.wait()
        subscription = await self._connection.subscribe(self._request.subject(), self._take)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(self._work())
        finally:
            await self._connection.unsubscribe(subscription)
        raise AssertionError("answering has no end")

    async def _take(self, message: Msg) -> None:
        if not is_request(message.reply, message.headers):
            metrics.NOT_ANSWERED.labels(self._request.__name__).inc()
            log.warning("a request on %s without an inbox for its answer is ignored", message.subject)
            return
        self._listed.requests += 1
        try:
            self._questions.put_nowait(message)
        except asyncio.QueueFull:
            await self._refuse(message.reply, _TooMany("too many requests at once", hint="repeat the request"))

    async def _work(self) -> NoReturn:
        while True:
            message = await self._questions.get()
            began = perf_counter_ns()
            try:
                await self._serve(message)
            except Unavailable as e:
                log.info("an answer to %s was lost: %s", message.subject, e)
            self._listed.spent += perf_counter_ns() - began

    async def _serve(self, message: Msg) -> None:
        try:
            question = decode(message.data, message.headers or {})
            if not isinstance(question, self._request):
                raise InvalidRequest(f"{question.ce_type()} cannot be asked on {message.subject}")
            count = 0
            async with aclosing(self._answer(question)) as pages, _Presence(self._connection) as asker:  # type: ignore[type-var]  # async generators, all of them
                async for page in pages:
                    for part, body in self._bodies(page):
                        header = headers(part, source=self._source, message_id=new_id(), now=wall_s())
                        reply = await asker.watched() if count else ""
                        await self._connection.send(message.reply, body, reply=reply, headers=header | {PAGE: str(count)})
                        # A round trip a page: an answer of many pages must not fill the broker's buffer of us.
                        await self._connection.flush()
                        if asker.left:
                            log.info("the answer to %s ends: its asker has left", message.subject)
                            return
                        count += 1
            await self._connection.send(message.reply, headers={PAGES: str(count)})
        except Unavailable as e:
            await self._refuse(message.reply, e)
        except Exception as e:  # one question must not end the service
            if not isinstance(e, InvalidRequest):
                log.exception("answering %s failed", message.subject)
            await self._refuse(message.reply, e)

    def _bodies(self, page: Event) -> Iterator[tuple[Event, bytes]]:
        """One page, or several if it is too large. An item too large for any page is left out, so that the client receives the others."""
        refused: list[InvalidRequest] = []
        yield from parts(page, self._connection.max_payload - HEADERS, lambda _, why: refused.append(why))
        for why in refused:
            metrics.UNSENDABLE.labels(type(page).__name__).inc()
            log.error("an answer lacks an item that no page can carry: %s", why)
        if refused:
            rest = emptied(page)
            yield rest, encode(rest)

    async def _refuse(self, reply: str, error: Exception) -> None:
        kinds = ((_TooMany, BUSY), (Unavailable, "unavailable"), (InvalidRequest, "invalid"))
        kind = next((kind for error_type, kind in kinds if isinstance(error, error_type)), "bug")
        text = error.message if isinstance(error, HBoxError) else f"{type(error).__name__}"
        hint = error.hint if isinstance(error, HBoxError) else "see the log of the service that was asked"
        self._listed.failed(f"{kind}: {text}")
        await self._connection.send(reply, headers={ERROR: kind, MESSAGE: sanitized(text), HINT: sanitized(hint)})


class _Presence:
    """Whether the asker still listens: an answer is not computed to its end for one that has given up, or has asked again. The broker reports a message with a
    reply subject that no client receives (503)."""

    def __init__(self, connection: Connection) -> None:
        self.left = False
        self._connection = connection
        self._inbox = ""
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._subscription is not None:
            await self._connection.unsubscribe(self._subscription)

    async def watched(self) -> str:
        """The reply subject for the next page."""
        if self._subscription is None:
            self._inbox = self._connection.new_inbox()
            self._subscription = await self._connection.listen(self._inbox, self._take)
        return self._inbox

    def _take(self, message: Msg) -> None:
        self.left |= (message.headers or {}).get("Status") == NO_RESPONDERS


async def ask(
    connection: Connection,
    request: Event,
    page: type[P],
    *,
    timeout_s: float,
    on_page: Callable[[int, P], Awaitable[None]] | None = None,
    keep_items: bool = True,
) -> list[P]:
    """All pages of the answer, in order. A partial answer is never returned. `on_page` is awaited for each page and its number when it arrives; number 0
    again: an earlier answer broke off and is void. `keep_items`: False drops the items of each page after that, so that an answer with 100,000 of them is never
    in memory as a whole.

    All requests are reads, so that a repetition is safe. The client repeats the request if no answer begins within SILENCE_S (a server that dies loses the
    requests it holds; the wait doubles with each repetition), if the connection or a page was lost, and if the server is full.
    Raises Unavailable if no server answers, or none answers completely within `timeout_s`; InvalidRequest if the server rejects the request.
    """
    started = monotonic_s()
    servers = " or ".join(request.about.readers)
    silence_s, retry_s = SILENCE_S, RETRY_S
    lost: Unavailable | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                await connection.connected.wait()
                try:
                    pages = await _ask_once(
                        connection, request, page, servers, silence_s, on_page=on_page, keep_items=keep_items
                    )
                except (_Lost, _TooMany) as e:
                    lost = e
                    await asyncio.sleep(retry_s)
                    retry_s *= 2
                    continue
                if pages is not None:
                    return pages
                silence_s *= 2
    except TimeoutError as e:
        if lost is not None:
            raise Unavailable(
                f"{lost.message}; no attempt within {monotonic_s() - started:.1f} s was answered", hint=lost.hint
            ) from e
        where = f"{servers} has not answered" if connection.connected.is_set() else "the broker was not reachable"
        raise Unavailable(
            f"{request.subject()}: {where} within {monotonic_s() - started:.1f} s", hint=f"is {servers} running and ready?"
        ) from e


async def _ask_once(
    connection: Connection,
    request: Event,
    page: type[P],
    servers: str,
    silence_s: float,
    *,
    on_page: Callable[[int, P], Awaitable[None]] | None,
    keep_items: bool,
) -> list[P] | None:
    """None: no answer began for `silence_s`, or one broke off."""
    pages: list[P] = []
    came: asyncio.Queue[Msg | None] = asyncio.Queue()

    async def take(message: Msg) -> None:
        came.put_nowait(message)

    unwatch = connection.watch(lambda: came.put_nowait(None))
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox, take)
    try:
        header = headers(request, source=f"hbox/{connection.name}", message_id=new_id(), now=wall_s())
        try:
            await connection.send(request.subject(), encode(request), reply=inbox, headers=header)
        except Unavailable as e:
            raise _Lost(e.message, hint=e.hint) from e
        while True:
            try:
                async with asyncio.timeout(max(silence_s, BETWEEN_PAGES_S) if pages else silence_s):
                    message = await came.get()
            except TimeoutError:
                return None
            if message is None:
                raise _Lost("the connection to the broker was lost before the answer was complete", hint="repeat the request")
            if _ended(message, pages, page, servers):
                return pages
            if on_page is not None:
                await on_page(len(pages) - 1, pages[-1])
            if not keep_items:
                pages[-1] = emptied(pages[-1])
            await asyncio.sleep(0)  # pages that lie there already are got without a wait, and each takes milliseconds to read
    finally:
        unwatch()
        await connection.unsubscribe(subscription)


def _ended(message: Msg, pages: list[P], page: type[P], servers: str) -> bool:
    def left_out(reason: str) -> None:
        metrics.UNREADABLE.labels(page.__name__).inc()
        log.error("%s answered with something that cannot be read, which is left out: %s", servers, reason)

    header = message.headers or {}
    if header.get("Status") == NO_RESPONDERS and not message.data:
        raise Unavailable(f"{servers} does not answer: no process is subscribed", hint=f"is {servers} running?")
    if kind := header.get(ERROR):
        text, hint = header.get(MESSAGE, ""), header.get(HINT, "")
        if kind == "invalid":
            raise InvalidRequest(text, hint=hint)
        if kind == BUSY:
            raise _TooMany(f"{servers}: {text}", hint=hint)
        if kind == "unavailable":
            raise Unavailable(f"{servers}: {text}", hint=hint)
        raise Unavailable(f"{servers} failed to answer: {text}", hint=hint)
    if count := header.get(PAGES):
        if int(count) != len(pages):
            raise _Lost(f"{servers}: {len(pages)} of {count} pages arrived", hint="repeat the request")
        return True
    AGREEMENT.observe(header, wall_s())
    try:
        event = decode(message.data, header, set_aside=left_out)
    except InvalidRequest as e:
        raise Unavailable(f"{servers}: page {len(pages)} cannot be read: {e.message}", hint="is it of the same version?") from e
    if not isinstance(event, page) or header.get(PAGE) != str(len(pages)):
        raise _Lost(
            f"{servers}: page {len(pages)} was expected, page {header.get(PAGE)} of {event.ce_type()} arrived",
            hint="repeat the request",
        )
    pages.append(event)
    return False
