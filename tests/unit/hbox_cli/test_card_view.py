"""What people see of cards: how much is given away of each, and to whom."""

from dataclasses import replace

import pytest

from hbox_common.model import (
    Card,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Generation,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
    Verdict,
)
from hbox_common.model.devices import CardAllocation, CardTraits
from hbox_common.views.cards import card_items, free_percent, kind_items, link_items, link_lines, owner_text
from hbox_common.views.node import node_item
from hbox_common.views.nodes import node_items

GPU, DCU = "nvidia.com/gpu", "hygon.com/dcunum"


def node(name: str, *cards: Card, registered: tuple[str, ...] = ("NVIDIA", "DCU")) -> NodeState:
    return NodeState(
        NodeName(name), "u", Generation(1), True, allocatable={GPU: 80}, cards=cards, registered=registered, labels={}
    )


def vgpu(index: int, **more: object) -> Card:
    return Card(index, f"GPU-{index}", "A100", 40_960, 10, kind="NVIDIA", **more)  # type: ignore[arg-type]


def claim(pod: str, where: str, *slices: CardSlice, queue: str = "lab") -> Claim:
    return Claim(
        ClaimId(pod), PodUid(pod), "ml", pod, JobId(pod), PlanId("p"), QueueName(queue), 0, NodeName(where), {GPU: len(slices)},
        slices, ClaimState.POSTED,
    )  # fmt: skip


def test_a_slice_without_cores_takes_from_what_is_free() -> None:
    """HAMi's default: memory alone is asked for. Such a card is neither free nor idle."""
    state, held = node("n", vgpu(0), vgpu(1)), claim("p", "n", CardSlice(0, 0, 30_720))
    (shown,) = node_items([state], {}, [held])
    assert shown["cards"] == {"free": 1, "total": 2, "freePercent": [25, 100]}
    assert [card["freePercent"] for card in node_item(state, None, [held], None, now=0.0)["cards"]] == [25, 100]


@pytest.mark.parametrize(
    ("held", "free"),
    [
        (None, 100),
        (CardAllocation(), 100),
        (CardAllocation(100, 40_960, 1), 0),
        (CardAllocation(30, 4_096, 1), 70),
        (CardAllocation(0, 4_096, 10), 0),
        (CardAllocation(130, 50_000, 3), 0),
    ],
)
def test_what_is_left_of_a_card(held: CardAllocation | None, free: int) -> None:
    assert free_percent(vgpu(0), held) == free


def test_each_card_shows_what_is_given_away_of_it_and_to_whom() -> None:
    state = node("n", vgpu(0), vgpu(1), Card(16, "DCU-0", "Z100", 32_768, 4, kind="DCU", healthy=False))
    claims = [
        claim("p", "n", CardSlice(0, 30, 4_000, slots=2), CardSlice(16, 10, 2_000)),
        claim("q", "n", CardSlice(0, 0, 1_000)),
    ]
    items = card_items([state], {"n": Verdict(NodeName("n"), Generation(1), True, (1,), "XID 79")}, claims)
    assert [(item["name"], item["kind"], item["health"], item["reason"]) for item in items] == [
        ("n/0", "NVIDIA", "ok", ""),
        ("n/1", "NVIDIA", "bad", "XID 79"),
        ("n/16", "DCU", "bad", ""),
    ]
    first = items[0]
    assert (first["slots"], first["memoryMib"], first["cores"]) == (
        {"used": 3, "total": 10}, {"used": 5_000, "total": 40_960}, {"used": 30, "total": 100},
    )  # fmt: skip
    assert [owner_text(owner) for owner in first["owners"]] == ["ml/p 30% 4000Mi", "ml/q 1000Mi"]


