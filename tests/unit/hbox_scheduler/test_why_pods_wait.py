"""Each refusal is said by one author, the same in the running service and in a simulated cycle."""

import pytest

from hbox_common.model import (
    Job,
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
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .small_world import SmallWorld

POLICY = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: %s}]
"""


def in_the_service(
    *jobs: Job,
    plugin: str = "capacity",
    cards: int = 8,
    nodes: int = 4,
    own: bool = False,
    apart: int = 0,
    **limits: int,
) -> str:
    """What the last job is told."""
    conf = parse_conf(POLICY % plugin, plugins=list(PLUGINS))
    capability = {GPU: limits["limit"]} if limits else {}
    queues = [Queue(QueueName("default"), capability=capability)]
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=None if own else conf)
    simulation.put_nodes(node(f"n{i}", cards=cards, labels={"kubernetes.io/hostname": f"n{i}"}) for i in range(nodes))
    term = PodTerm("kubernetes.io/hostname", Selector((Match("app", MatchOperator.IN, ("a",)),)))
    simulation.scheduler.on_neighbours(
        Neighbour(PodUid(f"{jobs[-1].name}-{i}"), "default", {"app": "a"}, PodConstraints(anti_affinity=(term,)))
        for i in range(apart)
    )
    for one in jobs:
        simulation.submit([one])
        simulation.run()
    return simulation.verdicts[JobId(jobs[-1].name)]


def in_a_cycle(
    *gangs: tuple[int, int], plugin: str = "capacity", cards: int = 8, nodes: int = 4, limit: int | None = None
) -> str:
    """What the last gang is told. Each: pods, cards of each; all but the last run on the nodes from n0 on."""
    queue = QueueInfo(QueueName("q"), capability={} if limit is None else {GPU: limit})
    world = SmallWorld(nodes, cards=cards, queues=(queue,))
    for number, (pods, each) in enumerate(gangs):
        world.gang(f"g{number}", pods=pods, cards=each, on=range(pods) if number + 1 < len(gangs) else ())
    return world.decide(POLICY % plugin).pending[f"d/g{len(gangs) - 1}-0"].message


def test_a_gang_above_its_queues_capability_is_told_the_limit_and_no_count_of_nodes() -> None:
    said = "QueueCapabilityExceeded: queue {} may use 3 nvidia.com/gpu now, 0 nvidia.com/gpu are in use and 4 nvidia.com/gpu more are asked for"
    assert in_the_service(job("a", pods=4, cards=1), limit=3) == said.format("default")
    assert in_a_cycle((4, 1), limit=3) == said.format("q")


def test_a_gang_above_its_queues_share_is_told_which_share() -> None:
    said = "QueueShareSpent: queue {} may use 3 nvidia.com/gpu now, 0 nvidia.com/gpu are in use and 4 nvidia.com/gpu more are asked for"
    assert in_the_service(job("a", pods=4, cards=1), limit=3, plugin="proportion") == said.format("default")
    assert in_a_cycle((4, 1), limit=3, plugin="proportion") == said.format("q")


def test_of_a_gang_that_no_four_nodes_can_hold_it_is_said_how_much_fits() -> None:
    said = "4 of 5 pods fit that have to start together, and no more than 4 would on an empty cluster"
    assert in_the_service(job("a", pods=5, cards=8)) == said
    assert in_a_cycle((5, 8)) == said
    assert in_the_service(job("a", pods=5, cards=8), own=True) == said


def test_pods_that_stay_apart_and_lack_a_node_are_counted_too() -> None:
    assert in_the_service(job("a", pods=5, cards=1), apart=5) == (
        "4 of 5 pods fit that have to start together; their places exclude the others by PodAntiAffinityMismatch"
    )


@pytest.mark.parametrize("own", [True, False])
def test_a_full_cluster_reads_differently_from_a_request_that_can_never_fit(own: bool) -> None:
    full = in_the_service(job("a", pods=4, cards=8), job("b", cards=8), own=own)
    assert full == "0/4 nodes are available: 4 CardExclusive".replace("CardExclusive", "CardsInUse")
    never = in_the_service(job("b", cards=9), own=own)
    assert never == "0/4 nodes are available: 4 NodeInsufficientDevice; no node has room for it even when empty"


def test_a_simulated_cycle_tells_the_two_apart_too() -> None:
    assert "even when empty" not in in_a_cycle((4, 8), (1, 8))
    assert in_a_cycle((1, 9)).endswith("; no node has room for it even when empty")


def test_who_is_promised_a_place_is_told_where() -> None:
    world = SmallWorld(1, cards=8)
    world.gang("old", cards=8, on=[0])
    world.gang("new", cards=8, priority=9)
    conf = (POLICY % "conformance").replace("allocate, backfill", "allocate, preempt")
    assert world.decide(conf).pending["d/new-0"].message == "nominated to n0, where it starts once pods that leave are gone"


def test_a_queue_that_does_not_exist_is_said_to_be_missing() -> None:
    world = SmallWorld(1, cards=8)
    world.gang("a", queue="nowhere")
    assert world.decide(POLICY % "conformance").pending["d/a-0"].message == "QueueNotFound: queue nowhere does not exist"


def test_explained_filters_say_of_no_node_that_it_fits_where_the_verdict_says_that_none_does() -> None:
    world = SmallWorld(2, cards=8)
    world.gang("old", cards=8, on=[0])
    world.gang("new", cards=9)
    report = world.decide(POLICY % "conformance", explain=True)
    assert report.filters["d/new-0"] == {"n0": "NodeInsufficientDevice", "n1": "NodeInsufficientDevice"}
    assert report.pending["d/new-0"].reasons == {"NodeInsufficientDevice": 2}
