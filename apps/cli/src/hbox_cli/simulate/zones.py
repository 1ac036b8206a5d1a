"""NUMA nodes of a saved cluster, from NodeResourceTopology and Numatopology objects. If a node has both, the first counts, since it includes devices."""

from collections.abc import Sequence

from hbox_common.errors import InvalidRequest
from hbox_common.kube.zones import NodeResourceTopology, Numatopology, zones_of_numatopology, zones_of_topology
from hbox_common.model import NodeName, NodeZones

from .documents import Document


def zones_of(topologies: Sequence[Document], numatopologies: Sequence[Document], *, now: float) -> list[NodeZones]:
    """Raises InvalidRequest that names document, object and field."""
    found: dict[NodeName, NodeZones] = {}
    for document in (*numatopologies, *topologies):
        try:
            if document.kind == "Numatopology":
                zones = zones_of_numatopology(document.read(Numatopology, namespaced=False), at=now)
            else:
                zones = zones_of_topology(document.read(NodeResourceTopology, namespaced=False), at=now)
        except InvalidRequest as e:
            if e.message.startswith(document.where):
                raise
            raise InvalidRequest(f"{document.where}: {e.message}", hint=e.hint) from e
        found[zones.node] = zones
    return list(found.values())
