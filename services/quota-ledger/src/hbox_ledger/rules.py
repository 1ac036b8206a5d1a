"""Watches Queue and ResourceQuota objects and passes their rules to the ledger."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.kube import QUEUES, RESOURCEQUOTAS, Delta, Freshness, Informer, KubeClient, ResourceQuota
from hbox_common.kube import Queue as QueueObject
from hbox_common.kube.definitions import QUEUE
from hbox_common.kube.queues import closed, queue_of
from hbox_common.kube.unknownfields import SpecFields
from hbox_common.model import DEFAULT_QUEUE, Queue, QueueName
from hbox_common.model.annotations import EVICTIONS_RELEASED
from hbox_common.model.bounds import sanitized
from hbox_common.runtime import Condition

from .adapters.quota_publisher import QuotaPublisher
from .adapters.quotas import card_quota, class_quota
from .adapters.statuses import StatusWriter
from .ledger import Ledger

log = logging.getLogger(__name__)

QUOTA_WINDOW_S = 0.25
REPEAT_S = 1.0
TRY_AGAIN_S = 0.5
AT_ONCE = 256  #: queues whose rules are written in one turn, at most: some tens of milliseconds
LONGEST_WORD = 64  #: with which evictions are released: a time, as `hbox` writes it


class Rules:
    """Follows Queue and ResourceQuota objects."""

    def __init__(
        self, kube: KubeClient, ledger: Ledger, statuses: StatusWriter, quotas: QuotaPublisher, *, bound: bool = False
    ) -> None:
        """bound: queues are closed to namespaces that are not bound to them."""
        self._bound = bound
        self.read = asyncio.Event()  #: all that there are were handed to the ledger
        self._ledger, self._statuses, self._teller = ledger, statuses, quotas
        self._queues = Informer(kube, QUEUES, QueueObject, enrich=SpecFields(QUEUE).note)
        self._quotas = Informer(kube, RESOURCEQUOTAS, ResourceQuota, window_s=QUOTA_WINDOW_S)

    async def run(self, condition: Condition) -> None:
        """Until cancelled. `condition` is good once all rules were read, and while they are seen."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queues.run(self._on_queues))
            tasks.create_task(self._quotas.run(self._on_quotas))
            await self._keep(condition)

    async def _on_queues(self, deltas: Sequence[Delta[QueueObject]]) -> None:
        changed: dict[QueueName, Queue] = {}
        for delta in deltas:
            if delta.new is None:
                assert delta.old is not None
                await self._set(changed)
                self._statuses.gone(QueueName(delta.old.metadata.name))
                await _insist(partial(self._ledger.drop_queue, QueueName(delta.old.metadata.name)))
                continue
            self._statuses.seen(delta.new)
            if delta.new.metadata.name == DEFAULT_QUEUE:
                word = sanitized(delta.new.metadata.annotations.get(EVICTIONS_RELEASED, ""), LONGEST_WORD)
                await _insist(partial(self._ledger.release_evictions, word))
            try:
                queue = queue_of(delta.new, bound=self._bound)
            except InvalidRequest as e:
                queue = closed(delta.new, e.message)
            changed[queue.name] = queue
            if len(changed) >= AT_ONCE:
                await self._set(changed)
        await self._set(changed)

    async def _set(self, changed: dict[QueueName, Queue]) -> None:
        """Hand these rules on, which leaves none."""
        if changed:
            await _insist(partial(self._ledger.set_queues, *changed.values()))
            changed.clear()

    async def _on_quotas(self, _: Sequence[Delta[ResourceQuota]]) -> None:
        found = [quota for one in self._quotas.store.values() if (quota := card_quota(one)) is not None]
        classes = [limit for one in self._quotas.store.values() if (limit := class_quota(one)) is not None]
        self._ledger.limit(found, classes)
        self._teller.put(self._quotas.store.values())

    async def _keep(self, condition: Condition) -> NoReturn:
        """Wait for all rules, and drop the queues that were deleted while no ledger ran; then report whether the objects are seen."""
        watched: tuple[tuple[str, Informer[Any]], ...] = (("queues", self._queues), ("resourcequotas", self._quotas))
        for what, informer in watched:
            while not informer.synced.is_set():
                condition.bad(informer.last_error or f"reading {what} from Kubernetes")
                try:
                    async with asyncio.timeout(REPEAT_S):
                        await informer.synced.wait()
                except TimeoutError:
                    pass  # state again what it waits for
        there = {queue.metadata.name for queue in self._queues.store.values()}
        for name in [name for name in self._ledger.state.queues if name not in there]:
            await _insist(partial(self._ledger.drop_queue, name))
        condition.ok()
        self.read.set()
        while True:
            await asyncio.sleep(REPEAT_S)
            wrong = [f"{what}: {_complaint(seen)}" for what, one in watched if _complaint(seen := one.freshness())]
            if wrong:
                condition.bad("; ".join(wrong))
            else:
                condition.ok()


def _complaint(seen: Freshness) -> str:
    return f"last seen {seen.age_s:.0f} s ago{f', {seen.why}' if seen.why else ''}" if seen.old else ""


async def _insist(act: Callable[[], Awaitable[None]]) -> None:
    """Do it, however long the database is away: an informer hands each change on once."""
    while True:
        try:
            return await act()
        except Unavailable as e:
            log.warning("a queue waits: %s", e)
            await asyncio.sleep(TRY_AGAIN_S)
