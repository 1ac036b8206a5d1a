"""Pods with cards, by the claims of quota-ledger."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, TypeAlias

from hbox_common.bus import Bus, Delivery
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import ClaimsAsked, ClaimsChanged, ClaimsPage
from hbox_common.model import Claim, ClaimId, JobId, NodeName
from hbox_common.model.sharing import Shared

log = logging.getLogger(__name__)

ASK_TIMEOUT_S, ASK_AGAIN_S = 10.0, 1.0
#: Changes that wait for a list of all claims.
MOST_EARLY = 1000


class Gangs:
    """The nodes on which each gang has pods with cards."""

    def __init__(self) -> None:
        self._nodes: dict[JobId, Counter[NodeName]] = {}

    def book(self, claim: Claim, times: int = 1) -> set[NodeName]:
        """Add a claim, or take it back (-1). Returns the nodes of its gang if `spans` changed, else none."""
        if claim.min_member <= 1:
            return set()
        spanned = self.spans(claim.job)
        nodes = self._nodes.setdefault(claim.job, Counter())
        nodes[claim.node] += times
        if not nodes[claim.node]:
            del nodes[claim.node]
        if not nodes:
            del self._nodes[claim.job]
        return set() if spanned is self.spans(claim.job) else set(nodes)

    def spans(self, job: JobId) -> bool:
        """Whether the job is a gang on several nodes."""
        return len(self._nodes.get(job, ())) > 1


#: The live claims of cards of a node, and which of their jobs are gangs on several nodes.
_Pods: TypeAlias = tuple[list[Claim], frozenset[JobId]]


class Claims:
    """`changed`: receives a node, its live claims of cards, and which of their jobs are gangs on several nodes, whenever one of these changes. `complete`:
    receives the nodes with claims of cards whenever all claims were read."""

    def __init__(
        self,
        bus: Bus,
        changed: Callable[[NodeName, list[Claim], frozenset[JobId]], None],
        complete: Callable[[frozenset[NodeName]], None],
    ) -> None:
        self._bus, self._changed, self._complete = bus, changed, complete
        self._epoch, self._index = -1, -1
        self._claims: dict[ClaimId, Claim] = {}
        self._on: dict[NodeName, dict[ClaimId, Claim]] = {}
        self._gangs = Gangs()
        self._shared = Shared()
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
        before = {node: self._pods(node) for node in self._on}
        self._claims, self._on, self._gangs = {}, {}, Gangs()
        for claim in claims:
            self._put(claim)
        for node in {*before, *self._on}:
            if before.get(node) != self._pods(node):
                self._show(node)
        self._complete(frozenset(self._on))

    def on_change(self, change: ClaimsChanged) -> bool:
        """False: changes before it are missing, so that all claims have to be read."""
        if (change.epoch, change.index) <= (self._epoch, self._index):
            return True
        if change.epoch != self._epoch or change.previous > self._index:
            return False
        touched = dict.fromkeys(node for claim in change.claims for node in self._put(claim))
        self._index = change.index
        for node in touched:
            self._show(node)
        return True

    def _put(self, claim: Claim) -> set[NodeName]:
        """Record a claim; returns the nodes whose pods with cards changed."""
        known = self._claims.pop(claim.id, None)
        held = claim.state.live and bool(claim.slices)
        if known is None and not held:
            return set()
        touched = {claim.node}
        if known is not None:
            del self._on[known.node][claim.id]
            touched |= self._gangs.book(known, -1)
        if held:
            self._claims[claim.id] = claim = self._shared.claim(claim)
            self._on.setdefault(claim.node, {})[claim.id] = claim
            touched |= self._gangs.book(claim)
        return touched

    def _pods(self, node: NodeName) -> _Pods:
        claims = list(self._on.get(node, {}).values())
        return claims, frozenset(claim.job for claim in claims if self._gangs.spans(claim.job))

    def _show(self, node: NodeName) -> None:
        if not self._on.get(node):
            self._on.pop(node, None)
        self._changed(node, *self._pods(node))

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
