"""Allocate of HAMi's device plugins: the cards of a container for a kubelet (HAMi `server.go`, v2.7 to 2.10).

    kubelet admits a pod whose containers request cards: one Allocate per container and vendor, init containers first
    1. the pod in allocation: the owner of the node's lock; without a lock the first pending pod of the node that is marked `allocating`
    2. pop: the first container whose entry in `<vendor>-devices-to-allocate` is not empty, with as many cards as kubelet requests
    3. cards in mode `mig`: make the instances that `hami.io/vgpu-mig-allocations` has for the container, and write their ids into it (v2.10)
    4. write the rest of the annotation; if no vendor's annotation has entries left: bind-phase `success`, and release the lock if this pod owns it
    on an error: bind-phase `failed`, release the lock; kubelet fails the pod with UnexpectedAdmissionError

Volcano's plugin (volcano-vgpu-device-plugin, `util.GetPendingPod`) ignores the owner of the lock: the pod in allocation is the oldest of those with as many
cards left as kubelet requests. It releases the lock at the end.

A node has plugins of the vendors whose cards are registered on it. Unlike HAMi's, these plugins reject impossible allocations (an unknown or unhealthy card,
more than the card has, a card or a MIG placement in use), so that a wrong allocation fails the pod here as it would fail the workload on real cards.

The emulated nodes (`deviceplugin`) and the plugin for a real kubelet (`served`) share these rules; `Api` gives access to their nodes and pods.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol
from uuid import NAMESPACE_OID, uuid5

from hbox_common.model import VENDORS
from hbox_common.model.devices.hami import HamiVendor
from hbox_common.model.devices.volcano import VolcanoVendor
from hbox_sandbox.api.errors import Json

NODE, PHASE, BIND_TIME = "hami.io/vgpu-node", "hami.io/bind-phase", "hami.io/bind-time"
VOLCANOS_NODE, VOLCANOS_PHASE, VOLCANOS_TIME = "volcano.sh/vgpu-node", "volcano.sh/bind-phase", "volcano.sh/vgpu-time"
#: What Volcano's plugin writes for the time of a pod that it is done with: 64 bits.
NEVER = str(2**64 - 1)
INSTANCES = "hami.io/vgpu-mig-allocations"
MIG = "mig"
ENDED = ("Succeeded", "Failed")


class Api(Protocol):
    """Nodes and pods as a plugin reads and writes them."""

    def node(self, name: str) -> Json | None: ...

    def pod(self, namespace: str, name: str) -> Json | None: ...

    def keeps(self, namespace: str, name: str, uid: str) -> bool:
        """Whether there is this pod, and it has not ended."""
        ...

    def pending(self, node: str) -> Iterable[Json]:
        """The pods of the node in phase Pending."""
        ...

    def annotate(self, pod: Json, notes: Mapping[str, str]) -> None:
        """On this pod, by its uid; nothing where it is gone."""
        ...

    def release(self, node: str, pod: Json) -> None:
        """Take this pod's locks off the node, no other's."""
        ...


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """The annotations and resource of one vendor's plugin. `by_amounts`: entries are as many cards as kubelet requests, with MiB and percent of cores."""

    kind: str
    count: str  #: the resource that counts cards
    register: str
    to_allocate: str
    lock: str  #: empty: it needs none
    by_amounts: bool
    volcanos: bool = False  #: Volcano's plugin, which orders pods by time
    without_init: bool = False


def plugin_specs() -> tuple[PluginSpec, ...]:
    """The vendors whose plugins read HAMi's annotations; for vendors other than NVIDIA only the order of the steps is emulated."""
    return _plugin_specs(VENDORS.fingerprint)


@lru_cache(maxsize=4)
def _plugin_specs(fingerprint: str) -> tuple[PluginSpec, ...]:  # noqa: ARG001  the key of the cache: vendors are configurable
    return tuple(
        PluginSpec(
            vendor.kind,
            vendor.cards,
            vendor.register_annotation,
            vendor.to_allocate_annotation,
            vendor.node_lock,
            vendor.kind == "NVIDIA",
            isinstance(vendor, VolcanoVendor),
            vendor.without_init,
        )
        for vendor in VENDORS
        if isinstance(vendor, HamiVendor)
        and vendor.to_allocate_annotation
        and (vendor.node_lock or isinstance(vendor, VolcanoVendor))
    )


LOCKS = frozenset(plugin.lock for plugin in plugin_specs())


class Refused(Exception):
    """The plugin rejects an allocation. `pod`: the pod in allocation; None: there is none."""

    def __init__(self, why: str, pod: Json | None = None) -> None:
        super().__init__(why)
        self.pod = pod


@dataclass(frozen=True, slots=True)
class Device:
    """What a container gets of one card. `span`: of a MIG instance, its first slice and the one behind the last; `instance`: its id."""

    uuid: str
    memory_mib: int
    cores: int
    record: str = ""  #: as it is written
    span: tuple[int, int] = (0, 0)
    instance: str = ""


