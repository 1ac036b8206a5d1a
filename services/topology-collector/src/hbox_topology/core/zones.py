"""What the NUMA nodes of each node have: of what its kubelet says through node-agent, and where there is none, of what objects of the cluster say."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hbox_common.model import NodeDevices, NodeName, NodeNuma, NodeZones
from hbox_common.model.nodezones import zones_by_kubelet

#: Objects of a cluster that tell of zones, in the order in which they count.
KINDS = ("NodeResourceTopology", "Numatopology")


@dataclass(frozen=True, slots=True)
class Told:
    """What an object of the cluster says of a node. `problem`: why it cannot be read as it is now; `zones` are as it said them before then, None where that is
    not known either."""

    kind: str
    zones: NodeZones | None
    problem: str = ""


class ZoneTable:
    """One writer. What was said of a node is said again when anything but its time differs."""

    def __init__(self) -> None:
        self._numa: dict[NodeName, NodeNuma] = {}
        self._devices: dict[NodeName, NodeDevices] = {}
        self._objects: dict[NodeName, NodeZones] = {}
        self._said: dict[NodeName, NodeZones] = {}

    def numa(self, told: NodeNuma) -> NodeZones | None:
        """How a node is made. Returns what is to be said now, None where that is nothing."""
        if told.gone:
            self._numa.pop(told.node, None)
        else:
            self._numa[told.node] = told
        return self._changed(told.node, told.at)

    def devices(self, told: NodeDevices) -> NodeZones | None:
        """What a kubelet gave to whom; likewise."""
        if told.gone:
            self._devices.pop(told.node, None)
        else:
            self._devices[told.node] = told
        return self._changed(told.node, told.at)

    def objects(self, node: NodeName, told: Told | None, *, at: float) -> NodeZones | None:
        """What an object of the cluster says of a node, None where there is none any more; likewise. Where it cannot be read, and what it said before is not
        known here, an earlier process may have said it."""
        if told is None:
            self._objects.pop(node, None)
        else:
            said = self._said.get(node)
            last = told.zones or (said if said is not None and said.source == told.kind else None)
            zones = last or NodeZones(node, at, source=told.kind)
            self._objects[node] = replace(zones, problem=told.problem) if told.problem else zones
        return self._changed(node, at)

    def settle(self, *, at: float) -> Iterator[NodeZones]:
        """All objects that there are have been told: what is to be said of nodes of which an earlier process said what an object told that is gone."""
        for node, said in [*self._said.items()]:
            if said.source in KINDS and node not in self._objects and (changed := self._changed(node, at)) is not None:
                yield changed

    def heard(self, said: NodeZones) -> None:
        """Read back: what an earlier process said."""
        if not said.gone:
            self._said.setdefault(said.node, said)

    def all(self) -> Iterator[NodeZones]:
        """What was said last of every node."""
        return iter(self._said.values())

    def forget(self, node: NodeName, *, at: float) -> NodeZones | None:
        """The node is gone: the last word on it."""
        for table in (self._numa, self._devices, self._objects):
            table.pop(node, None)
        return self._changed(node, at)

    def _changed(self, node: NodeName, at: float) -> NodeZones | None:
        said, now = self._said.get(node), self._now(node)
        if now is None:
            if said is None or node in self._numa or node in self._devices:  # the other half comes, after a restart
                return None
            del self._said[node]
            return NodeZones(node, at, gone=True)
        if said is None and not (now.counts or now.problem):
            return None  # its kubelet aligns nothing: nobody has to hear that
        if said is not None and said.said == now.said:
            return None
        self._said[node] = now
        return now

    def _now(self, node: NodeName) -> NodeZones | None:
        numa, devices = self._numa.get(node), self._devices.get(node)
        by_objects = self._objects.get(node)
        if numa is None or devices is None or numa.rules is None:
            return by_objects
        found = zones_by_kubelet(numa, devices)
        return replace(by_objects, problem=found.problem) if found.problem and by_objects is not None else found
