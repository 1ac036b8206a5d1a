"""Publishes the attribution of waiting (`core.waits`). At the start it reads back what the previous process published. The page /metrics/queues has the jobs
that wait and the seconds for which jobs waited, by queue and code."""

import asyncio
import logging
from collections import Counter
from collections.abc import Set
from typing import NoReturn

from hbox_common.bus import Bus, Delivery
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.events import WaitsAttributed
from hbox_common.insisting import insist
from hbox_common.model import QueueName
from hbox_common.reasons.codes import code_of_label
from hbox_common.telemetry.series import Counters, Family, head, lines

from ..core.waits import OTHER, Waits

log = logging.getLogger(__name__)

#: Seconds between two messages, each of one shard: all shards of a large cluster are some 10 MB, and a restart loses at most a minute of changes.
PUBLISH_EVERY_S = 1.0
#: Publications between two sums for the metric.
COUNT_EVERY = 15
#: Least seconds between two renderings of the page, and series rendered in one go.
RENDERED_S, IN_ONE_GO = 5.0, 1_000
#: Labels of the metrics; further queues, and names of queues that do not exist, count together.
MOST_QUEUES = 2_000
OTHER_QUEUES = "other"

WAITED = Family("hbox_job_wait_seconds_total", "counter", "Seconds for which jobs waited, by queue and code of the reason")
WAITING = Family(
    "hbox_queue_waiting_jobs",
    "gauge",
    "Jobs that wait, by queue, code of the reason and outcome: wait (it ends by itself), change (waiting never helps) or escalate (a fault)",
)
FAMILIES = (WAITED, WAITING)


class WaitPublisher:
    def __init__(self, bus: Bus, waits: Waits, queues: Set[QueueName]) -> None:
        """`queues`: those that exist; tenants may name any queue, so others are no labels."""
        self._bus, self._waits, self._queues = bus, waits, queues
        self._labels: set[QueueName] = set()
        self._seconds = Counters()
        self._text, self._rendered_at = b"", float("-inf")
        self._rendering = asyncio.Lock()

    async def resume(self) -> None:
        """Read what was published last; retries until the broker answers."""

        async def last() -> list[Delivery]:
            return [*await self._bus.last(WaitsAttributed, [(None,)])]

        published = await insist(
            last, on_unavailable=lambda e: log.warning("the published attribution of waiting could not be read yet: %s", e)
        )
        for one in published:
            assert isinstance(one.event, WaitsAttributed)
            self._waits.resume(one.event.waits)

    async def run(self) -> NoReturn:
        """Publish one changed shard at a time until cancelled."""
        turn = 0
        while True:
            await self._publish_next()
            turn += 1
            if turn % COUNT_EVERY == 0:
                self.count()
            await asyncio.sleep(PUBLISH_EVERY_S)

    def count(self) -> None:
        """Add up the waiting until now."""
        for queue, code, seconds in self._waits.charged(wall_s()):
            self._seconds.add((("queue", self._label(queue)), ("code", _known(code))), seconds)

    async def text(self) -> bytes:
        """The page, at most RENDERED_S old: clients cannot multiply its cost."""
        async with self._rendering:
            if monotonic_s() >= self._rendered_at + RENDERED_S:
                self._text = await self._render()
                self._rendered_at = monotonic_s()
            return self._text

    async def _render(self) -> bytes:
        self._labels &= set(self._queues)
        self._seconds.keep(lambda labels: labels[0][1] in self._labels or labels[0][1] == OTHER_QUEUES)
        self.count()
        jobs = Counter[tuple[str, str, str]]()
        for (queue, code, outcome), number in self._waits.waiting().items():
            jobs[self._label(queue), _known(code), outcome] += number
        waiting = [
            ((("queue", queue), ("code", code), ("outcome", outcome)), float(number))
            for (queue, code, outcome), number in sorted(jobs.items())
        ]
        text = []
        for family, rows in ((WAITED, self._seconds.rows()), (WAITING, waiting)):
            text.append(head(family))
            for start in range(0, len(rows), IN_ONE_GO):
                text.append(lines(family, rows[start : start + IN_ONE_GO]))
                await asyncio.sleep(0)
        return b"".join(text)

    def _label(self, queue: QueueName) -> str:
        if queue not in self._labels and queue in self._queues and queue != OTHER_QUEUES and len(self._labels) < MOST_QUEUES:
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


def _known(code: str) -> str:
    """The code of the catalogue: labels of older schedulers contain names of resources, which users may invent."""
    found = code_of_label(code)
    return found.name if found is not None else OTHER
