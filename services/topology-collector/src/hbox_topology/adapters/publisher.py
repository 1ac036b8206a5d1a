"""Publishes node states: the newest of each node, many nodes concurrently, those of one node in order.

Each node has a subject of its own, so states cannot share a message; a node that changes again before its turn is published once.
"""

import asyncio
import logging

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged, NodeStateChanged, NodeZonesChanged
from hbox_common.model import NodeDevices, NodeNuma, NodeState, NodeZones

from .. import metrics

log = logging.getLogger(__name__)

AT_ONCE = 64
RETRY_S = 0.5


class Publisher:
    """A node's next state is taken only when its last one has been stored, so that the stream never ends with an older one."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: dict[str, NodeState] = {}
        self._zones: dict[str, NodeZones] = {}
        self._closing: dict[str, NodeDevices] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Nodes whose newest state is not published yet."""
        return len(self._waiting)

    def put(self, state: NodeState) -> None:
        self._waiting[state.name] = state
        self._wake.set()

    def put_zones(self, zones: NodeZones) -> None:
        self._zones[zones.node] = zones
        self._wake.set()

    def close(self, devices: NodeDevices) -> None:
        """Publish the last device allocations of a deleted node, whose agent is gone too."""
        self._closing[devices.node] = devices
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            if not (self._waiting or self._zones or self._closing):
                await self._wake.wait()
            started = monotonic_s()
            states = [self._waiting.pop(name) for name in list(self._waiting)[:AT_ONCE]]
            async with asyncio.TaskGroup() as group:
                for state in states:
                    group.create_task(self._publish_node(state, self._zones.pop(state.name, None)))
                for zones in [self._zones.pop(name) for name in list(self._zones)[:AT_ONCE]]:
                    group.create_task(self._publish_zones(zones))
            for node, devices in list(self._closing.items()):
                await self._close(devices)
                self._closing.pop(node)
            metrics.PUBLISH.observe(monotonic_s() - started)

    async def _close(self, devices: NodeDevices) -> None:
        try:
            await self._bus.publish(NodeDevicesChanged(devices=devices), devices.node)
            numa = NodeNuma(devices.node, devices.at, gone=True)
            await self._bus.publish(NodeNumaChanged(numa=numa), devices.node)
        except (InvalidRequest, Unavailable) as e:  # closed at the next start, by then
            log.warning("the last message of the kubelet of %s is not closed: %s", devices.node, e)

    async def _publish_zones(self, zones: NodeZones) -> None:
        while True:
            try:
                await self._bus.publish(NodeZonesChanged(zones=zones), zones.node)
            except Unavailable as e:
                log.warning("the NUMA nodes of %s are not published yet, retrying: %s", zones.node, e)
                await asyncio.sleep(RETRY_S)
                zones = self._zones.pop(zones.node, zones)
                continue
            except InvalidRequest as e:
                log.error("the NUMA nodes of %s cannot be published: %s", zones.node, e)
            return

    async def _publish_node(self, state: NodeState, zones: NodeZones | None) -> None:
        """Zones first: a state without `report_due` permits pods that only the node's zones exclude."""
        if zones is not None:
            await self._publish_zones(zones)
        await self._publish_state(state)

    async def _publish_state(self, state: NodeState) -> None:
        while True:
            try:
                await self._bus.publish(
                    NodeStateChanged(node=state), state.name, message_id=f"node.{state.uid}.{state.generation}"
                )
            except Unavailable as e:
                log.warning("the state of %s is not published yet, retrying: %s", state.name, e)
                await asyncio.sleep(RETRY_S)
                if state.name in self._waiting:
                    return  # a newer state goes first
                continue
            except InvalidRequest as e:
                log.error("the state of %s cannot be published: %s", state.name, e)
            metrics.STATES.inc()
            return
