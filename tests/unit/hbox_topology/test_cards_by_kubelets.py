"""Ids of cards that the node's object does not say, by its kubelet."""

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
        after.heard(state)
    after.devices[N] = kubelet("a", "b", "c")
    assert cards(after, facts(3)) == [(0, "b", 1), (1, "c", 1), (2, "a", 1)]


def test_fewer_ids_than_cards_leave_the_rest_made_up_and_more_are_not_taken() -> None:
    inventory = Inventory()
    inventory.devices[N] = kubelet("a")
    assert cards(inventory, facts(2)) == [(0, "a", 1), (1, "n1-1", -1)]
    inventory.devices[N] = kubelet("a", "b", "c")
    assert cards(inventory, facts(2)) == [(0, "a", 1), (1, "b", 1)]


@pytest.mark.parametrize("said", [None, kubelet("a", resource="rdma/hca"), NodeDevices(N, 1.0)])
def test_who_says_nothing_of_cards_changes_nothing(said: NodeDevices | None) -> None:
    state = read_node(facts(2), Generation(0)).state
    assert with_devices(state, said, None) == state


def test_a_register_of_hami_comes_before_the_kubelets_slots() -> None:
    register = "GPU-a,10,15360,100,NVIDIA-T4,0,true:"
    state = read_node(facts(10, annotations={"hami.io/node-nvidia-register": register}), Generation(0)).state
    assert with_devices(state, kubelet("GPU-a-0", "GPU-a-1"), None) == state
