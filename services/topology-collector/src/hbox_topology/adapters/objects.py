"""Node objects as the core's values."""

from hbox_common import kube

from ..core.facts import NodeFacts


def node_facts(node: kube.Node) -> NodeFacts:
    """What the core reads of this version of a node."""
    meta, spec, status = node.metadata, node.spec, node.status
    return NodeFacts(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations,
        unschedulable=spec.unschedulable,
        taints=tuple((t.key, t.value, t.effect) for t in spec.taints),
        conditions={c.type: c.status for c in status.conditions},
        allocatable=status.allocatable,
    )
