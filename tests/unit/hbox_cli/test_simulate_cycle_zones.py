"""NUMA nodes of a saved cluster: `simulate cycle` sends nobody where the kubelet would refuse, as the running platform."""

import json
from typing import Any

import pytest

from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import contents_of

NODES = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 16, memory: 8Gi, pods: 110}}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {allocatable: {cpu: 16, memory: 8Gi, pods: 110}}
---
"""


def topology(node: str, *free: object, policy: str = "single-numa-node") -> str:
    zones = ", ".join(
        f"{{name: node-{i}, type: Node, resources: [{{name: cpu, capacity: 8, allocatable: 8, available: {cpus}}}]}}"
        for i, cpus in enumerate(free)
    )
    return f"""
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {{name: {node}}}
attributes: [{{name: topologyManagerPolicy, value: {policy}}}, {{name: topologyManagerScope, value: container}}]
zones: [{zones}]
---
"""


def pod(name: str, cpu: int, *, node: str = "") -> str:
    amounts = f"{{cpu: {cpu}, memory: 64Mi}}"
    where = f"nodeName: {node}, " if node else ""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ns}}
spec: {{schedulerName: hbox, {where}containers: [{{name: c, resources: {{requests: {amounts}, limits: {amounts}}}}}]}}
status: {{phase: {"Running" if node else "Pending"}}}
---
"""


def outcome(*parts: str) -> Any:
    return outcome_of("f", objects_of(contents_of((NODES + "".join(parts)).encode())), Wish())


def bound(row: Any) -> dict[str, str]:
    return {one["pod"].removeprefix("ns/"): one["node"] for one in row["bindings"]}


def test_a_pod_goes_where_one_zone_takes_it() -> None:
    assert bound(outcome(topology("n1", 5, 5), topology("n2", 2, 6), pod("a", 6))) == {"a": "n2"}


def test_it_is_said_by_zone_why_it_waits() -> None:
    row = outcome(topology("n1", 5, 5), topology("n2", 2, 4), pod("a", 6))
    assert bound(row) == {}
    assert row["pending"]["ns/a"]["reasons"] == {"TopologyAffinityError": 2}
    assert "n1: zone 0: 5 cpus free of 6 asked; zone 1: 5 cpus free of 6 asked" in row["pending"]["ns/a"]["message"]


def test_pods_of_one_cycle_count_against_each_other_and_those_that_run_are_in_the_object() -> None:
    row = outcome(topology("n1", 2, 8), topology("n2", 0, 0), pod("there", 6, node="n1"), *(pod(f"p{i}", 4) for i in range(3)))
    assert sorted(bound(row)) == ["p0", "p1"]


def test_numatopology_tells_cpus() -> None:
    detail = ", ".join(f'"{cpu}": {{numa: {cpu // 8}, socket: {cpu // 8}, core: {cpu}}}' for cpu in range(16))
    told = f"""
apiVersion: nodeinfo.volcano.sh/v1alpha1
kind: Numatopology
metadata: {{name: n1}}
spec:
  policies: {{CPUManagerPolicy: static, TopologyManagerPolicy: restricted}}
  numares: {{cpu: {{allocatable: "0-3,8-11", capacity: 16}}}}
  cpuDetail: {{{detail}}}
---
"""
    assert bound(outcome(told, topology("n2", 1, 1), pod("a", 6))) == {}
    assert bound(outcome(told, topology("n2", 1, 1), pod("a", 4))) == {"a": "n1"}


@pytest.mark.parametrize(
    ("object_", "wrong"),
    [
        (topology("n1", "many", 5), "'many' is not a quantity"),
        (topology("n1", 5, 5).replace("node-1", "node-0"), "two of its zones have one number"),
        (topology("n1", 5).replace("node-0", "first"), "a zone is called 'first'"),
    ],
)
def test_an_object_that_is_wrong_is_named(object_: str, wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="NodeResourceTopology n1") as caught:
        outcome(object_, pod("a", 6))
    assert wrong in caught.value.message


@pytest.mark.parametrize("free", ["-5", "1e30", "0"])
def test_amounts_that_nobody_has_break_nothing(free: str) -> None:
    row = outcome(topology("n1", free, 0), topology("n2", 0, 0), pod("a", 6))
    assert bound(row) == ({"a": "n1"} if free == "1e30" else {})


def test_a_node_with_too_many_zones_goes_by_sums_and_that_is_said() -> None:
    documents = objects_of(contents_of((NODES + topology("n1", *[1] * 9) + pod("a", 6)).encode()))
    assert "9 NUMA nodes are more than the 8" in cluster_of(documents, schedulers=["hbox"], now=0.0).warnings[0]


def test_idle_cards_keep_cores_in_their_own_zone() -> None:
    """Zones of 8 CPUs and two cards: 6 of each are kept, and the kubelet gives from the first that has enough."""
    cards = [
        {"id": f"GPU-{i}", "index": i, "count": 10, "devmem": 40_960, "devcore": 100, "type": "NVIDIA-A100", "numa": i // 2, "health": True}
        for i in range(4)
    ]  # fmt: skip
    node = f"""
apiVersion: v1
kind: Node
metadata: {{name: n3, annotations: {{hami.io/node-nvidia-register: '{json.dumps(cards)}'}}}}
status: {{allocatable: {{cpu: 16, memory: 8Gi, pods: 110, nvidia.com/gpu: 40}}}}
---
"""
    told = topology("n3", 8, 8)
    rows = outcome_of("f", objects_of(contents_of((node + told + pod("a", 4) + pod("b", 2)).encode())), Wish())
    assert bound(rows) == {"b": "n3"}
    assert rows["pending"]["ns/a"]["reasons"] == {"ResourcesKeptForIdleCards": 1}
    assert (
        "n3: zone 0 keeps 6 cpus of 6 free for cards 0, 1; zone 1 keeps 6 cpus of 8 free for cards 2, 3"
        in rows["pending"]["ns/a"]["message"]
    )


def test_adapters_that_a_zone_has_are_aligned_with_the_cpus() -> None:
    """RDMA devices of a NodeResourceTopology: n1 has CPUs and adapters in zones apart, n2 together."""

    def adapters(node: str, *amounts: tuple[int, int]) -> str:
        zones = ", ".join(
            f"{{name: node-{i}, type: Node, resources: [{{name: cpu, capacity: 8, allocatable: 8, available: {cpus}}}, "
            f"{{name: rdma/hca_shared, capacity: 2, allocatable: 2, available: {hcas}}}]}}"
            for i, (cpus, hcas) in enumerate(amounts)
        )
        return f"""
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {{name: {node}}}
attributes: [{{name: topologyManagerPolicy, value: single-numa-node}}]
zones: [{zones}]
---
"""

    nodes = NODES.replace("pods: 110}", "pods: 110, rdma/hca_shared: 4}")
    asks = pod("a", 4).replace("memory: 64Mi}", "memory: 64Mi, rdma/hca_shared: 1}")
    told = adapters("n1", (8, 0), (2, 2)), adapters("n2", (2, 2), (6, 1))
    rows = outcome_of("f", objects_of(contents_of((nodes + "".join(told) + asks).encode())), Wish())
    assert bound(rows) == {"a": "n2"}
    rows = outcome_of("f", objects_of(contents_of((nodes + told[0] + adapters("n2", (8, 0), (2, 1)) + asks).encode())), Wish())
    assert bound(rows) == {}
    assert "zone 0: 8 cpus free of 4 asked, 0 rdma/hca_shared free of 1 asked" in rows["pending"]["ns/a"]["message"]
