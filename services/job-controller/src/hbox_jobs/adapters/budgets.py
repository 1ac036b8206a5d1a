"""Publishes to schedulers how many disruptions each PodDisruptionBudget allows."""

import asyncio
import logging
from typing import NoReturn

from hbox_common import kube
from hbox_common.bus import Bus
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import QUOTA_SHARDS, BudgetsChanged, shard_of
from hbox_common.kube.selectors import selector_of
from hbox_common.model import PodBudget

from ..core.budgets import Budgets, BudgetView

log = logging.getLogger(__name__)

#: Seconds between two messages: budgets change with every pod that starts or ends.
WINDOW_S = 0.1
RETRY_S = 1.0


def budget_view(found: kube.PodDisruptionBudget) -> BudgetView:
    """A budget as the core's value. If its selector cannot be read, the budget allows no disruptions: the API server has accepted and enforces it."""
    meta, status = found.metadata, found.status
    counted = status.observed_generation >= meta.generation
    budget = PodBudget(
        namespace=meta.namespace,
        name=meta.name,
        allowed=max(0, status.disruptions_allowed) if counted else 0,
        healthy=max(0, status.current_healthy),
        desired=max(0, status.desired_healthy),
    )
    try:
        return BudgetView(budget, selector_of(found.spec.selector))
    except ValueError as e:
        log.warning("the selector of PodDisruptionBudget %s/%s cannot be read: %s", meta.namespace, meta.name, e)
        return BudgetView(budget, None)


class BudgetTeller:
    """All of a shard in one message, whenever one differs."""

    def __init__(self, bus: Bus, budgets: Budgets) -> None:
        self._bus, self._budgets = bus, budgets
        self._moved = asyncio.Event()
        self._published: dict[str, BudgetsChanged] = {}

    def moved(self) -> None:
        """One of them is not what it was."""
        self._moved.set()

    async def run(self) -> NoReturn:
        """Until cancelled; to begin once all are known."""
        while True:
            self._moved.clear()
            if not await self._publish_changed():
                await asyncio.sleep(RETRY_S)
                continue
            await asyncio.sleep(WINDOW_S)
            await self._moved.wait()

    async def _publish_changed(self) -> bool:
        """Publish what differs from the last message. Returns whether nothing is left to publish."""
        shards: dict[str, list[PodBudget]] = {str(n): [] for n in range(QUOTA_SHARDS)}
        for budget in self._budgets.all():
            shards[shard_of(budget.namespace, QUOTA_SHARDS)].append(budget)
        for shard, budgets in shards.items():
            changed = BudgetsChanged(budgets=tuple(sorted(budgets, key=lambda one: one.key)))
            if self._published.get(shard) == changed:
                continue
            try:
                await self._bus.publish(changed, shard)
            except Unavailable as e:
                log.warning("disruption budgets are published later: %s", e)
                return False
            except InvalidRequest as e:
                log.error("disruption budgets cannot be published: %s", e)
            self._published[shard] = changed
        return True
