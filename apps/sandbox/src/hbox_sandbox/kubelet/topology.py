"""The topology managers of emulated kubelets: nodes with the annotation `sandbox.hbox.io/numa` align pods to NUMA nodes, and refuse what they cannot align.

    {"policy": "restricted", "scope": "container", "cpuManager": "static", "box": "nps4"}

Boxes (zones and places of the cards): `a100`, `a800`, `h20`, `h100`, `h200`, `h800`, `l20` and `mi300x` 2 zones of 4 cards, `mi250x` and `b300` 4 zones of 2,
`nps4` 8 zones with cards on 3, 3, 1, 1, 7, 7, 5, 5 and none on the others, `snc` 4 zones of 3, 1, 3 and 1. `reserved`: CPUs of zone 0 that containers
never get. `acs`: true, PCI bridges redirect. `options`: of the CPU manager; only `align-by-socket` is emulated, with two sockets.
`down`: RDMA adapters without an active port (`pci` lists the adapters); adapters below the cards' switches are the devices of an allocatable resource
`rdma/...`. `memoryManager`: "Static", which divides the node's memory evenly, less `hugepages`, a quantity of hugepages-2Mi on each zone;
`reservedMemory`: a quantity of zone 0 that containers never get.

The rules follow the Go source step by step (pkg/kubelet/cm/topologymanager): every combination of hints, compared pair by pair. They are independent
of `hbox_common.model.numa`, which schedulers use, so that each can prove the other wrong. If resources come from several zones, the last zone is used up first,
which schedulers do not predict; CPUs under `align-by-socket` are taken as in Go (`takeByTopologyNUMAPacked`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

from hbox_common.errors import HBoxError
from hbox_common.model.devices import VENDORS
from hbox_common.model.resources import parse_quantity
from hbox_sandbox.api.cluster import Cluster
from hbox_sandbox.api.errors import Json
from hbox_sandbox.api.resources import NODES, PODS
from hbox_sandbox.api.store import Event, EventType, Version

from .memory import HUGE, MEMORY, AllocationError, MemoryManager, Reusable
from .pci import compute_adapters, tree_of

log = logging.getLogger(__name__)

NUMA = "sandbox.hbox.io/numa"
CPU = "cpu"

#: By box, the zone of each card of eight; and how many zones there are.
_TWO_SOCKETS = (2, (0, 0, 0, 0, 1, 1, 1, 1))
BOXES: Mapping[str, tuple[int, tuple[int, ...]]] = {
    **dict.fromkeys(("a100", "a800", "h20", "h100", "h200", "h800", "l20", "mi300x"), _TWO_SOCKETS),
    "mi250x": (4, (3, 3, 1, 1, 0, 0, 2, 2)),  # one socket with NPS4, as Frontier's user guide has it
    "b300": (4, (0, 0, 1, 1, 2, 2, 3, 3)),
    "nps4": (8, (3, 3, 1, 1, 7, 7, 5, 5)),
    "snc": (4, (0, 0, 0, 1, 2, 2, 2, 3)),
}

T = TypeVar("T")

Hint = tuple[int | None, bool]  # the mask, None for anywhere, and whether it is preferred


@dataclass(frozen=True, slots=True)
class _Kept:
    """`cpusToReuse` and `devicesToReuse` of one pod."""

    cpus: set[int] = field(default_factory=set)
    ids: dict[str, set[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Given:
    """What a pod has: CPUs by container, ids by container and resource. `kept`: what its init containers have left."""

    cpus: dict[str, tuple[int, ...]] = field(default_factory=dict)
    ids: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    kept: _Kept = field(default_factory=_Kept)


class NodeTopology:
    """One node. `devices`: resource -> id -> zone."""

    def __init__(
        self,
        node: str,
        cpus: int,
        cards: Mapping[str, int],
        numa: Mapping[str, Any],
        *,
        memory: int = 0,
        rdma: Mapping[str, int] | None = None,
    ) -> None:
        """rdma: resources of RDMA devices, and how many of each."""
        self.policy, self.scope = str(numa.get("policy", "none")), str(numa.get("scope", "container"))
        self.static = numa.get("cpuManager", "static") == "static"
        self.options = {str(name): str(value) for name, value in (numa.get("options") or {}).items()}
        self.by_socket = self.options.get("align-by-socket") == "true"
        self.box = str(numa.get("box", "h100"))
        self.count, self.places = BOXES[self.box]
        places = self.places
        self.acs = bool(numa.get("acs"))
        self.down = frozenset(map(str, numa.get("down") or ()))
        self.sockets = [zone * 2 // self.count for zone in range(self.count)]
        each = cpus // self.count
        self.zones = [tuple(range(zone * each, (zone + 1) * each)) for zone in range(self.count)]
        self.reserved = frozenset(self.zones[0][: int(numa.get("reserved", 0))])
        self.devices = {
            resource: {f"GPU-{node}-{i}": places[i * len(places) // count] for i in range(count)}
            for resource, count in cards.items()
        }
        up = {name: zone for name, zone in compute_adapters(self.box, places).items() if name not in self.down}
        self.devices |= {resource: dict(list(up.items())[:count]) for resource, count in (rdma or {}).items()}
        self.free_cpus = {cpu for own in self.zones for cpu in own} - self.reserved
        self.free_ids = {resource: set(ids) for resource, ids in self.devices.items()}
        self.given: dict[str, Given] = {}
        self.memory = _memory(memory, self.count, numa) if numa.get("memoryManager") == "Static" else None

    @property
    def cpus(self) -> tuple[int, ...]:
        """That containers may have."""
        return tuple(cpu for own in self.zones for cpu in own if cpu not in self.reserved)

    def admit(self, uid: str, pod: Json) -> Refusal | None:
        """Why the kubelet refuses the pod; None: then it has its CPUs, memory and devices."""
        guaranteed = (pod.get("status") or {}).get("qosClass") == "Guaranteed"
        init = [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") != "Always"]
        sidecars = [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]
        containers = [*init, *sidecars, *(pod["spec"].get("containers") or ())]
        asks = [self._asked(one, guaranteed=guaranteed) for one in containers]
        given, reusable = Given(), Reusable()
        try:
            hint: Hint = (None, False)
            if self.scope == "pod" and self.policy != "none":
                hint = self._aligned(_together(asks[len(init) :], asks[: len(init)]), Reusable(), given.kept)
            for place, (one, ask) in enumerate(zip(containers, asks, strict=True)):
                if self.scope != "pod" and self.policy != "none":
                    hint = self._aligned(ask, reusable, given.kept)
                if self.memory is not None:
                    own = _of_memory(ask)
                    self.memory.allocate(uid, one["name"], own, hint, reusable, init=place < len(init))
                    self.memory.reused(uid, one["name"], [other["name"] for other in init[:place]])
                mask = hint[0] if hint[0] is not None else (1 << self.count) - 1
                rest = {r: n for r, n in ask.items() if r not in _of_memory(ask)}
                self._give(given, one["name"], rest, mask, init=place < len(init))
        except (_RefusedError, AllocationError) as e:
            self._take_back(given)
            if self.memory is not None:
                self.memory.remove(uid)
            if isinstance(e, _RefusedError):
                return Refusal("TopologyAffinityError", str(e))
            return Refusal("UnexpectedAdmissionError", f"Allocate failed due to {e}, which is unexpected")
        self.given[uid] = given
        return None

    def leave(self, uid: str) -> None:
        if (given := self.given.pop(uid, None)) is not None:
            self._take_back(given)
            if self.memory is not None:
                self.memory.remove(uid)

    def _take_back(self, given: Given) -> None:
        self.free_cpus.update(given.kept.cpus, *given.cpus.values())
        for resource, ids in (*((resource, ids) for (_, resource), ids in given.ids.items()), *given.kept.ids.items()):
            self.free_ids[resource].update(ids)

    def _asked(self, container: Json, *, guaranteed: bool) -> dict[str, int]:
        limits = (container.get("resources") or {}).get("limits") or {}
        found = {name: int(str(limits[name])) for name in self.devices if str(limits.get(name, "")).isdigit()}
        if self.static and guaranteed and CPU in limits:
            cpus = parse_quantity(str(limits[CPU]))
            if cpus == int(cpus):
                found[CPU] = int(cpus)
        if self.memory is not None and guaranteed:
            asked = {**limits, **((container.get("resources") or {}).get("requests") or {})}
            found |= {
                name: int(parse_quantity(str(size))) for name, size in asked.items() if name == MEMORY or name.startswith(HUGE)
            }
        return {name: units for name, units in found.items() if units}

    def _aligned(self, ask: Mapping[str, int], reusable: Reusable, kept: _Kept) -> Hint:
        """The zones that the topology manager passes to the hint providers. Raises _RefusedError."""
        kinds = _of_memory(ask)
        hints = [self._hints(resource, units, kept) for resource, units in ask.items() if resource not in kinds]
        if kinds and self.memory is not None:
            of_memory = self.memory.hints(kinds, reusable)
            hints += [of_memory or [(None, True)] for _ in kinds]
        mask, preferred = self._merged(hints)
        if not preferred and self.policy in ("restricted", "single-numa-node"):
            raise _RefusedError(f"Resources cannot be allocated with Topology locality: {dict(ask)}")
        if self.policy == "single-numa-node" and mask == (1 << self.count) - 1:
            return None, preferred
        return mask, preferred

    def _amounts(self, resource: str, zone: int, kept: _Kept) -> tuple[int, int, int]:
        """What is there, what is free, and what init containers of the pod have left."""
        if resource == CPU:
            own = self.zones[zone]
            return len(own), sum(cpu in self.free_cpus for cpu in own), sum(cpu in kept.cpus for cpu in own)
        ids, left = [id_ for id_, place in self.devices[resource].items() if place == zone], kept.ids.get(resource, set())
        return len(ids), sum(id_ in self.free_ids[resource] for id_ in ids), sum(id_ in left for id_ in ids)

    def _hints(self, resource: str, units: int, kept: _Kept) -> list[Hint]:
        least, found = self.count, []
        amounts = [self._amounts(resource, zone, kept) for zone in range(self.count)]
        for mask in range(1, 1 << self.count):
            own = [amounts[zone] for zone in range(self.count) if mask >> zone & 1]
            if sum(total for total, _, _ in own) >= units:
                least = min(least, mask.bit_count())
            if any(left for zone, (_, _, left) in enumerate(amounts) if not mask >> zone & 1):
                continue
            if sum(free + left for _, free, left in own) >= units:
                found.append(mask)
        by_socket = self.by_socket and resource == CPU
        return [(mask, (by_socket and self._is_socket_aligned(mask, least)) or mask.bit_count() == least) for mask in found]

    def _is_socket_aligned(self, mask: int, least: int) -> bool:
        per_socket = self.count // len(set(self.sockets))
        spanned = {socket for zone, socket in enumerate(self.sockets) if mask >> zone & 1}
        return len(spanned) == (least + per_socket - 1) // per_socket

    def _merged(self, hints: Sequence[list[Hint]]) -> tuple[int, bool]:
        default = (1 << self.count) - 1
        if self.policy == "single-numa-node":
            kept = [[h for h in one if h[1] and (h[0] is None or h[0].bit_count() == 1)] for one in hints]
        else:
            kept = [list(one) or [(None, False)] for one in hints]
        widths = [min(widths) for one in kept if (widths := [h[0].bit_count() for h in one if h[0] is not None])]
        wanted = max(widths, default=0)
        best: tuple[int, bool] | None = None
        for combination in product(*kept):
            masks = [mask for mask, _ in combination if mask is not None]
            merged = default
            for mask in masks:
                merged &= mask
            preferred = all(h[1] for h in combination) and all(mask == masks[0] for mask in masks)
            if merged and (best is None or _better(best, (merged, preferred), wanted)):
                best = merged, preferred
        return best or (default, False)

    def _give(self, given: Given, container: str, ask: Mapping[str, int], mask: int, *, init: bool) -> None:
        order = sorted(range(self.count), key=lambda zone: (not mask >> zone & 1, -zone))
        for resource, units in ask.items():
            if resource == CPU:
                usable = self.free_cpus | given.kept.cpus
                in_order = [cpu for zone in order for cpu in self.zones[zone] if cpu in usable][:units]
                cpus = self._packed(usable, units, mask) if self.by_socket else in_order
                self.free_cpus.difference_update(cpus)
                if init:
                    given.kept.cpus.update(cpus)
                else:
                    given.kept.cpus.difference_update(cpus)
                    given.cpus[container] = tuple(sorted(cpus))
                got = len(cpus)
            else:
                places, left = self.devices[resource], given.kept.ids.setdefault(resource, set())
                rest = sorted(self.free_ids[resource], key=lambda id_: (order.index(places[id_]), id_))
                ids = [*sorted(left), *rest][:units]
                self.free_ids[resource].difference_update(ids)
                if init:
                    left.update(ids)
                else:
                    left.difference_update(ids)
                    given.ids[container, resource] = tuple(ids)
                got = len(ids)
            if units > got:
                raise _RefusedError(f"not enough {resource} available to satisfy the request")

    def _packed(self, usable: set[int], units: int, mask: int) -> list[int]:
        """`allocateCPUs` under align-by-socket, one thread a core: of the sockets that the set spans, then of the others."""
        spanned = {socket for zone, socket in enumerate(self.sockets) if mask >> zone & 1}
        near = {cpu for zone, own in enumerate(self.zones) if self.sockets[zone] in spanned for cpu in own} & usable
        first = self._take_packed(near, min(units, len(near)))
        return first + self._take_packed(usable - set(first), units - len(first))

    def _take_packed(self, usable: set[int], units: int) -> list[int]:
        left, found = set(usable), list[int]()
        cpus_of = {
            socket: [c for zone, own in enumerate(self.zones) if self.sockets[zone] == socket for c in own]
            for socket in set(self.sockets)
        }

        def count(cpus: Sequence[int]) -> int:
            return sum(cpu in left for cpu in cpus)

        def take(cpus: Sequence[int]) -> None:
            taken = [cpu for cpu in cpus if cpu in left][: units - len(found)]
            found.extend(taken)
            left.difference_update(taken)

        def sockets() -> list[int]:
            return sorted(cpus_of, key=lambda socket: (count(cpus_of[socket]), socket))

        def zones() -> list[int]:
            own: list[int] = []
            for socket in sockets():
                inside = [zone for zone in range(self.count) if self.sockets[zone] == socket]
                own += sorted(inside, key=lambda zone: (count(self.zones[zone]), zone))
            return own

        for whole in [cpus_of[socket] for socket in sockets()]:
            if units - len(found) >= len(whole) == count(whole):
                take(whole)
        for whole_zone in [self.zones[zone] for zone in zones()]:
            if units - len(found) >= len(whole_zone) == count(whole_zone):
                take(whole_zone)
        for zone in zones():
            take(self.zones[zone])
        return found


@dataclass(frozen=True, slots=True)
class Refusal:
    """As the kubelet writes it on the pod."""

    reason: str
    message: str


def _of_memory(ask: Mapping[str, T]) -> dict[str, T]:
    return {name: size for name, size in ask.items() if name == MEMORY or name.startswith(HUGE)}


def _memory(size: int, zones: int, numa: Mapping[str, Any]) -> MemoryManager:
    own = [{MEMORY: size // zones} for _ in range(zones)]
    if huge := int(parse_quantity(str(numa.get("hugepages", "0")))):
        own = [{MEMORY: one[MEMORY] - huge, HUGE + "2Mi": huge} for one in own]
    own[0][MEMORY] -= int(parse_quantity(str(numa.get("reservedMemory", "0"))))
    return MemoryManager(own)


class _RefusedError(Exception):
    """In the kubelet's words."""


