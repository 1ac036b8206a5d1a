"""Which nodes are idle and comparable, from what the platform publishes."""

import pytest

from hbox_cli.commands.health_nccl import named_pairs, nodes_of
from hbox_cli.health.pairtests import Hardware
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.events import Event, FabricChanged, NodeStateChanged
from hbox_common.model import Generation, HyperNode, NodeName, NodeState
from hbox_common.model.devices import Card

NVIDIA, ASCEND = "nvidia.com/gpu", "huawei.com/Ascend910B2"


def node(name: str, *models: str, resource: str = NVIDIA, ready: bool = True) -> NodeStateChanged:
    cards = tuple(Card(index, f"GPU-{name}-{index}", model, 80_000) for index, model in enumerate(models))
    state = NodeState(NodeName(name), name, Generation(1), ready=ready, allocatable={resource: len(cards)}, cards=cards)
    return NodeStateChanged(node=state)


def fabric(name: str, leaf: str, *nodes: str) -> FabricChanged:
    return FabricChanged(fabric=name, hypernodes=(HyperNode(leaf, 1, nodes=tuple(map(NodeName, nodes))),))


CLUSTER: tuple[Event, ...] = (
    *(node(name, "H100", "H100") for name in ("a1", "a2")),
    *(node(name, "L40", "L40") for name in ("b1", "b2", "b3")),
    *(node(name, "910B", "910B", resource=ASCEND) for name in ("c1", "c2")),
    node("mixed", "H100", "L40"),
    node("down", "L40", "L40", ready=False),
)


def test_nodes_are_paired_by_model_and_number_of_cards_with_the_resource_of_their_vendor() -> None:
    found = nodes_of(CLUSTER, [], now=0.0)
    assert found.idle == ("a1", "a2", "b1", "b2", "b3", "c1", "c2")
    assert (found.hardware["c1"], found.hardware["down"]) == (Hardware("910B", ASCEND, 2), Hardware("L40", NVIDIA, 2))
    pairs = {frozenset((test.one, test.other)) for test in found.plan(4)}
    assert pairs == {
        frozenset(("a1", "a2")),
        frozenset(("c1", "c2")),
        *map(frozenset, (("b1", "b2"), ("b2", "b3"), ("b1", "b3"))),
    }
    with pytest.raises(NotFound, match="no two nodes"):
        nodes_of(CLUSTER[1:3], [], now=0.0).plan(1)


def test_the_first_fabric_by_name_has_the_leaf_of_a_node() -> None:
    fabrics = [fabric("ib", "leaf-1", "a1"), fabric("roce", "tor-1", "a1", "a2")]
    for order in (fabrics, fabrics[::-1]):
        assert nodes_of([*CLUSTER, *order], [], now=0.0).leaf_of == {"a1": "leaf-1", "a2": "tor-1"}


def test_named_pairs_have_the_same_hardware() -> None:
    hardware = nodes_of(CLUSTER, [], now=0.0).hardware
    assert [(test.one, test.other) for test in named_pairs(["b1,down"], 2, hardware)] == [("b1", "down")]
    for pair, why in (
        ("a1,b1", "a1 has 2 x H100, b1 has 2 x L40"),
        ("a1,x", "x has no cards of one model"),
        ("a1", "two nodes are expected"),
        ("a1,a1", "two nodes are expected"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            named_pairs([pair], 1, hardware)
