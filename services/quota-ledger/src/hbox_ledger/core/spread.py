"""Over how many nodes and leaf groups of the fabric a gang is spread, and how few could hold it: JTTED of the metrics.

The least numbers are those of an empty cluster of the nodes that the gang uses: the largest of them, and the largest leaf group.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hbox_common.model import Claim, NodeName, NodeState

from .fabrics import Fabrics


class Spread(NamedTuple):
    """Groups are 0 where a node is in no leaf group."""

    nodes: int
    least_nodes: int
    groups: int
    least_groups: int


def spread_of(claims: Sequence[Claim], nodes: Mapping[NodeName, NodeState], fabrics: Fabrics) -> Spread | None:
    """Of the claims of one gang; None for single pods, and where a pod has no card."""
    if len(claims) < 2 or not all(claim.slices for claim in claims):
        return None
    used = {claim.node for claim in claims}
    cards = max(len(claim.slices) for claim in claims)
    size = max((len(node.cards) for name in used if (node := nodes.get(name)) is not None), default=0)
    least = -(-len(claims) // max(1, size // cards))
    groups = {fabrics.leaf(name) for name in used}
    if None in groups:
        return Spread(len(used), min(least, len(used)), 0, 0)
    largest = max(group.size for group in groups if group is not None)
    return Spread(len(used), min(least, len(used)), len(groups), min(-(-least // largest), len(groups)))
