"""Units of nodes: the domain of the fabric (leaf group) to which a node itself belongs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hbox_common.model import HyperNode, NodeName


@dataclass(slots=True)
class Units:
    """The last published domains of all fabrics. A node of several fabrics belongs to its domain of the first by name."""

    _fabrics: dict[str, dict[NodeName, str]] = field(default_factory=dict)

    def put(self, fabric: str, domains: Iterable[HyperNode]) -> set[NodeName]:
        """All domains of a fabric, from now on. Returns the nodes whose unit changed."""
        concerned = set(self._fabrics.get(fabric, ()))
        now = {node: domain.name for domain in domains for node in domain.nodes}
        before = {node: self.of(node) for node in concerned | set(now)}
        self._fabrics[fabric] = now
        return {node for node, unit in before.items() if unit != self.of(node)}

    def of(self, node: NodeName) -> str:
        """ "" if no fabric contains the node."""
        return next((units[node] for _, units in sorted(self._fabrics.items()) if node in units), "")