@dataclass(slots=True)
class _Card:
    memory_mib: int
    cores: int
    slots: int
    healthy: bool
    mode: str = ""
    placements: frozenset[tuple[str, int, int]] = frozenset()  #: of MIG: profile, first slice, slices
    used: list[Device] = field(default_factory=list)


class Allocations:
    """Allocations on all nodes. Allocated cards are kept in memory, all other state on nodes and pods."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.handed_over: dict[str, dict[tuple[str, str, str], list[list[Device]]]] = {}
        """By node; namespace, name and uid of a pod: what each container got, in the order in which kubelet asked."""

    def allocate(self, node: str, plugin: PluginSpec, count: int, *, asking: str = "") -> list[Device]:
        """The cards of the container that is next. `asking`: the uid of the pod that kubelet admits, where the caller knows it.

        Raises Refused; pod and lock then say it already.
        """
        try:
            return self._allocate(node, plugin, count, asking)
        except Refused as refusal:
            if refusal.pod is not None:
                self._finish(refusal.pod, node, plugin, "failed")
            raise

    def fail(self, node: str, plugin: PluginSpec, count: int, why: str) -> None:
        """As a plugin that is broken: pod and lock of the node say so. Raises Refused."""
        pod = self._oldest(node, plugin, count) if plugin.volcanos else self._in_allocation(node)
        self._finish(pod, node, plugin, "failed")
        raise Refused(why, pod)

    def next_cards(self, node: str, plugin: PluginSpec) -> list[str]:
        """The uuids of the container that is next, for a kubelet that asks which devices the plugin prefers. Raises Refused."""
        pod = self._in_allocation(node)
        entries = [_devices(entry, pod) for entry in _notes(pod).get(plugin.to_allocate, "").split(";")]
        return next(([device.uuid for device in devices] for devices in entries if devices), [])

    def _allocate(self, node: str, plugin: PluginSpec, count: int, asking: str) -> list[Device]:
        pod = self._oldest(node, plugin, count) if plugin.volcanos else self._in_allocation(node)
        text = _notes(pod).get(plugin.to_allocate)
        if text is None:
            raise Refused("device request not found", pod)
        entries = [_devices(entry, pod) for entry in text.split(";")]
        at = next((i for i, devices in enumerate(entries) if devices), None)
        if at is None:
            raise Refused("no pending device allocation found", pod)
        devices = entries[at]
        if plugin.by_amounts and len(devices) != count:
            raise Refused("device number not matched", pod)
        if asking and pod["metadata"]["uid"] != asking:
            raise Refused(f"the cards of {'/'.join(_id(pod)[:2])} would go to another pod", pod)
        left_notes: dict[str, str] = {}
        if plugin.by_amounts:
            cards = self._cards(plugin, pod, node)
            if any(device.uuid in cards and cards[device.uuid].mode == MIG for device in devices):
                devices, left_notes[INSTANCES] = _instances(pod, at, devices, cards)
            _check(devices, cards, pod, node)
        entries[at] = []
        left_notes[plugin.to_allocate] = left = ";".join("".join(f"{d.record}:" for d in entry) for entry in entries)
        self._api.annotate(pod, left_notes)
        self.handed_over.setdefault(node, {}).setdefault(_id(pod), []).append(devices)
        texts = {_notes(pod).get(other.to_allocate, "") if other is not plugin else left for other in plugin_specs()}
        if not any("," in text for text in texts):
            self._finish(pod, node, plugin, "success")
        return devices

    def _in_allocation(self, node: str) -> Json:
        found = self._api.node(node)
        if found is None:
            raise Refused(f"node {node} not found")
        lock = next(iter(locks_of(found).values()), "")
        parts = lock.split(",")
        if len(parts) == len(("time", "namespace", "pod")):
            pod = self._api.pod(parts[1], parts[2])
            if pod is None:
                raise Refused(f'pods "{parts[2]}" not found')
            return pod
        for pod in self._api.pending(node):
            notes = _notes(pod)
            if BIND_TIME in notes and notes.get(PHASE) in ("allocating", "success") and notes.get(NODE) == node:
                return pod
        raise Refused(f"no binding pod found on node {node}")

    def _oldest(self, node: str, plugin: PluginSpec, count: int) -> Json:
        """Of the pods that were put on the node and have so many cards left: that with the oldest time; of equals the last."""
        found = [
            pod
            for pod in self._api.pending(node)
            if _notes(pod).get(VOLCANOS_NODE) == node
            and sum(len(_devices(entry, pod)) for entry in _notes(pod).get(plugin.to_allocate, "").split(";")) == count
        ]
        if not found:
            raise Refused("cannot get valid pod")
        return min(reversed(found), key=lambda pod: int(_notes(pod).get(VOLCANOS_TIME) or NEVER))

    def _cards(self, plugin: PluginSpec, pod: Json, node: str) -> dict[str, _Card]:
        """Those that the node registers, with what other pods have of them."""
        found = self._api.node(node) or {"metadata": {}}
        cards = _registered(_notes(found).get(plugin.register, ""))
        given = self.handed_over.get(node, {})
        for namespace, name, uid in list(given):
            if uid == pod["metadata"]["uid"]:
                continue
            if not self._api.keeps(namespace, name, uid):
                del given[namespace, name, uid]
                continue
            for device in (device for entry in given[namespace, name, uid] for device in entry):
                if device.uuid in cards:
                    cards[device.uuid].used.append(device)
        return cards

    def _finish(self, pod: Json, node: str, plugin: PluginSpec, phase: str) -> None:
        self._api.annotate(pod, {VOLCANOS_PHASE: phase, VOLCANOS_TIME: NEVER} if plugin.volcanos else {PHASE: phase})
        self._api.release(node, pod)


def locks_of(node: Json) -> dict[str, str]:
    """The locks that stand on a node."""
    return {name: str(value) for name, value in _notes(node).items() if name in LOCKS}


def own_locks(node: Json, pod: Json) -> list[str]:
    """The names of those that are this pod's."""
    namespace, name, _ = _id(pod)
    return [lock for lock, value in locks_of(node).items() if value.endswith(f",{namespace},{name}")]


