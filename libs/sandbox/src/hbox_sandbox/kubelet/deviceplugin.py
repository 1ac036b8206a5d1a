"""The device plugins of emulated nodes: what HAMi's do when kubelet asks them for the cards of a container (HAMi `server.go` Allocate, v2.7 to 2.10).

    kubelet admits a pod whose containers ask for cards: one Allocate a container and a vendor, init containers first
    1. the pod in allocation: the owner of the node's lock; without a lock the first pending pod of the node that is marked `allocating`
    2. pop: the first container whose entry in `<vendor>-devices-to-allocate` is not empty, as many cards as kubelet asks for
    3. write what is left of the annotation; nothing of any vendor: bind-phase `success`, and release the lock, if it is this pod's
    wrong: bind-phase `failed`, release the lock, kubelet fails the pod with UnexpectedAdmissionError

A node has plugins of the vendors whose cards are registered on it. Beyond what HAMi's do, these refuse what no card can give (an unknown or sick card, more
than it has, a card given away already), so that a wrong allocation fails a pod here as it would fail the work in life.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hbox_common.model import VENDORS
from hbox_common.model.devices.hami import HamiVendor
from hbox_sandbox.api.cluster import Cluster
from hbox_sandbox.api.errors import Json
from hbox_sandbox.api.resources import NODES, PODS
from hbox_sandbox.api.store import Version
from hbox_sandbox.api.writes import change

NODE, PHASE, BIND_TIME = "hami.io/vgpu-node", "hami.io/bind-phase", "hami.io/bind-time"


@dataclass(frozen=True, slots=True)
class Protocol:
    """One vendor's words. `by_amounts`: entries are cards, as many as kubelet counts, with MiB and percent of the register's."""

    word: str
    count: str  #: the resource that counts cards
    register: str
    to_allocate: str
    lock: str  #: empty: it needs none
    by_amounts: bool


#: Of all vendors whose plugins are told in HAMi's way; of others than NVIDIA only the order of the steps is played.
PROTOCOLS: tuple[Protocol, ...] = tuple(
    Protocol(
        vendor.kind,
        vendor.cards,
        vendor.register_annotation,
        vendor.to_allocate_annotation,
        vendor.node_lock,
        vendor.kind == "NVIDIA",
    )
    for vendor in VENDORS
    if isinstance(vendor, HamiVendor) and vendor.to_allocate_annotation and vendor.node_lock
)


LOCKS = frozenset(protocol.lock for protocol in PROTOCOLS)


class Refused(Exception):
    """What the plugin says against a pod's allocation. `pod`: whom it takes for the pod in allocation; None: it found none."""

    def __init__(self, why: str, pod: Version | None = None) -> None:
        super().__init__(why)
        self.pod = pod


@dataclass(frozen=True, slots=True)
class Device:
    """What a container gets of one card."""

    uuid: str
    memory_mib: int
    cores: int
    record: str = ""  #: as it is written


@dataclass(slots=True)
class _Card:
    memory_mib: int
    cores: int
    slots: int
    healthy: bool
    used: list[Device] = field(default_factory=list)


