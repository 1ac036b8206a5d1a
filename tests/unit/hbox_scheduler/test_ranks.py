"""Ranks walk the fabric: leaf by leaf, node by node, card by card; nothing else of a decision changes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import HyperNode, Job, JobId, NodeName, PodGroupTask, PodRef, PodUid
from hbox_scheduler.core.placement.ranks import Walk
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ...searching import examples

#: Two spines with two leaves each; by name alone the leaves of one spine do not stand together.
LEAVES = {"leaf-2": ["n4", "n10"], "leaf-10": ["n1", "n3"], "leaf-1": ["n2", "n9"], "leaf-3": ["n5", "n8"]}
SPINES = {"spine-a": ["leaf-2", "leaf-10"], "spine-b": ["leaf-1", "leaf-3"]}
WALK = ["n4", "n10", "n1", "n3", "n2", "n9", "n5", "n8"]


def hypernodes(leaves: Mapping[str, Sequence[str]] = LEAVES) -> list[HyperNode]:
    below = [HyperNode(leaf, 1, "", nodes=tuple(map(NodeName, nodes))) for leaf, nodes in leaves.items()]
    return [*below, *(HyperNode(spine, 2, "", children=tuple(children)) for spine, children in SPINES.items())]


def world(fabric: Sequence[HyperNode], *, cards: int = 8) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    made.put_nodes(node(name, cards=cards, cpu=128) for name in sorted(WALK))
    made.scheduler.on_fabric(fabric)
    return made


def ranked(drawn: Job, *, seed: int = 0) -> Job:
    """With ranks by name, and uids and an order of pods that say nothing about them."""
    dice, first = Random(seed), 0
    tasks: list[PodGroupTask] = []
    for task in drawn.tasks:
        pods = [PodRef(PodUid(f"{dice.random():.12f}"), f"{task.name}-{i}", "1", first + i) for i in range(len(task.pods))]
        first += len(pods)
        dice.shuffle(pods)
        tasks.append(replace(task, pods=tuple(pods)))
    return replace(drawn, tasks=tuple(tasks))


def by_rank(simulation: Simulation, placed: Job) -> list[tuple[str, int]]:
    """Node and first card, in the order of ranks."""
    pods = sorted((pod for task in placed.tasks for pod in task.pods), key=lambda pod: pod.rank)
    claims = [simulation.claims[pod.uid] for pod in pods if pod.uid in simulation.claims]
    return [(claim.node, claim.slices[0].index if claim.slices else -1) for claim in claims]


def test_nodes_stand_in_the_order_of_the_tree_by_names_as_people_count() -> None:
    walk = Walk()
    walk.follow(hypernodes())
    assert sorted([*WALK, "z2", "z10"], key=lambda name: walk.key(NodeName(name))) == [*WALK, "z2", "z10"]
    walk.follow([])
    assert sorted(WALK, key=lambda name: walk.key(NodeName(name))) == ["n1", "n2", "n3", "n4", "n5", "n8", "n9", "n10"]


def test_a_gang_over_the_whole_fabric_walks_the_tree() -> None:
    simulation = world(hypernodes())
    gang = ranked(job("gang", pods=64, cards=1))
    simulation.submit([gang])
    simulation.run()
    assert by_rank(simulation, gang) == [(name, card) for name in WALK for card in range(8)]


def test_without_a_fabric_neighbours_share_nodes() -> None:
    simulation = world([])
    gang = ranked(job("gang", pods=8, cards=2))
    simulation.submit([gang])
    simulation.run()
    nodes = [name for name, _ in by_rank(simulation, gang)]
    assert nodes == sorted(nodes)
    assert set(Counter(nodes).values()) == {4}


def test_kinds_keep_their_places_and_each_walks() -> None:
    simulation = world(hypernodes())
    whole, half = job("gang", pods=4, cards=8).tasks[0], job("gang", pods=4, cards=4).tasks[0]
    gang = ranked(replace(job("gang", pods=8), tasks=(replace(whole, name="big"), replace(half, name="small"))))
    simulation.submit([gang])
    simulation.run()
    order = [WALK.index(name) for name, _ in by_rank(simulation, gang)]
    assert len(order) == 8
    assert order[:4] == sorted(order[:4])
    assert order[4:] == sorted(order[4:])


def test_of_an_elastic_gang_the_first_ranks_start_first() -> None:
    simulation = world(hypernodes())
    gang = ranked(replace(job("gang", pods=10, cards=8), min_member=4))
    simulation.submit([gang])
    simulation.run()
    started = sorted(pod.rank for pod in gang.tasks[0].pods if pod.uid in simulation.claims)
    assert started == list(range(8))


def test_a_gang_that_makes_room_walks_too() -> None:
    simulation = world(hypernodes())
    simulation.submit(job(f"low{i}", cards=8, created_at=float(i)) for i in range(8))
    simulation.run()
    gang = ranked(job("gang", pods=8, cards=8, priority=10, created_at=100.0))
    simulation.submit([gang])
    for _ in range(4):
        simulation.run()
        simulation.leave()
        simulation.now += 3.0
    simulation.run()
    assert [name for name, _ in by_rank(simulation, gang)] == WALK


@pytest.mark.parametrize("rank", [-1, 0, 1 << 40])
def test_ranks_of_an_older_service_or_a_hostile_one_break_nothing(rank: int) -> None:
    simulation = world(hypernodes())
    gang = job("gang", pods=8, cards=8)
    gang = replace(gang, tasks=(replace(gang.tasks[0], pods=tuple(replace(pod, rank=rank) for pod in gang.tasks[0].pods)),))
    simulation.submit([gang])
    simulation.run()
    assert len(simulation.claims) == 8


@examples(30)
@given(
    leaves=st.permutations(sorted(WALK)),
    sizes=st.lists(st.tuples(st.integers(1, 12), st.sampled_from([1, 2, 4])), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
)
def test_only_who_is_where_changes(leaves: list[str], sizes: list[tuple[int, int]], seed: int) -> None:
    """Nodes get as many pods of each job, and the same cards, as without ranks; with them each job walks the tree."""
    fabric = hypernodes({leaf: leaves[2 * i : 2 * i + 2] for i, leaf in enumerate(LEAVES)})
    jobs = [
        ranked(job(f"j{i}", pods=pods, cards=cards, created_at=float(i)), seed=seed + i)
        for i, (pods, cards) in enumerate(sizes)
    ]
    walk = Walk()
    walk.follow(fabric)

    def run(some: Sequence[Job]) -> Simulation:
        simulation = world(fabric)
        simulation.submit(some)
        simulation.run()
        return simulation

    with_ranks = run(jobs)
    without = run(
        [
            replace(
                one, tasks=tuple(replace(task, pods=tuple(replace(pod, rank=-1) for pod in task.pods)) for task in one.tasks)
            )
            for one in jobs
        ]
    )
    places = [Counter((claim.job, claim.node, claim.slices) for claim in one.claims.values()) for one in (with_ranks, without)]
    assert places[0] == places[1]
    for one in jobs:
        if all(pod.uid in with_ranks.claims for pod in one.tasks[0].pods):
            found = by_rank(with_ranks, one)
            assert found == sorted(found, key=lambda place: (walk.key(NodeName(place[0])), place[1]))
    assert JobId("j0") in {claim.job for claim in with_ranks.claims.values()}
