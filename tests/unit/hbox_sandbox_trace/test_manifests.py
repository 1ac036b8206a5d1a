"""Objects that a replay creates say what the trace said."""

import json

import pytest

from hbox_common.model import Generation
from hbox_sandbox.trace import TraceNode, TracePod, node_manifest, pod_group_manifest, pod_manifest
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.node import read_node


def test_a_node_registers_its_cards_as_hami_does() -> None:
    node = node_manifest(TraceNode("n-0", 96_000, 393_216, 8, "G2"), now="2026-01-01T00:00:00Z")
    cards = json.loads(node["metadata"]["annotations"]["hami.io/node-nvidia-register"])
    assert [card["index"] for card in cards] == list(range(8))
    assert {card["type"] for card in cards} == {"NVIDIA-G2"}
    assert [card["numa"] for card in cards] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == str(sum(card["count"] for card in cards))
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "G2"
    assert all(card["devmem"] % 100 == 0 for card in cards), "percentages have to divide without remainder"


def test_a_node_without_cards_registers_none() -> None:
    node = node_manifest(TraceNode("n-1", 96_000, 393_216, 0, ""), now="2026-01-01T00:00:00Z")
    assert node["metadata"]["annotations"] == {}
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]


def resources(pod: TracePod) -> dict[str, str]:
    limits: dict[str, str] = pod_manifest(pod, namespace="replay")["spec"]["containers"][0]["resources"]["limits"]
    return limits


def test_a_share_asks_for_percents_of_one_card() -> None:
    assert resources(TracePod("p", 3152, 5632, 1, 810)) == {
        "cpu": "3152m",
        "memory": "5632Mi",
        "nvidia.com/gpu": "1",
        "nvidia.com/gpucores": "81",
        "nvidia.com/gpumem-percentage": "81",
    }


def test_a_share_finer_than_a_percent_is_rounded_up() -> None:
    assert resources(TracePod("p", 1, 1, 1, 815))["nvidia.com/gpucores"] == "82"


def test_whole_cards_are_asked_for_by_number_alone() -> None:
    assert resources(TracePod("p", 1, 1, 8, 1000)) == {"cpu": "1m", "memory": "1Mi", "nvidia.com/gpu": "8"}


def test_a_gang_names_its_group_and_the_group_its_size() -> None:
    pod = pod_manifest(TracePod("p", 1, 1, 8, 1000, ("T4", "P100"), "g"), namespace="replay", prefix="r1-")
    group = pod_group_manifest("r1-g", namespace="replay", members=4)
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
    assert pod["metadata"]["annotations"]["nvidia.com/use-gputype"] == "T4,P100"
    assert group["spec"]["minMember"] == 4


@pytest.mark.parametrize(
    ("model", "resource", "register"),
    [
        ("AMD_Instinct_MI300X_OAM", "amd.com/gpu", "hami.io/node-amd-register"),
        ("DCU-Z100L", "hygon.com/dcunum", "hami.io/node-dcu-register"),
        ("NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu", "hami.io/node-nvidia-register"),
    ],
)
def test_a_models_name_says_whose_cards_a_node_has(model: str, resource: str, register: str) -> None:
    made = node_manifest(TraceNode("n-0", 96_000, 393_216, 2, model), now="2026-01-01T00:00:00Z")
    facts = NodeFacts(
        "n-0", "uid", made["metadata"]["labels"], made["metadata"]["annotations"], allocatable=made["status"]["allocatable"]
    )
    reading = read_node(facts, Generation(1))
    assert (list(made["metadata"]["annotations"]), reading.warnings) == ([register], ())
    assert [(card.model, card.memory_mib > 16_000) for card in reading.state.cards] == [(model, True)] * 2
    assert resource in reading.state.allocatable
