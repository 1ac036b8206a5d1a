"""Reports that kubelets would publish of their NUMA nodes under another policy: the zones of outside pods stay as recorded, and pods placed in the simulation
get the zones that the mirror of the kubelet computes, in the order of their plans.

If the record has only the sums of a node, the node is reported as empty: its bookings determine what is free (`cluster.zones`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hbox_common.model import NodeName, NodeZones, PodUid
from hbox_common.model.nodezones import PodZones, ZoneAmounts, vacant
from hbox_common.model.numa import NumaNode, PodAsk, admit


@dataclass(slots=True)
class ZoneReports:
    """`outside`: whether the simulation does not place the pod of this uid. Nodes whose kubelets align nothing are not recorded."""

    outside: Callable[[PodUid], bool]
    _facts: dict[NodeName, NodeZones] = field(default_factory=dict)  #: recorded reports, with outside pods only
    _given: dict[NodeName, dict[PodUid, PodZones]] = field(default_factory=dict)  #: of pods that the simulation placed

    def observe(self, zones: NodeZones) -> NodeZones:
        """Record a node's report; return the report to publish instead."""
        if not (zones.counts and zones.by_pod):
            self._facts.pop(zones.node, None)
            return vacant(zones)
        self._facts[zones.node] = replace(zones, pods=tuple(one for one in zones.pods if self.outside(PodUid(one.uid))))
        return self._zones_of(zones.node)

    def placed(self, node: NodeName, uid: PodUid, namespace: str, pod: str, ask: PodAsk | None) -> NodeZones | None:
        """A pod was placed. Returns the new report; None = no change. A pod that the kubelet would reject gets no zones."""
        if ask is None or node not in self._facts:
            return None
        before = self._zones_of(node).numa_node()
        asks = [[dict(container) for container in some] for some in (ask.containers, ask.init)]
        found = admit(before, asks[0], guaranteed=ask.guaranteed, init=asks[1])
        if not found.admitted or found.node is None:
            return None
        self._given.setdefault(node, {})[uid] = PodZones(namespace, pod, uid, _between(before, found.node))
        return self._zones_of(node)

    def gone(self, node: NodeName, uid: PodUid) -> NodeZones | None:
        """A pod ended. Returns the new report; None = no change."""
        known = self._given.get(node, {}).pop(uid, None)
        facts = self._facts.get(node)
        if facts is None:
            return None
        left = tuple(one for one in facts.pods if one.uid != uid)
        if known is None and len(left) == len(facts.pods):
            return None
        self._facts[node] = replace(facts, pods=left)
        return self._zones_of(node)

    def _zones_of(self, node: NodeName) -> NodeZones:
        facts = self._facts[node]
        pods = (*facts.pods, *self._given.get(node, {}).values())
        zones = []
        for place, zone in enumerate(facts.zones):
            free = dict(zone.most)
            for one in pods:
                for name, units in one.given[place].items() if place < len(one.given) else ():
                    free[name] = max(0, free.get(name, 0) - units)
            zones.append(ZoneAmounts(zone.id, zone.total, zone.most, free))
        return replace(facts, zones=tuple(zones), pods=pods)


def _between(before: NumaNode, after: NumaNode) -> tuple[dict[str, int], ...]:
    """What each zone gave."""
    return tuple(
        {name: taken for name, units in old.free.items() if (taken := units - new.free.get(name, 0)) > 0}
        for old, new in zip(before.zones, after.zones, strict=True)
    )
