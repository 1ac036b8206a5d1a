"""What comes and goes leaves nothing behind: a process that runs for weeks keeps what there is, and not what there was."""

from dataclasses import replace

import pytest

from hbox_common.model import (
    Generation,
    HyperNode,
    JobId,
    NodeName,
    PodUid,
    Queue,
    QueueName,
    QueueTree,
    TopologyMode,
    TopologyWish,
    Verdict,
)
from hbox_scheduler.core.cluster.hostports import HostPorts
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.queueing import schedulingqueue
from hbox_scheduler.core.queueing.unschedulable import SPARE_ORDERS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node


@pytest.fixture
def world() -> Simulation:
    """One node with two cards, below one switch."""
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    made.put_nodes([node("n0", cards=2, cpu=64)])
    made.scheduler.on_fabric([HyperNode("leaf", 1, nodes=(NodeName("n0"),))])
    return made


def entries(world: Simulation) -> int:
    """Of jobs that cannot start, in all classes."""
    return sum(len(group.waiting) for group in world.scheduler._unschedulable._classes.values())


def test_jobs_of_a_shape_that_never_fits(world: Simulation) -> None:
    """One of them stays, so that their class does."""
    world.submit([job("stays", cards=3)])
    world.run()
    for number in range(500):
        world.submit([job(f"j{number}", cards=3, created_at=1.0 + number)])
        world.run()
        world.scheduler.on_withdrawn([JobId(f"j{number}")], [1])
    assert entries(world) <= 2 + SPARE_ORDERS


def test_a_job_that_is_told_of_again_and_again(world: Simulation) -> None:
    for revision in range(1, 500):
        world.submit([replace(job("j", cards=3, revision=revision), annotations={"note": str(revision)})])
        world.run()
    assert entries(world) <= 2 + SPARE_ORDERS


def test_those_that_are_left_start_in_their_order(world: Simulation) -> None:
    world.submit([job("holds", cards=2)])
    world.run()
    names = [f"j{number:03}" for number in range(400)]
    world.submit(job(name, cards=1, created_at=1.0 + number) for number, name in enumerate(names))
    world.run()
    left = names[350:]
    world.scheduler.on_withdrawn([JobId(name) for name in names[:350]], [1] * 350)
    world.run()
    assert entries(world) <= 2 * len(names)
    world.submit([job("last", cards=1, created_at=1000.0)])
    world.run()
    world.finish([PodUid("holds-0")])
    started: list[str] = []
    while len(started) < len(left):
        plans = world.run()
        assert plans
        started += [str(plan.job) for plan in plans]
        world.finish([placement.pod_uid for plan in plans for placement in plan.placements])
    assert started == left


def test_queues_that_jobs_made_up(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulingqueue, "_SPARE_ROUTES", 8)
    for number in range(100):
        world.submit([job(f"j{number}", cards=1, queue=f"q{number}")])
        world.run()
        world.scheduler.on_withdrawn([JobId(f"j{number}")], [1])
    assert len(world.scheduler._queue._routes) <= 12
    world.submit([job("j", cards=1, queue="q0")])
    world.run()
    assert not world.claims
    world.scheduler.on_queue(Queue(QueueName("q0")))
    world.run()
    assert [claim.job for claim in world.claims.values()] == ["j"]


def test_what_queues_that_are_not_there_are_guaranteed() -> None:
    tree = QueueTree({})
    tree[QueueName("there")] = Queue(QueueName("there"), guarantee={"cpu": 1})
    for number in range(100):
        assert tree.guarantee(QueueName(f"q{number}")) == {}
    assert tree.guarantee(QueueName("there")) == {"cpu": 1}
    assert len(tree._guarantees) == 1


def test_gangs_that_were_bound_to_a_domain(world: Simulation) -> None:
    for number in range(5):
        gang = replace(job(f"g{number}", pods=2, cards=1), topology=TopologyWish(TopologyMode.HARD, 1))
        world.submit([gang])
        plans = world.run()
        assert world.scheduler.bookings.in_domains >= {plan.job for plan in plans}
        assert plans
        world.finish([placement.pod_uid for plan in plans for placement in plan.placements])
    world.submit([job("next", cards=1)])
    world.run()
    assert not world.scheduler.bookings.in_domains


def test_a_gang_that_runs_stays_bound_when_a_pod_of_it_leaves(world: Simulation) -> None:
    gang = replace(job("g", pods=2, cards=1), topology=TopologyWish(TopologyMode.HARD, 1))
    world.submit([gang])
    world.run()
    world.finish([PodUid("g-0")])
    world.submit([job("next", cards=1)])
    world.run()
    assert world.scheduler.bookings.in_domains == {"g"}


def test_nodes_that_were_well(world: Simulation) -> None:
    """Of one that was not, and comes again, it is known until somebody says otherwise."""
    for number in range(5):
        name = NodeName(f"gone-{number}")
        world.put_verdict(Verdict(name, Generation(1), healthy=True))
        world.put_nodes([node(name, cards=1)])
        world.put_verdict(Verdict(name, Generation(2), healthy=True))
        world.put_nodes([replace(node(name), gone=True, generation=Generation(2))])
    sick = NodeName("sick")
    world.put_nodes([node(sick, cards=1)])
    world.put_verdict(Verdict(sick, Generation(1), healthy=False))
    world.put_nodes([replace(node(sick), gone=True, generation=Generation(2))])
    assert world.scheduler.columns.verdicts.keys() == {sick}
    world.put_nodes([node(sick, cards=1)])
    columns = world.scheduler.columns
    assert not columns.healthy[columns.row_of[sick]]
    world.put_verdict(Verdict(sick, Generation(3), healthy=True))
    assert columns.healthy[columns.row_of[sick]]


def test_ports_of_a_node_that_is_gone() -> None:
    ports = HostPorts()
    ports.book((1, 2), "a", 1)
    ports.book((1,), "b", 1)
    ports.clear(1)
    assert ports.used == {"a": {2: 1}}
    ports.clear(2)
    assert not ports
