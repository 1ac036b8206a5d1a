"""Queues with a limit on cards, where units of `nvidia.com/gpu` are parts of cards on some nodes.

sliced   16 units: four cards, time-sliced by 4
whole    four cards
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from hbox_common.model import CardRequest, JobId, NodeState, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import Simulation, job, node

from ...policies import one_by_one

REPLICAS = f"{GPU}.replicas"


def sliced(name: str = "sliced", labels: Mapping[str, str] = MappingProxyType({}), *, model: str = "T4-SHARED") -> NodeState:
    plain = node(name, cards=16, model=model)
    cards = tuple(replace(card, shares=1) for card in plain.cards)
    return replace(plain, cards=cards, labels={**plain.labels, REPLICAS: "4", **labels})


def whole(name: str = "whole", cards: int = 4) -> NodeState:
    return node(name, cards=cards, model="L40S")


@pytest.fixture(params=["batches", "one by one"])
def world(request: pytest.FixtureRequest) -> Simulation:
    """By HBox's own policy, and by one under which equal pods are not alike."""
    return Simulation(policy_of(PolicyName.BINPACK), conf=default_conf() if request.param == "batches" else one_by_one())


def rule(world: Simulation, cards: int, name: str = "default", parent: str = "") -> None:
    world.scheduler.on_queue(Queue(QueueName(name), parent=parent, capability={GPU: cards}))


def submit(world: Simulation, pods: int, cards: CardRequest | int = 1, queue: str = "default", *, name: str = "j") -> None:
    world.submit(job(f"{name}{i}", cards=cards, queue=queue, created_at=float(i)) for i in range(pods))
    world.run()


def held(world: Simulation) -> dict[str, int]:
    """Units by node."""
    found: dict[str, int] = {}
    for claim in world.claims.values():
        found[claim.node] = found.get(claim.node, 0) + len(claim.slices)
    return found


def test_queue_limited_to_two_cards_runs_eight_replicas_of_cards_sliced_by_four(world: Simulation) -> None:
    world.put_nodes([sliced()])
    rule(world, 2)
    submit(world, 12)
    assert held(world) == {"sliced": 8}
    assert "queue default is at its limit of 2 cards: 1 node" in world.verdicts[JobId("j11")]


def test_queue_at_less_than_a_card_takes_replicas_and_no_whole_card(world: Simulation) -> None:
    world.put_nodes([sliced(), whole()])
    rule(world, 1)
    submit(world, 1, CardRequest(1, models=("T4",)))
    submit(world, 8, name="any")
    assert held(world) == {"sliced": 4}
    assert "queue default is at its limit of 1 card: 2 nodes" in world.verdicts[JobId("any7")]


def test_reason_of_a_whole_card_beyond_the_limit_names_what_is_left(world: Simulation) -> None:
    world.put_nodes([sliced(), whole()])
    rule(world, 1)
    submit(world, 1, CardRequest(1, models=("T4",)))
    submit(world, 1, CardRequest(1, models=("L40S",)), name="whole")
    assert "queue default has 0.75 left of its 1 card, and a pod asks for 1: 1 node" in world.verdicts[JobId("whole0")]


def test_whole_cards_and_replicas_count_together(world: Simulation) -> None:
    world.put_nodes([sliced(), whole()])
    rule(world, 2)
    submit(world, 1, CardRequest(1, models=("L40S",)))
    submit(world, 9, CardRequest(1, models=("T4",)), name="t")
    assert held(world) == {"whole": 1, "sliced": 4}


def test_limit_of_a_parent_holds_for_replicas_of_its_children(world: Simulation) -> None:
    world.put_nodes([sliced()])
    rule(world, 1, "dept")
    for name in ("a", "b"):
        world.scheduler.on_queue(Queue(QueueName(name), parent="dept"))
    submit(world, 3, queue="a", name="a")
    submit(world, 3, queue="b", name="b")
    assert held(world) == {"sliced": 4}


def test_gang_of_more_replicas_than_the_limit_allows_does_not_start(world: Simulation) -> None:
    world.put_nodes([sliced()])
    rule(world, 2)
    world.submit([job("nine", pods=9, cards=1), job("eight", pods=8, cards=1, created_at=1.0)])
    world.run()
    assert held(world) == {"sliced": 8}
    assert {claim.job for claim in world.claims.values()} == {JobId("eight")}


def test_replicas_of_a_pod_that_ended_are_given_again(world: Simulation) -> None:
    world.put_nodes([sliced()])
    rule(world, 1)
    submit(world, 6)
    assert held(world) == {"sliced": 4}
    world.finish([claim.pod_uid for claim in list(world.claims.values())[:2]])
    world.run()
    assert held(world) == {"sliced": 4}


def test_labels_that_come_late_change_what_new_pods_count(world: Simulation) -> None:
    late = sliced()
    world.put_nodes([replace(late, labels={})])
    rule(world, 2)
    submit(world, 1)
    world.put_nodes([late])
    submit(world, 8, name="more")
    # The first pod counts a whole card until it ends.
    assert held(world) == {"sliced": 5}


@pytest.mark.parametrize("replicas", ["0", "-1", "1000000000", "four", "", "3"])
def test_number_of_replicas_that_cannot_be_right_counts_units_as_cards(world: Simulation, replicas: str) -> None:
    world.put_nodes([sliced(labels={REPLICAS: replicas})])
    rule(world, 2)
    submit(world, 6)
    assert held(world) == {"sliced": 2}


def test_mig_partitions_under_the_name_of_cards_count_by_their_profile(world: Simulation) -> None:
    labels = {REPLICAS: "1", "nvidia.com/mig.strategy": "single", f"{GPU}.product": "A100-SXM4-80GB-MIG-3g.40gb"}
    world.put_nodes([sliced(labels=labels)])
    rule(world, 2)
    submit(world, 8)
    # 4 x 3/7 of 2 cards
    assert held(world) == {"sliced": 4}


def test_limit_of_a_model_holds_besides_the_limit_on_cards(world: Simulation) -> None:
    world.put_nodes([sliced(), sliced("other", model="T4")])
    world.scheduler.on_queue(Queue(QueueName("default"), capability={GPU: 2, f"{GPU}.T4-SHARED": 3}))
    submit(world, 12)
    assert held(world) == {"sliced": 3, "other": 5}
