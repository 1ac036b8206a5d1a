"""Detects messages that a stream dropped before a live reader received them.

A full stream, or one whose messages are too old, drops the oldest messages, read or not. Its reader continues with the remaining ones and cannot see the loss
from the sequence numbers it receives: a filter leaves holes in them as well. The stream's first sequence number shows the loss. All our messages up to
`complete` were delivered. While the stream begins at or before `complete` + 1, no unread message was dropped, and the position that the consumer had reached
before this check becomes the next `complete`; the position of a consumer without pending messages is the stream's end at the previous check. If the stream
begins later, it dropped unread messages (or was filled completely within two checks), and the reader is notified.

The check depends neither on writers nor on filters, de-duplication or message order. Streams of last values drop nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from hbox_common.errors import Unavailable
from hbox_common.events import Stream

from . import metrics, sizes
from .connection import Connection
from .errors import StreamApiError

log = logging.getLogger(__name__)

#: Seconds between two checks; no stream can be filled completely within two of them.
LOOK_S = 1.0


class Continuity:
    """Of one reader."""

    def __init__(self, connection: Connection, stream: Stream, on_gap: Callable[[], Awaitable[None]]) -> None:
        self._connection, self._stream, self._on_gap = connection, stream, on_gap
        self.complete = 0
        self._consumer, self._created = "", ""
        self._last = 0  #: where the stream ended at the last look

    def begin(self, consumer: str, *, created: str, complete: int) -> None:
        """A consumer reads what follows `complete` of the stream made at `created`."""
        self._consumer, self._created = consumer, created
        self.complete = self._last = complete

    def pause(self) -> None:
        """No consumer reads at present."""
        self._consumer = ""

    async def run(self) -> NoReturn:
        """Runs until cancelled. Raises the callback's exceptions except Unavailable."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._consumer or not self._connection.connected.is_set():
                continue
            try:
                missed = await self._look(self._consumer)
                if missed:
                    metrics.GAPS.labels(self._stream.value).inc()
                    log.warning("%s: messages were dropped before they were read: %s", self._stream.value, missed)
                    await self._on_gap()
            except (Unavailable, StreamApiError) as e:
                log.debug("%s: %s", self._stream.value, e)  # the reader detects the same error and starts again

    async def _look(self, consumer: str) -> str:
        """Describes the loss; empty if nothing was missed."""
        reached = self.complete
        if self._last > self.complete:  # else there was nothing to come to
            info = await self._connection.api(f"CONSUMER.INFO.{self._stream.value}.{consumer}")
            reached = max(reached, int(info["delivered"]["stream_seq"]))
            if int(info["num_pending"]) == 0:
                reached = max(reached, self._last)
        info = await self._connection.api(f"STREAM.INFO.{self._stream.value}")
        if consumer != self._consumer or info["created"] != self._created:
            return ""
        sizes.note(self._stream, info)
        first, self._last = int(info["state"]["first_seq"]), int(info["state"]["last_seq"])
        missed = ""
        if first > self.complete + 1:
            missed = f"it begins at {first}, and had been read to {self.complete}"
        self.complete = max(reached, first - 1)
        return missed
