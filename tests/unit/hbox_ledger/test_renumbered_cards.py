"""If a plugin renumbers the cards of its node, claims stay on the cards of their pods."""

from dataclasses import replace

import pytest

from hbox_common.model import Card, CardId, CardSlice, NodeName, NodeState, PlanId, PodFact, PodUid
from hbox_ledger.core.claimids import claim_id
from hbox_ledger.core.overbooked import overbooked

from .conftest import World, node

A = NodeName("a")


def shown(*uuids: str) -> NodeState:
    """The node with these cards, in the plugin's order; its other earlier cards are lost."""
    cards = tuple(Card(i, uuid, "A100", 40_960, shares=4) for i, uuid in enumerate(uuids))
    lost = tuple(card for card in node("a", 3).cards if card.uuid not in uuids)
    return replace(node("a", 3), cards=cards, lost=lost)


@pytest.fixture
def three() -> World:
    """The pod `one` holds the second of three cards."""
    world = World()
    world.state.know(A, node("a", 3))
    world.commits(world.plan("p", ("one", "a", [world.on("a", 1)])))
    return world


def test_renumbered_card_is_not_allocated_again(three: World) -> None:
    three.state.know(A, shown("a-1", "a-2"))
    assert three.refuses(three.plan("q", ("two", "a", [three.on("a", 1)]))) == "CardTaken"
    assert three.refuses(three.plan("r", ("two", "a", [three.card(0)]))) == "CardTaken", (
        "an older scheduler names its new index"
    )
    three.commits(three.plan("s", ("two", "a", [three.card(1)])))
    assert [s.card for s in three.claim("two").slices] == ["gpu:a-2"]
    assert overbooked(three.state, A) == ""


def test_lost_card_keeps_its_claim_and_blocks_no_other(three: World) -> None:
    three.state.know(A, shown("a-0", "a-2"))
    assert [s.card for s in three.claim("one").slices] == ["gpu:a-1"]
    assert overbooked(three.state, A) == "card a-1, which it does not have"
    assert three.refuses(three.plan("q", ("two", "a", [three.on("a", 1)]))) == "CardUnknown"
    three.commits(three.plan("r", ("two", "a", [three.on("a", 0)]), ("three", "a", [three.on("a", 2)]), job="j", min_member=2))
    three.state.know(A, node("a", 3))
    assert three.refuses(three.plan("s", ("four", "a", [three.on("a", 1)]))) == "CardTaken"
    assert overbooked(three.state, A) == ""


def test_database_number_identifies_one_card(three: World) -> None:
    three.state.know(A, shown("a-2", "a-1", "new"))
    three.commits(three.plan("q", ("two", "a", [three.card(0)]), ("three", "a", [three.card(2)]), job="j", min_member=2))
    numbers = {s.card: s.index for pod in ("one", "two", "three") for s in three.claim(pod).slices}
    assert numbers.keys() == {"gpu:a-1", "gpu:a-2", "gpu:new"}
    assert numbers[CardId("gpu:a-1")] == 1, "its first index"
    assert len(set(numbers.values())) == 3
    assert len({(key.node, key.card) for key in three.state.slots}) == 3


def test_claim_under_a_former_name_gets_the_uuid_reported_by_the_node() -> None:
    world = World()
    bare = replace(node("a", 2), cards=())
    world.state.know(A, bare)
    world.see(world.fact("old", "a", cards=1))
    world.state.know(A, node("a", 2))
    world.commits(world.plan("p", ("one", "a", [world.on("a", 1)])))
    named = tuple(replace(card, uuid=f"GPU-{card.index}", former=card.uuid) for card in node("a", 2).cards)
    world.state.know(A, replace(node("a", 2), cards=named))
    assert [s.card for s in world.claim("one").slices] == ["gpu:GPU-1"]
    assert world.state.node(A).cards[CardId("gpu:GPU-1")].pods == 1
    assert world.refuses(world.plan("q", ("two", "a", [world.card(1)]))) == "CardTaken"


@pytest.fixture
def upgraded() -> World:
    """The second of three cards was pod `one`'s, by index, when the plugin renumbered them: before any ledger knew a card by its UUID, `one` had 1."""
    world = World()
    world.state.key = b"k" * 32
    world.state.know(A, replace(shown("a-1", "a-2"), lost=(), registered=("NVIDIA",)))
    return world


def placed_by_index(world: World, index: int = 1, *, issued: CardSlice | None = None) -> PodFact:
    """What the binder wrote on pod `one`: the index of its card in `hbox.io/cards`, and the card's UUID in HAMi's annotation."""
    proof = claim_id(world.state.key, PlanId("p"), PodUid("one"), A, (issued or world.card(1),))
    found = world.fact("one", "a", claim=proof, slices=[world.card(index)])
    return replace(found, allocated={"NVIDIA": "a-1,NVIDIA,40960,100:;"})


def test_pod_placed_by_index_holds_the_card_that_its_device_plugin_names(upgraded: World) -> None:
    upgraded.see(placed_by_index(upgraded))
    assert [s.card for s in upgraded.claim("one").slices] == ["gpu:a-1"]
    upgraded.commits(upgraded.plan("q", ("two", "a", [upgraded.on("a", 2)])))


def test_claim_by_index_moves_to_the_card_that_the_device_plugin_names(upgraded: World) -> None:
    upgraded.commits(upgraded.plan("p", ("one", "a", [upgraded.card(1)])))
    assert [s.card for s in upgraded.claim("one").slices] == ["gpu:a-2"]
    upgraded.see(placed_by_index(upgraded))
    assert [s.card for s in upgraded.claim("one").slices] == ["gpu:a-1"]
    moved = upgraded.claim("one").id
    upgraded.see(placed_by_index(upgraded))
    assert upgraded.claim("one").id == moved, "it moves once"
    upgraded.commits(upgraded.plan("q", ("two", "a", [upgraded.on("a", 2)])))


def test_claim_by_id_stays_whatever_its_pod_says(upgraded: World) -> None:
    upgraded.commits(upgraded.plan("p", ("one", "a", [upgraded.on("a", 2)])))
    for index in range(4):
        upgraded.see(placed_by_index(upgraded, index, issued=upgraded.on("a", 2)))
        assert [s.card for s in upgraded.claim("one").slices] == ["gpu:a-2"]
