"""Limits on cards in the ledger's core, where units of node `a` are quarters of cards. Node `w` has whole cards."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import Card, Generation, NodeName, NodeState, PodUid, Queue, QueueName, Resources
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.queue_status import QueueStatus, change

from .conftest import World

QUARTER = f"{GPU}:1/4"


def node(name: str, replicas: str = "") -> NodeState:
    cards = tuple(Card(i, f"{name}-{i}", "T4", 16_384, shares=1) for i in range(16))
    labels = {f"{GPU}.replicas": replicas} if replicas else {}
    allocatable = {"cpu": 64_000, "pods": 100, GPU: 16}
    return NodeState(NodeName(name), name, Generation(1), ready=True, labels=labels, allocatable=allocatable, cards=cards)


@pytest.fixture
def world() -> World:
    made = World()
    for state in (node("a", "4"), node("w")):
        made.state.know(state.name, state)
    return made


def rule(world: World, name: str, **amounts: Resources) -> None:
    rules: Any = amounts
    world.state.rule(world.turn(), QueueName(name), Queue(QueueName(name), **rules))
    world.state.validate()


def wants(world: World, pod: str, where: str, card: int, **more: Any) -> Plan:
    made = world.plan(f"plan-{pod}", (pod, where, [world.card(card, memory=16_384)]), queue="lab")
    return made.model_copy(update=more)


def runs(world: World, where: str, *cards: int) -> None:
    for card in cards:
        world.commits(wants(world, f"{where}{card}", where, card))
        world.outcome(f"{where}{card}", BindOutcome.BOUND, at=where)


def test_limit_of_two_cards_is_eight_quarters(world: World) -> None:
    rule(world, "lab", capability={GPU: 2})
    runs(world, "a", *range(7))
    assert world.refuses(wants(world, "whole", "w", 0)).startswith("QueueCapabilityExceeded")
    runs(world, "a", 7)
    assert world.refusal(wants(world, "ninth", "a", 8)) == (
        "queue lab may use 2 of nvidia.com/gpu, 2 are in use and 0.25 more are asked for"
    )
    assert world.state.used[QueueName("lab")][QUARTER] == 8


def test_claims_keep_their_part_when_labels_change(world: World) -> None:
    rule(world, "lab", capability={GPU: 2})
    runs(world, "a", *range(4))
    for replicas in ("", "2", "0", "1000000000", "four"):
        world.state.know(NodeName("a"), node("a", replicas))
        world.state.validate()
        assert world.state.used[QueueName("lab")][QUARTER] == 4
    runs(world, "a", 4)
    # One card in quarters, and one unit of a node without a number of replicas.
    assert world.refusal(wants(world, "more", "a", 5)) != ""
    world.outcome("a0", BindOutcome.GONE, at="a")


def test_shares_count_whether_or_not_queues_name_models(world: World) -> None:
    rule(world, "lab", capability={GPU: 2})
    runs(world, "a", *range(4))
    rule(world, "models", capability={f"{GPU}.H100": 1})
    assert world.state.used[QueueName("lab")][QUARTER] == 4
    runs(world, "a", 4)
    rule(world, "models", capability={})
    assert world.state.used[QueueName("lab")][QUARTER] == 5
    runs(world, "a", 5, 6, 7)
    assert world.refusal(wants(world, "ninth", "a", 8)) != ""


def test_queue_status_shows_units_and_no_shares(world: World) -> None:
    rule(world, "lab", capability={GPU: 2})
    runs(world, "a", 0)
    patch = change(QueueStatus(), dict(world.state.used[QueueName("lab")]), None)
    assert patch["allocated"][GPU] == "1"
    assert not any(name.startswith(f"{GPU}:") for name in patch["allocated"])


def test_pod_moves_only_to_units_of_the_same_part(world: World) -> None:
    rule(world, "lab", capability={GPU: 2})
    runs(world, "a", 0)
    claim = world.claim("a0")
    victim = Victim(claim=claim.id, pod_uid=PodUid("a0"), to=NodeName("w"), slices=(replace(claim.slices[0], index=1),))
    moved = wants(world, "comer", "a", 0, victims=(victim,))
    assert "of another model or size" in world.refusal(moved)
