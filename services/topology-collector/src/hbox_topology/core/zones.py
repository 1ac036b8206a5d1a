"""NUMA resources of each node: from its kubelet through node-agent, else from objects of the cluster."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hbox_common.model import NodeDevices, NodeName, NodeNuma, NodeZones
from hbox_common.model.nodezones import zones_by_kubelet

#: Kinds of cluster objects with zones, in order of precedence.
KINDS = ("NodeResourceTopology", "Numatopology")


@dataclass(frozen=True, slots=True)
class ObjectZones:
    """An object's zones of a node. `problem`: why its present version cannot be read; `zones` are then those of the last readable version, None if unknown."""

    kind: str
    zones: NodeZones | None
    problem: str = ""


class ZoneTable:
    """One writer. The zones of a node are published again when anything but their time differs."""

    def __init__(self) -> None:
        self._numa: dict[NodeName, NodeNuma] = {}
        self._devices: dict[NodeName, NodeDevices] = {}
        self._objects: dict[NodeName, NodeZones] = {}
        self._published: dict[NodeName, NodeZones] = {}
        self._reported: set[NodeName] = set()

    def numa(self, numa: NodeNuma) -> NodeZones | None:
        """How a node is made. Returns what is to be published now, None where that is nothing."""
        if numa.gone:
            self._numa.pop(numa.node, None)
        else:
            self._numa[numa.node] = numa
        return self._changed(numa.node, numa.at)

    def devices(self, devices: NodeDevices) -> NodeZones | None:
        """What a kubelet gave to whom; likewise."""
        if devices.gone:
            self._devices.pop(devices.node, None)
        else:
            self._devices[devices.node] = devices
        return self._changed(devices.node, devices.at)

    def objects(self, node: NodeName, found: ObjectZones | None, *, at: float) -> NodeZones | None:
        """What an object of the cluster says of a node, None where there is none any more; likewise. Where it cannot be read, and what it said before is not
        known here, an earlier process may have published that."""
        if found is None:
            self._objects.pop(node, None)
        else:
            published = self._published.get(node)
            last = found.zones or (published if published is not None and published.source == found.kind else None)
            zones = last or NodeZones(node, at, source=found.kind)
            self._objects[node] = replace(zones, problem=found.problem) if found.problem else zones
        return self._changed(node, at)

    def settle(self, *, at: float) -> Iterator[NodeZones]:
        """All objects have been read: changes of nodes whose zones an earlier process published by an object that is gone since."""
        for node, published in [*self._published.items()]:
            if published.source in KINDS and node not in self._objects and (changed := self._changed(node, at)) is not None:
                yield changed

    def restore(self, published: NodeZones) -> None:
        """Read back: what an earlier process published."""
        if not published.gone:
            self._published.setdefault(published.node, published)

    def reported(self, node: NodeName) -> bool:
        """Whether it is known what the node's kubelet refuses."""
        return node in self._reported

    def all(self) -> Iterator[NodeZones]:
        """What was published last of every node."""
        return iter(self._published.values())

    def forget(self, node: NodeName, *, at: float) -> NodeZones | None:
        """The node is gone: the last word on it."""
        self._reported.discard(node)
        for table in (self._numa, self._devices, self._objects):
            table.pop(node, None)
        return self._changed(node, at)

    def _changed(self, node: NodeName, at: float) -> NodeZones | None:
        published, now = self._published.get(node), self._now(node)
        if now is not None and (not now.problem or self._is_read(node)):
            self._reported.add(node)
        if now is None:
            if published is None or node in self._numa or node in self._devices:  # the other half comes, after a restart
                return None
            del self._published[node]
            return NodeZones(node, at, gone=True)
        if published is None and not (now.counts or now.problem):
            return None  # its kubelet aligns nothing: no component needs it
        if published is not None and published.content == now.content:
            return None
        self._published[node] = now
        return now

    def _is_read(self, node: NodeName) -> bool:
        """Whether node-agent has read the kubelet's policy and NUMA nodes. A report may lack other things for good, as of a node with
        too many NUMA nodes."""
        numa = self._numa.get(node)
        return numa is not None and numa.rules is not None and bool(numa.zones) and node in self._devices

    def _now(self, node: NodeName) -> NodeZones | None:
        numa, devices = self._numa.get(node), self._devices.get(node)
        by_objects = self._objects.get(node)
        if numa is None or devices is None or numa.rules is None:
            return by_objects
        found = zones_by_kubelet(numa, devices)
        return replace(by_objects, problem=found.problem) if found.problem and by_objects is not None else found
