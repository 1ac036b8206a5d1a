"""The device plugins of emulated nodes: `allocation`'s rules over the emulated API server's store, for kubelets that admit pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from hbox_sandbox.api.cluster import Cluster
from hbox_sandbox.api.errors import Json
from hbox_sandbox.api.resources import NODES, PODS
from hbox_sandbox.api.store import Version
from hbox_sandbox.api.writes import change

from .allocation import ENDED, Allocations, PluginSpec, Refused, asked, own_locks, plugin_specs, registered_by


def asks_for_cards(pod: Version) -> bool:
    """Whether some plugin here may have to be called for it."""
    return any(count in pod.body for count in _counts(plugin_specs()))


@lru_cache(maxsize=4)
def _counts(plugin: tuple[PluginSpec, ...]) -> tuple[bytes, ...]:
    return tuple(f'"{one.count}"'.encode() for one in plugin)


#: Of an emulated node: why its device plugins fail whatever they are asked for.
PLUGIN_FAILS = "sandbox.hbox.io/device-plugin-fails"


class DevicePlugins:
    """The plugins of all nodes; their state is kept on nodes and pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = _Store(cluster)
        self._allocations = Allocations(self._api)

    def admit(self, pod: Version) -> str:
        """Hand over the cards of a pod that kubelet admits on its node. Why the pod fails; empty: it has what it asks for."""
        node = self._api.node(pod.fields["spec.nodeName"])
        if node is None:
            return ""
        for plugin, count in asked(pod.load()):
            why = (node["metadata"].get("annotations") or {}).get(PLUGIN_FAILS)
            if not registered_by(node, plugin):
                if why:
                    return f"Allocate failed due to {why}, which is unexpected"
                continue
            try:
                if why:
                    self._allocations.fail(node["metadata"]["name"], plugin, count, why)
                self._allocations.allocate(node["metadata"]["name"], plugin, count, asking=pod.uid)
            except Refused as refusal:
                return f"Allocate failed due to rpc error: code = Unknown desc = {refusal}, which is unexpected"
        return ""


class _Store:
    """`Api` of an emulated cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def node(self, name: str) -> Json | None:
        found = self._cluster.store.get(NODES.storage, name)
        return None if found is None else found.load()

    def pod(self, namespace: str, name: str) -> Json | None:
        found = self._cluster.store.get(PODS.storage, f"{namespace}/{name}")
        return None if found is None else found.load()

    def keeps(self, namespace: str, name: str, uid: str) -> bool:
        found = self._cluster.store.get(PODS.storage, f"{namespace}/{name}")
        return found is not None and found.uid == uid and found.fields["status.phase"] not in ENDED

    def pending(self, node: str) -> Iterator[Json]:
        for pod in self._cluster.store.collection(PODS.storage).scan(prefix="", after=""):
            if pod.fields["spec.nodeName"] == node and pod.fields["status.phase"] == "Pending":
                yield pod.load()

    def annotate(self, pod: Json, notes: Mapping[str, str]) -> None:
        metadata = pod["metadata"]
        current = self._cluster.store.get(PODS.storage, f"{metadata['namespace']}/{metadata['name']}")
        if current is not None and current.uid == metadata["uid"]:
            change(self._cluster, PODS, current, lambda body: body["metadata"].setdefault("annotations", {}).update(notes))

    def release(self, node: str, pod: Json) -> None:
        found = self._cluster.store.get(NODES.storage, node)
        own = [] if found is None else own_locks(found.load(), pod)
        if found is not None and own:
            change(self._cluster, NODES, found, lambda body: _without(body, own))


def _without(node: Json, locks: list[str]) -> None:
    for name in locks:
        del node["metadata"]["annotations"][name]
