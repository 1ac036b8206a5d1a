"""Scopes of a verdict: which plans the ledger refuses, and what counts as capacity."""

from dataclasses import replace

import pytest

from hbox_common.model import CardId, Generation, NodeName, Verdict
from hbox_common.model.devices import card_id

from .conftest import World

A, B = NodeName("a"), NodeName("b")


def judge(world: World, **scope: object) -> None:
    verdict = Verdict(A, Generation(1), healthy=True, reason="XID 74")
    world.state.know(A, verdict=replace(verdict, **scope))  # type: ignore[arg-type]


def test_a_node_without_multi_gpu_work_takes_one_card_but_not_two(world: World) -> None:
    judge(world, multi_gpu=False)
    assert world.refuses(world.plan("two", ("two", "a", [world.card(0), world.card(1)]))) == "NodeUnhealthy"
    world.commits(world.plan("one", ("one", "a", [world.card(0)])))


def test_an_unhealthy_node_takes_nothing_also_if_its_verdict_states_no_reason(world: World) -> None:
    judge(world, healthy=False, reason="")
    assert world.refuses(world.plan("one", ("one", "a", [world.card(0)]))) == "NodeUnhealthy"


def test_a_node_with_an_adapter_off_takes_neither_all_cards_nor_rdma(world: World) -> None:
    judge(world, rails_off=("mlx5_0",))
    assert "mlx5_0" in world.refusal(world.plan("box", ("box", "a", [world.card(0), world.card(1)])))
    world.state.know(A, state=replace(world.state.nodes[A], allocatable=world.state.nodes[A].allocatable | {"rdma/hca": 1}))
    rdma = world.plan("rdma", ("rdma", "a", [world.card(0)]))
    assert world.refuses(rdma.model_copy(update={"requests": (rdma.requests[0] | {"rdma/hca": 1},)})) == "NodeUnhealthy"
    world.commits(world.plan("one", ("one", "a", [world.card(0)])))


def test_a_node_without_multi_node_work_takes_a_gang_that_is_on_it_alone(world: World) -> None:
    judge(world, multi_node=False)
    apart = world.plan("p", ("p-0", "a", [world.card(0)]), ("p-1", "b", [world.card(0)]), job="apart", min_member=2)
    assert world.refuses(apart) == "NodeUnhealthy"
    world.commits(world.plan("q", ("q-0", "a", [world.card(0)]), ("q-1", "a", [world.card(1)]), job="here", min_member=2))


def test_members_that_run_elsewhere_count(world: World) -> None:
    world.commits(world.plan("p", ("p-0", "b", [world.card(0)]), ("p-1", "b", [world.card(1)]), job="gang", min_member=2))
    judge(world, multi_node=False)
    assert world.refuses(world.plan("q", ("p-2", "a", [world.card(0)]), job="gang", min_member=2)) == "NodeUnhealthy"


def test_a_gang_may_use_the_node_again_when_the_scope_ends(world: World) -> None:
    judge(world, multi_node=False)
    judge(world)
    world.commits(world.plan("p", ("p-0", "a", [world.card(0)]), ("p-1", "b", [world.card(0)]), job="gang", min_member=2))


@pytest.mark.parametrize(("cards", "units"), [((), 16), ((card_id("a-0"),), 12), ((card_id("a-0"), card_id("a-1")), 8)])
def test_cards_that_may_not_be_used_are_no_capacity(world: World, cards: tuple[CardId, ...], units: int) -> None:
    judge(world, cards=cards)
    assert world.state.total()["nvidia.com/gpu"] == units
