"""NUMA nodes from other exporters' objects, for nodes without node-agent: NodeResourceTopology, and Volcano's Numatopology.

Each kind is watched if the cluster has it, and checked for periodically if not. A user who may write such an object may write anything into it:
- An unreadable object is reported once, in the log and as an Event of the object. Its last readable content stays, with the reason.
- Objects of unknown nodes are not published; `MOST_STRANGERS` of them are kept in case the node is created after its object.
- An object that is written repeatedly is processed once in `WINDOW_S`, in its latest version.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.kube import Delta, Informer, KubeClient, KubeObject, Resource
from hbox_common.kube.zones import (
    NODE_RESOURCE_TOPOLOGIES,
    NUMATOPOLOGIES,
    NumatopologyText,
    TopologyText,
    numatopology_of,
    topology_of,
    zones_of_numatopology,
    zones_of_topology,
)
from hbox_common.model import NodeName, NodeZones

from .. import metrics
from ..core.zones import KINDS, ObjectZones
from .definitions import until_defined
from .problems import Problems

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
WINDOW_S = 0.5
#: Nodes that are not there, of which objects are kept.
MOST_STRANGERS = 4_096
REASON = "NodeZonesProblem"
T = TypeVar("T", bound=KubeObject)


class ZoneObjects:
    """`changed` is called with what objects say of a node now, None where that is nothing. `there`: whether there is such a node."""

    def __init__(
        self, client: KubeClient, changed: Callable[[NodeName, ObjectZones | None], None], there: Callable[[NodeName], bool]
    ) -> None:
        self._client, self._changed, self._there = client, changed, there
        self._by_node: dict[NodeName, dict[str, ObjectZones]] = {}
        self._strangers: dict[NodeName, None] = {}  #: of them, nodes that are not there, in the order of their objects
        resources = (NODE_RESOURCE_TOPOLOGIES, NUMATOPOLOGIES)
        self._problems = {
            kind: Problems(client, resource, kind, reason=REASON) for kind, resource in zip(KINDS, resources, strict=True)
        }
        self._unlisted = set(KINDS)
        self.listed = asyncio.Event()  #: all that there is of both kinds has been read

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._watch(
                    NODE_RESOURCE_TOPOLOGIES, KINDS[0], TopologyText, lambda t: zones_of_topology(topology_of(t), at=wall_s())
                )
            )
            group.create_task(
                self._watch(
                    NUMATOPOLOGIES, KINDS[1], NumatopologyText, lambda t: zones_of_numatopology(numatopology_of(t), at=wall_s())
                )
            )
            for problems in self._problems.values():
                group.create_task(problems.run())

    def came(self, node: NodeName) -> None:
        """There is such a node now."""
        self._strangers.pop(node, None)
        if node in self._by_node:
            self._publish(node)

    def went(self, node: NodeName) -> None:
        """There is no such node any more. What is known of its objects is kept as that of others that are not there."""
        if node in self._by_node:
            self._stranger(node)

    async def _watch(self, resource: Resource, kind: str, type_: type[T], read: Callable[[T], NodeZones]) -> NoReturn:
        await until_defined(self._client, resource, kind, look_again_s=LOOK_AGAIN_S, absent=lambda: self._has_listed(kind))
        informer = Informer(self._client, resource, type_, window_s=WINDOW_S, keep=lambda one: type_(one.metadata))

        async def on_changes(deltas: Sequence[Delta[T]]) -> None:
            newest: dict[str, T | None] = {}
            for delta in deltas:
                there = delta.new if delta.new is not None else delta.old
                assert there is not None
                newest[there.metadata.name] = delta.new
            for name, object_ in newest.items():
                self._put(NodeName(name), kind, object_, read)

        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run(on_changes))
            await informer.synced.wait()
            self._has_listed(kind)
        raise AssertionError("an informer ends with its task")

    def _has_listed(self, kind: str) -> None:
        self._unlisted.discard(kind)
        if not self._unlisted:
            self.listed.set()

    def _put(self, node: NodeName, kind: str, object_: T | None, read: Callable[[T], NodeZones]) -> None:
        if object_ is None:
            self._problems[kind].drop(node)
            own = self._by_node.get(node, {})
            own.pop(kind, None)
            if not own:
                self._by_node.pop(node, None)
                self._strangers.pop(node, None)
        else:
            before = self._by_node.get(node, {}).get(kind)
            self._by_node.setdefault(node, {})[kind] = self._read(kind, object_, read, before)
        metrics.ZONE_PROBLEMS.set(sum(len(problems.current) for problems in self._problems.values()))
        if self._there(node):
            self._publish(node)
        elif node in self._by_node:
            self._stranger(node)

    def _read(self, kind: str, object_: T, read: Callable[[T], NodeZones], before: ObjectZones | None) -> ObjectZones:
        name = object_.metadata.name
        try:
            zones = read(object_)
        except InvalidRequest as e:
            text = f"it cannot be read: {e}; its previous content remains in use"
            if self._problems[kind].put(name, object_.metadata.uid, text):
                log.warning("%s %s: %s", kind, name, text)
            return ObjectZones(kind, before.zones if before is not None else None, e.message)
        if zones.problem:
            self._problems[kind].put(name, object_.metadata.uid, zones.problem)
        else:
            self._problems[kind].drop(name)
        return ObjectZones(kind, zones)

    def _stranger(self, node: NodeName) -> None:
        self._strangers[node] = None
        if len(self._strangers) > MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest], self._by_node[oldest]

    def _publish(self, node: NodeName) -> None:
        own = self._by_node.get(node, {})
        known = [own[kind] for kind in KINDS if kind in own]
        self._changed(node, next((one for one in known if one.zones is not None), known[0] if known else None))
