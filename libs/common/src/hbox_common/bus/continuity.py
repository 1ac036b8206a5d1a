"""Whether a stream dropped messages before their reader had them, while both live.

A stream that is full, or whose messages are too old, drops the oldest, read or not. Its reader goes on with what is left, and nothing in what it is
delivered tells of that: numbers have holes wherever a filter passes others' messages over. What tells is the stream's first number. `complete`: all of ours
up to there were delivered. While the stream begins at `complete` + 1 or before, nothing behind it was dropped, so that the place which the consumer had come
to before that look is the next `complete`; one with nothing pending had come to wherever the stream ended at the look before. A stream that begins
later has dropped something unread, or would have to have been filled anew within two looks: then whoever reads is told.

That is evidence whoever writes, whatever is filtered, de-duplicated or sent out of order, and needs nothing of writers. Streams of last values drop nothing.
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

#: Between two looks. Within two of them nobody fills a stream of ours.
LOOK_S = 1.0


class Continuity:
    """Of one reader."""

    def __init__(self, connection: Connection, stream: Stream, tell: Callable[[], Awaitable[None]]) -> None:
        self._connection, self._stream, self._tell = connection, stream, tell
        self.complete = 0
        self._consumer, self._created = "", ""
        self._last = 0  #: where the stream ended at the last look

    def begin(self, consumer: str, *, created: str, complete: int) -> None:
        """A consumer reads what follows `complete` of the stream made at `created`."""
        self._consumer, self._created = consumer, created
        self.complete = self._last = complete

    def pause(self) -> None:
        """Nobody reads now."""
        self._consumer = ""

    async def run(self) -> NoReturn:
        """Until cancelled. Raises what `tell` raises but Unavailable."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._consumer or not self._connection.connected.is_set():
                continue
            try:
                missed = await self._look(self._consumer)
                if missed:
                    metrics.GAPS.labels(self._stream.value).inc()
                    log.warning("%s: messages were dropped before they were read: %s", self._stream.value, missed)
                    await self._tell()
            except (Unavailable, StreamApiError) as e:
                log.debug("%s: %s", self._stream.value, e)  # whoever reads finds out, and begins anew

    async def _look(self, consumer: str) -> str:
        """What was missed; empty where nothing was."""
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
