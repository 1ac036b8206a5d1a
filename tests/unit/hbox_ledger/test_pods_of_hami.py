"""Pods of HAMi's scheduler hold the cards in their annotations, as much of each as they request.

Nodes a, b: two cards of 40 GiB of HAMi's plugin, GPU-a-0, GPU-a-1, GPU-b-0, GPU-b-1.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from hbox_common.model import Card, CardRequest, CardSlice, NodeState, PodFact, PodUid
from hbox_common.model.devices import Ask, CardTraits, PodDevices, Profile
from hbox_ledger.core import lifecycle
from hbox_ledger.core.reconcile import Comparison

from .conftest import World, node

SLICE = CardRequest(1, cores=30, memory_mib=12_000)


def registered(name: str, *, kind: str = "NVIDIA") -> NodeState:
    cards = tuple(Card(i, f"GPU-{name}-{i}", "A100", 40_960, shares=10, kind=kind) for i in range(2))
    return replace(node(name), cards=cards, registered=(kind,))


@pytest.fixture
def world(world: World) -> World:
    for name in "ab":
        world.state.know(registered(name).name, registered(name))
    return world


def of_hami(pod: str, where: str, text: str, asks: CardRequest = SLICE, *, cards: int | None = None) -> PodFact:
    found = World.fact(pod, where, cards=asks.count if cards is None else cards, ours=False, asks=asks)
    return replace(found, allocated={"NVIDIA": text} if text else {})


def held(world: World, pod: str) -> dict[int, tuple[int, int]]:
    """Cores and MiB by the card's index."""
    return {s.index: (s.cores, s.memory_mib) for s in world.claim(pod).slices}


def test_slices_are_booked_on_the_annotated_card(world: World) -> None:
    for number in range(3):
        world.see(of_hami(f"old-{number}", "b", "GPU-b-1,NVIDIA,12000,30:;"))
        assert held(world, f"old-{number}") == {1: (30, 12_000)}
    refused = world.plan("p", ("new", "b", [CardSlice(1, 90, 38_000)]))
    assert "card GPU-b-1" in world.refusal(refused)
    world.commits(world.plan("q", ("new", "b", [CardSlice(0, 90, 38_000)])))


def test_whole_cards_are_booked_as_annotated(world: World) -> None:
    world.see(of_hami("old", "a", "GPU-a-1,NVIDIA,40960,100:;", CardRequest(1)))
    assert held(world, "old") == {1: (100, 40_960)}
    world.commits(world.plan("p", ("new", "a", [world.card(0)])))


def test_a_pod_of_several_containers_holds_each_of_its_cards(world: World) -> None:
    asks = (Ask("NVIDIA", 1, 10, 4000, container=0), Ask("NVIDIA", 2, 30, 6000, container=2))
    request = CardRequest(3, devices=PodDevices(asks, containers=3), containers=3)
    world.see(of_hami("pod", "a", "GPU-a-1,NVIDIA,4000,10:;;GPU-a-0,NVIDIA,6000,30:GPU-a-1,NVIDIA,6000,30:;", request))
    assert held(world, "pod") == {0: (30, 6000), 1: (40, 10_000)}


def test_a_sick_or_cordoned_card_is_still_held(world: World) -> None:
    state = registered("a")
    sick = replace(state.cards[1], healthy=False, traits=CardTraits(cordoned=True))
    world.state.know(state.name, replace(state, cards=(state.cards[0], sick)))
    world.see(of_hami("old", "a", "GPU-a-1,NVIDIA,12000,30:;"))
    assert held(world, "old") == {1: (30, 12_000)}


def test_mig_instance_is_booked_as_annotated(world: World) -> None:
    state = registered("a")
    profile = Profile("3g.20gb", 19_968, 42, ((0, 4), (4, 4)))
    divided = tuple(replace(card, traits=CardTraits(mode="mig", profiles=(profile,))) for card in state.cards)
    world.state.know(state.name, replace(state, cards=divided))
    world.see(of_hami("old", "a", "GPU-a-1[3g.20gb@0],NVIDIA,19968,42:;", CardRequest(1, cores=0, memory_mib=18_000)))
    [one] = world.claim("old").slices
    assert (one.index, one.memory_mib, one.part) == (1, 19_968, "3g.20gb@0")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        pytest.param("GPU-a-1,NVIDIA,40960,100:;", {1: (30, 12_000)}, id="the whole card"),
        pytest.param("GPU-a-1,NVIDIA,1,0:;", {1: (30, 12_000)}, id="next to nothing"),
        pytest.param("GPU-a-0,NVIDIA,12000,30:GPU-a-1,NVIDIA,12000,30:;", {0: (30, 12_000)}, id="two cards for one"),
        pytest.param("GPU-b-1,NVIDIA,12000,30:;", {0: (30, 12_000)}, id="another node's card"),
        pytest.param("GPU-a-1;", {0: (30, 12_000)}, id="no record"),
        pytest.param(":;,,,;" * 500, {0: (30, 12_000)}, id="nonsense"),
    ],
)
def test_forged_annotation_books_at_most_the_requests_of_its_pod(
    world: World, text: str, holds: dict[int, tuple[int, int]]
) -> None:
    world.see(of_hami("forger", "a", text))
    assert held(world, "forger") == holds


