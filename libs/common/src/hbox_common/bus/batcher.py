"""Lead-edge batching: the first item is sent at once; items that arrive within a window after it are sent together.

A lone event is not delayed; a burst costs one message every 10 ms (every 25 ms while it lasts) instead of one per item (measured; sources: pipeline-prototype).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NoReturn, Protocol, TypeVar

from hbox_common.clock import monotonic_s, new_id
from hbox_common.errors import InvalidRequest
from hbox_common.events import Event
from hbox_common.insisting import insist

log = logging.getLogger(__name__)

T = TypeVar("T")

WINDOW_S = 0.010
BACKLOG_WINDOW_S = 0.025
MAX_ITEMS = 512
CLOSE_S = 3.0


class Publish(Protocol):
    """`Bus.publish`."""

    async def __call__(self, event: Event, *keys: str, message_id: str | None = None) -> None: ...


class LeadEdgeBatcher(Generic[T]):
    """Publishes items as `make(items)`; `run()` is the task that publishes.

    If the message of a batch is too large, the batch is halved; if a single item is too large, it is logged and rejected. The caller bounds the number of
    pending items.
    """

    def __init__(
        self,
        publish: Publish,
        make: Callable[[Sequence[T]], Event],
        *keys: str,
        window_s: float = WINDOW_S,
        backlog_window_s: float = BACKLOG_WINDOW_S,
        max_items: int = MAX_ITEMS,
    ) -> None:
        self._publish, self._make, self._keys = publish, make, keys
        self._window_s, self._backlog_window_s, self._max_items = window_s, backlog_window_s, max_items
        self._waiting: deque[tuple[T, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()

    def hand_in(self, item: T) -> "asyncio.Future[None]":
        """Done when JetStream has stored the item's batch; InvalidRequest in it when the item is too large. No task waits for it: one of these for each
        item costs more than to publish it."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, stored))
        self._wake.set()
        return stored

    async def run(self) -> NoReturn:
        """Until cancelled; what waits is then sent within CLOSE_S, or is lost."""
        batch: list[tuple[T, asyncio.Future[None]]] = []
        try:
            while True:
                self._wake.clear()
                if not self._waiting:
                    await self._wake.wait()
                started = monotonic_s()
                batch = self._next()
                await self._send(batch)
                # Two within a window: more are coming.
                window_s = self._backlog_window_s if len(batch) > 1 else self._window_s
                batch = []
                await asyncio.sleep(started + window_s - monotonic_s())
        finally:
            await self._close(batch)

    def _next(self) -> "list[tuple[T, asyncio.Future[None]]]":
        return [self._waiting.popleft() for _ in range(min(self._max_items, len(self._waiting)))]

    async def _send(self, batch: "list[tuple[T, asyncio.Future[None]]]") -> None:
        message_id = new_id()
        event = self._make([item for item, _ in batch])
        try:
            await insist(
                lambda: self._publish(event, *self._keys, message_id=message_id),
                on_unavailable=lambda e: log.warning("%s: %d items wait: %s", type(event).__name__, len(batch), e),
            )
        except InvalidRequest as e:
            if len(batch) > 1:
                await self._send(batch[: len(batch) // 2])
                await self._send(batch[len(batch) // 2 :])
                return
            log.error("%s: an item cannot be published: %s", type(event).__name__, e)
            _settle(batch, e)
        else:
            _settle(batch, None)

    async def _close(self, batch: "list[tuple[T, asyncio.Future[None]]]") -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                while batch or self._waiting:
                    await self._send(batch or self._next())
                    batch = []
        except TimeoutError:
            log.warning("%d items were not published before the end", len(batch) + len(self._waiting))


def _settle(batch: "Sequence[tuple[T, asyncio.Future[None]]]", error: Exception | None) -> None:
    for _, stored in batch:
        if stored.done():
            continue
        if error is None:
            stored.set_result(None)
        else:
            stored.set_exception(error)