def test_cards_that_nobody_knows_apart_are_one_line() -> None:
    cards = tuple(Card(i, f"n-{i}", "T4", 16_000) for i in range(4))
    state = node("n", *cards, registered=())
    held = [claim("p", "n", *(CardSlice(i, 100, 16_000) for i in (1, 3)))]
    (item,) = card_items([state], {}, held)
    assert (item["name"], item["known"], item["uuid"], item["idle"]) == ("n/0-3", False, None, 2)
    assert [owner_text(owner) for owner in item["owners"]] == ["ml/p x2"]
    sick = {"n": Verdict(NodeName("n"), Generation(1), True, (0,), "ECC")}
    assert [(one["name"], one["health"]) for one in card_items([state], sick, held)] == [("n/0", "bad"), ("n/1-3", "ok")]


def test_kinds_are_summed_over_nodes_and_what_is_out_of_use_is_not_idle() -> None:
    nodes = [node("a", vgpu(0), vgpu(1)), node("b", vgpu(0), vgpu(1, traits=CardTraits(cordoned=True)))]
    (kind,) = kind_items(
        card_items(nodes, {}, [claim("p", "a", CardSlice(0, 50, 20_480)), claim("q", "b", CardSlice(0, 100, 40_960), queue="")])
    )
    assert (kind["name"], kind["nodes"], kind["cards"]) == ("NVIDIA/A100", 2, {"total": 4, "idle": 1, "out": 1})
    assert (kind["cores"], kind["queues"]) == ({"used": 150, "total": 400}, {"-": 1, "lab": 1})


def test_links_are_drawn_as_a_matrix() -> None:
    linked = [vgpu(i, traits=CardTraits(links=row)) for i, row in enumerate([(0, 1200, 10), (1200, 0, 10), (10, 10, 0)])]
    (links,) = link_items(node("n", *linked))
    assert link_lines(links) == ["      0     1   2", "0     -  1200  10", "1  1200     -  10", "2    10    10   -"]
    assert link_items(node("n", vgpu(0), vgpu(1))) == []


def test_of_a_node_that_is_gone_nothing_is_shown() -> None:
    assert card_items([NodeState(NodeName("n"), "u", Generation(1), True, cards=(vgpu(0),), gone=True)], {}, []) == []


def test_a_time_sliced_node_shows_its_cards_and_parts_of_them_in_use() -> None:
    cards = tuple(Card(i, f"n-{i}", "A100-SHARED", 40_960) for i in range(8))
    labels = {f"{GPU}.count": "2", f"{GPU}.replicas": "4", f"{GPU}.sharing-strategy": "time-slicing"}
    state = replace(node("n", *cards, registered=()), allocatable={GPU: 8}, labels=labels)
    held = [claim(f"p{i}", "n", CardSlice(i, 100, 40_960)) for i in range(3)]
    (shown,) = node_items([state], {}, held)
    assert shown["cards"] == {"free": 1.25, "total": 2, "freePercent": []}
    assert node_item(state, None, held, None, now=0.0)["parts"] == {
        "used": 0.75, "total": 2, "pods": {"ml/p0": 0.25, "ml/p1": 0.25, "ml/p2": 0.25}
    }  # fmt: skip
    whole = replace(state, labels=labels | {f"{GPU}.replicas": "0"})
    assert node_items([whole], {}, held)[0]["cards"]["total"] == 8
    fewer = replace(state, allocatable={GPU: 4}, labels=labels | {f"{GPU}.count": "1"})
    assert node_items([fewer], {}, held + [claim(f"q{i}", "n", CardSlice(i, 100, 40_960)) for i in range(3)])[0]["cards"] == {
        "free": 0.0, "total": 1, "freePercent": []
    }  # fmt: skip


def test_kinds_count_replicas_as_parts_of_cards() -> None:
    cards = tuple(Card(i, f"n-{i}", "T4-SHARED", 16_384, kind="NVIDIA") for i in range(8))
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "2"}
    state = replace(node("n", *cards, registered=()), allocatable={GPU: 8}, labels=labels)
    devices = card_items([state], {}, [claim("p", "n", CardSlice(0, 100, 16_384))])
    assert {(one["part"], one["mode"]) for one in devices} == {(0.25, "1/4 of a card")}
    (kind,) = kind_items(devices)
    assert (kind["cards"], kind["queues"]) == ({"total": 2, "idle": 1.75, "out": 0}, {"lab": 0.25})
