"""If a plugin renumbers the cards of its node, claims stay on the cards of their pods."""

from dataclasses import replace

import pytest

from hbox_common.model import Card, CardId, NodeName, NodeState
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
