"""topology-collector, wired: the watch of nodes in, their states out.

At start the last state of every node is read back from the stream, so that a restart publishes differences only, and tombstones for nodes
that were deleted meanwhile.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from hbox_common import kube
from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import monotonic_s, wall_s
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
from .core.zones import ObjectZones, ZoneTable
from .settings import TopologySettings

log = logging.getLogger(__name__)

HEALTH_S = 1.0
STARTING_S = 0.05
#: An agent may speak before its node is seen. One that outlives its node goes on, and so does who speaks for nodes that never were.
ABSENT_S = 60.0
LOOK_FOR_ABSENT_S = 15.0
#: Seconds between two searches for nodes whose first report is overdue.
LOOK_FOR_OVERDUE_S = 1.0
#: Names of such nodes that are remembered.
MOST_ABSENT = 4_096
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
        self._zones = ZoneTable()
        self.inventory = Inventory(settings.first_report, self._zones.reported)
        self._pools = None if settings.pools_file is None else pools_file(settings.pools_file)
        if self._pools is not None:
            self.inventory.pools = self._pools.value
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
        self._zone_objects = ZoneObjects(client, self._on_zone_object, self._has_node)
        self._usages = Usages(client, bus, self.inventory.states)
        self._described: set[str] = set()  #: nodes whose wait an object of the cluster ends
        self._absent: dict[NodeName, float] = {}  #: nodes that are not there, of which agents speak: since when
        self._closed: dict[NodeName, None] = {}  #: those, and nodes that went, of which whatever is said is taken back at once

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_health())
            # From before the reading back, so that no loss of the stream goes unseen.
            group.create_task(self._bus.follow([NodeStateChanged], self._ignore, start=Start.NEW, on_gap=self._stream_lost))
            await self._read_back()
            devices_received = asyncio.Event()
            group.create_task(
                self._bus.follow(
                    [NodeDevicesChanged, NodeNumaChanged],
                    self._on_devices,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=devices_received.set,
                    writers_only=True,
                )
            )
            await devices_received.wait()  # else a restart would take the ids of cards back for a moment
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
            group.create_task(self._settle_zones())
            group.create_task(self._look_for_absent())
            group.create_task(self._end_waits())
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
                    self._on_read_back,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=ready.set,
                )
            )
            await ready.wait()
            reading.cancel()
        log.info("read back", extra={"nodes": len(self.inventory)})

    async def _on_read_back(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            match delivery.event:
                case NodeStateChanged(node=node):
                    self.inventory.restore(node)
                    self._label(node)
                case NodeZonesChanged(zones=zones):
                    self._zones.restore(zones)

    async def _on_devices(self, deliveries: Sequence[Delivery]) -> None:
        nodes = {node.metadata.name: node for node in self._nodes.store.values()} if self._nodes.synced.is_set() else {}
        await self._on_agent_messages(deliveries, nodes)
        for name in self._closed.keys() & (self.inventory.devices.keys() | self.inventory.numa.keys()) - nodes.keys():
            self._forget_devices(NodeName(name))

    async def _on_agent_messages(self, deliveries: Sequence[Delivery], nodes: Mapping[str, kube.Node]) -> None:
        for delivery in deliveries:
            if isinstance(delivery.event, NodeNumaChanged):
                self._put_zones(self._zones.numa(delivery.event.numa))
                self._observe_clique(delivery.event.numa)
                self._observe_adapters(delivery.event.numa, nodes)
                self._end_wait(nodes.get(delivery.event.numa.node))
                continue
            assert isinstance(delivery.event, NodeDevicesChanged)
            reported = delivery.event.devices
            self._put_zones(self._zones.devices(reported))
            if reported.gone:
                self.inventory.devices.pop(reported.node, None)
                continue
            before = self.inventory.devices.get(reported.node)
            self.inventory.devices[reported.node] = reported
            if reported.node in nodes and (before is None or before.allocatable != reported.allocatable):
                self._observe(nodes[reported.node])
            self._end_wait(nodes.get(reported.node))

    def _end_wait(self, node: kube.Node | None) -> None:
        """The first report may have arrived."""
        if node is not None and self.inventory.waits(node.metadata.name) and self._zones.reported(NodeName(node.metadata.name)):
            self._observe(node)

    async def _end_waits(self) -> None:
        """Of nodes that an object of the cluster describes, and of those whose first report is overdue."""
        while True:
            overdue, described = set(self.inventory.overdue(wall_s())), self._described
            self._described = set()
            if ended := overdue | described:
                for node in [*self._nodes.store.values()]:
                    if node.metadata.name in ended:
                        self._observe(node)
            if overdue:
                log.warning(
                    "%d nodes, such as %s: node-agent has not reported their kubelets' policies; they are used without",
                    len(overdue),
                    min(overdue),
                )
            await asyncio.sleep(LOOK_FOR_OVERDUE_S)

    def _observe_adapters(self, numa: NodeNuma, nodes: Mapping[str, kube.Node]) -> None:
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
        self._put_zones(self._zones.forget(node, at=wall_s()))
        numa, devices = self.inventory.numa.pop(node, None), self.inventory.devices.pop(node, None)
        if numa is not None or devices is not None:
            self._publisher.close(NodeDevices(node, wall_s(), gone=True))

    async def _look_for_absent(self) -> None:
        """Closes the subjects of agents whose nodes are not there, for as long as they speak: what they say again is closed as it comes."""
        while True:
            present, now = {node.metadata.name for node in self._nodes.store.values()}, monotonic_s()
            spoken = {NodeName(name) for name in {*self.inventory.devices, *self.inventory.numa} - present}
            self._absent = {name: self._absent.get(name, now) for name in spoken}
            self._closed = {name: None for name in self._closed if name not in present}
            for name, since in self._absent.items():
                if now - since >= ABSENT_S:
                    log.warning(
                        "node %s does not exist, but an agent publishes for it: its messages are withdrawn",
                        name,
                        extra={"node": name},
                    )
                    self._closed[name] = None
                    self._forget_devices(name)
            for name in list(self._closed)[: max(0, len(self._closed) - MOST_ABSENT)]:
                del self._closed[name]
            await asyncio.sleep(LOOK_FOR_ABSENT_S)

    def _on_zone_object(self, node: NodeName, found: ObjectZones | None) -> None:
        self._put_zones(self._zones.objects(node, found, at=wall_s()))
        if self.inventory.waits(node) and self._zones.reported(node):
            self._described.add(node)

    def _has_node(self, node: NodeName) -> bool:
        return self.inventory.get(node) is not None

    async def _settle_zones(self) -> None:
        await self._zone_objects.listed.wait()
        for changed in self._zones.settle(at=wall_s()):
            self._put_zones(changed)

    def _put_zones(self, changed: NodeZones | None) -> None:
        if changed is not None:
            if changed.problem:
                known = "as published before" if changed.zones else "not known"
                log.warning(
                    "node %s: its NUMA nodes are %s: %s", changed.node, known, changed.problem, extra={"node": changed.node}
                )
            self._publisher.put_zones(changed)

    async def _ignore(self, deliveries: Sequence[Delivery]) -> None:
        """Our own states come back; only the loss of the stream is of interest."""

    async def _stream_lost(self) -> None:
        log.warning("the stream of node states was lost or re-created: publishing all states again")
        for state in self.inventory.states():
            self._publisher.put(state)
        for zones in self._zones.all():
            self._publisher.put_zones(zones)
        self._fabric.republish()
        self._usages.republish()
        self._images.republish()

    async def _on_nodes(self, deltas: Sequence[Delta[kube.Node]]) -> None:
        for delta in deltas:
            if delta.new is not None:
                self._images.observe(NodeName(delta.new.metadata.name), images_of(delta.new))
                if delta.old is not None and node_facts(delta.old) == node_facts(delta.new):
                    metrics.QUIET.inc()  # a heartbeat, or a lock: most of what happens to nodes
                else:
                    self._observe(delta.new)
                if delta.old is None:
                    self._zone_objects.came(NodeName(delta.new.metadata.name))
            else:
                assert delta.old is not None
                name = NodeName(delta.old.metadata.name)
                self._images.observe(name, ())
                self._forget_devices(name)
                self._put_node(self.inventory.removed(name, uid=delta.old.metadata.uid, now=wall_s()))
                if self._has_node(name):
                    self._zone_objects.came(name)  # its successor was seen first, and objects are about names
                else:
                    self._zone_objects.went(name)
                    self._closed[name] = None

    def _pools_changed(self, rules: Sequence[PoolRule]) -> None:
        self.inventory.pools = rules
        for node in self._nodes.store.values():
            self._observe(node)

    def _observe(self, node: kube.Node) -> None:
        observed = self.inventory.observe(node_facts(node), now=wall_s())
        for warning in observed.warnings:
            log.warning("node %s: %s", node.metadata.name, warning, extra={"node": node.metadata.name})
        self._put_node(observed.changed)

    def _put_node(self, changed: NodeState | None) -> None:
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

    def _observe_clique(self, numa: NodeNuma) -> None:
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
        waiting, missing = self.inventory.count_waiting()
        metrics.UNREPORTED.labels("waiting").set(waiting)
        metrics.UNREPORTED.labels("missing").set(missing)


def _set(condition: Condition, trouble: str) -> None:
    if trouble:
        condition.bad(trouble)
    else:
        condition.ok()
