"""Pods with cards, by the claims of quota-ledger."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from hbox_common.bus import Bus, Delivery
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import ClaimsAsked, ClaimsChanged, ClaimsPage
from hbox_common.model import Claim, ClaimId, NodeName

log = logging.getLogger(__name__)

ASK_TIMEOUT_S, ASK_AGAIN_S = 10.0, 1.0
#: Changes that wait for a list of all claims.
MOST_EARLY = 1000


class Claims:
    """`changed`: receives a node and its live claims of cards, whenever they change. `complete`: called whenever all claims were read."""

    def __init__(self, bus: Bus, changed: Callable[[NodeName, list[Claim]], None], complete: Callable[[], None]) -> None:
        self._bus, self._changed, self._complete = bus, changed, complete
        self._epoch, self._index = -1, -1
        self._claims: dict[ClaimId, Claim] = {}
        self._on: dict[NodeName, dict[ClaimId, Claim]] = {}
        self._ask = asyncio.Event()
        self._early: list[ClaimsChanged] = []

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._bus.follow([ClaimsChanged], self._on_changes, on_ready=self._ask.set, on_gap=self._lost))
            group.create_task(self._read())

    def on_snapshot(self, epoch: int, index: int, claims: Iterable[Claim]) -> None:
        if (epoch, index) < (self._epoch, self._index):
            return
        self._epoch, self._index = epoch, index
        before, self._claims, self._on = self._on, {}, {}
        for claim in claims:
            self._put(claim)
        for node in {*before, *self._on}:
            if before.get(node) != self._on.get(node):
                self._show(node)
        self._complete()

    def on_change(self, change: ClaimsChanged) -> bool:
        """False: changes before it are missing, so that all claims have to be read."""
        if (change.epoch, change.index) <= (self._epoch, self._index):
            return True
        if change.epoch != self._epoch or change.previous > self._index:
            return False
        touched = dict.fromkeys(self._put(claim) for claim in change.claims)
        self._index = change.index
        for node in touched:
            if node:
                self._show(node)
        return True

    def _put(self, claim: Claim) -> NodeName:
        """Record a claim; the node whose pods with cards changed, or ""."""
        known = self._claims.pop(claim.id, None)
        if known is not None:
            del self._on[known.node][claim.id]
        if claim.state.live and claim.slices:
            self._claims[claim.id] = claim
            self._on.setdefault(claim.node, {})[claim.id] = claim
        elif known is None:
            return NodeName("")
        return claim.node

    def _show(self, node: NodeName) -> None:
        here = self._on.get(node)
        if not here:
            self._on.pop(node, None)
        self._changed(node, list(here.values()) if here else [])

    async def _lost(self) -> None:
        self._ask.set()

    async def _on_changes(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            change = delivery.event
            assert isinstance(change, ClaimsChanged)
            if not self.on_change(change):
                self._early = [*self._early[1 - MOST_EARLY :], change]
                self._ask.set()

    async def _read(self) -> NoReturn:
        while True:
            await self._ask.wait()
            self._ask.clear()
            try:
                pages = await self._bus.ask(ClaimsAsked(asker="health-monitor"), ClaimsPage, timeout_s=ASK_TIMEOUT_S)
            except (Unavailable, InvalidRequest) as e:
                log.info("claims cannot be read yet: %s", e)
                pages = []
            if pages:
                self.on_snapshot(pages[0].epoch, pages[0].index, [claim for page in pages for claim in page.claims])
                early, self._early = self._early, []
                for change in early:
                    if not self.on_change(change):
                        self._ask.set()
            else:
                self._ask.set()
            await asyncio.sleep(ASK_AGAIN_S)
