"""Units of nodes, by the fabrics' domains."""

from hbox_common.model import HyperNode, NodeName
from hbox_health.core.judge.breaker import Breaker
from hbox_health.core.units import Units

A, B, C = map(NodeName, "abc")


def test_the_unit_of_a_node_is_the_domain_that_contains_the_node_itself() -> None:
    units = Units()
    assert units.put("ib", [HyperNode("spine", 2, children=("lg1",)), HyperNode("lg1", 1, nodes=(A, B))]) == {A, B}
    assert (units.of(A), units.of(C)) == ("lg1", "")


def test_only_nodes_that_move_are_returned() -> None:
    units = Units()
    units.put("ib", [HyperNode("lg1", 1, nodes=(A, B))])
    assert units.put("ib", [HyperNode("lg1", 1, nodes=(A,)), HyperNode("lg2", 1, nodes=(C,))]) == {B, C}
    assert units.put("storage", [HyperNode("s1", 1, nodes=(A, B))]) == {B}, "the first fabric by name counts"
    assert units.put("ib", []) == {A, C}
    assert units.of(A) == "s1"


def test_a_restricted_node_that_moves_to_another_unit_stays_restricted_and_is_not_new() -> None:
    breaker = Breaker()
    for name in "abcdef":
        breaker.seen(name, "")
    assert breaker.admits("a", 1.0)
    assert breaker.admits("b", 1.0)
    assert not breaker.admits("c", 1.0)
    assert not breaker.admits("d", 1.0)
    for name in "abcd":
        breaker.seen(name, "lg1")
    assert set(breaker.restricted) == {"a", "b"}
    assert (breaker.by_unit["lg1"], breaker.begun) == (2, [1.0, 1.0])
    assert list(breaker.queue) == ["c", "d"]
