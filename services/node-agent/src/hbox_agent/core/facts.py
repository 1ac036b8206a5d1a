"""The kubelet's answers and its checkpoints as one value of the model, within bounds and in an order that does not depend on the kubelet's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from hbox_common.errors import InvalidRequest
from hbox_common.kubelet.podresources import (
    MAX_NUMA,
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from hbox_common.model import ContainerHolds, DeviceIds, HeldMemory, NodeDevices, NodeName, ZoneMemory
from hbox_common.model.bounds import ID_BYTES, KEY_BYTES, NAME_BYTES, VALUE_BYTES, is_plain, sanitized
from hbox_common.model.nodedevices import MAX_CONTAINERS, MAX_IDS, cpu_list
from hbox_common.model.nodenuma import MAX_ZONES
from hbox_common.model.nodezones import MAX_RESOURCES, MAX_UNITS
from hbox_common.model.numa import is_memory

T = TypeVar("T")

#: (resource, device id) -> uid of the pod that holds it.
Holders: TypeAlias = Mapping[tuple[str, str], str]

#: Of a device's id, which is the plugin's own word.
DEVICE_BYTES = 2 * ID_BYTES
#: Of the checkpoint, which holds each plugin's answers as well, and of its part about pods.
CHECKPOINT_BYTES, ENTRIES_BYTES = 64 * 2**20, 8 * 2**20
#: Devices that pods hold, of one node.
MAX_HELD = 100_000
#: Of the memory manager's state: some hundred bytes a container.
STATE_BYTES = 2 * 2**20
#: Of a kind of memory: hugepages-1048576Ki.
KIND_BYTES = 64
#: Ranges of CPUs, blocks of memory and places of all containers together, so that they go into one message.
MAX_PLACES = 4096


class _Entry(msgspec.Struct, gc=False):
    """Devices by NUMA node since Kubernetes 1.20, a plain list before."""

    uid: str = msgspec.field(name="PodUID")
    resource: str = msgspec.field(name="ResourceName")
    devices: dict[str, list[str] | None] | list[str] | None = msgspec.field(name="DeviceIDs", default=None)


class _Data(msgspec.Struct):
    entries: msgspec.Raw = msgspec.field(name="PodDeviceEntries")


class _Checkpoint(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


class _Table(msgspec.Struct, gc=False):
    allocatable: int = 0
    free: int = 0


class _Zone(msgspec.Struct, gc=False, rename="camel"):
    memory_map: dict[str, _Table]
    cells: list[int] | None = None
    number_of_assignments: int = 0


class _MemoryState(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[str, _Zone] | None = None


def holders(checkpoint: bytes) -> dict[tuple[str, str], str]:
    """Whose each device is, by `kubelet_internal_checkpoint`: the kubelet's answers name pods by name alone, and a name may come back. Raises
    InvalidRequest."""
    raw = bytes(_decoded(checkpoint, _Checkpoint).data.entries)
    if len(raw) > ENTRIES_BYTES:
        raise InvalidRequest(f"it has more than {ENTRIES_BYTES >> 20} MiB of pod entries")
    found: dict[tuple[str, str], str] = {}
    for entry in _decoded(raw, list[_Entry]) if raw != b"null" else ():
        if not is_plain(entry.uid, ID_BYTES):
            continue
        parts = entry.devices.values() if isinstance(entry.devices, dict) else [entry.devices]
        for part in parts:
            if len(found) + len(part or ()) > MAX_HELD:
                raise InvalidRequest(f"it reports holders of more than {MAX_HELD} devices")
            found.update(((entry.resource, id_), entry.uid) for id_ in part or ())
    return found


def zone_memory(checkpoint: bytes) -> tuple[ZoneMemory, ...]:
    """What each NUMA node gives of memory and huge pages, by `memory_manager_state`. Of one of policy None, nothing. Raises InvalidRequest."""
    state = _decoded(checkpoint, _MemoryState)
    if state.policy_name not in ("Static", "BestEffort"):
        return ()
    zone_of = state.machine_state or {}
    if len(zone_of) > MAX_ZONES:
        raise InvalidRequest(f"it names {len(zone_of)} NUMA nodes")
    zones = {_zone_id(text): own for text, own in zone_of.items()}
    if len(zones) < len(zone_of):
        raise InvalidRequest("it names a NUMA node twice")
    return tuple(_zone_memory(id_, own) for id_, own in sorted(zones.items()))


def _decoded(text: bytes, kind: type[T]) -> T:
    """Decode JSON. Of a repeated key the last value counts, as in Go; unknown keys are ignored. Raises InvalidRequest."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, ValueError) as e:
        raise InvalidRequest(f"it is no such checkpoint: {sanitized(str(e), VALUE_BYTES)}") from e


