"""Which pool each node is of, by a list of names or by labels: the administrator's word, before the node's own label."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hbox_common.model import POOL, NodeState, Selector, selects


@dataclass(frozen=True, slots=True)
class PoolRule:
    """Nodes by name, and those that the selector selects."""

    pool: str
    nodes: frozenset[str] = frozenset()
    selector: Selector | None = None

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        return name in self.nodes or (self.selector is not None and selects(self.selector, labels))


def placed_in_pool(state: NodeState, rules: Iterable[PoolRule]) -> NodeState:
    """The node with the label of the first rule that holds; without one it has the label that it has."""
    for rule in rules:
        if rule.holds(state.name, state.labels):
            return replace(state, labels={**state.labels, POOL: rule.pool})
    return state
