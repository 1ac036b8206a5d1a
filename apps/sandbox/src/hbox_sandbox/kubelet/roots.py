"""The folders of emulated kubelets, as node-agent finds them on a node: the PodResources socket, and the checkpoint of the device manager.

Which devices a container gets is the kubelet's own choice out of those that are free, as in life: here by a hash of pod and device, so that it is another one
than a scheduler's, and the same again. On a node that HAMi's plugin registered the ids are its slots (`<uuid>-<n>`), which say nothing of cards; on others
they are those of NVIDIA's plugin, one a card: the ids that the annotation `sandbox.hbox.io/device-ids` lists for a resource, or generated ones. If the node
object changes, the kubelet has the devices of the new one. A container keeps its devices, also those that the plugin does not report any more.

Each node costs a socket and a folder, so that only the first `most` nodes have them, and as many more whose kubelets align pods. What pods hold is worked out
on request, or a moment after a pod was admitted or removed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn
from uuid import NAMESPACE_DNS, uuid5

from hbox_common.errors import HBoxError
from hbox_common.kubelet import (
    ALLOCATABLE,
    LIST,
    AllocatableResources,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    PodResources,
    encode_allocatable,
    encode_list,
    listening,
)
from hbox_common.model.devices import VENDORS, Card, NodeReport
from hbox_common.model.devices.hami import HamiVendor
from hbox_common.model.devices.nvidia import GPU, NVIDIA
from hbox_common.model.resources import parse_quantity
from hbox_sandbox.api.cluster import Cluster
from hbox_sandbox.api.resources import NODES, PODS
from hbox_sandbox.api.store import Event, EventType, Version

from .hardware import BOOT_ID, FABRIC_MANAGER, LINKS, MODULES, NodeHardware
from .memory import Block
from .topology import Given, NodeTopology, Topologies, files_of, links_of

log = logging.getLogger(__name__)

#: Nodes that have a folder.
MOST_NODES = 32
#: Of an emulated node: the ids of the devices that its plain device plugins report healthy, by resource, as JSON.
DEVICE_IDS = "sandbox.hbox.io/device-ids"
#: Maximum seconds from a pod's start to the checkpoint that contains it.
EVERY_S = 0.25
_ENDED = ("Succeeded", "Failed")
#: Of a node with NVIDIA's cards: kernel modules, and the PCI bus of the first card.
_MODULES = ("nvidia", "nvidia_peermem", "nvidia_uvm", "mlx5_ib")
_FIRST_BUS = 0x18


@dataclass(slots=True)
class Pod:
    """A pod that runs, and what its containers were given: (container, resource) -> ids."""

    key: str
    uid: str
    namespace: str
    name: str
    given: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    cpus: dict[str, tuple[int, ...]] = field(default_factory=dict)  #: that a container has alone


class NodeKubelet:
    """The device manager of one node."""

    def __init__(self, node: str, manifest: dict[str, Any], topology: NodeTopology | None = None) -> None:
        """topology: who gives out CPUs and devices there, in place of it."""
        self.node, self.topology = node, topology
        self.devices = self._reported(manifest)
        self.files: dict[str, str | bytes] = dict(_host(manifest)) if topology is None else dict(files_of(topology))
        self.files[BOOT_ID] = f"{uuid5(NAMESPACE_DNS, node)}\n"
        self.cards = _cards(manifest, self.devices.get(GPU, ()))
        self.nvlinks = _nvlinks(manifest)
        if self.cards:
            self.files[MODULES] = "".join(f"{name} 1 0 - Live 0x0\n" for name in _MODULES)
        self.links = {} if topology is None else links_of(topology)
        self.pods: dict[str, Pod] = {}
        self.waiting: dict[str, Version] = {}
        self._held: dict[tuple[str, str], str] = {}

    def _reported(self, manifest: dict[str, Any]) -> dict[str, dict[str, tuple[int, ...]]]:
        found = _devices(self.node, manifest)
        if self.topology is not None:
            found |= {resource: {id_: (zone,) for id_, zone in ids.items()} for resource, ids in self.topology.devices.items()}
        return found

    def report(self, manifest: dict[str, Any]) -> bool:
        """The node's plugins report the devices of this node object; whether they differ."""
        before, self.devices = self.devices, self._reported(manifest)
        if self.devices == before:
            return False
        self.__dict__.pop("_allocatable", None)
        return True

    def settle(self) -> bool:
        """Gives devices to pods that started since; whether anything changed."""
        started = list(self.waiting.values())
        self.waiting.clear()
        for version in started:
            if version.key not in self.pods:
                self.pods[version.key] = self._admit(version)
        return bool(started)

    def leave(self, key: str) -> bool:
        self.waiting.pop(key, None)
        pod = self.pods.pop(key, None)
        for (_, resource), ids in pod.given.items() if pod else ():
            for id_ in ids:
                self._held.pop((resource, id_), None)
        return pod is not None

    def _admit(self, version: Version) -> Pod:
        pod = Pod(version.key, version.uid, version.namespace, version.name)
        if self.topology is not None:
            given = self.topology.given.get(version.uid, Given())
            pod.given |= given.ids
            pod.cpus |= given.cpus
            return pod
        for container in version.load()["spec"].get("containers") or ():
            for resource, quantity in ((container.get("resources") or {}).get("limits") or {}).items():
                if resource in self.devices and str(quantity).isdigit() and int(quantity):
                    pod.given[container["name"], resource] = self._choose(pod.uid, resource, int(quantity))
        return pod

    def _choose(self, uid: str, resource: str, count: int) -> tuple[str, ...]:
        """Fewer where no more are free: the emulated kubelet admits what the scheduler sends."""
        free = [id_ for id_ in self.devices[resource] if (resource, id_) not in self._held]
        chosen = sorted(sorted(free, key=lambda id_: blake2b(f"{uid}\0{id_}".encode(), digest_size=8).digest())[:count])
        self._held.update(((resource, id_), uid) for id_ in chosen)
        return tuple(chosen)

    def list_pods(self) -> bytes:
        return encode_list(
            [
                PodResources(pod.namespace, pod.name, tuple(self._container(pod, name) for name in self._names(pod)))
                for pod in self.pods.values()
            ]
        )  # fmt: skip

    def _container(self, pod: Pod, name: str) -> ContainerResources:
        found = [
            ContainerDevices(resource, (id_,), self.devices.get(resource, {}).get(id_, ()))
            for (container, resource), ids in pod.given.items()
            if container == name
            for id_ in ids
        ]
        blocks = self._blocks(pod).get(name, ())
        memory = tuple(ContainerMemory(block.kind, block.size, block.numa) for block in blocks if block.size)
        return ContainerResources(name, tuple(found), pod.cpus.get(name, ()), memory)

    def _names(self, pod: Pod) -> list[str]:
        """Its containers that have something alone."""
        return list(dict.fromkeys((*(container for container, _ in pod.given), *pod.cpus, *self._blocks(pod))))

    def _blocks(self, pod: Pod) -> dict[str, list[Block]]:
        manager = self.topology.memory if self.topology is not None else None
        return {name: own for (uid, name), own in manager.blocks.items() if uid == pod.uid} if manager is not None else {}

    async def allocatable(self, _: bytes) -> bytes:
        return self._allocatable

    @cached_property
    def _allocatable(self) -> bytes:
        """Asked for with every list of pods; `report` makes it again."""
        return encode_allocatable(
            AllocatableResources(
                tuple(ContainerDevices(resource, (id_,), numa) for resource, ids in self.devices.items() for id_, numa in ids.items()),
                self.topology.cpus if self.topology is not None else (),
            )
        )  # fmt: skip

    def checkpoint(self) -> bytes:
        """As the device manager writes `kubelet_internal_checkpoint`."""
        entries = [
            {
                "PodUID": pod.uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": _by_numa(ids, self.devices.get(resource, {})),
                "AllocResp": "",
            }
            for pod in self.pods.values()
            for (container, resource), ids in pod.given.items()
        ]
        registered = {resource: sorted(ids) for resource, ids in self.devices.items()}
        return json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0}).encode()


