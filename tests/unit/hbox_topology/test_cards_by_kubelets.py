"""Ids of cards that the node's object does not say, by its kubelet."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.model import DeviceIds, Generation, NodeDevices, NodeName
from hbox_common.model.devices.identity import made_up
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.inventory import Inventory
from hbox_topology.core.kubelets import with_devices
from hbox_topology.core.node import read_node

N, GPU = NodeName("n1"), "nvidia.com/gpu"


def facts(cards: int = 4, uid: str = "u1", **changes: Any) -> NodeFacts:
    return NodeFacts(name=N, uid=uid, conditions={"Ready": "True"}, allocatable={GPU: str(cards)}, **changes)


def kubelet(*ids: str, numa: tuple[int, ...] = (1,), resource: str = GPU) -> NodeDevices:
    return NodeDevices(N, 1.0, (DeviceIds(resource, ids, numa),))


def cards(inventory: Inventory, found: NodeFacts) -> list[tuple[int, str, int]]:
    inventory.observe(found, now=1.0)
    [state] = inventory.states()
    return [(card.index, card.uuid, card.numa) for card in state.cards]


def test_without_a_kubelets_word_ids_are_made_up_and_known_to_be() -> None:
    state = read_node(facts(2), Generation(0)).state
    assert [made_up(N, card, state.registered) for card in state.cards] == [True, True]


def test_a_registered_card_keeps_its_id_whatever_it_is_called() -> None:
    register = {"hami.io/node-nvidia-register": '[{"id":"n1-0","count":10,"devmem":8000,"type":"NVIDIA-T4","health":true}]'}
    state = read_node(facts(10, annotations=register), Generation(0)).state
    assert [card.uuid for card in with_devices(state, kubelet("a"), None).cards] == ["n1-0"]


def test_cards_have_the_ids_and_numa_nodes_that_the_kubelet_gives_out() -> None:
    inventory = Inventory()
    inventory.devices[N] = NodeDevices(
        N, 1.0, (DeviceIds(GPU, ("c", "a"), (0,)), DeviceIds(GPU, ("b",), (1,)), DeviceIds(GPU, ("d",)))
    )
    assert cards(inventory, facts()) == [(0, "a", 0), (1, "b", 1), (2, "c", 0), (3, "d", -1)]


def test_a_card_keeps_its_index_when_another_fails_or_is_exchanged() -> None:
    inventory = Inventory()
    inventory.devices[N] = kubelet("a", "b", "c", "d")
    cards(inventory, facts())
    inventory.devices[N] = kubelet("a", "c", "d")
    assert cards(inventory, facts(3)) == [(0, "a", 1), (2, "c", 1), (3, "d", 1)]
    inventory.devices[N] = kubelet("a", "c", "d", "A-new")
    assert cards(inventory, facts()) == [(0, "a", 1), (2, "c", 1), (3, "d", 1), (4, "A-new", 1)]


def health(inventory: Inventory) -> dict[str, bool]:
    [state] = inventory.states()
    return {card.uuid: card.healthy for card in state.cards}


def four_cards(ids: str = "abcd") -> Inventory:
    inventory = Inventory()
    inventory.devices[N] = kubelet(*ids)
    cards(inventory, facts(capacity={GPU: "4"}))
    return inventory


@pytest.mark.parametrize("allocatable", [3, 4])
def test_card_that_the_kubelet_counts_and_does_not_report_is_unhealthy(allocatable: int) -> None:
    """A plain plugin reports XID 79: the kubelet's ids change at once, `allocatable` some seconds later, and `capacity` stays."""
    inventory = four_cards()
    inventory.devices[N] = kubelet("a", "c", "d")
    assert cards(inventory, facts(allocatable, capacity={GPU: "4"})) == [(0, "a", 1), (1, "b", 1), (2, "c", 1), (3, "d", 1)]
    assert health(inventory) == {"a": True, "b": False, "c": True, "d": True}
    [state] = inventory.states()
    assert (state.allocatable[GPU], state.lost) == (allocatable, ())


