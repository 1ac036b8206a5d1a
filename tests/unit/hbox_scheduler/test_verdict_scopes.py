"""Scopes of a verdict that close a node to some pods: several cards, gangs over several nodes, RDMA adapters."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.model import Generation, JobId, NodeName, Queue, QueueName, Verdict
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

MULTI_GPU, MULTI_NODE, RAIL = {"multi_gpu": False}, {"multi_node": False}, {"rails_off": ("mlx5_0",)}


def world(*nodes: str) -> Simulation:
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))])
    simulation.put_nodes(node(name, cards=4) for name in nodes)
    return simulation


def judge(simulation: Simulation, **scope: Any) -> None:
    simulation.put_verdict(Verdict(NodeName("a"), Generation(1), healthy=True, reason="XID 74", **scope))


def placed(simulation: Simulation, name: str, **request: Any) -> list[str]:
    simulation.submit([job(name, **request)])
    simulation.run()
    return sorted(str(place) for pod, place in simulation.scheduler.reports.placed_on().items() if pod.startswith(name))


def test_without_multi_gpu_work_a_node_takes_pods_with_one_card_only() -> None:
    simulation = world("a", "b")
    judge(simulation, **MULTI_GPU)
    assert placed(simulation, "two", cards=2) == ["b"]
    assert placed(simulation, "one", cards=1) == ["b"]  # binpack
    assert placed(simulation, "another", cards=1) == ["b"]
    assert placed(simulation, "last", cards=1) == ["a"]


def test_without_multi_node_work_a_node_takes_no_gang() -> None:
    simulation = world("a", "b", "c")
    judge(simulation, **MULTI_NODE)
    assert placed(simulation, "gang", cards=4, pods=2) == ["b", "c"]
    assert placed(simulation, "single", cards=4) == ["a"]


def test_with_an_adapter_off_a_node_takes_no_pod_with_all_of_its_cards() -> None:
    simulation = world("a", "b")
    judge(simulation, **RAIL)
    assert placed(simulation, "box", cards=4) == ["b"]
    assert placed(simulation, "two", cards=2) == ["a"]


def test_with_an_adapter_off_a_node_takes_no_pod_with_rdma_devices() -> None:
    simulation = world()
    one = node("a", cards=4)
    simulation.put_nodes([replace(one, allocatable=one.allocatable | {"rdma/hca": 8})])
    judge(simulation, **RAIL)
    wants = job("rdma", cards=1)
    [task] = wants.tasks
    simulation.submit([replace(wants, tasks=(replace(task, requests=task.requests | {"rdma/hca": 1}),))])
    simulation.run()
    assert "1 NodeRailOff" in simulation.verdicts[JobId("rdma")]
    assert placed(simulation, "plain", cards=1) == ["a"]


@pytest.mark.parametrize(
    ("scope", "request_", "code"),
    [
        (MULTI_GPU, {"cards": 2}, "NodeMultiCardOff"),
        (MULTI_NODE, {"cards": 1, "pods": 2}, "NodeMultiNodeOff"),
        (RAIL, {"cards": 4}, "NodeRailOff"),
    ],
)
def test_a_scope_is_named_and_ends_with_the_verdict(scope: dict[str, Any], request_: dict[str, int], code: str) -> None:
    simulation = world("a")
    judge(simulation, **scope)
    assert placed(simulation, "waits", **request_) == []
    assert f"1 {code}" in simulation.verdicts[JobId("waits")]
    judge(simulation)
    simulation.run()
    assert {str(one) for one in simulation.scheduler.reports.placed_on().values()} == {"a"}


def test_a_node_that_comes_back_under_its_name_keeps_the_scope() -> None:
    simulation = world("a")
    judge(simulation, **MULTI_GPU)
    simulation.put_nodes([replace(node("a", cards=4), gone=True)])
    simulation.put_nodes([node("a", cards=4)])
    assert placed(simulation, "waits", cards=2) == []
