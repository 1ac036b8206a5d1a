"""HyperNodes, with their members resolved against the nodes and HyperNodes of the same file, and the fabric part of a Simulation object."""

from collections.abc import Collection, Iterable, Sequence

from hbox_common import kube
from hbox_common.kube.fabric import resolve
from hbox_common.model import HyperNode, NodeName, NodeState

from .documents import Document
from .kinds import FabricSpec


def hypernodes_of(documents: Sequence[Document], nodes: Iterable[NodeState]) -> list[HyperNode]:
    """The file's HyperNodes in its order. Raises InvalidRequest."""
    read = [document.read(kube.HyperNode, namespaced=False) for document in documents]
    resolved = resolve(read, {node.name: node.labels for node in nodes})
    for wrong in resolved.wrong:
        raise documents[wrong.place].wrong(wrong.field, wrong.message, hint=wrong.hint)
    return resolved.hypernodes


def old_domains(spec: FabricSpec, hypernodes: Iterable[HyperNode]) -> dict[str, str]:
    """Domains that scheduler-core does not use because the fabric's last confirmation is too old, with the reason."""
    if spec.age_seconds <= spec.max_age_seconds:
        return {}
    why = f"the fabric was not confirmed by its source for more than {spec.max_age_seconds:g} s"
    return {one.name: why for one in hypernodes}


def degraded(spec: FabricSpec, nodes: Collection[NodeName], simulation: Document | None) -> dict[NodeName, int]:
    """How many rails of each node are down, slow or at another leaf. Raises InvalidRequest for a node that is not in the file."""
    for name in spec.degraded_rails:
        if simulation is not None and NodeName(name) not in nodes:
            raise simulation.wrong("spec.fabric.degradedRails", f"there is no node {name}", hint="name a Node of this file")
    return {NodeName(name): len(set(rails)) for name, rails in spec.degraded_rails.items() if rails}
