"""A fabric that nobody confirms promises no domain; everybody else goes by it. And what "one switch" is."""

import pytest

from hbox_common.model import HyperNode, NodeName, TopologyWish
from hbox_common.model.annotations import NETWORK_TOPOLOGY, NETWORK_TOPOLOGY_LEVEL
from hbox_scheduler.core.cluster.fabrics import Fabrics
from hbox_scheduler.core.topology.constraints import constraint_of
from hbox_scheduler.core.topology.tree import tree_of

from .fabric_world import SOFT, Fabric, hard, placed

TWO_LEAVES = {"s0": {"n0": 2, "n1": 2}, "s1": {"n2": 2, "n3": 2}}


def domain(name: str, *nodes: str) -> HyperNode:
    return HyperNode(name, 1, "leafgroup", nodes=tuple(map(NodeName, nodes)))


def test_a_hard_gang_waits_while_all_domains_are_old_and_a_soft_one_goes_by_them() -> None:
    fabric = Fabric(TWO_LEAVES)
    strict = fabric.gang("strict", 2, wish=hard(1))
    easy = fabric.gang("easy", 4, wish=SOFT)
    report = fabric.run(old=dict.fromkeys(TWO_LEAVES, "fabric ib was not confirmed by its source for more than 600 s"))
    assert not placed(report, strict)
    assert report.pending["ns/strict-000"].message == (
        "TopologyOld: 2 pods have to be in one domain of the fabric, and fabric ib was not confirmed by its source for more than 600 s"
    )
    assert len(fabric.leaves_used(placed(report, easy))) == 1


def test_domains_of_another_fabric_still_hold_what_fits() -> None:
    fabric = Fabric(TWO_LEAVES)
    strict = fabric.gang("strict", 4, wish=hard(1))
    assert fabric.leaves_used(placed(fabric.run(old={"s0": "old"}), strict)) == {"s1"}


def test_a_fabric_is_old_when_nobody_confirmed_it_for_longer_than_the_limit() -> None:
    fabrics = Fabrics()
    fabrics.put("ib", [domain("a", "n0")])
    fabrics.put("labels", [domain("b", "n1")])
    assert not fabrics.age(1e9, 600.0)
    fabrics.seen("ib", 1000.0)
    assert not fabrics.age(1600.0, 600.0)
    assert fabrics.age(1601.0, 600.0)
    assert set(fabrics.old) == {"a"}
    fabrics.put("ib", [domain("a2", "n0")])
    fabrics.relist(600.0)
    assert set(fabrics.old) == {"a2"}
    fabrics.seen("ib", 1602.0)
    assert fabrics.age(1603.0, 600.0)
    assert not fabrics.old


def test_a_fabric_that_ages_no_more_is_not_old() -> None:
    """It was too old when it became one that is read from the cluster itself, and nothing else ages."""
    fabrics = Fabrics()
    fabrics.put("ib", [domain("a", "n0")])
    fabrics.seen("ib", 0.0)
    assert fabrics.age(1000.0, 600.0)
    fabrics.forget_age("ib")
    assert fabrics.aging
    assert fabrics.age(1001.0, 600.0)
    assert not fabrics.old
    assert not fabrics.aging


def test_a_domain_is_as_old_as_the_fabric_that_it_is_of() -> None:
    fabrics = Fabrics()
    fabrics.put("a", [domain("x", "n0")])
    fabrics.put("b", [domain("x", "n1"), domain("y", "n1")])
    fabrics.seen("b", 0.0)
    assert fabrics.age(1000.0, 600.0)
    assert set(fabrics.old) == {"y"}


def test_of_two_fabrics_with_one_name_for_a_domain_the_first_by_name_has_it() -> None:
    fabrics = Fabrics()
    fabrics.put("b", [domain("x", "n1"), domain("y", "n1")])
    found = fabrics.put("a", [domain("x", "n0")])
    assert [(one.name, one.nodes) for one in found] == [("x", ("n0",)), ("y", ("n1",))]


@pytest.mark.parametrize(
    ("level", "ceiling"), [(None, 2), ("leafgroup", 2), ("nvlink", 1), ("pod", 3), ("fabric", 4), ("nonsense", 1)]
)
def test_one_switch_is_the_leaf_group_unless_another_level_is_named(level: str | None, ceiling: int) -> None:
    names = ("nvlink", "leafgroup", "pod", "fabric")
    tree = tree_of(
        [HyperNode(f"d{tier}", tier, name, nodes=(NodeName("n0"),)) for tier, name in enumerate(names, 1)],
        {NodeName("n0"): 0},
        1,
    )
    gang = Fabric({}, loose={"n0": 1}).gang(
        "g", 1, annotations={NETWORK_TOPOLOGY: "singleSwitch"} | ({NETWORK_TOPOLOGY_LEVEL: level} if level else {})
    )
    constraint = constraint_of(tree, gang)
    assert constraint is not None
    assert (constraint.hard, constraint.ceiling, constraint.floor) == (True, ceiling, 1)


@pytest.mark.parametrize("wish", [SOFT, hard(1)])
@pytest.mark.parametrize("bad", ["n00", "n01", "n02", "n03"])
def test_a_gang_takes_nodes_with_all_rails_where_they_do_as_well(wish: TopologyWish, bad: str) -> None:
    fabric = Fabric({"s0": {f"n0{n}": 1 for n in range(4)}})
    gang = fabric.gang("g", 3, wish=wish)
    assert bad not in placed(fabric.run(degraded={bad: 1}), gang)


def test_a_node_without_a_rail_is_taken_rather_than_another_leaf_and_when_all_are_needed() -> None:
    fabric = Fabric({"s0": {"n0": 1, "n1": 1}, "s1": {"n2": 1}})
    gang = fabric.gang("g", 2, wish=SOFT)
    assert set(placed(fabric.run(degraded={"n1": 8}), gang)) == {"n0", "n1"}


def test_rails_of_all_fabrics_add_up_and_are_forgotten_when_they_are_mended() -> None:
    fabrics = Fabrics()
    assert fabrics.put_degraded("a", {NodeName("n0"): 2})
    assert fabrics.put_degraded("b", {NodeName("n0"): 1})
    assert not fabrics.put_degraded("b", {NodeName("n0"): 1})
    assert fabrics.degraded == {"n0": 3}
    assert fabrics.put_degraded("a", {})
    assert fabrics.degraded == {"n0": 1}