class KubeletRoots:
    """Folders below `folder`, one a node. Raises Unavailable where a socket cannot be made."""

    def __init__(self, cluster: Cluster, folder: Path, *, most: int = MOST_NODES, topologies: Topologies | None = None) -> None:
        self._cluster, self._folder, self._most = cluster, folder, most
        self._topologies = topologies
        self._nodes: dict[str, NodeKubelet] = {}
        self._new: list[str] = []
        self._gone: list[str] = []
        self._changed: set[str] = set()
        cluster.store.listeners.append(self._note)

    def _note(self, storage: str, event: Event) -> None:
        version = event.version
        if storage == NODES.storage:
            topology = self._topologies.of.get(version.name) if self._topologies is not None else None
            most = self._most if topology is None else 2 * self._most
            if event.type is EventType.ADDED and len(self._nodes) < most:
                self._nodes[version.name] = NodeKubelet(version.name, version.load(), topology)
                self._new.append(version.name)
            elif event.type is EventType.DELETED and self._nodes.pop(version.name, None) is not None:
                self._gone.append(version.name)
            elif event.type is EventType.MODIFIED and (known := self._nodes.get(version.name)) and known.report(version.load()):
                self._changed.add(version.name)
            return
        if storage != PODS.storage or not self._nodes:
            return
        node = self._nodes.get(version.fields["spec.nodeName"])
        if node is None:
            return
        phase = version.fields["status.phase"]
        if event.type is EventType.DELETED or phase in _ENDED:
            if node.leave(version.key):
                self._changed.add(node.node)
        elif phase == "Running" and version.key not in node.pods:
            node.waiting[version.key] = version
            self._changed.add(node.node)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        stacks: dict[str, AsyncExitStack] = {}
        try:
            while True:
                for name in self._drained(self._new):
                    node = self._nodes.get(name)
                    if node is not None and name not in stacks:
                        stacks[name] = await self._open(node)
                for name in self._drained(self._gone):
                    if name in stacks:
                        await stacks.pop(name).aclose()
                        shutil.rmtree(self._folder / name, ignore_errors=True)
                for name in sorted(self._changed):
                    node = self._nodes.get(name)
                    if node is not None and name in stacks:
                        self._catch_up(node)
                    else:
                        self._changed.discard(name)
                await asyncio.sleep(EVERY_S)
        finally:
            for stack in stacks.values():
                await stack.aclose()

    async def _open(self, node: NodeKubelet) -> AsyncExitStack:
        stack = AsyncExitStack()

        async def list_pods(_: bytes) -> bytes:
            self._catch_up(node)
            return node.list_pods()

        methods = {LIST: list_pods, ALLOCATABLE: node.allocatable}
        try:
            # Written before it has the node's name: an agent takes a folder for a node's.
            draft = self._folder / f".{node.node}"
            (draft / "device-plugins").mkdir(parents=True, exist_ok=True)
            self._write_host(node, draft)
            draft.replace(self._folder / node.node)
            self._write(node)
            await stack.enter_async_context(listening(self._folder / node.node / "pod-resources" / "kubelet.sock", methods))
        except (HBoxError, OSError) as e:
            log.warning("node %s: no kubelet's socket: %s", node.node, e)
        return stack

    def _catch_up(self, node: NodeKubelet) -> None:
        """Write pending changes to the checkpoints; a kubelet does so before it answers requests."""
        if node.node in self._changed:
            self._changed.discard(node.node)
            node.settle()
            self._write(node)

    def _write(self, node: NodeKubelet) -> None:
        path = self._folder / node.node / "device-plugins" / "kubelet_internal_checkpoint"
        draft = path.with_name(".checkpoint")
        draft.write_bytes(node.checkpoint())
        draft.replace(path)
        if node.topology is not None and node.topology.memory is not None:
            draft.write_text(node.topology.memory.checkpoint())
            draft.replace(self._folder / node.node / "memory_manager_state")

    def _write_host(self, node: NodeKubelet, root: Path) -> None:
        for name, text in node.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        for name, leads in node.links.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(leads)
        if node.cards:
            hardware = NodeHardware(root)
            addresses = {uuid: f"0000:{_FIRST_BUS + place:02x}:00.0" for place, uuid in enumerate(node.cards)}
            hardware.cards(addresses, links=node.nvlinks)
            if node.nvlinks:
                hardware.unit(FABRIC_MANAGER, active=True)

    @staticmethod
    def _drained(names: list[str]) -> Iterator[str]:
        while names:
            yield names.pop(0)