def test_unhealthy_card_stays_unhealthy_without_an_agent_and_is_lost_when_the_capacity_drops() -> None:
    inventory = four_cards()
    inventory.devices[N] = kubelet("a", "c", "d")
    cards(inventory, facts(3, capacity={GPU: "4"}))
    del inventory.devices[N]
    cards(inventory, facts(3, capacity={GPU: "4"}))
    assert health(inventory)["b"] is False
    inventory.devices[N] = kubelet("a", "c", "d")
    cards(inventory, facts(3, capacity={GPU: "3"}))
    [state] = inventory.states()
    assert (health(inventory), [card.uuid for card in state.lost]) == ({"a": True, "c": True, "d": True}, ["b"])
    inventory.devices[N] = kubelet("d", "c", "b", "a")
    assert cards(inventory, facts(capacity={GPU: "4"})) == [(0, "a", 1), (1, "b", 1), (2, "c", 1), (3, "d", 1)]
    assert all(health(inventory).values())


@pytest.mark.parametrize("allocatable", [3, 4])
def test_lost_card_that_the_node_counts_again_is_unhealthy_until_the_kubelet_reports_it(allocatable: int) -> None:
    inventory = four_cards()
    inventory.devices[N] = kubelet("a", "c", "d")
    cards(inventory, facts(3, capacity={GPU: "3"}))
    cards(inventory, facts(allocatable, capacity={GPU: "4"}))
    assert health(inventory) == {"a": True, "b": False, "c": True, "d": True}


def test_cards_beyond_what_one_message_carries_are_not_unhealthy() -> None:
    inventory = four_cards()
    inventory.devices[N] = replace(kubelet("a", "c", "d"), left_out=1)
    cards(inventory, facts(capacity={GPU: "4"}))
    assert health(inventory)["b"] is True


def test_another_node_of_the_same_name_begins_anew() -> None:
    inventory = Inventory()
    inventory.devices[N] = kubelet("a", "b", "c", "d")
    cards(inventory, facts())
    inventory.devices[N] = kubelet("b", "c", "d", "e")
    assert cards(inventory, facts(uid="u2")) == [(0, "b", 1), (1, "c", 1), (2, "d", 1), (3, "e", 1)]


def test_a_restart_keeps_indexes_by_what_was_said_before() -> None:
    before = Inventory()
    before.devices[N] = kubelet("b", "c")
    cards(before, facts(2))
    after = Inventory()
    for state in before.states():
        after.restore(state)
    after.devices[N] = kubelet("a", "b", "c")
    assert cards(after, facts(3)) == [(0, "b", 1), (1, "c", 1), (2, "a", 1)]


def test_fewer_ids_than_cards_leave_the_rest_made_up_and_more_are_not_taken() -> None:
    inventory = Inventory()
    inventory.devices[N] = kubelet("a")
    assert cards(inventory, facts(2)) == [(0, "a", 1), (1, "n1-1", -1)]
    inventory.devices[N] = kubelet("a", "b", "c")
    assert cards(inventory, facts(2)) == [(0, "a", 1), (1, "b", 1)]


def test_known_cards_are_named_before_new_ones() -> None:
    inventory = Inventory()
    inventory.devices[N] = kubelet("b", "c")
    cards(inventory, facts(2))
    inventory.devices[N] = kubelet("a", "b", "c")
    assert cards(inventory, facts(2)) == [(0, "b", 1), (1, "c", 1)]


@pytest.mark.parametrize("said", [None, kubelet("a", resource="rdma/hca"), NodeDevices(N, 1.0)])
def test_who_says_nothing_of_cards_changes_nothing(said: NodeDevices | None) -> None:
    state = read_node(facts(2), Generation(0)).state
    assert with_devices(state, said, None) == state


def test_a_register_of_hami_comes_before_the_kubelets_slots() -> None:
    register = "GPU-a,10,15360,100,NVIDIA-T4,0,true:"
    state = read_node(facts(10, annotations={"hami.io/node-nvidia-register": register}), Generation(0)).state
    assert with_devices(state, kubelet("GPU-a-0", "GPU-a-1"), None) == state


def test_registered_cards_keep_their_ids_beside_cards_of_a_plain_plugin() -> None:
    register = {"hami.io/node-nvidia-register": "GPU-a,10,15360,100,NVIDIA-T4,0,true:"}
    found = NodeFacts(N, "u1", annotations=register, conditions={"Ready": "True"}, allocatable={GPU: "10", "amd.com/gpu": "1"})
    slots = NodeDevices(N, 1.0, (DeviceIds(GPU, ("GPU-a-0",)), DeviceIds("amd.com/gpu", ("0000:03:00.0",))))
    named = with_devices(read_node(found, Generation(0)).state, slots, None)
    assert [card.uuid for card in named.cards] == ["GPU-a", "0000:03:00.0"]
