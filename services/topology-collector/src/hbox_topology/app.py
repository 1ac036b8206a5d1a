"""topology-collector, wired: the watch of nodes in, their states out.

At start the last state of every node is read back from the stream, so that a restart publishes differences only, and tombstones for nodes
that were deleted meanwhile.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from hbox_common import kube
from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import wall_s
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged, NodeStateChanged, NodeZonesChanged
from hbox_common.kube import NODES, Delta, Informer, KubeClient
from hbox_common.model import NodeDevices, NodeName, NodeNuma, NodeState, NodeZones
from hbox_common.runtime import Condition, Health, connected

from . import metrics
from .adapters.fabrics import FabricSources
from .adapters.fabricsfile import HYPERNODES_ONLY, fabrics_file
from .adapters.images import ImagePublisher
from .adapters.objects import images_of, node_facts, without_images
from .adapters.poolsfile import pools_file
from .adapters.publisher import Publisher
from .adapters.usage import Usages
from .adapters.zoneobjects import ZoneObjects
from .core.fabric.domains import CLIQUE
from .core.images import ImageTable
from .core.inventory import Inventory
from .core.pools import PoolRule
from .core.zones import ZoneTable
from .settings import TopologySettings

log = logging.getLogger(__name__)

HEALTH_S = 1.0
STARTING_S = 0.05
CONDITIONS = ("kube", "bus", "synced")


async def run(settings: TopologySettings, health: Health) -> None:
    """The service, until cancelled."""
    for name in CONDITIONS:
        health.condition(name)  # not good yet: connecting may take a while
    async with (
        KubeClient.connect(settings.kubeconfig, user_agent="hbox-topology-collector") as client,
        connected(settings) as bus,
    ):
        await TopologyCollector(settings, health, client, bus).run()


class TopologyCollector:
    """All tasks of the service run on one loop, and the core is only touched between awaits: it needs no lock."""

    def __init__(self, settings: TopologySettings, health: Health, client: KubeClient, bus: Bus) -> None:
        """Raises InvalidRequest where the file of pools or of fabrics is wrong."""
        self._health, self._bus = health, bus
        self.inventory = Inventory()
        self._pools = None if settings.pools_file is None else pools_file(settings.pools_file)
        if self._pools is not None:
            self.inventory.pools = self._pools.value
        self._zones = ZoneTable()
        self._nodes = Informer(client, NODES, kube.Node, keep=without_images)
        self._images = ImageTable()
        self._image_publisher = ImagePublisher(bus, self._images)
        self._publisher = Publisher(bus)
        self._labels: dict[str, Mapping[str, str]] = {}
        self._cliques: dict[NodeName, str] = {}  #: NVLink domains, as NVML says them on nodes
        self._fabrics_file = (
            None if settings.fabrics_file is None else fabrics_file(settings.fabrics_file, settings.allowed_fabric_hosts)
        )
        wanted = HYPERNODES_ONLY if self._fabrics_file is None else self._fabrics_file.value
        self._fabric = FabricSources(wanted, client, bus, lambda: self._labels)
        self._zone_objects = ZoneObjects(client, self._on_zone_object)
        self._usages = Usages(client, bus, self.inventory.states)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_health())
            # From before the reading back, so that no loss of the stream goes unseen.
            group.create_task(self._bus.follow([NodeStateChanged], self._ignore, start=Start.NEW, on_gap=self._stream_lost))
            await self._read_back()
            devices_heard = asyncio.Event()
            group.create_task(
                self._bus.follow(
                    [NodeDevicesChanged, NodeNumaChanged],
                    self._on_devices,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=devices_heard.set,
                    writers_only=True,
                )
            )
            await devices_heard.wait()  # else a restart would take the ids of cards back for a moment
            group.create_task(self._nodes.run(self._on_nodes))
            group.create_task(self._publisher.run())
            await self._nodes.synced.wait()
            present = {node.metadata.name for node in self._nodes.store.values()}
            for gone in self.inventory.vanished(present, now=wall_s()):
                self._publisher.put(gone)
                self._label(gone)
            for name in {*self.inventory.devices, *(zones.node for zones in self._zones.all())} - present:
                self._forget_devices(NodeName(name))
            log.info("synced", extra={"nodes": len(self.inventory)})
            group.create_task(self._fabric.run())
            group.create_task(self._usages.run())
            group.create_task(self._zone_objects.run())
            group.create_task(self._image_publisher.run())
            if self._pools is not None:
                group.create_task(self._pools.watch(self._pools_changed))
            if self._fabrics_file is not None:
                group.create_task(self._fabrics_file.watch(self._fabric.follow))

    async def _read_back(self) -> None:
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(
                self._bus.follow(
                    [NodeStateChanged, NodeZonesChanged],
                    self._on_heard,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=ready.set,
                )
            )
            await ready.wait()
            reading.cancel()
        log.info("read back", extra={"nodes": len(self.inventory)})

    async def _on_heard(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            match delivery.event:
                case NodeStateChanged(node=node):
                    self.inventory.heard(node)
                    self._label(node)
                case NodeZonesChanged(zones=zones):
                    self._zones.heard(zones)

    async def _on_devices(self, deliveries: Sequence[Delivery]) -> None:
        nodes = {node.metadata.name: node for node in self._nodes.store.values()} if self._nodes.synced.is_set() else {}
        for delivery in deliveries:
            if isinstance(delivery.event, NodeNumaChanged):
                self._say_zones(self._zones.numa(delivery.event.numa))
                self._hear_clique(delivery.event.numa)
                self._hear_adapters(delivery.event.numa, nodes)
                continue
            assert isinstance(delivery.event, NodeDevicesChanged)
            said = delivery.event.devices
            self._say_zones(self._zones.devices(said))
            if said.gone:
                self.inventory.devices.pop(said.node, None)
                continue
            before = self.inventory.devices.get(said.node)
            self.inventory.devices[said.node] = said
            if said.node in nodes and (before is None or before.allocatable != said.allocatable):
                self._observe(nodes[said.node])

    def _hear_adapters(self, numa: NodeNuma, nodes: Mapping[str, kube.Node]) -> None:
        """How near adapters are to cards follows from devices alone: all else that is said of a machine changes nothing here."""
        before = self.inventory.numa.get(numa.node)
        if numa.gone:
            self.inventory.numa.pop(numa.node, None)
        else:
            self.inventory.numa[numa.node] = numa
        if numa.node in nodes and (before is None or numa.gone or (before.devices, before.nvml) != (numa.devices, numa.nvml)):
            self._observe(nodes[numa.node])

    def _forget_devices(self, node: NodeName) -> None:
        """Closes the subject of a node that is gone, and its agent with it."""
        self._say_zones(self._zones.forget(node, at=wall_s()))
        self.inventory.numa.pop(node, None)
        if self.inventory.devices.pop(node, None) is not None:
            self._publisher.close(NodeDevices(node, wall_s(), gone=True))

    def _on_zone_object(self, node: NodeName, told: NodeZones | None) -> None:
        self._say_zones(self._zones.objects(node, told, at=wall_s()))

    def _say_zones(self, changed: NodeZones | None) -> None:
        if changed is not None:
            if changed.problem:
                log.warning(
                    "node %s: its NUMA nodes are not known: %s", changed.node, changed.problem, extra={"node": changed.node}
                )
            self._publisher.put_zones(changed)

    async def _ignore(self, deliveries: Sequence[Delivery]) -> None:
        """Our own states come back; only the loss of the stream is of interest."""

    async def _stream_lost(self) -> None:
        log.warning("the stream of node states was lost or made anew: saying everything again")
        for state in self.inventory.states():
            self._publisher.put(state)
        for zones in self._zones.all():
            self._publisher.put_zones(zones)
        self._fabric.say_again()
        self._usages.say_again()
        self._images.say_again()

    async def _on_nodes(self, deltas: Sequence[Delta[kube.Node]]) -> None:
        for delta in deltas:
            if delta.new is not None:
                self._images.observe(NodeName(delta.new.metadata.name), images_of(delta.new))
                if delta.old is not None and node_facts(delta.old) == node_facts(delta.new):
                    metrics.QUIET.inc()  # a heartbeat, or a lock: most of what happens to nodes
                else:
                    self._observe(delta.new)
            else:
                assert delta.old is not None
                self._images.observe(NodeName(delta.old.metadata.name), ())
                self._forget_devices(NodeName(delta.old.metadata.name))
                self._say(self.inventory.removed(delta.old.metadata.name, uid=delta.old.metadata.uid, now=wall_s()))

    def _pools_changed(self, rules: Sequence[PoolRule]) -> None:
        self.inventory.pools = rules
        for node in self._nodes.store.values():
            self._observe(node)

    def _observe(self, node: kube.Node) -> None:
        observed = self.inventory.observe(node_facts(node), now=wall_s())
        for warning in observed.warnings:
            log.warning("node %s: %s", node.metadata.name, warning, extra={"node": node.metadata.name})
        self._say(observed.changed)

    def _say(self, changed: NodeState | None) -> None:
        if changed is not None:
            self._publisher.put(changed)
            self._label(changed)
        else:
            metrics.QUIET.inc()

    def _label(self, state: NodeState) -> None:
        """The fabric is made of names and labels alone. Where no label says the NVLink domain of a node, NVML does."""
        clique = self._cliques.get(state.name, "")
        labels = {CLIQUE: clique, **state.labels} if clique else state.labels
        if state.gone:
            self._labels.pop(state.name, None)
        elif self._labels.get(state.name) == labels:
            return
        else:
            self._labels[state.name] = labels
        self._fabric.touch()

    def _hear_clique(self, numa: NodeNuma) -> None:
        clique = numa.nvml.clique if numa.nvml is not None and not numa.gone else ""
        if clique == self._cliques.get(numa.node, ""):
            return
        if clique:
            self._cliques[numa.node] = clique
        else:
            self._cliques.pop(numa.node, None)
        if (state := self.inventory.get(numa.node)) is not None:
            self._label(state)

    async def _watch_health(self) -> None:
        on_kube, on_bus, on_synced = (self._health.condition(name) for name in CONDITIONS)
        while True:
            seen = self._nodes.freshness()
            old = seen.old and self._nodes.synced.is_set()
            _set(on_kube, f"nodes were last seen {seen.age_s:.0f} s ago: {seen.why}" if old else seen.why)
            if self._pools is not None:  # what was right before it is followed: told, but no reason not to be ready
                self._health.condition("pools").ok(self._pools.problem)
            if self._fabrics_file is not None:  # what was known stays: told, and no reason not to be ready
                self._health.condition("fabric").ok(self._fabrics_file.problem or self._fabric.trouble)
            _set(on_bus, "" if self._bus.connected else "NATS cannot be reached")
            behind = f"{len(self._publisher)} states are not published yet" if len(self._publisher) else ""
            _set(on_synced, behind if self._nodes.synced.is_set() else "nodes are not listed yet")
            self._count()
            await asyncio.sleep(HEALTH_S if self._health.ready else STARTING_S)

    def _count(self) -> None:
        cards = [card.healthy for state in self.inventory.states() for card in state.cards]
        metrics.NODES.set(len(self.inventory))
        metrics.CARDS.labels("true").set(sum(cards))
        metrics.CARDS.labels("false").set(len(cards) - sum(cards))
        metrics.WARNINGS.set(self.inventory.warnings())


def _set(condition: Condition, trouble: str) -> None:
    if trouble:
        condition.bad(trouble)
    else:
        condition.ok()