def asked(pod: Json) -> Iterator[tuple[PluginSpec, int]]:
    """What a kubelet asks for, in its order: init containers first, and of each container each vendor's number of cards."""
    for kind in ("initContainers", "containers"):
        for container in pod["spec"].get(kind) or ():
            resources = container.get("resources") or {}
            for plugin in plugin_specs():
                if plugin.without_init and kind == "initContainers":
                    continue
                amount = (resources.get("limits") or {}).get(
                    plugin.count, (resources.get("requests") or {}).get(plugin.count, 0)
                )
                if str(amount).isdecimal() and int(amount):
                    yield plugin, int(amount)


def registered_by(node: Json, plugin: PluginSpec) -> bool:
    """Whether the node has a plugin of this vendor."""
    return plugin.register in _notes(node)


def _id(pod: Json) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    return metadata["namespace"], metadata["name"], metadata["uid"]


def _notes(found: Json) -> dict[str, str]:
    return found["metadata"].get("annotations") or {}


def _check(devices: list[Device], cards: Mapping[str, _Card], pod: Json, node: str) -> None:
    for device in devices:
        card = cards.get(device.uuid)
        if card is None or not card.healthy:
            raise Refused(f"card {device.uuid} is {'unknown' if card is None else 'unhealthy'} on {node}", pod)
        memory = device.memory_mib + sum(used.memory_mib for used in card.used)
        cores = device.cores + sum(used.cores for used in card.used)
        if memory > card.memory_mib or cores > card.cores or len(card.used) >= card.slots:
            raise Refused(f"card {device.uuid} has too little: {memory} MiB, {cores} %, {len(card.used) + 1} pods", pod)
        begin, end = device.span
        if any(begin < used.span[1] and used.span[0] < end for used in card.used):
            raise Refused(f"card {device.uuid} has another instance on its slices {begin} to {end - 1}", pod)


def _instances(pod: Json, container: int, devices: list[Device], cards: Mapping[str, _Card]) -> tuple[list[Device], str]:
    """The devices of a container with the instances that stand on the pod for them, and the record with the ids of these. Raises Refused."""
    try:
        entries: list[dict[str, Any]] = json.loads(_notes(pod).get(INSTANCES) or "[]")
        own = sorted((e for e in entries if e["containerIndex"] == container), key=lambda e: int(e["deviceIndex"]))
        spans = [(str(e["profile"]), int(e["placement"].get("start", 0)), int(e["placement"]["size"])) for e in own]
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise Refused(f"decode scheduler MIG allocations: {e}", pod) from e
    if len(own) != len(devices):
        raise Refused(f"container {container} has {len(own)} MIG reservations, requested {len(devices)} devices", pod)
    made = []
    for entry, (profile, start, size), device in zip(own, spans, devices, strict=True):
        if entry["gpuUUID"] != device.uuid:
            raise Refused(f"MIG reservation GPU {entry['gpuUUID']} does not match allocated GPU {device.uuid}", pod)
        card = cards.get(device.uuid)
        if card is None or (profile, start, size) not in card.placements:
            raise Refused(f"card {device.uuid} cannot be divided into {profile} at {start}", pod)
        entry["migUUID"] = f"MIG-{uuid5(NAMESPACE_OID, f'{device.uuid} {profile} {start}')}"
        entry["gpuInstanceID"], entry["computeInstanceID"] = start + 1, 0
        made.append(replace(device, span=(start, start + size), instance=entry["migUUID"]))
    for i, one in enumerate(made):
        if any(one.uuid == other.uuid and one.span[0] < other.span[1] and other.span[0] < one.span[1] for other in made[:i]):
            raise Refused(f"two instances of the container overlap on card {one.uuid}", pod)
    return made, json.dumps(entries, separators=(",", ":"))


def _devices(entry: str, pod: Json) -> list[Device]:
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
            card.get("devmem", 0),
            card.get("devcore", 100),
            card.get("count", math.inf),
            card.get("health", False),
            card.get("mode", ""),
            frozenset(
                (profile["name"], placement.get("start", 0), placement["size"])
                for profile in card.get("migProfiles") or ()
                for placement in profile.get("placements") or ()
            ),
        )
    return cards
