"""The kubelet's answers and its device checkpoint as one value of the model, within bounds and in an order that does not depend on the kubelet's."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from hbox_common.kubelet.podresources import AllocatableResources, ContainerDevices, ContainerResources, PodResources
from hbox_common.model import ContainerHolds, DeviceIds, HeldMemory, NodeDevices, NodeName
from hbox_common.model.bounds import ID_BYTES, KEY_BYTES, NAME_BYTES, is_plain
from hbox_common.model.nodedevices import MAX_CONTAINERS, MAX_IDS, cpu_list

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


def node_devices(
    node: NodeName, pods: Sequence[PodResources], allocatable: AllocatableResources, uids: Holders, *, at: float
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
    return NodeDevices(node, at, tuple(kept), cpu_list(allocatable.cpus), tuple(holds), left_out)


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
