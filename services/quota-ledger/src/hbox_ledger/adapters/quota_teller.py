"""Tells schedulers what namespaces may ask for and have asked for: the gate of a policy with the plugin `resourcequota` goes by it."""

import asyncio
import logging
from collections.abc import Iterable
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.errors import Unavailable
from hbox_common.events import NamespaceQuotasChanged
from hbox_common.kube import ResourceQuota as QuotaObject

from .quotas import amounts_of

log = logging.getLogger(__name__)

SHARD = "0"
#: Between two messages: what is used changes with every pod.
WINDOW_S = 0.5


class QuotaTeller:
    """All of them in one message, whenever one differs."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._quotas = NamespaceQuotasChanged(quotas=())
        self._moved = asyncio.Event()

    def put(self, quotas: Iterable[QuotaObject]) -> None:
        """All that there are now."""
        found = (amounts for one in quotas if (amounts := amounts_of(one)) is not None)
        said = NamespaceQuotasChanged(quotas=tuple(sorted(found, key=lambda one: (one.namespace, one.name))))
        if said != self._quotas:
            self._quotas = said
            self._moved.set()

    async def run(self, read: asyncio.Event) -> NoReturn:
        """Until cancelled; from when all were read, which `read` says."""
        await read.wait()
        while True:
            self._moved.clear()
            try:
                await self._bus.publish(self._quotas, SHARD)
            except Unavailable as e:
                log.warning("what namespaces may ask for is told later: %s", e)
                self._moved.set()
            await asyncio.sleep(WINDOW_S)
            await self._moved.wait()
