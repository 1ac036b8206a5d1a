"""Publishes the attribution of waiting (`core.waits`) and counts it by queue. At the start it reads back what the previous process published."""

import asyncio
import logging
from collections.abc import Container
from typing import NoReturn

from hbox_common.bus import Bus, Delivery
from hbox_common.clock import wall_s
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.events import WaitsAttributed
from hbox_common.insisting import insist
from hbox_common.model import QueueName
from hbox_common.telemetry.series import Family, head, lines

from ..core.waits import Waits

log = logging.getLogger(__name__)

#: Seconds between two messages, each of one shard: all shards of a large cluster are some 10 MB, and a restart loses at most a minute of changes.
PUBLISH_EVERY_S = 1.0
FAMILY = Family("hbox_job_wait_seconds_total", "counter", "Seconds for which jobs waited, by queue and code of the reason")
#: Labels of the metric; further queues, and names of queues that do not exist, count together.
MOST_QUEUES = 2_000
OTHER_QUEUES = "other"


class WaitPublisher:
    def __init__(self, bus: Bus, waits: Waits, queues: Container[QueueName]) -> None:
        """`queues`: those that exist; tenants may name any queue, so others are no labels."""
        self._bus, self._waits, self._queues = bus, waits, queues
        self._labels: set[QueueName] = set()
        self._seconds: dict[tuple[str, str], float] = {}  #: by label of the queue and code

    async def resume(self) -> None:
        """Read what was published last; retries until the broker answers."""

        async def last() -> list[Delivery]:
            return [*await self._bus.last(WaitsAttributed, [(None,)])]

        try:
            published = await insist(
                last, on_unavailable=lambda e: log.warning("the published attribution of waiting could not be read yet: %s", e)
            )
        except InvalidRequest as e:
            log.warning("the published attribution of waiting cannot be read: %s", e)
        else:
            for one in published:
                assert isinstance(one.event, WaitsAttributed)
                self._waits.resume(one.event.waits)

    async def run(self) -> NoReturn:
        """Publish one changed shard at a time until cancelled."""
        while True:
            await self._publish_next()
            await asyncio.sleep(PUBLISH_EVERY_S)

    async def text(self) -> bytes:
        """The metric, for the page /metrics/queues: it has names of queues."""
        for queue, code, seconds in self._waits.charged(wall_s()):
            key = self._label(queue), code
            self._seconds[key] = self._seconds.get(key, 0.0) + seconds
        rows = (((("queue", queue), ("code", code)), seconds) for (queue, code), seconds in sorted(self._seconds.items()))
        return head(FAMILY) + lines(FAMILY, rows)

    def _label(self, queue: QueueName) -> str:
        if queue not in self._labels and queue in self._queues and len(self._labels) < MOST_QUEUES:
            self._labels.add(queue)
        return queue if queue in self._labels else OTHER_QUEUES

    async def _publish_next(self) -> None:
        if (taken := self._waits.take(wall_s())) is None:
            return
        shard, waits = taken
        try:
            await self._bus.publish(WaitsAttributed(waits=waits), shard)
        except InvalidRequest as e:
            log.error("the attribution of waiting of shard %s cannot be published: %s", shard, e)
        except HBoxError as e:
            log.warning("the attribution of waiting of shard %s is published later: %s", shard, e)
            self._waits.retry(shard)
