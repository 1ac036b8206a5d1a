"""Messages of the kubelet's PodResources service, version 1: what each container holds, and what a node has to give.

Numbers of fields are those of `staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto` of Kubernetes 1.34. What is not read: claims of dynamic resource
allocation, and what pods hold as pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from .protobuf import Allowance, fields, int64, int64s, message, put_bytes, put_int, put_ints, put_text, text

LIST = "/v1.PodResourcesLister/List"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"

#: Far above any node's: more is a broken kubelet's.
MAX_CPU = 65_535
MAX_NUMA = 65_535
#: Of one answer: seven of a device, so that it may have a quarter of a million.
MAX_FIELDS = 2_000_000


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    resource: str
    ids: tuple[str, ...]
    numa: tuple[int, ...] = ()  #: where they are; none: the device plugin does not say


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    kind: str  #: memory, hugepages-2Mi, ...
    size_bytes: int
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerResources:
    name: str
    devices: tuple[ContainerDevices, ...] = ()
    cpus: tuple[int, ...] = ()  #: those that are its alone
    memory: tuple[ContainerMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class PodResources:
    namespace: str
    name: str
    containers: tuple[ContainerResources, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocatableResources:
    devices: tuple[ContainerDevices, ...] = ()
    cpus: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()


def decode_list(body: bytes) -> tuple[PodResources, ...]:
    """ListPodResourcesResponse. Raises InvalidRequest."""
    left = Allowance(MAX_FIELDS)
    return tuple(_pod(message(value), left) for number, value in fields(body, left) if number == 1)


def decode_allocatable(body: bytes) -> AllocatableResources:
    """AllocatableResourcesResponse. Raises InvalidRequest."""
    devices, cpus, memory = _parts(body, Allowance(MAX_FIELDS), devices=1, cpus=2, memory=3)
    return AllocatableResources(devices, cpus, memory)


def encode_list(pods: Sequence[PodResources]) -> bytes:
    return b"".join(put_bytes(1, _put_pod(pod)) for pod in pods)


def encode_allocatable(found: AllocatableResources) -> bytes:
    devices = b"".join(put_bytes(1, _put_devices(one)) for one in found.devices)
    return devices + put_ints(2, found.cpus) + b"".join(put_bytes(3, _put_memory(one)) for one in found.memory)


def _pod(body: bytes, left: Allowance) -> PodResources:
    name, namespace, containers = "", "", []
    for number, value in fields(body, left):
        match number:
            case 1:
                name = text(value)
            case 2:
                namespace = text(value)
            case 3:
                containers.append(_container(message(value), left))
            case _:
                continue
    return PodResources(namespace, name, tuple(containers))


def _container(body: bytes, left: Allowance) -> ContainerResources:
    name = next((text(value) for number, value in fields(body, left) if number == 1), "")
    devices, cpus, memory = _parts(body, left, devices=2, cpus=3, memory=4)
    return ContainerResources(name, devices, cpus, memory)


def _parts(
    body: bytes, left: Allowance, *, devices: int, cpus: int, memory: int
) -> tuple[tuple[ContainerDevices, ...], tuple[int, ...], tuple[ContainerMemory, ...]]:
    held: list[ContainerDevices] = []
    own: list[int] = []
    kept: list[ContainerMemory] = []
    for number, value in fields(body, left):
        if number == devices:
            held.append(_devices(message(value), left))
        elif number == cpus:
            own += int64s(value, left)
        elif number == memory:
            kept.append(_memory(message(value), left))
    if any(not 0 <= cpu <= MAX_CPU for cpu in own):
        raise InvalidRequest("the kubelet names a CPU that no node has")
    return tuple(held), tuple(sorted(own)), tuple(kept)


def _devices(body: bytes, left: Allowance) -> ContainerDevices:
    resource = ""
    ids: list[str] = []
    numa: tuple[int, ...] = ()
    for number, value in fields(body, left):
        match number:
            case 1:
                resource = text(value)
            case 2:
                ids.append(text(value))
            case 3:
                numa = _topology(message(value), left)
            case _:
                continue
    return ContainerDevices(resource, tuple(ids), numa)


def _memory(body: bytes, left: Allowance) -> ContainerMemory:
    kind, size = "", 0
    numa: tuple[int, ...] = ()
    for number, value in fields(body, left):
        match number:
            case 1:
                kind = text(value)
            case 2:
                size = int64(value)
            case 3:
                numa = _topology(message(value), left)
            case _:
                continue
    return ContainerMemory(kind, max(0, size), numa)


def _topology(body: bytes, left: Allowance) -> tuple[int, ...]:
    """NUMA nodes of a TopologyInfo. A node of id 0 is an empty message; -1, which plugins say in guests, is no node."""
    found = set()
    for number, value in fields(body, left):
        if number == 1:
            found.add(next((int64(id_) for inner, id_ in fields(message(value), left) if inner == 1), 0))
    return tuple(sorted(id_ for id_ in found if 0 <= id_ <= MAX_NUMA))


def _put_pod(pod: PodResources) -> bytes:
    containers = b"".join(put_bytes(3, _put_container(one)) for one in pod.containers)
    return put_text(1, pod.name) + put_text(2, pod.namespace) + containers


def _put_container(one: ContainerResources) -> bytes:
    devices = b"".join(put_bytes(2, _put_devices(held)) for held in one.devices)
    return put_text(1, one.name) + devices + put_ints(3, one.cpus) + b"".join(put_bytes(4, _put_memory(m)) for m in one.memory)


def _put_devices(held: ContainerDevices) -> bytes:
    return put_text(1, held.resource) + b"".join(put_bytes(2, id_.encode()) for id_ in held.ids) + _put_topology(held.numa)


def _put_memory(kept: ContainerMemory) -> bytes:
    return put_text(1, kept.kind) + put_int(2, kept.size_bytes) + _put_topology(kept.numa)


def _put_topology(numa: Sequence[int]) -> bytes:
    return put_bytes(3, b"".join(put_bytes(1, put_int(1, id_)) for id_ in numa)) if numa else b""
