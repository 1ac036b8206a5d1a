"""The kubelet's answers and its checkpoints as one value of the model, within bounds and in an order that does not depend on the kubelet's."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from hbox_common.kubelet.podresources import (
    MAX_NUMA,
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from hbox_common.model import ContainerHolds, DeviceIds, HeldMemory, NodeDevices, NodeName, ZoneMemory
from hbox_common.model.bounds import ID_BYTES, KEY_BYTES, NAME_BYTES, is_plain
from hbox_common.model.nodedevices import MAX_CONTAINERS, MAX_IDS, cpu_list
from hbox_common.model.nodenuma import MAX_ZONES
from hbox_common.model.nodezones import MAX_RESOURCES, MAX_UNITS
from hbox_common.model.numa import is_memory

#: (resource, device id) -> uid of the pod that holds it.
Holders: TypeAlias = Mapping[tuple[str, str], str]

#: Of a device's id, which is the plugin's own word.
DEVICE_BYTES = 2 * ID_BYTES
#: Of the checkpoint, which holds each plugin's answers as well.
CHECKPOINT_BYTES = 64 * 2**20


def holders(checkpoint: bytes) -> dict[tuple[str, str], str]:
    """Whose each device is, by `kubelet_internal_checkpoint`: the kubelet's answers name pods by name alone, and a name may come back. Of what is no such
    checkpoint, nothing. Never raises."""
    try:
        entries = json.loads(checkpoint)["Data"]["PodDeviceEntries"] or ()
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    found: dict[tuple[str, str], str] = {}
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        uid, resource = entry.get("PodUID"), entry.get("ResourceName")
        if not (isinstance(uid, str) and isinstance(resource, str) and is_plain(uid, ID_BYTES)):
            continue
        found.update(((resource, id_), uid) for id_ in _ids(entry.get("DeviceIDs")))
    return found


def _ids(devices: Any) -> Iterable[str]:
    """By NUMA node since Kubernetes 1.20, a plain list before."""
    parts = devices.values() if isinstance(devices, dict) else [devices]
    return [id_ for part in parts if isinstance(part, list) for id_ in part if isinstance(id_, str)]


def zone_memory(checkpoint: bytes) -> tuple[ZoneMemory, ...]:
    """What each NUMA node gives of memory and huge pages, by `memory_manager_state`. Of what is no such checkpoint, or one of policy None, nothing. Never
    raises."""
    try:
        found = json.loads(checkpoint)
        if found["policyName"] not in ("Static", "BestEffort"):
            return ()
        zones = [_zone_memory(int(id_), own) for id_, own in list(found["machineState"].items())[:MAX_ZONES]]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError):
        return ()
    return tuple(sorted((zone for zone in zones if 0 <= zone.zone <= MAX_NUMA), key=lambda zone: zone.zone))


def _zone_memory(id_: int, own: Mapping[str, Any]) -> ZoneMemory:
    tables = sorted(
        (kind, own["memoryMap"][kind]) for kind in own["memoryMap"] if is_memory(kind) and is_plain(kind, KEY_BYTES)
    )
    cells = sorted({cell for cell in own.get("cells") or () if isinstance(cell, int) and 0 <= cell <= MAX_NUMA})
    return ZoneMemory(
        id_,
        {kind: _bytes(table["allocatable"]) for kind, table in tables[:MAX_RESOURCES]},
        {kind: _bytes(table["free"]) for kind, table in tables[:MAX_RESOURCES]},
        max(0, min(int(own.get("numberOfAssignments", 0)), MAX_CONTAINERS * MAX_RESOURCES)),
        tuple(cells[:MAX_ZONES]),
    )


def _bytes(size: Any) -> int:
    return max(0, min(int(size), MAX_UNITS))


def node_devices(
    node: NodeName,
    pods: Sequence[PodResources],
    allocatable: AllocatableResources,
    uids: Holders,
    *,
    at: float,
    memory: tuple[ZoneMemory, ...] = (),
) -> NodeDevices:
    """What is told of the node. Containers that hold nothing of their own are not in it; what no message takes is counted in `left_out`."""
    holds: list[ContainerHolds] = []
    left_out = ids = 0
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        for container in pod.containers:
            if not (container.devices or container.cpus or container.memory):
                continue
            one = _container(pod, container, uids)
            ids += sum(len(part.ids) for part in one.devices) if one else 0
            if one is None or len(holds) >= MAX_CONTAINERS or ids > MAX_IDS:
                left_out += 1
            else:
                holds.append(one)
    given = _grouped(allocatable.devices)
    kept: list[DeviceIds] = []
    for part in given:
        if sum(len(one.ids) for one in kept) + len(part.ids) > MAX_IDS:
            left_out += len(part.ids)
        else:
            kept.append(part)
    return NodeDevices(node, at, tuple(kept), cpu_list(allocatable.cpus), tuple(holds), left_out, memory=memory)


def _container(pod: PodResources, container: ContainerResources, uids: Holders) -> ContainerHolds | None:
    """None where a name is not fit to be passed on."""
    if not all(is_plain(name, NAME_BYTES) for name in (pod.namespace, pod.name, container.name)):
        return None
    devices = _grouped(container.devices)
    owners = {uids.get((part.resource, id_), "") for part in devices for id_ in part.ids}
    return ContainerHolds(
        pod.namespace,
        pod.name,
        container.name,
        devices,
        cpu_list(container.cpus),
        tuple(_memory(container)),
        owners.pop() if len(owners) == 1 else "",
    )


def _memory(container: ContainerResources) -> list[HeldMemory]:
    found = [HeldMemory(m.kind, m.size_bytes, m.numa) for m in container.memory if is_plain(m.kind, KEY_BYTES)]
    return sorted(found, key=lambda one: (one.kind, one.numa, one.size_bytes))


def _grouped(devices: Iterable[ContainerDevices]) -> tuple[DeviceIds, ...]:
    """One value for all devices of a resource at one place: kubelets name them one by one, or together."""
    found: dict[tuple[str, tuple[int, ...]], set[str]] = {}
    for one in devices:
        if is_plain(one.resource, KEY_BYTES):
            own = (id_ for id_ in one.ids if is_plain(id_, DEVICE_BYTES))
            found.setdefault((one.resource, one.numa), set()).update(own)
    return tuple(DeviceIds(resource, tuple(sorted(ids)), numa) for (resource, numa), ids in sorted(found.items()) if ids)
