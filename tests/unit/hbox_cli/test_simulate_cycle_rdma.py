"""Pods that talk over RDMA get cards with adapters of their own, in `simulate cycle` as on the running platform."""

from itertools import chain
from typing import Any

import pytest

from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.yamltext import contents_of

#: An H100 box, each card with its own adapter; that of card 1 is down.
DOWN = "0=mlx5_0;1=;2=mlx5_4;3=mlx5_5;4=mlx5_6;5=mlx5_9;6=mlx5_10;7=mlx5_11"
UP = DOWN.replace("1=;", "1=mlx5_3;")


def node(name: str, adapters: str = "", *, rdma: int = 8) -> str:
    said = f', annotations: {{hbox.io/card-adapters: "{adapters}"}}' if adapters else ""
    return f"""
apiVersion: v1
kind: Node
metadata: {{name: {name}{said}}}
status: {{allocatable: {{cpu: 64, memory: 64Gi, pods: 110, nvidia.com/gpu: 8, rdma/hca: {rdma}}}}}
---
"""


def pod(name: str, cards: int, *, rdma: int = 0, group: str = "", at: str = "") -> str:
    more = f", rdma/hca: {rdma}" if rdma else ""
    told = f", annotations: {{scheduling.k8s.io/group-name: {group}}}" if group else ""
    when = f', creationTimestamp: "2026-01-01T00:00:{at}Z"' if at else ""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ns{told}{when}}}
spec: {{schedulerName: hbox, containers: [{{name: c, resources: {{limits: {{cpu: 1, memory: 1Gi, nvidia.com/gpu: {cards}{more}}}}}}}]}}
status: {{phase: Pending}}
---
"""


def outcome(*parts: str) -> Any:
    return outcome_of("f", objects_of(contents_of("".join(parts).encode())), Wish())


def cards(row: Any) -> dict[str, list[int]]:
    return {
        one["pod"].removeprefix("ns/"): sorted(int(id_.rpartition("-")[2]) for id_ in one["devices"]) for one in row["bindings"]
    }


def test_two_jobs_get_cards_beside_their_own_adapters() -> None:
    got = cards(outcome(node("n1", UP), pod("a", 4, rdma=4), pod("b", 4, rdma=4)))
    assert sorted(chain(*got.values())) == list(range(8))


def test_a_card_whose_adapter_is_down_is_left_to_a_pod_that_needs_none() -> None:
    got = cards(outcome(node("n1", DOWN), pod("a", 4, rdma=4, at="01"), pod("b", 4, at="02")))
    assert got == {"a": [0, 2, 3, 4], "b": [1, 5, 6, 7]}
    assert cards(outcome(node("n1", DOWN), pod("a", 4, at="01")))["a"] == [0, 1, 2, 3]


def test_a_gang_that_wishes_to_be_near_in_the_fabric_talks_over_it() -> None:
    group = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: g, namespace: ns, annotations: {hbox.io/network-topology: bestEffort}}
spec: {minMember: 2}
---
"""
    pods = (pod("g-0", 3, group="g"), pod("g-1", 3, group="g"))
    got = cards(outcome(node("n1", DOWN), group, *pods))
    assert sorted(chain(*got.values())) == [0, 2, 3, 4, 5, 6]
    plain = cards(outcome(node("n1", DOWN), group.replace("bestEffort", "none"), *pods))
    assert sorted(chain(*plain.values())) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("rdma", "on"), [(4, "n2"), (0, "n1")])
def test_the_node_is_taken_whose_free_cards_have_adapters(rdma: int, on: str) -> None:
    """n1 is fuller, which counts otherwise; what is free there shares one adapter."""
    there = pod("old", 4).replace("status: {phase: Pending}", "status: {phase: Running}")
    there = there.replace("schedulerName: hbox,", "schedulerName: hbox, nodeName: n1,")
    got = outcome(node("n1", "0=b;1=c;2=d;3=e;4=a;5=a;6=a;7=a"), node("n2", UP), there, pod("p", 4, rdma=rdma))
    assert [one["node"] for one in got["bindings"]] == [on]


def test_what_is_written_wrongly_is_told() -> None:
    saved = cluster_of(list(objects_of(contents_of(node("n1", "0=mlx5_0;zero=mlx5_1").encode()))), schedulers=["hbox"], now=0.0)
    assert any("hbox.io/card-adapters" in one and "'zero=mlx5_1'" in one for one in saved.warnings)


@pytest.mark.parametrize("rdma", [0, 4])
def test_nodes_of_whose_adapters_nobody_knows_are_as_before(rdma: int) -> None:
    assert cards(outcome(node("n1"), pod("a", 4, rdma=rdma)))["a"] == [0, 1, 2, 3]
