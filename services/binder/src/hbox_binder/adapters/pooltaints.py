"""Taints of exclusive pools: `hbox.io/pool=<pool>:NoSchedule` keeps other schedulers and DaemonSets off their nodes (ADR 37).

topology-collector's node states contain a node's pool and taints. If these do not match, the binder reads and writes the node: it adds the taint when a node
joins such a pool, restores it when another client removes it, changes it with the pool, and removes it when the node leaves the pool or taints are disabled.
Nothing is kept over a restart: all states are read then.

The effect is NoSchedule only: running pods stay. Pods that HBox places need no toleration: they are bound, which this effect does not forbid, and the
scheduler knows the pool by itself. If another client removes the taint repeatedly, it is restored less and less often (RETRY_S to PATIENCE_S).
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from hbox_common.bus import Delivery
from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError
from hbox_common.events import NodeStateChanged
from hbox_common.kube import KubeClient, keep_taint
from hbox_common.model import POOL, NodeName, NodeState, TaintEffect, is_exclusive, pool_of
from hbox_common.pacing import backoff_s

from .. import metrics

log = logging.getLogger(__name__)

RETRY_S, PATIENCE_S = 1.0, 60.0
#: Seconds after which a node with correct taints loses its count of writes.
CALM_S = 300.0


def wanted(state: NodeState, *, on: bool) -> str | None:
    """The value of the taint that the node has to bear; None: it is to bear none."""
    pool = pool_of(state.labels)
    return pool if on and is_exclusive(pool) and not state.gone else None


def bears(state: NodeState) -> list[str]:
    """The values of the taints of our key and effect that the node bears: one at most, as Kubernetes keeps them."""
    return [taint.value for taint in state.taints if taint.key == POOL and taint.effect is TaintEffect.NO_SCHEDULE]


@dataclass(slots=True)
class _Due:
    value: str | None
    at_s: float


class PoolTaints:
    """`on`: whether nodes of exclusive pools are to bear the taint; else it is taken from all."""

    def __init__(self, client: KubeClient, *, on: bool) -> None:
        self._client, self._on = client, on
        self._due: dict[NodeName, _Due] = {}
        self._tries: dict[NodeName, tuple[int, float]] = {}  #: number of recent writes, and time of the last
        self._wake = asyncio.Event()

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        """What nodes are like now."""
        for delivery in deliveries:
            assert isinstance(delivery.event, NodeStateChanged)
            self.see(delivery.event.node)

    def see(self, state: NodeState) -> None:
        """What a node is like now."""
        value = wanted(state, on=self._on)
        if state.gone or bears(state) == ([] if value is None else [value]):
            self._due.pop(state.name, None)
            if state.gone:
                self._tries.pop(state.name, None)
            return
        tries, last = self._tries.get(state.name, (0, 0.0))
        if monotonic_s() - last > CALM_S:
            tries = 0
            self._tries.pop(state.name, None)
        wait = backoff_s(tries, base_s=RETRY_S, cap_s=PATIENCE_S) if tries else 0.0
        self._due[state.name] = _Due(value, max(monotonic_s(), last + wait))
        self._wake.set()

    async def run(self) -> NoReturn:
        """Write what is due, one node after the other. Until cancelled."""
        while True:
            self._wake.clear()
            name, due = min(self._due.items(), key=lambda item: item[1].at_s, default=(None, None))
            if name is None or due is None or due.at_s > monotonic_s():
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else due.at_s - monotonic_s()):
                        await self._wake.wait()
                continue
            del self._due[name]
            await self._write(name, due)

    async def _write(self, name: NodeName, due: _Due) -> None:
        tries, _ = self._tries.get(name, (0, 0.0))
        self._tries[name] = tries + 1, monotonic_s()
        try:
            written = await keep_taint(self._client, node=name, key=POOL, value=due.value, effect=TaintEffect.NO_SCHEDULE)
        except HBoxError as e:
            log.warning("node %s: the taint of its pool cannot be written: %s", name, e, extra={"node": name})
            metrics.POOL_TAINTS.labels("failed").inc()
            self._due.setdefault(name, _Due(due.value, monotonic_s() + backoff_s(tries + 1, base_s=RETRY_S, cap_s=PATIENCE_S)))
            return
        if written:
            did = "put" if due.value is not None else "removed"
            again = " again" if tries and due.value is not None else ""
            log.info("node %s: taint %s=%s %s%s", name, POOL, due.value or "", did, again, extra={"node": name})
            metrics.POOL_TAINTS.labels(did).inc()
