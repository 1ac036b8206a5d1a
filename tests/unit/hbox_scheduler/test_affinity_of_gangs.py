"""Gangs whose members want to be together: the domain in which the first of them would go does not bind the others."""

import pytest

from hbox_common.model import (
    JobId,
    Match,
    MatchOperator,
    Neighbour,
    PodConstraints,
    PodTerm,
    PodUid,
    Queue,
    QueueName,
    Selector,
)
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

POLICY = """
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: binpack}]
"""


def placed(zones: str, pods: int, policy: Conf | None) -> list[str]:
    """Zones of a gang of pods, each of which fills a node and wants to be in one zone with the others. `zones`: of the nodes, one letter each."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))], conf=policy)
    simulation.put_nodes(node(f"n{i}", cards=1, labels={"zone": zone}) for i, zone in enumerate(zones))
    term = PodTerm("zone", Selector((Match("app", MatchOperator.IN, ("a",)),)))
    simulation.scheduler.on_neighbours(
        Neighbour(PodUid(f"g-{i}"), "default", {"app": "a"}, PodConstraints(affinity=(term,))) for i in range(pods)
    )
    simulation.submit([job("g", pods=pods, cards=1)])
    simulation.run()
    assert bool(simulation.claims) != bool(simulation.verdicts.get(JobId("g")))
    return [zones[int(claim.node[1:])] for claim in simulation.claims.values()]


@pytest.mark.parametrize("policy", [None, parse_conf(POLICY, plugins=list(PLUGINS))], ids=["own", "a user's"])
def test_a_gang_with_affinity_to_itself_goes_where_all_of_it_has_room(policy: Conf | None) -> None:
    assert placed("aabbbb", 3, policy) == ["b"] * 3
    assert placed("aabbbb", 2, policy) == ["a"] * 2
    assert placed("aaaaabbb", 3, policy) == ["a"] * 3


@pytest.mark.parametrize("policy", [None, parse_conf(POLICY, plugins=list(PLUGINS))], ids=["own", "a user's"])
def test_it_waits_where_no_domain_has_room_for_all_of_it(policy: Conf | None) -> None:
    assert placed("aabbb", 4, policy) == []