def _better(current: tuple[int, bool], candidate: tuple[int, bool], wanted: int) -> bool:
    """Whether Go's merge takes the candidate."""
    if candidate[1] != current[1]:
        return candidate[1]
    now, then = current[0].bit_count(), candidate[0].bit_count()
    narrower = (then, candidate[0]) < (now, current[0])
    if current[1] or now > wanted:
        return narrower
    if now == wanted:
        return then == wanted and narrower
    if then > wanted:
        return False
    return then == wanted or then > now or (then == now and narrower)


def _together(asks: Sequence[Mapping[str, int]], alone: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for ask in (*asks, *alone) for name in ask)
    return {name: max([sum(ask.get(name, 0) for ask in asks), *(ask.get(name, 0) for ask in alone)]) for name in names}


class Topologies:
    """Of all nodes that have the annotation."""

    def __init__(self, cluster: Cluster) -> None:
        self.of: dict[str, NodeTopology] = {}
        cluster.store.listeners.append(self._note)

    def admit(self, pod: Version) -> Refusal | None:
        """Why the kubelet of the pod's node refuses it."""
        node = self.of.get(pod.fields["spec.nodeName"])
        return node.admit(pod.uid, pod.load()) if node is not None else None

    def _note(self, storage: str, event: Event) -> None:
        version = event.version
        if storage == NODES.storage:
            if event.type is EventType.ADDED and (made := topology_of(version.name, version.load())) is not None:
                self.of[version.name] = made
            elif event.type is EventType.DELETED:
                self.of.pop(version.name, None)
        elif storage == PODS.storage and self.of:
            node = self.of.get(version.fields["spec.nodeName"])
            if node is not None and (
                event.type is EventType.DELETED or version.fields["status.phase"] in ("Succeeded", "Failed")
            ):
                node.leave(version.uid)


