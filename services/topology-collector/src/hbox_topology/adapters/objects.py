"""Node objects as the core's values."""

from collections.abc import Iterator, Sequence

import msgspec

from hbox_common import kube
from hbox_common.model.devices import VENDORS

from ..core.facts import NodeFacts


def node_facts(node: kube.Node) -> NodeFacts:
    """What the core reads of this version of a node."""
    meta, spec, status = node.metadata, node.spec, node.status
    notes = meta.annotations
    if not VENDORS.locks.isdisjoint(notes):
        # Taken and released with every slice of a card that starts: no fact of the node, and not to be looked into as one.
        notes = {name: value for name, value in notes.items() if name not in VENDORS.locks}
    return NodeFacts(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations=notes,
        unschedulable=spec.unschedulable,
        taints=tuple((t.key, t.value, t.effect) for t in spec.taints),
        conditions={c.type: c.status for c in status.conditions},
        allocatable=status.allocatable,
        capacity=status.capacity,
    )


def images_of(node: kube.Node) -> Iterator[tuple[Sequence[str], int]]:
    """Names and bytes of its images."""
    return ((image.names or (), image.size_bytes) for image in node.status.images or ())


def without_images(node: kube.Node) -> kube.Node:
    """What is kept of a node: its images are most of it, and kept in a table of their own."""
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=None))
