"""Tells the ledger how many PodGroups each queue has: it writes the statuses of queues."""

import asyncio
import logging
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.errors import Unavailable
from hbox_common.events import GroupCounts, PodGroupsCounted

from ..core.groupcounts import PhaseCounts
from ..core.views import GroupView
from .announcer import SHARD

log = logging.getLogger(__name__)

#: Between two messages.
WINDOW_S = 1.0
#: After so long they are told again, whatever was lost.
AGAIN_S = 60.0


class CountsTeller:
    """Counts from the first PodGroup on; tells from `run` on, which is to begin once all are known."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._counts = PhaseCounts()
        self._moved = asyncio.Event()

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
            try:
                await self._bus.publish(self._said(), SHARD)
            except Unavailable as e:
                log.warning("how many PodGroups queues have is told later: %s", e)
                self._moved.set()
            await asyncio.sleep(WINDOW_S)
            try:
                async with asyncio.timeout(AGAIN_S):
                    await self._moved.wait()
            except TimeoutError:
                pass  # time to say it again

    def _said(self) -> PodGroupsCounted:
        return PodGroupsCounted(
            queues={
                queue: GroupCounts(**{phase.value.lower(): count for phase, count in phases.items()})
                for queue, phases in self._counts.by_queue().items()
            }
        )
