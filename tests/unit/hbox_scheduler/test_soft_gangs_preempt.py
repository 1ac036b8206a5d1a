"""Gangs that would rather be together, and have others leave: one leaf of the fabric where that takes no more from anybody."""

import pytest

from .fabric_world import SOFT, Fabric


def nominated(running: dict[str, int]) -> set[str]:
    """Leaves of a soft gang of two pods that preempts. `running`: the priority of who fills each node; leaves a and b have two nodes each."""
    fabric = Fabric({"a": {"a0": 1, "a1": 1}, "b": {"b0": 1, "b1": 1}}, above={"top": ["a", "b"]})
    for node, priority in running.items():
        fabric.gang(f"on-{node}", 1, on=[node], priority=priority)
    fabric.gang("g", 2, wish=SOFT, priority=9)
    report = fabric.run(actions="allocate, preempt")
    assert len(report.nominations) == 2
    return {fabric.leaf_of[node] for node in report.nominations.values()}


@pytest.mark.parametrize("order", [("a0", "b0", "a1", "b1"), ("a0", "b1", "a1", "b0"), ("b0", "a0", "b1", "a1")])
def test_two_victims_of_one_leaf_leave_and_not_one_of_each(order: tuple[str, ...]) -> None:
    assert len(nominated(dict.fromkeys(order, 0))) == 1


def test_a_leaf_with_a_free_node_is_taken_where_one_victim_is_enough_either_way() -> None:
    assert nominated(dict.fromkeys(("a0", "b0", "b1"), 0)) == {"a"}


def test_nobody_of_higher_priority_leaves_for_the_sake_of_one_leaf() -> None:
    assert nominated({"a0": 0, "a1": 5, "b0": 0, "b1": 5}) == {"a", "b"}
