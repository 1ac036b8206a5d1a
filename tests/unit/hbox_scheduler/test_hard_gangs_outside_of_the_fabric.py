"""Gangs with a hard topology on one node that is in no HyperNode."""

from dataclasses import replace

import pytest

from hbox_common.model import HyperNode, JobId, NodeName, PodRef, PodUid, TopologyMode, TopologyWish
from hbox_scheduler.core.placement.domains import PlanDomains
from hbox_scheduler.core.placement.outcomes import PodPlacement
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

HARD = TopologyWish(TopologyMode.HARD, 1)


@pytest.fixture
def world() -> Simulation:
    """Node `inside` is in a domain of tier 2, node `outside` is in no domain."""
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    made.put_nodes([node(name, cards=2, cpu=64) for name in ("inside", "outside")])
    made.scheduler.on_fabric([HyperNode("wide", 2, nodes=(NodeName("inside"),))])
    return made


def test_a_hard_gang_on_one_node_outside_of_the_fabric_names_no_domain(world: Simulation) -> None:
    world.submit([replace(job("g", pods=2, cards=1), topology=HARD)])
    (plan,) = world.run()
    assert {placement.node for placement in plan.placements} == {"outside"}
    assert plan.domains == ()
    # Places that wait for victims are kept under the same rule.
    entry = world.scheduler._queue.entries[JobId("g")]
    held = [PodPlacement(entry.tasks[0], PodRef(PodUid(f"g-{n}"), f"g-{n}", "1"), row, ()) for n, row in enumerate((1, 1, 0))]
    domains = PlanDomains(world.scheduler._tree, world.scheduler._facts.fabrics, heeded=lambda: True)
    assert (domains.of(entry, held[:2]), domains.of(entry, held)) == ((), None)


def test_a_hard_gang_above_one_node_waits(world: Simulation) -> None:
    world.submit([replace(job("g", pods=3, cards=1), topology=HARD)])
    assert world.run() == []
