"""States of ports in the incident engine: slow ports, and ports whose error counters grow."""

from typing import Any

import pytest

from hbox_common.health.report import Check

from .test_facts_in_time import Node

RAIL = "rail:mlx5_0"


def port(node: Node, /, rail: str = RAIL, **value: Any) -> None:
    state: dict[str, Any] = {"state": "4: ACTIVE", "gbps": 400.0, "best_gbps": 400.0}
    node.fact(Check.PORTS, rail, "port", **(state | value))


def test_a_port_slower_than_the_others_of_its_node_is_isolated_until_it_is_as_fast() -> None:
    node = Node()
    port(node, gbps=200.0)
    node.after(40)
    assert node.verdict().rails_off == ()
    node.after(5)
    assert node.verdict().rails_off == (RAIL,)
    port(node)
    node.after(1300)
    assert node.verdict().rails_off == ()


def test_ports_of_one_rate_are_well_whatever_the_profile_expects() -> None:
    node = Node()
    port(node, gbps=200.0, best_gbps=200.0)
    node.after(600)
    assert node.open() == []


@pytest.mark.parametrize(
    ("growth", "bad"),
    [
        ({"symbol_error": 1500}, True),
        ({"symbol_error": 15}, False),
        ({"local_link_integrity_errors": 1}, True),
        ({"link_downed": 1}, False),
    ],
)
def test_counters_that_grow_for_a_minute_are_a_ticket(growth: dict[str, int], bad: bool) -> None:
    node = Node()
    for _ in range(5):
        port(node, growth=growth, growth_s=15.0)
        node.after(15)
    assert [incident.action for incident in node.open()] == (["ticket"] if bad else [])


def test_counters_that_grew_once_are_no_incident_and_no_flap() -> None:
    node = Node()
    for _ in range(4):
        port(node, growth={"symbol_error": 1500}, growth_s=15.0)
        node.after(30)
        port(node)
        node.after(15)
    assert node.verdict().rails_off == ()


def test_a_node_without_any_working_port_takes_no_gangs_over_several_nodes_until_one_is_back() -> None:
    node = Node()
    ports = ("rail:mlx5_0", "rail:mlx5_1")
    for rail in ports:
        port(node, rail)
    port(node, ports[0], state="1: DOWN")
    node.after(300)
    assert (node.verdict().rails_off, node.verdict().multi_node) == (ports[:1], True)
    port(node, ports[1], state="1: DOWN")
    node.after(300)
    assert (node.verdict().rails_off, node.verdict().multi_node) == (ports, False)
    assert (node.verdict().multi_gpu, node.verdict().node) == (True, True)
    port(node, ports[1])
    node.after(700)
    assert (node.verdict().rails_off, node.verdict().multi_node) == (ports[:1], True)
