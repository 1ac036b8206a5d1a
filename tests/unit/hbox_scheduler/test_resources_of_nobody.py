"""Pods may request resources of any name that no node has: the scheduler adds no column for them, and other pods keep their nodes."""

from dataclasses import replace

from hbox_common.model import DEFAULT_QUEUE, Generation, GroupState, Job, JobId, NodeState, PodUid, Queue, QueueName
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ...policies import volcano

PLAIN = ["cpu", "memory", "nvidia.com/gpu", "pods"]


def world() -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    made.put_nodes([node("n0", cards=2)])
    return made


def asking(name: str, *resources: str, cards: int = 0) -> Job:
    made = job(name, cards=cards)
    task = made.tasks[0]
    return replace(made, tasks=(replace(task, requests={**task.requests, **dict.fromkeys(resources, 1)}),))


def offering(name: str, *resources: str, generation: int = 1) -> NodeState:
    made = node(name, cards=2, generation=generation)
    return replace(made, allocatable={**made.allocatable, **dict.fromkeys(resources, 1)})


def names(s: Simulation) -> list[str]:
    return sorted(s.scheduler.columns.resources)


def test_invented_resource_has_no_column_and_is_the_pending_reason() -> None:
    s = world()
    before = s.scheduler.columns.allocatable.shape
    s.submit([asking(f"j{i}", f"typo.io/x{i}") for i in range(300)])
    s.run()
    assert names(s) == PLAIN
    assert s.scheduler.columns.allocatable.shape == before
    assert s.verdicts[JobId("j299")].startswith("0/1 nodes are available: 1 Insufficient typo.io/x299")


def test_pod_with_two_missing_resources_waits_for_a_node_with_both() -> None:
    s = world()
    s.submit([asking("late", "example.com/a", "example.com/b", cards=1)])
    s.run()
    s.put_nodes([offering("n1", "example.com/a")])
    s.now = 60.0
    assert s.run() == []
    s.put_nodes([offering("n2", "example.com/a", "example.com/b")])
    s.now = 120.0
    [plan] = s.run()
    assert [(plan.job, [p.node for p in plan.placements])] == [("late", ["n2"])]
    assert s.scheduler.columns.used[s.scheduler.columns.resource("example.com/b")].sum() == 1


def test_columns_of_removed_nodes_are_released() -> None:
    s = world()
    size = len(s.scheduler.columns.allocatable)
    made = [offering(f"odd-{i}", f"example.com/{i}") for i in range(100)]
    s.put_nodes(made)
    s.submit([asking("has", "example.com/7")])
    s.run()
    assert s.claims[PodUid("has-0")].node == "odd-7"
    for one in made:
        s.scheduler.on_node(replace(one, gone=True, generation=Generation(2)))
    s.finish([PodUid("has-0")])
    s.put_nodes([offering("new", "example.com/new")])
    s.scheduler.on_node(replace(offering("new", "example.com/new", generation=2), gone=True))
    assert len(s.scheduler.columns.resources) <= 16
    assert len(s.scheduler.columns.allocatable) <= 4 * size
    s.submit([job("after", cards=2)])
    assert s.run()


def test_requested_resource_keeps_its_column_without_a_node() -> None:
    s = world()
    made = [offering(f"odd-{i}", f"example.com/{i}") for i in range(40)]
    s.put_nodes(made)
    s.submit([asking("has", "example.com/7")])
    s.run()
    for one in made:
        s.scheduler.on_node(replace(one, gone=True, generation=Generation(2)))
    assert [name for name in names(s) if name not in PLAIN and name in ("example.com/7", "example.com/8")] == ["example.com/7"]
    s.put_nodes([replace(made[7], generation=Generation(3))])
    s.submit([asking("second", "example.com/7")])
    assert s.run() == [], "the only unit is in use"
    s.finish([PodUid("has-0")])
    s.now = 60.0
    assert [plan.job for plan in s.run()] == ["second"]


def test_queue_limits_a_resource_of_no_node() -> None:
    s = world()
    s.scheduler.on_queue(Queue(QueueName("q"), capability={"example.com/new": 1}))
    s.put_nodes([offering("n1", "example.com/new"), offering("n2", "example.com/new")])
    s.submit([replace(asking(f"j{i}", "example.com/new"), queue=QueueName("q")) for i in range(2)])
    assert len(s.run()) == 1


def test_minimum_of_a_missing_resource_is_not_admitted() -> None:
    s = Simulation(policy_of(PolicyName.BINPACK), conf=volcano())
    s.put_nodes([node("n0", cards=2)])
    s.put_groups([
        GroupState(JobId("g"), "default", "g", QueueName(DEFAULT_QUEUE), 0, 1, 0.0, {"cpu": 1000, "typo.io/x": 1, "typo.io/y": 1}, 1)
    ])  # fmt: skip
    s.run()
    assert s.verdicts[JobId("g")]
    assert "typo.io/x" in s.verdicts[JobId("g")]
    assert names(s) == PLAIN
