"""What the cards of all nodes say to a pod that waits: the same in the running service and in a simulated cycle."""

from dataclasses import replace

import numpy as np

from hbox_common.model import Card, CardRequest, CardSlice, JobId, NodeName, Queue, QueueName
from hbox_common.model.devices import Ask, PodDevices
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.devices.statefits import fits_of
from hbox_scheduler.core.explain.cards import NodeCards, card_reasons
from hbox_scheduler.core.explain.labels import Label
from hbox_scheduler.core.explain.reasons import tally
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .small_world import SmallWorld

POLICY = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n'
#: Two containers, a card of 30 GiB for each.
TWO = CardRequest(
    2,
    memory_mib=30_720,
    containers=2,
    devices=PodDevices(tuple(Ask("NVIDIA", 1, memory_mib=30_720, container=i) for i in range(2)), 2),
)


def test_labels_are_counted_by_card_and_the_nearest_node_comes_first() -> None:
    found = [
        NodeCards("far", 8, 0, {"CardTypeMismatch": 8}),
        NodeCards("near", 8, 3, {"CardInsufficientMemory": 5, "AllocatedCardsInsufficientRequest": 3}, 1),
        NodeCards("none", 0, 0, {"NodeInsufficientDevice": 0}),
        NodeCards("tight", 8, 0, {"CardInsufficientMemory": 8}),
    ]
    said = card_reasons(found, 2)
    assert (said.nodes, said.fitting, said.cards) == (6, 2, 24)
    assert said.labels == {"CardTypeMismatch": 8, "CardInsufficientMemory": 13, "AllocatedCardsInsufficientRequest": 3}
    assert (said.whole, said.on["CardInsufficientMemory"]) == ({"NodeInsufficientDevice": 1}, 2)
    assert [one.node for one in said.best] == ["near", "far", "tight"]
    assert str(said.best[0]) == "3/8 AllocatedCardsInsufficientRequest, 5/8 CardInsufficientMemory"
    assert said.headline() == (
        "the cards of 2 of 6 nodes take it; of 24 cards on the others 13 CardInsufficientMemory, 8 CardTypeMismatch, 3 AllocatedCardsInsufficientRequest; "
        "1 nodes NodeInsufficientDevice"
    )


def test_a_job_that_waits_is_told_by_card_in_the_service() -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))])
    simulation.put_nodes([node("full", cards=2), node("half", cards=2), node("cpu", cards=0)])
    for name, cards in (("a", 2), ("b", 1)):
        simulation.submit([job(name, cards=cards)])
        simulation.run()
    waits = job("waits", cards=2)
    waits = replace(waits, tasks=(replace(waits.tasks[0], cards=TWO),))
    simulation.submit([waits])
    simulation.run()
    columns = simulation.scheduler.columns
    before = columns.used.copy(), columns.changes.end
    ((pods, said),) = simulation.scheduler.reports.card_reasons(waits.id)
    assert pods == [waits.tasks[0].pods[0].name]
    assert (said.nodes, said.fitting, said.labels["CardsInUse"], said.whole) == (
        3,
        0,
        4,
        {"NodeInsufficientDevice": 1},
    )
    assert (said.best[0].cards, said.best[0].fitting, said.best[0].container) == (2, 0, 1), (
        "the first container's card is taken by then"
    )
    assert (np.array_equal(columns.used, before[0]), columns.changes.end) == (True, before[1]), "nothing is changed by asking"
    assert simulation.scheduler.reports.card_reasons(JobId("nobody")) == []


def test_who_is_not_in_the_way_of_cards_is_told_nothing_of_them() -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))])
    simulation.put_nodes([node("n", cards=2, cpu=1)])
    waits = job("waits", cards=1)
    waits = replace(waits, tasks=(replace(waits.tasks[0], requests={**waits.tasks[0].requests, "cpu": 64_000}),))
    simulation.submit([waits])
    simulation.run()
    assert simulation.scheduler.reports.card_reasons(waits.id) == []


def test_a_pod_of_a_saved_cluster_is_told_the_same() -> None:
    world = SmallWorld(2, cards=2)
    world.gang("runs", cards=2, on=(0,))
    world.gang("half", cards=1, on=(1,))
    world.gang("waits", cards=TWO)
    why = world.decide(POLICY).pending["d/waits-0"]
    assert why.cards is not None
    assert (why.cards.nodes, why.cards.fitting, why.cards.labels["CardsInUse"]) == (2, 0, 4)
    assert why.reasons["CardsInUse"] == 2


def test_nodes_in_the_same_state_are_looked_at_once() -> None:
    columns = Columns()
    for number in range(50):
        columns.put_node(node(f"n{number}", cards=2))
    columns.book(columns.row_of[NodeName("n7")], {}, (CardSlice(0, 50, 20_000),))
    devices = PodDevices((Ask("NVIDIA", 3),), 1)
    found = fits_of(columns).refused(columns, np.arange(50), devices)
    assert len({id(one) for one in found}) == 2


def test_a_card_of_another_id_is_one_thing_in_the_way_and_not_two() -> None:
    """All that cards say is one link of a node's chain, whatever the label."""
    masks = [
        (str(label), np.array([True]))
        for label in (Label.CARD_TYPE_MISMATCH, "CardUuidMismatch", "Insufficient nvidia.com/gpu")
    ]
    assert tally(masks[1:], np.arange(1), 1).sole == {"CardUuidMismatch": 1}


def test_of_a_card_that_is_named_it_is_said_that_it_is_taken() -> None:
    columns = Columns()
    state = node("n", cards=1)
    cards = (Card(0, "GPU-a", "A100", 40_960, kind="NVIDIA"), Card(1, "GPU-b", "A100", 40_960, kind="NVIDIA"))
    columns.put_node(replace(state, cards=cards))
    named = PodDevices((Ask("NVIDIA", 1),), 1, wishes=(("nvidia.com/use-gpuuuid", "GPU-c"),))
    (found,) = fits_of(columns).refused(columns, np.arange(1), named)
    assert str(found) == "2/2 CardUuidMismatch"
