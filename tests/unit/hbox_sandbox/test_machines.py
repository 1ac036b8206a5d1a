"""Nodes of a made-up cluster, from a few words."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_sandbox.trace import TraceNode, machines


def test_nodes_are_numbered_through_all_that_is_asked_for() -> None:
    made = machines(["2x8", "1x4:NVIDIA-H200", "1"])
    assert [(node.name, node.cards, node.model) for node in made] == [
        ("node-0001", 8, "NVIDIA-H100-80GB-HBM3"),
        ("node-0002", 8, "NVIDIA-H100-80GB-HBM3"),
        ("node-0003", 4, "NVIDIA-H200"),
        ("node-0004", 0, ""),
    ]
    assert made[0] == TraceNode(
        "node-0001", cpu_milli=112_000, memory_mib=2 * 1024 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3"
    )
    assert machines([]) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' does not say how many nodes"),
        ("x8", "'x8' does not say how many nodes"),
        ("-1x8", "'-1x8' does not say how many nodes"),
        ("4x8:", "'4x8:' does not say how many nodes"),
        ("4x8:a b", "'4x8:a b' does not say how many nodes"),
        ("4x17", "'4x17' is too much"),
        ("20001", "'20001' is too much"),
    ],
)
def test_what_says_nothing_of_the_kind_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        machines([text])
