"""Reasons of a waiting pod cover every node, also nodes that changed hands within the cycle."""

from dataclasses import replace

from hbox_common.model import (
    JobId,
    Match,
    MatchOperator,
    Neighbour,
    PodConstraints,
    PodTerm,
    PodUid,
    Selector,
    TopologyMode,
    TopologyWish,
)
from hbox_scheduler.core.cluster.entities import Status
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .small_world import SmallWorld, bound

POLICY = """
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}]
"""


def test_node_promised_to_another_pod_has_a_reason() -> None:
    """n0 has an idle card, and a card that a pod leaves: both are promised to `large`. The cards of the other nodes are taken."""
    world = SmallWorld(7, 2)
    world.gang("running", pods=6, cards=2, on=range(1, 7))
    world.gang("leaving", on=[0]).members[0].status = Status.RELEASING
    world.gang("large", cards=2, age_s=100)
    world.gang("small")
    report = world.decide(POLICY)
    assert not bound(report)
    assert report.pending["d/small-0"].reasons == {"CardsInUse": 7}


def test_node_freed_after_the_attempt_has_a_reason_until_the_next_cycle() -> None:
    """n0 keeps its cores for its idle cards, so `service` finds no place, until `gang` takes these cards in the same cycle."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    simulation.put_nodes([node("n0", cards=4, cpu=8), *(node(f"n{i}", cpu=1) for i in range(1, 7))])
    simulation.submit(
        [job("service", cpu_milli=4000, priority=9, created_at=1.0), job("gang", pods=2, cards=2, created_at=2.0)]
    )
    [verdict] = simulation.step().verdicts
    assert (verdict.job, verdict.nodes, verdict.reasons) == ("service", 7, {"Insufficient cpu": 6, "RoomSinceAttempt": 1})
    assert verdict.message.startswith("0/7 nodes are available: 6 Insufficient cpu, 1 RoomSinceAttempt")
    simulation.run()
    assert {claim.job: claim.node for claim in simulation.claims.values()} == {JobId("gang"): "n0", JobId("service"): "n0"}


def test_gang_whose_members_exclude_each_other_has_no_count_of_nodes() -> None:
    """Each of the nodes takes one of the two pods alone; the second one has no node in the zone of the first."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    simulation.put_nodes(node(f"n{i}", labels={"zone": "a"}) for i in range(2))
    apart = PodConstraints(anti_affinity=(PodTerm("zone", Selector((Match("app", MatchOperator.IN, ("x",)),))),))
    simulation.scheduler.on_neighbours(Neighbour(PodUid(f"gang-{i}"), "default", {"app": "x"}, apart) for i in range(2))
    simulation.submit([replace(job("gang", pods=2), topology=TopologyWish(TopologyMode.SOFT, 1))])
    simulation.run()
    said = "nodes have room for some of the 2 pods that have to start together, not for all of them"
    assert simulation.verdicts == {JobId("gang"): said}
