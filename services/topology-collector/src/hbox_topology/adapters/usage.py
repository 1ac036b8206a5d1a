"""Measured usage of nodes, from metrics-server or another provider of metrics.k8s.io: read periodically, published as a whole.

Without a provider nothing is published: readers then use no measurements, instead of treating old ones as current.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.errors import HBoxError, InvalidRequest, NotFound
from hbox_common.events import NodesMeasured
from hbox_common.kube import NODE_METRICS, KubeClient, NodeMetrics, NodeMetricsList, epoch_s, resource_of
from hbox_common.model import NodeName, NodeState, NodeUsage, request_units, usage_of

from .. import metrics

log = logging.getLogger(__name__)

#: metrics-server measures every 15 s by default.
EVERY_S = 15.0
LOOK_AGAIN_S = 60.0
TIMEOUT_S = 10.0
#: The only part of the platform there is.
SHARD = "0"


class Usages:
    """`nodes`: their states, as of now."""

    def __init__(self, client: KubeClient, bus: Bus, nodes: Callable[[], Iterable[NodeState]]) -> None:
        self._client, self._bus, self._nodes = client, bus, nodes
        self._last: tuple[NodeUsage, ...] = ()
        self._complaint = ""
        self._served = False  #: whether anybody measures, as far as is known

    async def run(self) -> NoReturn:
        """Until cancelled. To be started when the nodes are known."""
        while True:
            wait_s = await self._look()
            await asyncio.sleep(wait_s)

    def republish(self) -> None:
        """Publish again: the stream was lost."""
        self._last = ()

    async def _look(self) -> float:
        """Ask, and say what has changed. Returns in how many seconds to ask again."""
        try:
            if not self._served:
                version = f"{NODE_METRICS.group}/{NODE_METRICS.version}"
                await resource_of(self._client, api_version=version, kind="NodeMetrics")
                self._served = True
            answer = await self._client.expected("GET", NODE_METRICS.path(), timeout_s=TIMEOUT_S)
            usages = self._read(answer.decode(NodeMetricsList).items)
            if usages != self._last:
                await self._bus.publish(NodesMeasured(usages=usages), SHARD)
                self._last = usages
        except NotFound:
            self._served = False
            self._complain("the API server does not serve metrics.k8s.io: measured node usage is unknown", logging.INFO)
            return LOOK_AGAIN_S
        except HBoxError as e:
            self._complain(f"measured node usage cannot be read or published: {e}", logging.WARNING)
        else:
            self._complaint = ""
            metrics.MEASURED.set(len(usages))
        return EVERY_S

    def _read(self, measured: Iterable[NodeMetrics]) -> tuple[NodeUsage, ...]:
        """By name; nodes that are not known, and measurements that cannot be read, are left out."""
        allocatable = {state.name: state.allocatable for state in self._nodes() if not state.gone}
        found: list[NodeUsage] = []
        for one in measured:
            name = NodeName(one.metadata.name)
            if name not in allocatable:
                continue
            try:
                used = {what: request_units(what, quantity) for what, quantity in one.usage.items()}
                found.append(usage_of(name, used, allocatable[name], at=epoch_s(one.timestamp)))
            except InvalidRequest as e:
                log.warning("NodeMetrics %s: %s: left out", name, e)
        return tuple(sorted(found, key=lambda usage: usage.node))

    def _complain(self, what: str, level: int) -> None:
        """Once for each thing in a row."""
        metrics.MEASURED.set(0)
        if what != self._complaint:
            log.log(level, what)
        self._complaint = what
