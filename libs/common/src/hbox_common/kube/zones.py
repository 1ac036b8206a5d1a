"""NUMA nodes published as objects: NodeResourceTopology (topology.node.k8s.io/v1alpha2, NFD's topology-updater and others) and Volcano's Numatopology
(nodeinfo.volcano.sh/v1alpha1, its resource-exporter). Both publish sums, once a minute or after a change, and do not show which pod has which part.

NodeResourceTopology does not contain the CPU manager's policy: its CPUs are treated as allocated one by one. Memory is not read.

A client with write permission for such objects may write anything: they are read as text, so that an unreadable one is reported by name, and their size is
checked first.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from hbox_common.errors import InvalidRequest
from hbox_common.model import NodeName, NodeZones, ZoneAmounts
from hbox_common.model.bounds import KEY_BYTES, is_plain, sanitized
from hbox_common.model.nodedevices import parse_cpu_list
from hbox_common.model.nodezones import MAX_RESOURCES, MAX_UNITS
from hbox_common.model.numa import CPU, MAX_NODES, NumaPolicy, NumaScope
from hbox_common.model.resources import MEMORY, parse_quantity

from .objects import KubeObject
from .resources import Resource

NODE_RESOURCE_TOPOLOGIES = Resource("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", namespaced=False)
NUMATOPOLOGIES = Resource("nodeinfo.volcano.sh", "v1alpha1", "numatopologies", namespaced=False)


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pass


class NamedValue(_Slim, frozen=True, gc=False):
    name: str = ""
    value: str | int = ""


class ZoneResource(_Slim, frozen=True, gc=False):
    name: str = ""
    capacity: str | float = 0
    allocatable: str | float = 0
    available: str | float = 0


class TopologyZone(_Slim, frozen=True, gc=False):
    name: str = ""
    type: str = ""
    costs: tuple[NamedValue, ...] = ()
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(KubeObject, frozen=True, gc=False):
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[NamedValue, ...] = ()
    zones: tuple[TopologyZone, ...] = ()


class CpuDetail(_Slim, frozen=True, gc=False):
    numa: int = 0


class NumaResource(_Slim, frozen=True, gc=False):
    allocatable: str = ""


class NumatopologySpec(_Slim, frozen=True, gc=False):
    policies: dict[str, str] = {}
    numares: dict[str, NumaResource] = {}
    cpu_detail: dict[str, CpuDetail] = {}


class Numatopology(KubeObject, frozen=True, gc=False):
    spec: NumatopologySpec = NumatopologySpec()


class TopologyText(KubeObject, frozen=True, gc=False):
    """A NodeResourceTopology as it came."""

    topology_policies: msgspec.Raw = msgspec.Raw(b"null")
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    zones: msgspec.Raw = msgspec.Raw(b"null")


class NumatopologyText(KubeObject, frozen=True, gc=False):
    """A Numatopology as it came."""

    spec: msgspec.Raw = msgspec.Raw(b"null")


class _ZoneKind(_Slim, frozen=True, gc=False):
    name: str = ""
    type: str = ""


#: Of one object: eight zones of thirty resources are 30 KB, 512 CPUs of a Numatopology as many.
MOST_BYTES = 256 * 2**10
#: Zones of all types.
MOST_ZONES = 256
#: The number of a NUMA node.
MAX_NUMA = 65_535

T = TypeVar("T")


def topology_of(text: TopologyText) -> NodeResourceTopology:
    """If there are more zones than a topology manager supports, only their names and types are read. Raises InvalidRequest if the text is too large or not a
    topology."""
    _bounded(text.topology_policies, text.attributes, text.zones)
    zones = _read("zones", text.zones, list[msgspec.Raw], [])
    if len(zones) > MOST_ZONES:
        raise InvalidRequest(f"{len(zones)} zones are more than the {MOST_ZONES} that are read")
    kinds = [_read("zones", zone, _ZoneKind, _ZoneKind()) for zone in zones]
    too_many = sum(kind.type in _ZONE_TYPES for kind in kinds) > MAX_NODES
    return NodeResourceTopology(
        text.metadata,
        _read("topologyPolicies", text.topology_policies, tuple[str, ...], ()),
        _read("attributes", text.attributes, tuple[NamedValue, ...], ()),
        tuple(
            TopologyZone(kind.name, kind.type) if too_many else _read("zones", zone, TopologyZone, TopologyZone())
            for kind, zone in zip(kinds, zones, strict=True)
        ),
    )


def numatopology_of(text: NumatopologyText) -> Numatopology:
    """Raises InvalidRequest for what is too large or is none."""
    _bounded(text.spec)
    return Numatopology(text.metadata, _read("spec", text.spec, NumatopologySpec, NumatopologySpec()))


def _bounded(*parts: msgspec.Raw) -> None:
    if (size := sum(len(bytes(part)) for part in parts)) > MOST_BYTES:
        raise InvalidRequest(f"{size >> 10} KiB are more than the {MOST_BYTES >> 10} that are read")


def _read(field: str, text: msgspec.Raw, kind: type[T], otherwise: T) -> T:
    if bytes(text) == b"null":
        return otherwise
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as e:
        raise InvalidRequest(f"{field}: {e}") from e


#: Of zones that are NUMA nodes; others are sockets, caches and what exporters think of.
_ZONE_TYPES = ("Node", "")

#: The form before `attributes`, of the first versions: policy and scope in one word.
_OLD = re.compile(r"(SingleNUMANode|Restricted|BestEffort)(Container|Pod)?(Level)?")
_OLD_POLICY = {
    "SingleNUMANode": NumaPolicy.SINGLE,
    "Restricted": NumaPolicy.RESTRICTED,
    "BestEffort": NumaPolicy.BEST_EFFORT,
}


def zones_of_topology(topology: NodeResourceTopology, *, at: float) -> NodeZones:
    """Raises InvalidRequest for invalid amounts, or zones that cannot be distinguished."""
    policy, scope = _rules(topology)
    name = NodeName(topology.metadata.name)
    zones = [zone for zone in topology.zones if zone.type in _ZONE_TYPES]
    if policy is NumaPolicy.NONE or not zones:
        return NodeZones(name, at, source="NodeResourceTopology")
    if len(zones) > MAX_NODES:
        return _unknown(name, at, policy, "NodeResourceTopology", len(zones))
    ids = [_number(zone.name) for zone in zones]
    if len(set(ids)) < len(ids):
        raise InvalidRequest("two of its zones have one number", hint="zones are called node-0, node-1 and so on")
    distances = tuple(_distances(zone, zones) for zone in zones)
    found = tuple(_amounts(id_, zone.resources) for id_, zone in zip(ids, zones, strict=True))
    return NodeZones(
        name,
        at,
        policy,
        scope,
        found,
        tuple(sorted({resource for zone in found for resource in zone.total})[:MAX_RESOURCES]),
        distances=distances if all(distances) else (),
        source="NodeResourceTopology",
    )


def zones_of_numatopology(topology: Numatopology, *, at: float) -> NodeZones:
    """CPUs alone. Raises InvalidRequest for a list of CPUs that is none."""
    spec, name = topology.spec, NodeName(topology.metadata.name)
    policy = _policy(spec.policies.get("TopologyManagerPolicy", ""))
    if policy is NumaPolicy.NONE or not spec.cpu_detail:
        return NodeZones(name, at, source="Numatopology")
    place: dict[int, int] = {}
    for number, detail in spec.cpu_detail.items():
        if not (number.isascii() and number.isdigit() and len(number) < len("100000")) or not 0 <= detail.numa <= MAX_NUMA:
            raise InvalidRequest(f"cpuDetail names {sanitized(number, 20)!r} on NUMA node {detail.numa}")
        place[int(number)] = detail.numa
    ids = sorted(set(place.values()))
    if len(ids) > MAX_NODES:
        return _unknown(name, at, policy, "Numatopology", len(ids))
    try:
        free = parse_cpu_list(spec.numares[CPU].allocatable) if CPU in spec.numares else ()
    except ValueError as e:
        raise InvalidRequest(f"numares.cpu.allocatable: {e}") from e
    total = {id_: sum(numa == id_ for numa in place.values()) for id_ in ids}
    left = {id_: sum(place.get(cpu) == id_ for cpu in free) for id_ in ids}
    static = spec.policies.get("CPUManagerPolicy") == "static"
    zones = tuple(ZoneAmounts(id_, {CPU: total[id_]}, {CPU: total[id_]}, {CPU: left[id_]}) for id_ in ids)
    return NodeZones(name, at, policy, NumaScope.CONTAINER, zones, (CPU,) if static else (), source="Numatopology")


def _unknown(name: NodeName, at: float, policy: NumaPolicy, source: str, zones: int) -> NodeZones:
    problem = f"{zones} NUMA nodes are more than the {MAX_NODES} that a topology manager takes"
    return NodeZones(name, at, policy, source=source, problem=problem)


def _rules(topology: NodeResourceTopology) -> tuple[NumaPolicy, NumaScope]:
    attributes = {one.name: str(one.value) for one in topology.attributes}
    if "topologyManagerPolicy" in attributes:
        scope = NumaScope.POD if attributes.get("topologyManagerScope") == NumaScope.POD else NumaScope.CONTAINER
        return _policy(attributes["topologyManagerPolicy"]), scope
    old = _OLD.fullmatch(topology.topology_policies[0]) if topology.topology_policies else None
    if old is None:
        return NumaPolicy.NONE, NumaScope.CONTAINER
    return _OLD_POLICY[old[1]], NumaScope.POD if old[2] == "Pod" else NumaScope.CONTAINER


def _policy(text: str) -> NumaPolicy:
    return NumaPolicy(text) if text in tuple(NumaPolicy) else NumaPolicy.NONE


def _number(name: str) -> int:
    found = re.search(r"(\d{1,5})$", name)
    if found is None:
        raise InvalidRequest(f"a zone is called {sanitized(name, 40)!r}", hint="zones are called node-0, node-1 and so on")
    return int(found[1])


def _amounts(id_: int, resources: tuple[ZoneResource, ...]) -> ZoneAmounts:
    total: dict[str, int] = {}
    most: dict[str, int] = {}
    free: dict[str, int] = {}
    for one in resources[:MAX_RESOURCES]:
        if one.name == MEMORY or one.name.startswith("hugepages-") or not is_plain(one.name, KEY_BYTES):
            continue
        total[one.name], most[one.name] = _units(one.capacity), _units(one.allocatable)
        free[one.name] = min(_units(one.available), most[one.name])
    return ZoneAmounts(id_, total, most, free)


def _units(quantity: str | float) -> int:
    """Whole units: a fraction of a CPU is never allocated exclusively."""
    return max(0, min(MAX_UNITS, int(parse_quantity(quantity))))


def _distances(zone: TopologyZone, zones: list[TopologyZone]) -> tuple[int, ...]:
    """Distances to all zones; () if incomplete."""
    distance_to: Mapping[str, str | int] = {cost.name: cost.value for cost in zone.costs}
    found = [distance_to.get(other.name) for other in zones]
    fits = all(isinstance(cost, int) and 0 < cost <= 65_535 for cost in found)
    return tuple(int(cost) for cost in found if cost is not None) if fits else ()
