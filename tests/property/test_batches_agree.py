"""Placing equal pods at once is a matter of speed, not of outcome: one by one they go to the same nodes, and get the same cards."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import (
    CardRequest,
    CardSlice,
    Job,
    JobId,
    Match,
    MatchOperator,
    NodeName,
    NodeState,
    NodeTerm,
    PodUid,
    PreferredTerm,
    Taint,
    TaintEffect,
)
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ..policies import volcano
from ..searching import examples

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
def gangs(draw: st.DrawFn, name: str, at: float) -> Job:
    """Of one pod mostly; equal ones come often, so that there are batches."""
    share = st.builds(
        CardRequest, st.just(1), cores=st.sampled_from([10, 30, 50]), memory_percent=st.sampled_from([10, 33, 50])
    )
    whole = st.builds(CardRequest, st.integers(1, 3), models=st.sampled_from([(), (), ("A100",), ("V100", "T4")]))
    drawn = job(
        name,
        pods=draw(st.sampled_from([1, 1, 1, 2, 5])),
        cpu_milli=draw(st.sampled_from([100, 1000, 3000])),
        memory_mib=4096,
        cards=draw(st.one_of(st.just(0), share, whole)),
        node_selector=draw(st.sampled_from([{}, {}, {"zone": "a"}])),
        created_at=at,
    )
    preferred = draw(st.sampled_from([(), (), (PreferredTerm(10, ZONE_A),)]))
    return replace(drawn, tasks=(replace(drawn.tasks[0], preferred=preferred),))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[NodeState], list[Job]]:
    cluster = [draw(nodes(f"n{i}")) for i in range(draw(st.integers(2, 6)))]
    shapes = [draw(gangs("shape", 0.0)) for _ in range(draw(st.integers(1, 3)))]
    return cluster, [
        replace(
            shape,
            id=JobId(f"j{i}"),
            name=f"j{i}",
            created_at=float(i),
            tasks=tuple(
                replace(
                    task, pods=tuple(replace(pod, uid=PodUid(f"j{i}-{n}"), name=f"j{i}-{n}") for n, pod in enumerate(task.pods))
                )
                for task in shape.tasks
            ),
        )
        for i, shape in enumerate(draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=12)))
    ]


def placed(conf: Conf, cluster: list[NodeState], jobs: list[Job], *, one_by_one: bool) -> Places:
    """All of them wait at the same time."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=conf)
    simulation.put_nodes(cluster)
    by_shape = (lambda *_: False) if one_by_one else Session.by_shape
    with patch.object(Session, "by_shape", by_shape):
        simulation.submit(jobs)
        simulation.run()
    return {uid: (claim.node, claim.slices) for uid, claim in simulation.claims.items()}


CONFS = {
    **{name.value: replace(default_conf(name), actions=("allocate", "backfill")) for name in PolicyName},
    "volcano": volcano(),
}


@pytest.mark.parametrize("name", CONFS)
@examples(50, dear=True)
@given(world=worlds())
def test_pods_go_to_the_same_places_at_once_and_one_by_one(name: str, world: tuple[list[NodeState], list[Job]]) -> None:
    assert placed(CONFS[name], *world, one_by_one=False) == placed(CONFS[name], *world, one_by_one=True)


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
    found = [placed(default_conf(name), cluster, jobs, one_by_one=one_by_one)[PodUid("j-0")][0] for one_by_one in (False, True)]
    assert found[0] == found[1]
    if name is PolicyName.BINPACK:
        assert found[0] == "n-cards"
