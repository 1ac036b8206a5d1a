"""Answers requests on the bus, and publishes the states of queues and the limits on cards."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import (
    CardQuotasChanged,
    ClaimsAsked,
    ClaimsPage,
    EpochSaid,
    Event,
    QueueStateChanged,
    UsageAsked,
    UsagePage,
)
from hbox_common.model import QueueName

from .adapters.quota_publisher import by_shard
from .adapters.statuses import StatusWriter
from .ledger import Ledger
from .views import QueueView, Views

log = logging.getLogger(__name__)

PAGE = 1000
QUEUE_WINDOW_S = 0.5
AGAIN_S = 0.5


class Publisher:
    """Publishes what the ledger knows: answers to requests, states of queues, limits on cards."""

    def __init__(self, ledger: Ledger, views: Views, bus: Bus, statuses: StatusWriter) -> None:
        self._ledger, self._views, self._bus, self._statuses = ledger, views, bus, statuses

    async def claims(self, asked: Event) -> AsyncIterator[Event]:
        """Pages of the live claims, all of one moment; of their head alone where that is asked for."""
        assert isinstance(asked, ClaimsAsked)
        if asked.head:
            state = self._ledger.state
            yield ClaimsPage(
                epoch=state.epoch,
                index=self._ledger.index,
                frozen=state.frozen,
                claims=(),
                held=state.held,
                paused=state.brake.paused,
                released=self._ledger.released or "",
            )
            return
        found = await self._views.snapshot()
        for first in range(0, max(1, len(found.claims)), PAGE):
            yield ClaimsPage(
                epoch=found.epoch,
                index=found.index,
                frozen=found.frozen,
                claims=tuple(found.claims[first : first + PAGE]),
                queues=found.queues if first == 0 else (),
                used=found.used if first == 0 else {},
                quotas=found.quotas if first == 0 else (),
                nominations=found.nominations if first == 0 else (),
                shares=found.shares if first == 0 else {},
                held=self._ledger.state.held,
            )

    async def epoch(self, _: Event) -> AsyncIterator[Event]:
        """The epoch that counts, by the database: of two ledgers that listen, both say the same."""
        yield EpochSaid(epoch=await self._views.epoch())

    async def usage(self, asked: Event) -> AsyncIterator[Event]:
        """Pages of the usage accounts."""
        assert isinstance(asked, UsageAsked)
        until = asked.until or int(wall_s()) + 1
        rows = await self._views.summed(asked.by, since=asked.since, until=until)
        for first in range(0, max(1, len(rows)), PAGE):
            budgets = tuple(self._views.budgets()) if first == 0 else ()
            yield UsagePage(usage=tuple(rows[first : first + PAGE]), budgets=budgets)

    async def publish_queues(self) -> NoReturn:
        """Publish the state of queues that changed: a last value, so that only the newest is worth sending. Their objects say it a moment later."""
        logged: dict[QueueName, tuple[str, ...]] = {}
        touched = self._ledger.touched
        while True:
            await touched.some.wait()
            try:
                views = await self._views.changed_queues()
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
                continue
            for done, view in enumerate(views):
                if not view.gone and not self._ledger.state.frozen:
                    faults = "; ".join(view.faults)
                    self._statuses.update(view.queue.name, view.total, faults=faults, stopped=view.queue.stopped)
                if view.faults != logged.get(view.queue.name, ()):
                    logged[view.queue.name] = view.faults
                    log.warning("queue %s: %s", view.queue.name, "; ".join(view.faults) or "all is well again")
                try:
                    await self._bus.publish(_state(view), view.queue.name)
                except Unavailable as e:
                    log.warning("the states of queues wait: %s", e)
                    touched.add(v.queue.name for v in views[done:])
                    break
                except InvalidRequest as e:
                    log.error("the state of queue %s cannot be published: %s", view.queue.name, e)
            await asyncio.sleep(QUEUE_WINDOW_S)

    async def publish_quotas(self) -> NoReturn:
        """Publish what ResourceQuotas say of cards: the whole of it, so that only the newest is worth sending."""
        faults: dict[tuple[str, str], str] = {}
        published: dict[str, tuple[object, object]] = {}
        changed = self._ledger.quotas_changed
        while True:
            await changed.wait()
            changed.clear()
            quotas = tuple(self._ledger.state.card_quotas)
            before, faults = faults, {(one.namespace, one.name): one.fault for one in quotas if one.fault}
            for (namespace, name), fault in faults.items():
                if before.get((namespace, name)) != fault:
                    log.warning("ResourceQuota %s of namespace %s allows no cards: %s", name, namespace, fault)
            index = self._ledger.state.index
            classes = by_shard(self._ledger.state.class_quotas.usage())
            for shard, some in by_shard(quotas).items():
                if published.get(shard) == (some, classes[shard]):
                    continue
                try:
                    await self._bus.publish(CardQuotasChanged(quotas=some, classes=classes[shard], index=index), shard)
                    published[shard] = some, classes[shard]
                except Unavailable as e:
                    log.warning("the quotas wait: %s", e)
                    changed.set()
                except InvalidRequest as e:
                    log.error("some quotas cannot be published: %s", e)
            await asyncio.sleep(QUEUE_WINDOW_S)


def _state(view: QueueView) -> QueueStateChanged:
    return QueueStateChanged(
        queue=view.queue,
        used=view.used,
        total=view.total,
        faults=view.faults,
        epoch=view.epoch,
        index=view.index,
        gone=view.gone,
        recent_cards=view.recent_cards,
        half_life_h=view.half_life_h,
    )
