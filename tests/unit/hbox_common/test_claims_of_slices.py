"""What the ledger takes of slices that say more than amounts: shares of a card for several containers, parts that vendors divide cards into."""

from dataclasses import replace

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import (
    Card,
    CardId,
    CardRequest,
    CardSlice,
    Generation,
    NodeAllocation,
    NodeName,
    NodeState,
    RefusalReason,
    cards_by_model,
    cards_held,
    charge,
    format_slices,
    parse_slices,
    validate_claim,
)
from hbox_common.model.cardmodels import models_on
from hbox_common.model.devices import Ask, CardAllocation, CardTraits, PodDevices, Profile, layout_fault, parse_layout

THIRDS = (Profile("1g", 10_000, 14, ((0, 1), (1, 1), (2, 1))), Profile("2g", 20_000, 28, ((0, 2),)))
PLAIN = Card(0, "GPU-0", "A100", 40_000, 3, kind="NVIDIA")
DIVIDED = Card(1, "GPU-1", "A100", 40_000, 7, kind="NVIDIA", traits=CardTraits(mode="mig", profiles=THIRDS))
NODE = NodeState(
    NodeName("n"), "u", Generation(1), ready=True, allocatable={"pods": 10, "nvidia.com/gpu": 10}, cards=(PLAIN, DIVIDED)
)
FIRST = CardSlice(1, 14, 10_000, "1g@0")
ASKED = {"pods": 1, "nvidia.com/gpu": 1}


def refused(*slices: CardSlice, beside: tuple[CardSlice, ...] = (), node: NodeState = NODE) -> RefusalReason | None:
    books = NodeAllocation()
    books.book({}, beside)
    found = validate_claim(node, None, books, ASKED, slices)
    return found.reason if found is not None else None


def test_containers_on_a_card_take_as_many_of_its_shares() -> None:
    assert refused(CardSlice(0, 10, 100, slots=3)) is None
    assert refused(CardSlice(0, 10, 100, slots=4)) is RefusalReason.CARD_TAKEN
    assert refused(CardSlice(0, 10, 100, slots=2), beside=(CardSlice(0, 10, 100),)) is None
    assert refused(CardSlice(0, 10, 100, slots=2), beside=(CardSlice(0, 10, 100, slots=2),)) is RefusalReason.CARD_TAKEN


def test_a_card_of_no_known_kind_is_not_divided() -> None:
    nobodys = replace(NODE, cards=(replace(PLAIN, kind="Nobody"),))
    assert refused(CardSlice(0, 28, 20_000), node=nobodys) is None
    assert refused(CardSlice(0, 28, 20_000, "half"), node=nobodys) is RefusalReason.CARD_TAKEN


def test_what_is_taken_back_leaves_nothing() -> None:
    books = NodeAllocation()
    slices = (CardSlice(1, 28, 20_000, "2g@0", 2),)
    books.book(ASKED, slices)
    assert books.cards[CardId("1")] == CardAllocation(28, 20_000, 2, ("2g@0",))
    books.book(ASKED, slices, -1)
    assert books.cards[CardId("1")] == CardAllocation()


def test_slices_are_written_as_ever_where_amounts_say_all() -> None:
    assert format_slices((CardSlice(0, 100, 81_920), CardSlice(3, 30, 100))) == "0:100:81920,3:30:100"
    more = (CardSlice(0, 28, 20_000, "2g@0+1g@2", 2), CardSlice(1, 10, 5, slots=3))
    assert format_slices(more) == "0:28:20000:2g@0+1g@2:2,1:10:5::3"
    assert parse_slices(format_slices(more)) == more


@pytest.mark.parametrize(
    "text", ["0:10:5:x", "0:10:5:x:0", "0:10:5:x:20000", "0:10:5:a b:1", "0:10:5:" + "x" * 2000 + ":1", "0:10:5::1:1"]
)
def test_what_no_slice_can_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_slices(text)


HELD = (CardSlice(0, 50, 6000, slots=2), CardSlice(1, 10, 100))


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        ("0:10:6000;|0:30:3000;0:20:2000,1:10:100;", ""),
        ("|0:30:3000;0:20:2000,1:10:100;", ""),
        ("|0:30:3000,1:10:100;0:20:4000;", "get more of card 0"),
        ("|0:30:3000,1:10:100;0:30:3000;", "get more of card 0"),
        ("|0:1:1;0:1:1;0:1:1;1:1:1;", "get more of card 0"),
        ("0:10:7000;|0:30:3000;1:10:100;", "container 0 gets more of card 0"),
        ("|0:30:3000;2:1:1;1:1:1;", "container 1 gets more of card 2"),
        ("|0:30:3000,0:20:1000;1:10:100;", "container 0 gets a card twice"),
        ("|0:30:3000;", "takes cards that no container gets"),
        ("nonsense", "devices end with"),
    ],
)
def test_a_layout_gives_containers_no_more_than_the_books_hold(layout: str, fault: str) -> None:
    found = layout_fault(layout, HELD, 3)
    assert (fault in found) if fault else (found == "")


