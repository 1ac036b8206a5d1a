"""Pods with host ports for which others are evicted: a node has each port once, also after its pods have left."""

from dataclasses import replace

from hbox_common.model import Job
from hbox_common.model.hostports import HostPort, port_amounts
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node


def with_port(name: str, *, pods: int, priority: int) -> Job:
    made = job(name, pods=pods, cards=1, priority=priority)
    (task,) = made.tasks
    return replace(made, tasks=(replace(task, requests={**task.requests, **port_amounts([HostPort(443)])}),))


def full(*running: Job) -> Simulation:
    world = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    world.put_nodes([node("n", cards=2)])
    world.submit(running)
    assert len(world.run()) == len(running)
    return world


def later(world: Simulation) -> None:
    for _ in range(4):
        world.run()
        world.leave()
        world.now += 5.0


def test_no_pod_is_evicted_for_a_gang_whose_pods_need_one_port_of_a_node_twice() -> None:
    world = full(job("low0", cards=1), job("low1", cards=1))
    world.submit([with_port("high", pods=2, priority=10)])
    later(world)
    assert {claim.job for claim in world.claims.values()} == {"low0", "low1"}


def test_pod_that_holds_the_port_is_evicted() -> None:
    world = full(with_port("low0", pods=1, priority=0), job("low1", cards=1, priority=5))
    world.submit([with_port("high", pods=1, priority=10)])
    later(world)
    assert {claim.job for claim in world.claims.values()} == {"high", "low1"}