def test_pod_without_card_requests_holds_no_annotated_card(world: World) -> None:
    world.see(of_hami("forger", "a", "GPU-a-0,NVIDIA,40960,100:;", cards=0))
    assert held(world, "forger") == {}


def test_annotation_counts_only_on_nodes_of_hamis_plugin(world: World) -> None:
    world.state.know(registered("a").name, replace(registered("a"), registered=()))
    world.see(of_hami("forger", "a", "GPU-a-1,NVIDIA,12000,30:;"))
    assert held(world, "forger") == {0: (30, 12_000)}


def test_annotated_card_of_another_pod_is_over_booked(world: World) -> None:
    """HAMi's scheduler allocated it: the books show the real use."""
    world.commits(world.plan("p", ("pod", "a", [world.card(1)])))
    world.see(of_hami("old", "a", "GPU-a-1,NVIDIA,12000,30:;"))
    assert held(world, "old") == {1: (30, 12_000)}
    world.commits(world.plan("q", ("other", "a", [world.card(0)])))


def test_lost_card_leaves_the_other_cards_of_its_pod_booked(world: World) -> None:
    state = registered("a")
    world.state.know(state.name, replace(state, cards=state.cards[1:]))
    world.see(of_hami("old", "a", "GPU-a-0,NVIDIA,40960,100:GPU-a-1,NVIDIA,40960,100:;", CardRequest(2)))
    assert held(world, "old") == {1: (100, 40_960)}
    world.state.know(state.name, state)
    lifecycle.find_cards(world.state, world.turn())
    assert held(world, "old") == {0: (100, 40_960), 1: (100, 40_960)}


BEFORE: Mapping[str, NodeState | None] = {
    "no node": None,
    "no cards": replace(registered("c"), cards=(), registered=(), allocatable={"cpu": 8000}),
    "slots": replace(node("c", 8), cards=tuple(Card(i, f"c-{i}", "A100", 40_960, shares=10, kind="NVIDIA") for i in range(20))),
}


@pytest.mark.parametrize("before", BEFORE)
def test_pod_observed_before_its_nodes_cards_gets_them_before_the_next_plan(world: World, before: str) -> None:
    known = BEFORE[before]
    if known is not None:
        world.state.know(known.name, known)
    world.see(of_hami("old", "c", "GPU-c-1,NVIDIA,40960,100:;", CardRequest(1)))
    assert list(world.state.unplaced) == ["c"]
    world.state.know(registered("c").name, registered("c"))
    step = world.turn()
    lifecycle.find_cards(world.state, step)
    assert held(world, "old") == {1: (100, 40_960)}
    assert world.claim("old").requests["nvidia.com/gpu"] == 1
    assert not world.state.unplaced
    lifecycle.find_cards(world.state, world.turn())
    world.commits(world.plan("p", ("new", "c", [world.card(0)])))


def test_ended_pod_is_not_awaited(world: World) -> None:
    fact = of_hami("old", "c", "GPU-c-1,NVIDIA,40960,100:;", CardRequest(1))
    world.see(fact)
    world.see(replace(fact, phase=type(fact.phase).GONE))
    assert not world.state.unplaced


def test_comparison_moves_bookings_of_an_older_ledger_to_the_annotated_cards(world: World) -> None:
    """The books come from a ledger that did not read these annotations."""
    fact = of_hami("old", "a", "GPU-a-1,NVIDIA,12000,30:;")
    world.see(replace(fact, allocated={}))
    assert held(world, "old") == {0: (30, 12_000)}
    comparison = Comparison(world.state.index)
    comparison.take(world.state, world.turn(), world.in_order([fact]))
    assert held(world, "old") == {1: (30, 12_000)}
    assert list(comparison.differed) == ["old"]
    same = world.claim("old").id
    Comparison(world.state.index).take(world.state, world.turn(), [fact])
    assert world.claim("old").id == same
    assert world.state.by_pod[PodUid("old")] == same


def test_annotated_pods_are_booked_before_pods_without_annotations(world: World) -> None:
    facts = [of_hami("plain", "a", "", CardRequest(1)), of_hami("named", "a", "GPU-a-0,NVIDIA,40960,100:;", CardRequest(1))]
    Comparison(world.state.index).take(world.state, world.turn(), world.in_order(facts))
    assert (held(world, "named"), held(world, "plain")) == ({0: (100, 40_960)}, {1: (100, 40_960)})