def topology_of(name: str, manifest: Json) -> NodeTopology | None:
    """None where the node has no such annotation, or one that cannot be read, which is logged."""
    text = (manifest["metadata"].get("annotations") or {}).get(NUMA)
    if text is None:
        return None
    allocatable = (manifest.get("status") or {}).get("allocatable") or {}
    try:
        cards = {vendor.cards: int(allocatable[vendor.cards]) for vendor in VENDORS if vendor.cards in allocatable}
        rdma = {name: int(units) for name, units in allocatable.items() if name.startswith("rdma/")}
        memory = int(parse_quantity(str(allocatable.get(MEMORY, "1Gi"))))
        cpus = int(parse_quantity(str(allocatable.get(CPU, "4"))))
        return NodeTopology(name, cpus, cards, json.loads(text), memory=memory, rdma=rdma)
    except (HBoxError, ValueError, KeyError, TypeError, AttributeError) as e:
        log.warning("node %s: annotation %s cannot be read: %s", name, NUMA, e)
        return None


def files_of(node: NodeTopology) -> Iterator[tuple[str, str | bytes]]:
    """Files below the kubelet's folder: its configuration, the CPU manager's state, and the zones' /sys in `host`."""
    manager = "static" if node.static else "none"
    rules: dict[str, object] = {
        "cpuManagerPolicy": manager,
        "topologyManagerPolicy": node.policy,
        "topologyManagerScope": node.scope,
    }
    if node.options:
        rules["cpuManagerPolicyOptions"] = node.options
    if node.memory is not None:
        rules["memoryManagerPolicy"] = "Static"
    yield "config.yaml", json.dumps({"kind": "KubeletConfiguration", **rules})
    yield "cpu_manager_state", json.dumps({"policyName": manager, "defaultCpuSet": "", "checksum": 0})
    yield from tree_of(node.box, node.places, down=node.down, amd=node.box.startswith("mi"), acs=node.acs)[0].items()
    sys = "host/sys/devices/system"
    yield f"{sys}/node/online", f"0-{node.count - 1}"
    for zone, cpus in enumerate(node.zones):
        yield f"{sys}/node/node{zone}/cpulist", f"{cpus[0]}-{cpus[-1]}"
        yield f"{sys}/node/node{zone}/meminfo", f"Node {zone} MemTotal: 1048576 kB"
        yield f"{sys}/node/node{zone}/distance", " ".join("10" if other == zone else "21" for other in range(node.count))
        yield f"{sys}/cpu/cpu{cpus[0]}/topology/physical_package_id", str(node.sockets[zone])
        yield f"{sys}/cpu/cpu{cpus[0]}/topology/thread_siblings_list", str(cpus[0])


def links_of(node: NodeTopology) -> dict[str, str]:
    """Links below the kubelet's folder, and what they lead to."""
    return tree_of(node.box, node.places)[1]
