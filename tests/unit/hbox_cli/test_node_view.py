"""Who holds which card of a node, as far as anybody knows."""

from typing import Any

import pytest

from hbox_common.model import (
    Card,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    ContainerHolds,
    DeviceIds,
    Generation,
    JobId,
    NodeDevices,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
)
from hbox_common.views.node import OLD_S, node_item

N, GPU = NodeName("n1"), "nvidia.com/gpu"


def node(*uuids: str) -> NodeState:
    cards = tuple(Card(i, uuid, "A100", 40_960, kind="NVIDIA") for i, uuid in enumerate(uuids))
    return NodeState(N, "u", Generation(1), ready=True, allocatable={GPU: len(cards)}, cards=cards)


def claim(pod: str, *indexes: int) -> Claim:
    return Claim(
        ClaimId(pod), PodUid(pod), "ns", pod, JobId(pod), PlanId("p"), QueueName("default"), 0, N, {GPU: len(indexes)},
        tuple(CardSlice(i, 100, 40_960) for i in indexes), ClaimState.POSTED,
    )  # fmt: skip


def said(pod: str, *ids: str, every: tuple[str, ...], at: float = 100.0, problem: str = "") -> NodeDevices:
    holds = (ContainerHolds("ns", pod, "main", (DeviceIds(GPU, ids),)),)
    return NodeDevices(N, at, (DeviceIds(GPU, every),), holds=holds, problem=problem)


def shown(state: NodeState, *claims: Claim, told: NodeDevices | None = None, now: float = 101.0) -> dict[str, Any]:
    return node_item(state, None, claims, told, now=now)


def test_where_nobody_knows_cards_apart_no_card_is_anybodys() -> None:
    item = shown(node("n1-0", "n1-1", "n1-2"), claim("p", 0, 2), claim("q", 1))
    assert [(card["uuid"], card["books"], card["freePercent"]) for card in item["cards"]] == [(None, [], None)] * 3
    assert item["counts"] == {"ns/p": 2, "ns/q": 1}
    assert item["identity"].startswith("the cards of each pod are unknown")


def test_books_and_kubelet_stand_side_by_side() -> None:
    item = shown(node("g0", "g1"), claim("p", 0), told=said("p", "g1", every=("g0", "g1")))
    assert [(card["books"], card["kubelet"]) for card in item["cards"]] == [(["ns/p"], []), ([], ["ns/p"])]
    assert (item["identity"], item["counts"]) == ("the kubelet chooses and reports the cards", {})


@pytest.mark.parametrize(("at", "problem"), [(100.0, "no such file"), (101.0 - OLD_S - 1, "")])
def test_a_kubelet_that_is_silent_is_said_to_be(at: float, problem: str) -> None:
    item = shown(node("g0"), told=said("p", "g0", every=("g0",), at=at, problem=problem))
    assert "no longer answers" in item["identity"]


def test_slots_of_hami_are_nobodys_cards() -> None:
    item = shown(node("GPU-a"), claim("p", 0), told=said("p", "GPU-a-3", every=("GPU-a-0", "GPU-a-3")))
    assert item["identity"].startswith("the device plugin uses")
    assert [(card["books"], card["kubelet"]) for card in item["cards"]] == [(["ns/p"], [])]