def test_a_layout_of_fewer_cards_than_are_asked_for_is_refused() -> None:
    assert layout_fault("|0:30:3000;1:10:100;", HELD, 4) == "it asks for other cards than it is given"


def test_a_layout_as_long_as_nobodys_pod_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        parse_layout(";" * 500)


def test_a_pod_with_cards_of_two_kinds_counts_against_the_quotas_of_both() -> None:
    slices = (CardSlice(0, 30, 3000), CardSlice(16, 10, 1000))
    counted = charge({"nvidia.com/gpu": 1, "hygon.com/dcunum": 1}, slices)
    assert {name: counted[name] for name in ("nvidia.com/gpu", "hygon.com/dcunum")} == {
        "nvidia.com/gpu": 1,
        "hygon.com/dcunum": 1,
    }
    assert counted["hygon.com/dcumem"] >= 1000
    assert counted["nvidia.com/gpumem"] >= 3000
    assert charge({"nvidia.com/gpu": 2}, slices) == {"nvidia.com/gpu": 2, "nvidia.com/gpucores": 40, "nvidia.com/gpumem": 4000}


@pytest.mark.parametrize("part", ["no-such-profile", "2g@7", ""])
def test_a_part_that_the_card_cannot_be_divided_into_is_refused(part: str) -> None:
    assert refused(CardSlice(1, 28, 20_000, part)) is RefusalReason.CARD_TAKEN


def test_a_part_of_a_card_never_stands_beside_one_that_it_cannot_stand_beside() -> None:
    assert refused(FIRST) is None
    assert refused(replace(FIRST, part="1g@1"), beside=(FIRST,)) is None
    assert refused(FIRST, beside=(FIRST,)) is RefusalReason.CARD_TAKEN, "two instances in one place"
    assert refused(CardSlice(1, 14, 10_000), beside=(FIRST,)) is RefusalReason.CARD_TAKEN, "one that is no instance"
    assert refused(CardSlice(0, 14, 10_000, "1g@0")) is RefusalReason.CARD_TAKEN, "a card that is not divided"


def test_a_pod_that_was_found_holds_what_its_containers_ask_for() -> None:
    """Though nobody proves which cards: on those that others leave, and where they leave too little on idle ones, since it runs."""
    asks = (Ask("NVIDIA", 1, 30, 30_000, container=0), Ask("NVIDIA", 1, 30, 8_000, container=1))
    request = CardRequest(2, cores=30, memory_mib=8_000, devices=PodDevices(asks, containers=2))
    assert cards_held(request, (PLAIN,), {}) == (CardSlice(0, 60, 38_000, slots=2, card=PLAIN.id),)
    assert cards_held(request, (PLAIN,), {PLAIN.id: CardAllocation(50, 20_000, 1)}) == (
        CardSlice(0, 60, 38_000, slots=2, card=PLAIN.id),
    )
    assert cards_held(request, (replace(PLAIN, memory_mib=1_000),), {}) == ()


MIXED = NodeState(
    NodeName("n"), "u", Generation(1), ready=True, allocatable={"nvidia.com/gpu": 10, "hygon.com/dcunum": 8},
    cards=(PLAIN, Card(16, "DCU-0", "Z100", 32_768, 4, kind="DCU"), Card(17, "DCU-1", "A100", 32_768, 4, kind="DCU")),
)  # fmt: skip


def test_a_pod_that_was_found_holds_cards_of_the_kind_that_it_asks_for() -> None:
    """Though cards of another kind come before them on its node."""
    request = CardRequest(1, cores=10, memory_mib=1_000)
    assert [s.index for s in cards_held(request, MIXED.cards, {}, kind="DCU")] == [16]
    assert [s.index for s in cards_held(request, MIXED.cards, {}, named=(PLAIN.id,), kind="DCU")] == [16], (
        "whatever is written on it"
    )
    assert [s.index for s in cards_held(request, MIXED.cards, {})] == [0], "where nobody knows what it asks for"


def test_models_are_counted_under_the_resource_of_each_cards_own_vendor() -> None:
    slices = tuple(CardSlice(index, 10, 100) for index in (0, 16, 17))
    assert cards_by_model(MIXED, slices) == {"nvidia.com/gpu.A100": 1, "hygon.com/dcunum.Z100": 1, "hygon.com/dcunum.A100": 1}
    assert models_on(MIXED) == {"nvidia.com/gpu.A100", "hygon.com/dcunum.Z100", "hygon.com/dcunum.A100"}
    alike = replace(MIXED, cards=(PLAIN, MIXED.cards[2]))
    assert cards_by_model(alike, slices[2:]) == {"hygon.com/dcunum.A100": 1}, "of one name, and of two vendors"


def test_models_of_cards_that_say_no_kind_are_counted_under_what_their_node_has() -> None:
    unnamed = replace(NODE, cards=(replace(PLAIN, kind=""),))
    assert cards_by_model(unnamed, (CardSlice(0, 100, 40_000),)) == {"nvidia.com/gpu.A100": 1}
    assert cards_by_model(replace(unnamed, allocatable={"pods": 1}), (CardSlice(0, 100, 40_000),)) == {}