def _zone_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_NUMA)) and int(text) <= MAX_NUMA):
        raise InvalidRequest(f"it names a NUMA node {sanitized(text, 20)!r}")
    return int(text)


def _zone_memory(id_: int, own: _Zone) -> ZoneMemory:
    tables = sorted((kind, table) for kind, table in own.memory_map.items() if is_memory(kind) and is_plain(kind, KIND_BYTES))
    if len(tables) > MAX_RESOURCES:
        raise InvalidRequest(f"it names {len(tables)} kinds of memory")
    most = {kind: max(0, min(table.allocatable, MAX_UNITS)) for kind, table in tables}
    cells = sorted({cell for cell in own.cells or () if 0 <= cell <= MAX_NUMA})
    return ZoneMemory(
        id_,
        most,
        {kind: max(0, min(table.free, most[kind])) for kind, table in tables},
        max(0, min(own.number_of_assignments, MAX_CONTAINERS * MAX_RESOURCES)),
        tuple(cells[:MAX_ZONES]),
    )


def node_devices(
    node: NodeName,
    pods: Sequence[PodResources],
    allocatable: AllocatableResources,
    uids: Holders,
    *,
    at: float,
    memory: tuple[ZoneMemory, ...] = (),
    problems: tuple[str, ...] = (),
) -> NodeDevices:
    """The message about the node. Containers without exclusive resources are not in it; `left_out` counts what exceeds a message."""
    holds: list[ContainerHolds] = []
    left_out = ids = places = 0
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        for container in pod.containers:
            if not (container.devices or container.cpus or container.memory):
                continue
            one = _container(pod, container, uids)
            more = sum(len(part.ids) for part in one.devices) if one is not None else 0
            wider = _places(one) if one is not None else 0
            if one is None or len(holds) >= MAX_CONTAINERS or ids + more > MAX_IDS or places + wider > MAX_PLACES:
                left_out += 1
            else:
                holds.append(one)
                ids, places = ids + more, places + wider
    given, unfit = _grouped(allocatable.devices)
    left_out += unfit
    kept: list[DeviceIds] = []
    ids = places = 0
    for part in given:
        if ids + len(part.ids) > MAX_IDS or places + len(part.numa) > MAX_PLACES:
            left_out += len(part.ids)
        else:
            kept.append(part)
            ids += len(part.ids)
            places += len(part.numa)
    return NodeDevices(
        node, at, tuple(kept), cpu_list(allocatable.cpus), tuple(holds), left_out, memory=memory, problems=problems
    )


def _container(pod: PodResources, container: ContainerResources, uids: Holders) -> ContainerHolds | None:
    """None where a name or an id is not fit to be passed on."""
    if not all(is_plain(name, NAME_BYTES) for name in (pod.namespace, pod.name, container.name)):
        return None
    devices, unfit = _grouped(container.devices)
    if unfit:
        return None
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
    found = [HeldMemory(m.kind, m.size_bytes, m.numa) for m in container.memory if is_plain(m.kind, KIND_BYTES)]
    return sorted(found, key=lambda one: (one.kind, one.numa, one.size_bytes))


def _places(one: ContainerHolds) -> int:
    where = [part.numa for part in one.devices] + [part.numa for part in one.memory]
    return one.cpus.count(",") + sum(1 + len(numa) for numa in where)


def _grouped(devices: Iterable[ContainerDevices]) -> tuple[tuple[DeviceIds, ...], int]:
    """One value for all devices of a resource at one place, because kubelets list them one by one or together; and how many have unusable names."""
    found: dict[tuple[str, tuple[int, ...]], set[str]] = {}
    unfit = 0
    for one in devices:
        if is_plain(one.resource, KEY_BYTES):
            own = {id_ for id_ in one.ids if is_plain(id_, DEVICE_BYTES)}
            unfit += len(set(one.ids)) - len(own)
            found.setdefault((one.resource, one.numa), set()).update(own)
        else:
            unfit += len(one.ids)
    return tuple(DeviceIds(resource, tuple(sorted(ids)), numa) for (resource, numa), ids in sorted(found.items()) if ids), unfit
