"""The same policy places a single pod on the same node and the same cards, whether in a batch over columns or in a session."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbox_common.model import (
    CardRequest,
    CardSlice,
    Job,
    Match,
    MatchOperator,
    Neighbour,
    NodeName,
    NodeState,
    NodeTerm,
    PodUid,
    PreferredTerm,
    Taint,
    TaintEffect,
)
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

Places = dict[PodUid, tuple[NodeName, tuple[CardSlice, ...]]]

ZONE_A = NodeTerm((Match("zone", MatchOperator.IN, ("a",)),))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeState:
    drawn = node(
        name,
        cards=draw(st.integers(0, 4)),
        model=draw(st.sampled_from(["A100", "V100", "T4"])),
        card_mib=draw(st.sampled_from([16_160, 40_960])),
        shares=draw(st.sampled_from([1, 2, 10])),
        cpu=draw(st.integers(4, 32)),
        labels={"zone": draw(st.sampled_from("ab"))},
    )
    effect = draw(st.sampled_from([None, None, None, TaintEffect.PREFER_NO_SCHEDULE, TaintEffect.NO_SCHEDULE]))
    return drawn if effect is None else replace(drawn, taints=(Taint("kept", "", effect),))


@st.composite
def single_pods(draw: st.DrawFn, name: str, at: float) -> Job:
    share = st.builds(
        CardRequest, st.just(1), cores=st.sampled_from([10, 30, 50]), memory_percent=st.sampled_from([10, 33, 50])
    )
    whole = st.builds(CardRequest, st.integers(1, 3), models=st.sampled_from([(), (), ("A100",), ("V100", "T4")]))
    drawn = job(
        name,
        cpu_milli=draw(st.sampled_from([100, 1000, 3000])),
        memory_mib=draw(st.sampled_from([256, 4096])),
        cards=draw(st.one_of(st.just(0), share, whole)),
        node_selector=draw(st.sampled_from([{}, {}, {"zone": "a"}])),
        created_at=at,
    )
    preferred = draw(st.sampled_from([(), (), (PreferredTerm(10, ZONE_A),)]))
    return replace(drawn, tasks=(replace(drawn.tasks[0], preferred=preferred),))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[NodeState], list[Job]]:
    cluster = [draw(nodes(f"n{i}")) for i in range(draw(st.integers(2, 6)))]
    return cluster, [draw(single_pods(f"j{i}", float(i))) for i in range(draw(st.integers(1, 12)))]


def placed(simulation: Simulation, cluster: list[NodeState], jobs: list[Job], *, constrained: bool) -> Places:
    """One after the other. `constrained`: with a label that an affinity might ask about, so that a session places them."""
    simulation.put_nodes(cluster)
    for one in jobs:
        if constrained:
            pod = one.tasks[0].pods[0].uid
            simulation.scheduler.on_neighbours([Neighbour(pod, one.namespace, {"app": "web"})])
        simulation.submit([one])
        simulation.now += 1.0
        simulation.run()
    return {uid: (claim.node, claim.slices) for uid, claim in simulation.claims.items()}


@pytest.mark.parametrize("name", PolicyName)
@settings(max_examples=25, deadline=None)
@given(world=worlds())
def test_single_pods_go_to_the_same_places(name: PolicyName, world: tuple[list[NodeState], list[Job]]) -> None:
    conf = replace(default_conf(name), actions=("enqueue", "allocate", "backfill"))
    batches = placed(Simulation(policy_of(name), conf=conf), *world, constrained=False)
    assert placed(Simulation(policy_of(name), conf=conf), *world, constrained=True) == batches, "in sessions beside batches"
    by_conf = Simulation(policy_of(name), conf=conf, user_policy=True)
    assert placed(by_conf, *world, constrained=False) == batches, "the same policy as a file"


@pytest.mark.parametrize("name", PolicyName)
def test_one_card_goes_to_the_same_node_both_ways(name: PolicyName) -> None:
    """`n-cards` has one of its two cards in use and nearly all of its cpu free, `n-cpu` idle cards and most of its cpu in use."""
    cluster = [node("n-cpu", cards=2, cpu=32), node("n-cards", cards=2, cpu=32)]
    before = [
        job("card", cards=1, cpu_milli=100, memory_mib=1, node_selector={"kubernetes.io/hostname": "n-cards"}),
        job("cpu", cpu_milli=28_000, memory_mib=1, node_selector={"kubernetes.io/hostname": "n-cpu"}, created_at=1.0),
    ]
    cluster = [replace(one, labels={"kubernetes.io/hostname": one.name}) for one in cluster]
    jobs = [*before, job("j", cards=1, created_at=2.0)]
    found = [
        placed(Simulation(policy_of(name), conf=default_conf(name)), cluster, jobs, constrained=constrained)[PodUid("j-0")][0]
        for constrained in (False, True)
    ]
    assert found[0] == found[1]
    if name is PolicyName.BINPACK:
        assert found[0] == "n-cards"
