"""Publishes the number of PodGroups per queue to the ledger, which writes the statuses of queues."""

import asyncio
import logging
from collections.abc import Mapping
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import COUNT_SHARDS, GroupCounts, PodGroupsCounted, shard_of
from hbox_common.model import QueueName

from ..core.groupcounts import PhaseCounts
from ..core.views import GroupPhase, GroupView

log = logging.getLogger(__name__)

#: Between two messages.
WINDOW_S = 1.0
#: Seconds after which they are published again, in case messages were lost.
AGAIN_S = 60.0
#: Of one message, each with a name of 253 bytes.
MOST_QUEUES = 10_000


class CountsTeller:
    """Counts from the first PodGroup on; publishes from `run` on, which starts once all PodGroups are known."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._counts = PhaseCounts()
        self._moved = asyncio.Event()
        self._published: dict[str, PodGroupsCounted] = {}  #: by shard

    def put(self, group: GroupView) -> None:
        if self._counts.put(group):
            self._moved.set()

    def gone(self, group: GroupView) -> None:
        if self._counts.gone(group):
            self._moved.set()

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            self._moved.clear()
            await self._publish_changed()
            await asyncio.sleep(WINDOW_S)
            try:
                async with asyncio.timeout(AGAIN_S):
                    await self._moved.wait()
            except TimeoutError:
                self._published.clear()  # time to say it again

    async def _publish_changed(self) -> None:
        """Publish what differs from the last message."""
        for shard, counted in self._by_shard().items():
            if self._published.get(shard) == counted:
                continue
            try:
                await self._bus.publish(counted, shard)
            except Unavailable as e:
                log.warning("PodGroup counts of queues are published later: %s", e)
                self._moved.set()
            except InvalidRequest as e:
                log.error("PodGroup counts of queues cannot be published: %s", e)
            else:
                self._published[shard] = counted

    def _by_shard(self) -> dict[str, PodGroupsCounted]:
        """Anybody may name any queue: of more than MOST_QUEUES in a shard those with the fewest PodGroups are left out."""
        shards: dict[str, dict[QueueName, Mapping[GroupPhase, int]]] = {str(n): {} for n in range(COUNT_SHARDS)}
        for queue, phases in self._counts.by_queue().items():
            shards[shard_of(queue, COUNT_SHARDS)][queue] = phases
        for shard, queues in shards.items():
            if len(queues) > MOST_QUEUES:
                log.warning(
                    "PodGroups name %d queues: the statuses of some queues have no PodGroup counts", len(queues) * COUNT_SHARDS
                )
                largest = sorted(queues, key=lambda queue: -sum(queues[queue].values()))[:MOST_QUEUES]
                shards[shard] = {queue: queues[queue] for queue in largest}
        return {
            shard: PodGroupsCounted(
                queues={
                    queue: GroupCounts(**{phase.value.lower(): count for phase, count in phases.items()})
                    for queue, phases in queues.items()
                }
            )
            for shard, queues in shards.items()
        }
