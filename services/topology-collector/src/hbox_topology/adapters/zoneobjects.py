"""NUMA nodes as other people's exporters tell them, for nodes without node-agent: NodeResourceTopology objects, and Volcano's Numatopology.

Each kind is watched where the cluster knows it, and looked for again from time to time where not. An object that cannot be read counts as if it were not
there, and is named once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from hbox_common import kube
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.kube import Delta, Informer, KubeClient, Resource
from hbox_common.kube.zones import (
    NODE_RESOURCE_TOPOLOGIES,
    NUMATOPOLOGIES,
    NodeResourceTopology,
    Numatopology,
    zones_of_numatopology,
    zones_of_topology,
)
from hbox_common.model import NodeName, NodeZones

from .definitions import until_defined

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0

T = TypeVar("T", bound=kube.KubeObject)


class ZoneObjects:
    """`changed` is told what is known of a node now, None where that is nothing."""

    def __init__(self, client: KubeClient, changed: Callable[[NodeName, NodeZones | None], None]) -> None:
        self._client, self._changed = client, changed
        self._told: dict[NodeName, dict[str, NodeZones]] = {}
        self._complaints: dict[str, str] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._watch(
                    NODE_RESOURCE_TOPOLOGIES,
                    NodeResourceTopology,
                    lambda told: zones_of_topology(told, at=wall_s()),
                )
            )
            group.create_task(self._watch(NUMATOPOLOGIES, Numatopology, lambda told: zones_of_numatopology(told, at=wall_s())))

    async def _watch(self, resource: Resource, kind: type[T], read: Callable[[T], NodeZones]) -> NoReturn:
        await until_defined(self._client, resource, kind.__name__, look_again_s=LOOK_AGAIN_S)
        informer = Informer(self._client, resource, kind)

        async def on_changes(deltas: Sequence[Delta[T]]) -> None:
            for delta in deltas:
                there = delta.new if delta.new is not None else delta.old
                assert there is not None
                zones = self._read(kind.__name__, delta.new, read) if delta.new is not None else None
                self._put(NodeName(there.metadata.name), kind.__name__, zones)

        await informer.run(on_changes)
        raise AssertionError("an informer ends with its task")

    def _read(self, kind: str, told: T, read: Callable[[T], NodeZones]) -> NodeZones | None:
        name = f"{kind} {told.metadata.name}"
        try:
            zones = read(told)
        except InvalidRequest as e:
            if self._complaints.get(name) != e.message:
                self._complaints[name] = e.message
                log.warning("%s: %s: left out", name, e)
            return None
        self._complaints.pop(name, None)
        return zones

    def _put(self, node: NodeName, kind: str, zones: NodeZones | None) -> None:
        told = self._told.setdefault(node, {})
        if zones is not None:
            told[kind] = zones
        else:
            told.pop(kind, None)
            if not told:
                del self._told[node]
        self._changed(node, told.get(NodeResourceTopology.__name__) or told.get(Numatopology.__name__))
