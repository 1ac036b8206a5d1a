"""Which pool a node is of: the administrator's file, then its label."""

from dataclasses import replace

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import Generation, Match, MatchOperator, NodeName, NodeState, Selector, pool_of
from hbox_topology.adapters.poolsfile import rules_of
from hbox_topology.core.pools import PoolRule, placed_in_pool

FILE = """
pools:
- name: lab
  nodes: [n1, n2]
- name: vision
  selector: {matchLabels: {team: vision}, matchExpressions: [{key: old, operator: DoesNotExist}]}
- name: public
  selector: {matchExpressions: [{key: zone, operator: In, values: [a, b]}]}
"""


def pool(name: str, **labels: str) -> str:
    named = {key.replace("_", "/").replace("hbox/", "hbox.io/"): value for key, value in labels.items()}
    state = NodeState(NodeName(name), name, Generation(1), ready=True, labels=named)
    return pool_of(placed_in_pool(state, rules_of(FILE)).labels)


def test_the_first_rule_that_holds_decides() -> None:
    assert (pool("n1"), pool("n2", team="vision")) == ("lab", "lab")
    assert (pool("n3", team="vision"), pool("n3", team="vision", zone="a")) == ("vision", "vision")
    assert (pool("n3", team="vision", old="", zone="b"), pool("n3", team="speech")) == ("public", "pooled")


def test_the_file_goes_before_the_nodes_own_label_which_counts_where_the_file_says_nothing() -> None:
    assert (pool("n1", hbox_pool="mine"), pool("n3", hbox_pool="mine")) == ("lab", "mine")


def test_a_node_of_no_rule_is_left_as_it_is() -> None:
    state = NodeState(NodeName("n9"), "u", Generation(1), ready=True)
    assert placed_in_pool(state, rules_of(FILE)) is state
    assert placed_in_pool(replace(state, name=NodeName("n1")), ()) == replace(state, name=NodeName("n1"))


def test_a_file_without_pools_has_none() -> None:
    assert rules_of("") == rules_of("pools: []") == ()
    assert rules_of("pools: [{name: lab, selector: {matchLabels: {team: vision}}}]") == (
        PoolRule("lab", frozenset(), Selector((Match("team", MatchOperator.IN, ("vision",)),))),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pools: {", "line 2, column 1: did not find expected node content"),
        ("- lab", "the file: Input should be"),
        ("pool: []", "pool: Extra inputs are not permitted"),
        ("pools: [{nodes: [a]}]", "pools.0.name: Field required"),
        ("pools: [{name: 'a b', nodes: [a]}]", "pools.0.name: String should match pattern"),
        ("pools: [{name: lab}]", "pools.0: pool lab names neither nodes nor labels"),
        ("pools: [{name: lab, selector: {}}]", "pools.0: pool lab names neither nodes nor labels"),
        ("pools: [{name: lab, nodes: a}]", "pools.0.nodes: Input should be a valid list"),
        (
            "pools: [{name: lab, selector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}]",
            "pools.0.selector.matchExpressions.0.operator: String should match pattern",
        ),
        (
            "pools: [{name: lab, selector: {matchExpressions: [{key: a, operator: In}]}}]",
            "pools.0.selector.matchExpressions.0: operator In takes values",
        ),
        (
            "pools: [{name: lab, selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]",
            "pools.0.selector.matchExpressions.0: operator Exists takes no values",
        ),
        (
            "pools: [{name: lab, selector: {matchLabels: {a: 1}}}]",
            "pools.0.selector.matchLabels.a: Input should be a valid string",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as e:
        rules_of(text)
    assert e.value.message.startswith(message)
