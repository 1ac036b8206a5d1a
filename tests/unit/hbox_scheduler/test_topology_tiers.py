"""Tiers are any numbers that somebody wrote on HyperNodes: large ones, negative ones, with gaps between them."""

import numpy as np
import pytest

from hbox_common.kube import HyperNode as HyperNodeObject
from hbox_common.kube.fabric import resolve
from hbox_common.kube.objects import HyperNodeSpec, Metadata
from hbox_common.model import HyperNode, NodeName
from hbox_common.model.bounds import INT32_MAX
from hbox_scheduler.core.topology.tree import Tree, tree_of
from hbox_scheduler.core.topology.units import used_by_tier

NODES = [NodeName(f"n{number}") for number in range(4)]


def tree(low: int, high: int) -> Tree:
    """Two leaves of two nodes, and both in one spine."""
    leaves = [HyperNode(f"leaf-{at}", low, nodes=tuple(NODES[2 * at : 2 * at + 2])) for at in (0, 1)]
    spine = HyperNode("spine", high, children=("leaf-0", "leaf-1"))
    return tree_of([*leaves, spine], {name: row for row, name in enumerate(NODES)}, len(NODES))


@pytest.mark.parametrize(("low", "high"), [(1, 2), (1, 1000), (0, 100_000), (-5, 7)])
def test_what_a_choice_costs_is_counted_by_the_tiers_that_there_are(low: int, high: int) -> None:
    """An array as long as the highest tier would be 16 GiB where somebody writes 2147483647."""
    assert used_by_tier(tree(low, high), np.array([True, False, True, False])) == (1, 1, 2)


@pytest.mark.parametrize(("low", "high"), [(7, 2**63 - 1), (2**63, 2**80)])
def test_tiers_that_no_column_holds_are_taken_for_the_highest(low: int, high: int) -> None:
    """Said by a topology-collector of before: the scheduler ended with it, at each start anew."""
    assert tree(low, high).tiers.max() <= INT32_MAX + 1


@pytest.mark.parametrize("tier", [-1, INT32_MAX + 1, 2**63 - 1, 2**63])
def test_a_hypernode_of_an_absurd_tier_is_left_out_and_told_and_no_other(tier: int) -> None:
    objects = [
        HyperNodeObject(metadata=Metadata(name=name, uid=name), spec=HyperNodeSpec(tier=at))
        for name, at in (("absurd", tier), ("fine", 1))
    ]
    resolved = resolve(objects, {})
    assert [one.name for one in resolved.hypernodes] == ["fine"]
    assert [(wrong.place, wrong.field) for wrong in resolved.wrong] == [(0, "spec.tier")]
    assert str(tier) in resolved.wrong[0].message