def _devices(node: str, manifest: dict[str, Any]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Resource -> id -> NUMA nodes, for each vendor's cards that are allocatable."""
    annotations = manifest["metadata"].get("annotations") or {}
    allocatable = (manifest.get("status") or {}).get("allocatable") or {}
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for vendor in VENDORS:
        text = str(allocatable.get(vendor.cards, "0"))
        count = int(text) if text.isdigit() else 0
        if not count:
            continue
        cards: tuple[Card, ...] = ()
        if isinstance(vendor, HamiVendor) and vendor.register_annotation in annotations:
            try:
                cards = vendor.register(NodeReport(node, {vendor.cards: count}, {}, annotations))
            except HBoxError:
                continue
        if cards:
            found[vendor.cards] = {
                f"{card.uuid}-{slot}": (card.numa,) if card.numa >= 0 else () for card in cards for slot in range(card.shares)
            }
        elif listed := _listed(annotations, vendor.cards):
            found[vendor.cards] = {id_: (place * 2 // len(listed),) for place, id_ in enumerate(listed)}
        else:
            found[vendor.cards] = {_uuid(node, vendor.cards, index): (index * 2 // count,) for index in range(count)}
    return found


def _cards(manifest: Mapping[str, Any], devices: Iterable[str]) -> tuple[str, ...]:
    """Uuids of the cards of these devices, as NVML states them: HAMi's plugin appends a slot (`<uuid>-<n>`), NVIDIA's a replica (`<uuid>::<n>`)."""
    slots = NVIDIA.register_annotation in (manifest["metadata"].get("annotations") or {})
    return tuple(dict.fromkeys(id_.rpartition("-")[0] if slots else id_.partition("::")[0] for id_ in devices))


def _nvlinks(manifest: Mapping[str, Any]) -> int:
    """Of each card, by the words of its model."""
    model = str((manifest["metadata"].get("labels") or {}).get(NVIDIA.model_label, ""))
    return next((count for word, count in LINKS.items() if word in model), 0)


def _listed(annotations: Mapping[str, str], resource: str) -> list[str]:
    """The ids of the annotation; none where it is missing or cannot be read."""
    try:
        ids = json.loads(annotations.get(DEVICE_IDS, "{}")).get(resource, [])
        return [str(id_) for id_ in ids]
    except (ValueError, AttributeError, TypeError):
        return []


def _host(manifest: dict[str, Any]) -> dict[str, str]:
    """Files below the kubelet's folder: its configuration, and /sys in `host`: two sockets of one NUMA node each, two threads per core."""
    allocatable = (manifest.get("status") or {}).get("allocatable") or {}
    try:
        cpus = max(4, min(1024, int(parse_quantity(str(allocatable.get("cpu", "4"))))) // 4 * 4)
        memory_kib = int(parse_quantity(str(allocatable.get("memory", "1Gi")))) // 1024
    except HBoxError:
        cpus, memory_kib = 4, 2**20
    half, files = cpus // 4, {}
    files["config.yaml"] = json.dumps(
        {"kind": "KubeletConfiguration", "cpuManagerPolicy": "none", "topologyManagerPolicy": "none"}
    )
    files["cpu_manager_state"] = json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 0})
    sys = "host/sys/devices/system"
    files[f"{sys}/node/online"] = "0-1"
    for zone in range(2):
        first, second = zone * half, cpus // 2 + zone * half
        files[f"{sys}/node/node{zone}/cpulist"] = f"{first}-{first + half - 1},{second}-{second + half - 1}"
        files[f"{sys}/node/node{zone}/distance"] = "10 21" if zone == 0 else "21 10"
        files[f"{sys}/node/node{zone}/meminfo"] = f"Node {zone} MemTotal: {memory_kib // 2} kB"
        files[f"{sys}/cpu/cpu{first}/topology/physical_package_id"] = str(zone)
        files[f"{sys}/cpu/cpu{first}/topology/thread_siblings_list"] = f"{first},{second}"
    return files


def _uuid(node: str, resource: str, index: int) -> str:
    digits = blake2b(f"{node}\0{resource}\0{index}".encode(), digest_size=16).hexdigest()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _by_numa(ids: tuple[str, ...], devices: Mapping[str, tuple[int, ...]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for id_ in ids:
        found.setdefault(str(next(iter(devices.get(id_, ())), -1)), []).append(id_)
    return found
