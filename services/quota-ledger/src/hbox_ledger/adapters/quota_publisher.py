"""Publishes namespaces' quotas of requests and their usage to schedulers: the `resourcequota` plugin's `enqueue` uses them."""

import asyncio
import logging
from collections.abc import Iterable
from typing import NoReturn, TypeVar

from hbox_common.bus import Bus
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import QUOTA_SHARDS, NamespaceQuotasChanged, shard_of
from hbox_common.kube import ResourceQuota as QuotaObject
from hbox_common.model import CardQuota, ClassQuota, ResourceQuota

from .quotas import amounts_of

log = logging.getLogger(__name__)

Q = TypeVar("Q", ResourceQuota, CardQuota, ClassQuota)

#: Between two messages: what is used changes with every pod.
WINDOW_S = 0.5


def by_shard(quotas: Iterable[Q]) -> dict[str, tuple[Q, ...]]:
    """Quotas by the shards of their namespaces, all shards among them, in the order of the namespaces."""
    shards: dict[str, list[Q]] = {str(n): [] for n in range(QUOTA_SHARDS)}
    for quota in quotas:
        shards[shard_of(quota.namespace, QUOTA_SHARDS)].append(quota)
    return {shard: tuple(sorted(some, key=lambda one: (one.namespace, one.name))) for shard, some in shards.items()}


class QuotaPublisher:
    """All of a shard in one message, whenever one differs."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._quotas: list[ResourceQuota] = []
        self._published: dict[str, NamespaceQuotasChanged] = {}
        self._moved = asyncio.Event()

    def put(self, quotas: Iterable[QuotaObject]) -> None:
        """All that there are now."""
        found = [amounts for one in quotas if (amounts := amounts_of(one)) is not None]
        if found != self._quotas:
            self._quotas = found
            self._moved.set()

    async def run(self, read: asyncio.Event) -> NoReturn:
        """Publish until cancelled; starts once all quotas were read, which `read` signals."""
        await read.wait()
        while True:
            self._moved.clear()
            for shard, some in by_shard(self._quotas).items():
                await self._publish(shard, NamespaceQuotasChanged(quotas=some))
            await asyncio.sleep(WINDOW_S)
            await self._moved.wait()

    async def _publish(self, shard: str, event: NamespaceQuotasChanged) -> None:
        if self._published.get(shard) == event:
            return
        try:
            await self._bus.publish(event, shard)
        except Unavailable as e:
            log.warning("namespace quotas are published later: %s", e)
            self._moved.set()
        except InvalidRequest as e:
            log.error("quotas of some namespaces cannot be published: %s", e)
        else:
            self._published[shard] = event
