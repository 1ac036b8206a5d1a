"""New nodes wait for node-agent's first report, where it is installed."""

from dataclasses import replace

import pytest

from hbox_common.model import Generation, NodeName, NodeState
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.firstreport import FirstReport, selector_of
from hbox_topology.core.inventory import Inventory

N1 = NodeFacts("n1", "u1", labels={"gpu": "yes"}, conditions={"Ready": "True"})
STARTING = replace(N1, conditions={"Ready": "False"})


def inventory(*reported: str, wait_s: float = 90.0, nodes: str = "") -> Inventory:
    return Inventory(FirstReport(wait_s, selector_of(filter(None, nodes.split(",")))), lambda name: name in reported)


def observed(table: Inventory, facts: NodeFacts = N1, *, now: float) -> NodeState:
    table.observe(facts, now=now)
    state = table.get(facts.name)
    assert state is not None
    return state


def test_new_node_waits_from_the_time_when_it_is_ready() -> None:
    table = inventory()
    assert observed(table, STARTING, now=100.0).report_due == 0.0
    assert observed(table, now=160.0).report_due == 250.0
    assert observed(table, replace(N1, unschedulable=True), now=170.0).report_due == 250.0


def test_reported_node_does_not_wait() -> None:
    assert observed(inventory("n1"), now=100.0).report_due == 0.0


@pytest.mark.parametrize(("wait_s", "nodes"), [(0.0, ""), (90.0, "gpu=no"), (90.0, "gpu=yes,zone")])
def test_node_without_agent_does_not_wait(wait_s: float, nodes: str) -> None:
    state = observed(inventory(wait_s=wait_s, nodes=nodes), now=100.0)
    assert (state.report_due, state.report_missing) == (0.0, False)


@pytest.mark.parametrize("nodes", ["gpu", "gpu=yes", "gpu=yes,gpu"])
def test_selected_node_waits(nodes: str) -> None:
    assert observed(inventory(nodes=nodes), now=100.0).report_due == 190.0


def test_first_report_ends_the_wait() -> None:
    reported: set[str] = set()
    table = Inventory(FirstReport(90.0), lambda name: name in reported)
    assert observed(table, now=100.0).report_due == 190.0
    assert table.waits("n1")
    reported.add("n1")
    assert observed(table, now=101.0).report_due == 0.0
    assert not table.waits("n1")


def test_node_is_used_after_the_wait_and_marked() -> None:
    table = inventory()
    observed(table, now=100.0)
    assert (table.overdue(189.0), table.count_waiting()) == ([], (1, 0))
    assert table.overdue(190.0) == ["n1"]
    state = observed(table, now=190.0)
    assert (state.report_due, state.report_missing, table.overdue(500.0), table.count_waiting()) == (0.0, True, [], (0, 1))
    observed(table, STARTING, now=500.0)
    assert observed(table, now=600.0).report_due == 0.0, "it waits once"


def test_late_report_removes_the_mark() -> None:
    reported: set[str] = set()
    table = Inventory(FirstReport(90.0), lambda name: name in reported)
    observed(table, now=100.0)
    observed(table, now=190.0)
    reported.add("n1")
    assert not observed(table, now=300.0).report_missing


def test_restarted_process_continues_the_wait() -> None:
    first = observed(inventory(), now=100.0)
    table = inventory()
    table.restore(first)
    assert observed(table, now=150.0).report_due == 190.0
    assert table.overdue(190.0) == ["n1"]


def test_node_that_was_in_use_before_does_not_wait() -> None:
    """As after an upgrade, or after a restart whose bus has lost the reports."""
    table = inventory()
    table.restore(NodeState(NodeName("n1"), "u1", Generation(5), ready=True))
    assert observed(table, now=100.0).report_due == 0.0


def test_recreated_node_waits() -> None:
    table = inventory()
    table.restore(NodeState(NodeName("n1"), "u0", Generation(5), ready=True))
    assert observed(table, now=100.0).report_due == 190.0


def test_deleted_node_does_not_count() -> None:
    table = inventory()
    observed(table, now=100.0)
    table.removed("n1", now=101.0)
    assert (table.overdue(500.0), table.count_waiting()) == ([], (0, 0))


def test_wait_is_bounded_if_the_clock_is_set_back() -> None:
    table = inventory()
    observed(table, now=10_000.0)
    assert observed(table, now=100.0).report_due == 190.0
    assert observed(table, now=150.0).report_due == 190.0