class DevicePlugins:
    """Of all nodes: what they know stands on nodes and pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.handed_over: dict[str, dict[tuple[str, str], list[list[Device]]]] = {}
        """By node, key and uid of a pod: what each container got, in the order in which kubelet asked."""

    def admit(self, pod: Version) -> str:
        """Hand over the cards of a pod that kubelet admits on its node. Why the pod fails; empty: it has what it asks for."""
        body = pod.load()
        node = self._cluster.store.get(NODES.storage, pod.fields["spec.nodeName"])
        if node is None:
            return ""
        registered = node.load()["metadata"].get("annotations") or {}
        got: list[list[Device]] = []
        for container in _containers(body):
            for protocol in PROTOCOLS:
                asked = _asked(container, protocol.count)
                if not asked or protocol.register not in registered:
                    continue
                try:
                    got.append(self._allocate(pod, protocol, asked, node.name))
                except Refused as refusal:
                    if refusal.pod is not None:
                        self._finish(refusal.pod, node.name, "failed")
                    return f"Allocate failed due to rpc error: code = Unknown desc = {refusal}, which is unexpected"
        if got:
            self.handed_over.setdefault(node.name, {})[pod.key, pod.uid] = got
        return ""

    def _allocate(self, asking: Version, protocol: Protocol, count: int, node: str) -> list[Device]:
        pod = self._in_allocation(node)
        annotations = pod.load()["metadata"].get("annotations") or {}
        text = annotations.get(protocol.to_allocate)
        if text is None:
            raise Refused("device request not found", pod)
        entries = [_devices(entry, pod) for entry in text.split(";")]
        at = next((i for i, devices in enumerate(entries) if devices), None)
        if at is None:
            raise Refused("no pending device allocation found", pod)
        devices = entries[at]
        if protocol.by_amounts and len(devices) != count:
            raise Refused("device number not matched", pod)
        if pod.uid != asking.uid:
            raise Refused(f"the cards of {pod.key} would go to {asking.key}", pod)
        if protocol.by_amounts:
            self._check(devices, protocol, pod, node)
        entries[at] = []
        left = ";".join("".join(f"{d.record}:" for d in entry) for entry in entries)
        self._annotate(pod, {protocol.to_allocate: left})
        words = {annotations.get(p.to_allocate, "") if p is not protocol else left for p in PROTOCOLS}
        if not any(p.word in text for p in PROTOCOLS for text in words):
            self._finish(pod, node, "success")
        return devices

    def _in_allocation(self, node: str) -> Version:
        lock = next(iter(_locks(self._node(node)).values()), "")
        parts = lock.split(",")
        if len(parts) == len(("time", "namespace", "pod")):
            pod = self._cluster.store.get(PODS.storage, f"{parts[1]}/{parts[2]}")
            if pod is None:
                raise Refused(f'pods "{parts[2]}" not found')
            return pod
        for pod in self._cluster.store.collection(PODS.storage).scan(prefix="", after=""):
            if pod.fields["spec.nodeName"] != node or pod.fields["status.phase"] != "Pending":
                continue
            notes = pod.load()["metadata"].get("annotations") or {}
            if BIND_TIME in notes and notes.get(PHASE) in ("allocating", "success") and notes.get(NODE) == node:
                return pod
        raise Refused(f"no binding pod found on node {node}")

    def _check(self, devices: list[Device], protocol: Protocol, pod: Version, node: str) -> None:
        cards = _registered((self._node(node)["metadata"].get("annotations") or {}).get(protocol.register, ""))
        given = self.handed_over.get(node, {})
        for key, uid in list(given):
            other = self._cluster.store.get(PODS.storage, key)
            if other is None or other.uid != uid or other.fields["status.phase"] in ("Succeeded", "Failed"):
                del given[key, uid]
                continue
            for device in (device for entry in given[key, uid] for device in entry):
                if device.uuid in cards:
                    cards[device.uuid].used.append(device)
        for device in devices:
            card = cards.get(device.uuid)
            if card is None or not card.healthy:
                raise Refused(f"card {device.uuid} is {'unknown' if card is None else 'unhealthy'} on {node}", pod)
            memory = device.memory_mib + sum(used.memory_mib for used in card.used)
            cores = device.cores + sum(used.cores for used in card.used)
            if memory > card.memory_mib or cores > card.cores or len(card.used) >= card.slots:
                raise Refused(f"card {device.uuid} has too little: {memory} MiB, {cores} %, {len(card.used) + 1} pods", pod)

    def _finish(self, pod: Version, node: str, phase: str) -> None:
        current = self._cluster.store.get(PODS.storage, pod.key)
        if current is not None and current.uid == pod.uid:
            self._annotate(current, {PHASE: phase})
        found = self._cluster.store.get(NODES.storage, node)
        if found is None:
            return
        own = [name for name, lock in _locks(found.load()).items() if lock.endswith(f",{pod.namespace},{pod.name}")]
        if own:
            change(self._cluster, NODES, found, lambda body: _without(body, own))

    def _annotate(self, pod: Version, notes: Mapping[str, str]) -> None:
        current = self._cluster.store.get(PODS.storage, pod.key)
        if current is not None:
            change(self._cluster, PODS, current, lambda body: body["metadata"].setdefault("annotations", {}).update(notes))

    def _node(self, name: str) -> Json:
        found = self._cluster.store.get(NODES.storage, name)
        if found is None:
            raise Refused(f"node {name} not found")
        return found.load()


def _without(node: Json, locks: list[str]) -> None:
    for name in locks:
        del node["metadata"]["annotations"][name]


def _locks(node: Json) -> dict[str, str]:
    """The locks that stand on a node."""
    return {name: str(value) for name, value in (node["metadata"].get("annotations") or {}).items() if name in LOCKS}


def _containers(pod: Json) -> Iterator[Json]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"].get("containers") or ()


def _asked(container: Json, resource: str) -> int:
    resources = container.get("resources") or {}
    amount = (resources.get("limits") or {}).get(resource, (resources.get("requests") or {}).get(resource, 0))
    return int(str(amount)) if str(amount).isdecimal() else 0


def _devices(entry: str, pod: Version) -> list[Device]:
    devices = []
    for record in entry.split(":"):
        if "," not in record:
            continue
        fields = record.split(",")
        if len(fields) < len(("uuid", "word", "memory", "cores")):
            raise Refused("pod annotation format error, missing fields, do not use nodeName in task spec", pod)
        try:
            devices.append(Device(fields[0], int(fields[2]), int(fields[3]), record))
        except ValueError as e:
            raise Refused(f"invalid field: {e}", pod) from e
    return devices


def _registered(text: str) -> dict[str, _Card]:
    """The cards of a register annotation, in both of its forms; none where it is neither."""
    cards = {}
    try:
        found: list[Any] = json.loads(text)
    except ValueError:
        for record in text.split(":"):
            fields = record.split(",")
            if len(fields) >= len(("id", "count", "devmem", "devcore", "type", "numa", "health")):
                healthy = fields[6].strip().lower() in ("true", "1")
                cards[fields[0]] = _Card(int(fields[2]), int(fields[3]), int(fields[1]), healthy)
        return cards
    for card in found:
        cards[card["id"]] = _Card(
            card.get("devmem", 0), card.get("devcore", 100), card.get("count", math.inf), card.get("health", False)
        )
    return cards
