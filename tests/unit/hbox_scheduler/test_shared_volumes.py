"""Gangs whose members share a claim that waits for its first consumer: its volume is made in one zone, so all of them go there."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hbox_common.model import JobId, Match, MatchOperator, Neighbour, PodConstraints, PodTerm, Queue, QueueName, Selector
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

ZONE = "topology.kubernetes.io/zone"
POLICY = """
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: binpack}]
"""
POLICIES = pytest.mark.parametrize("policy", [None, parse_conf(POLICY, plugins=list(PLUGINS))], ids=["own", "a user's"])


def simulation_of(zones: str, policy: Conf | None = None) -> Simulation:
    """A node of one card for each letter, which is its zone; "-" = it has none."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))], conf=policy)
    simulation.put_nodes(node(f"n{i}", cards=1, labels={} if zone == "-" else {ZONE: zone}) for i, zone in enumerate(zones))
    return simulation


def placed(simulation: Simulation, zones: str, claims: Sequence[tuple[str, ...]]) -> dict[str, str]:
    """Zone by pod of a gang with these claims, one pod each, where it was placed."""
    gang = job("g", pods=len(claims), cards=1)
    (task,) = gang.tasks
    pods = tuple(replace(pod, volume_claims=own) for pod, own in zip(task.pods, claims, strict=True))
    simulation.submit([replace(gang, tasks=(replace(task, pods=pods),))])
    simulation.run()
    assert bool(simulation.claims) != bool(simulation.verdicts.get(JobId("g")))
    return {claim.pod: zones[int(claim.node[1:])] for claim in simulation.claims.values()}


def zones_of(zones: str, claims: Sequence[tuple[str, ...]], policy: Conf | None = None) -> list[str]:
    return sorted(placed(simulation_of(zones, policy), zones, claims).values())


@POLICIES
def test_gang_that_shares_a_waiting_claim_is_placed_in_one_zone(policy: Conf | None) -> None:
    assert zones_of("aabbbb", [("data",)] * 3, policy) == ["b"] * 3
    assert zones_of("aabbb", [("data",)] * 4, policy) == []
    assert zones_of("aabbb", [()] * 4, policy) != [], "without a claim it may be in both zones"


def test_gang_whose_members_have_claims_of_their_own_is_placed_in_any_zones() -> None:
    assert zones_of("aab", [("a",), ("b",), ("c",)]) == ["a", "a", "b"]


def test_nodes_without_a_zone_are_one_zone() -> None:
    assert zones_of("----", [("data",)] * 4) == ["-"] * 4
    assert zones_of("a---", [("data",)] * 3) == ["-"] * 3
    assert zones_of("aa--", [("data",)] * 3) == []


def test_claims_that_different_members_share_may_be_in_different_zones() -> None:
    found = placed(simulation_of("aabb"), "aabb", [("x",), ("x",), ("y",), ("y",)])
    assert found["g-0"] == found["g-1"]
    assert found["g-2"] == found["g-3"]


def test_claims_that_one_member_uses_together_are_in_one_zone() -> None:
    assert zones_of("aabbb", [("x",), ("x", "y"), ("y",)]) == ["b"] * 3


def test_claims_that_members_use_together_in_a_chain_are_in_one_zone() -> None:
    claims = [("v", "w"), ("y", "z"), ("w", "x"), ("x", "y"), ("v",), ("z",)]
    assert zones_of("aaaaabbbbbb", claims) == ["b"] * 6


def test_reason_of_a_gang_without_room_in_one_zone_names_the_volume() -> None:
    simulation = simulation_of("aabb")
    assert placed(simulation, "aabb", [("data",)] * 3) == {}
    verdict = simulation.verdicts[JobId("g")]
    assert "VolumeNodeAffinityMismatch" in verdict


def test_affinity_of_the_members_themselves_stays_as_it_is() -> None:
    simulation = simulation_of("aabb")
    term = PodTerm("kubernetes.io/hostname", Selector((Match("app", MatchOperator.IN, ("a",)),)))
    gang = job("g", pods=2, cards=1)
    simulation.scheduler.on_neighbours(
        Neighbour(pod.uid, "default", {"app": "a"}, PodConstraints(affinity=(term,))) for pod in gang.tasks[0].pods
    )
    assert placed(simulation, "aabb", [("data",)] * 2) == {}, "no node has a host name, so that none has the company"
