"""Messages of a pull consumer, requested and received on an inbox of this module.

PullSubscription.fetch stalls for seconds after an empty fetch, and does not repeat a pending fetch after a reconnect (nats.py #986; sources: nats-py-fetch).
Here pulls overlap: a new one is sent while up to a batch of the previous one is pending, so that the broker can always deliver at once. At most two batches,
and two times MAX_BYTES, are requested or buffered. A reader of single messages requests the next one only when it takes it: a prefetched message would wait
behind the one in progress while other readers of the consumer are idle.

A pull subscription lasts as long as its connection. If the connection is lost, the consumer is deleted, or the broker misses its heartbeats, `take` raises
Broken: the owner examines the stream and creates a new one.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from types import TracebackType

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hbox_common.clock import monotonic_s
from hbox_common.events import Stream

from .connection import Connection
from .delivery import Raw
from .errors import Broken

log = logging.getLogger(__name__)

EXPIRES_S = 60.0
HEARTBEAT_S = 2.0
SILENCE_S = 2.5 * HEARTBEAT_S

#: Of one pull. Larger than the largest message: one that did not fit would never be delivered.
MAX_BYTES = 16 * 2**20


class Pull:
    """An async context manager around one inbox."""

    def __init__(self, connection: Connection, stream: Stream, consumer: str, *, batch: int) -> None:
        self._connection, self._batch = connection, batch
        self._where, self._consumer = f"$JS.API.CONSUMER.MSG.NEXT.{stream.value}.{consumer}", f"{stream.value}.{consumer}"
        self._request = json.dumps(
            {
                "batch": batch,
                "max_bytes": MAX_BYTES,
                "expires": int(EXPIRES_S * 1e9),
                "idle_heartbeat": int(HEARTBEAT_S * 1e9),
            }
        ).encode()
        self._epoch = connection.epoch
        self._inbox = connection.new_inbox()
        self._buffer: deque[Raw] = deque()
        self._asked = 0
        self._received_at = monotonic_s()
        self._why = ""
        self._wake = asyncio.Event()
        self._subscription: Subscription | None = None
        self._unwatch: Callable[[], None] | None = None

    async def __aenter__(self) -> "Pull":
        self._unwatch = self._connection.watch(self._wake.set)
        try:
            self._subscription = await self._connection.listen(self._inbox, self._on_message)
            await self._ask()
            # A pull of a deleted consumer gets no answer; this request fails at once if the consumer does not exist.
            await self._connection.api(f"CONSUMER.INFO.{self._consumer}")
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
        if self._subscription is not None:
            await self._connection.unsubscribe(self._subscription)

    @property
    def broken(self) -> str:
        """Why nothing will come any more; empty while something may."""
        if self._epoch != self._connection.epoch or not self._connection.connected.is_set():
            return "the connection was lost"
        return self._why

    @property
    def waiting(self) -> tuple[Raw, ...]:
        """What has come and was not taken yet."""
        return tuple(self._buffer)

    async def take(self, count: int, *, timeout_s: float | None = None) -> list[Raw]:
        """Up to `count` messages, as soon as there is one; none when `timeout_s` is over. Raises Broken."""
        deadline = None if timeout_s is None else monotonic_s() + timeout_s
        while not self._buffer:
            if why := self.broken:
                raise Broken(why)
            await self._ask()
            self._wake.clear()
            now = monotonic_s()
            if self._asked and now - self._received_at > SILENCE_S:
                raise Broken(f"the broker was silent for {now - self._received_at:.0f} s")
            if deadline is not None and now >= deadline:
                return []
            until_s = HEARTBEAT_S if deadline is None else min(HEARTBEAT_S, deadline - now)
            try:
                async with asyncio.timeout(until_s):
                    await self._wake.wait()
            except TimeoutError:
                pass  # to look at the clock
        taken = [self._buffer.popleft() for _ in range(min(count, len(self._buffer)))]
        if not self.broken and self._batch > 1:
            await self._ask()
        return taken

    async def _ask(self) -> None:
        if self._asked + len(self._buffer) > (self._batch if self._batch > 1 else 0):
            return
        if not self._asked:
            self._received_at = monotonic_s()
        self._asked += self._batch
        await self._connection.send(self._where, self._request, reply=self._inbox)

    def _on_message(self, message: Msg) -> None:
        self._received_at = monotonic_s()
        raw = Raw.of(message)
        if raw is not None:
            self._asked -= 1
            self._buffer.append(raw)
            self._wake.set()
            return
        header = message.headers or {}
        status, text = header.get("Status", ""), header.get("Description", "")
        if status == "100":  # a heartbeat
            return
        left = header.get("Nats-Pending-Messages")
        if (
            status in ("408", "409") and left is not None
        ):  # this pull ended: its time is over, or the next message is above its max_bytes
            self._asked = max(0, self._asked - int(left))
        else:
            self._why = f"{status} {text}".strip()
        self._wake.set()
