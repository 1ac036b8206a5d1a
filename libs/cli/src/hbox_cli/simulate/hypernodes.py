"""HyperNodes, with their members resolved against the nodes and HyperNodes of the same file."""

from collections.abc import Iterable, Sequence

from hbox_common import kube
from hbox_common.kube.fabric import resolve
from hbox_common.model import HyperNode, NodeState

from .documents import Document


def hypernodes_of(documents: Sequence[Document], nodes: Iterable[NodeState]) -> list[HyperNode]:
    """The file's HyperNodes in its order. Raises InvalidRequest."""
    read = [document.read(kube.HyperNode, namespaced=False) for document in documents]
    resolved = resolve(read, {node.name: node.labels for node in nodes})
    for wrong in resolved.wrong:
        raise documents[wrong.place].wrong(wrong.field, wrong.message, hint=wrong.hint)
    return resolved.hypernodes
