"""Publishes which nodes have which images, in shards: periodically, only changes."""

import asyncio
import logging
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.errors import HBoxError
from hbox_common.events import NodeImagesChanged

from ..core.images import ImageTable

log = logging.getLogger(__name__)

#: Minimum seconds between two messages of a shard: pulling an image takes minutes, and a score may be late.
EVERY_S = 30.0


class ImagePublisher:
    def __init__(self, bus: Bus, table: ImageTable) -> None:
        self._bus, self._table = bus, table
        self._complaint = ""

    async def run(self) -> NoReturn:
        """Until cancelled. To be started when the nodes are known."""
        while True:
            for shard in sorted(self._table.stale):
                await self._publish(shard)
            await asyncio.sleep(EVERY_S)

    async def _publish(self, shard: str) -> None:
        images = self._table.read(shard)
        try:
            await self._bus.publish(NodeImagesChanged(images=images), shard)
        except HBoxError as e:
            self._table.stale.add(shard)
            if str(e) != self._complaint:
                log.warning("the images of nodes cannot be published: %s", e)
            self._complaint = str(e)
        else:
            self._complaint = ""
