"""Offline work, as the ledger judges it: nodes a and b with two cards each. What a class of that name is good for, and what it does not get around."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.events import BindOutcome, EvictionRule, Plan, Victim
from hbox_common.model import (
    OFFLINE,
    OFFLINE_CLASS,
    CardQuota,
    ClassQuota,
    JobId,
    Match,
    MatchOperator,
    PodUid,
    Queue,
    QueueName,
    in_pool,
)
from hbox_common.model.annotations import parse_pool_amounts
from hbox_common.model.devices import VENDORS
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core import lifecycle

from .conftest import World

SPOT = in_pool(GPU, OFFLINE)


def rule(world: World, name: str, **rules: Any) -> None:
    world.state.rule(world.state.step(0.0), QueueName(name), Queue(QueueName(name), **rules))


def asks(
    world: World, name: str, queue: str, card: int, *victims: str, on: str = "a", offline: bool = False, **more: Any
) -> Plan:
    if offline:
        world.classes[JobId(name)] = OFFLINE_CLASS
    made = world.plan(name, (f"{name}-pod", on, [world.card(card)]), queue=queue)
    named = tuple(Victim(claim=world.claim(f"{v}-pod").id, pod_uid=PodUid(f"{v}-pod")) for v in victims)
    return made.model_copy(update={"victims": named, **more})


def runs(world: World, plan: Plan) -> None:
    world.commits(plan)
    for placement in plan.placements:
        world.outcome(placement.pod_uid, BindOutcome.BOUND, at=placement.node)


@pytest.fixture
def spot(world: World) -> World:
    """Queue a may have one card and has two as offline work, on node a; its job says that nobody may take it."""
    rule(
        world,
        "a",
        capability={GPU: 1},
        deserved={GPU: 1},
        reclaimable=False,
        non_preemptible_classes=("*",),
        annotations={"hbox.io/min-run-time": "1h"},
    )
    rule(world, "b")
    rule(world, "c", deserved={GPU: 2})
    for name, card in (("s0", 0), ("s1", 1)):
        runs(world, asks(world, name, "a", card, offline=True, preemptable=False))
    return world


def test_it_counts_apart_and_nothing_protects_it(spot: World) -> None:
    claim = spot.claim("s0-pod")
    assert (claim.pool, claim.preemptable, claim.protected_until) == (OFFLINE, True, 0.0)
    used = spot.state.queues.used(QueueName("a"))
    assert (used.get(GPU, 0), used[SPOT]) == (0, 2)
    spot.commits(asks(spot, "plain", "a", 0, on="b"))
    assert "may use 1 of nvidia.com/gpu" in spot.refusal(asks(spot, "more", "a", 1, on="b")), "the limit holds for all else"


def test_it_leaves_for_anybody_by_no_right_of_theirs_and_is_told_why(spot: World) -> None:
    spot.commits(asks(spot, "want", "b", 0, "s0", priority=-1000))
    [eviction], [receipt] = spot.last.evictions, spot.last.receipts
    assert (eviction.pod, receipt.rule) == ("s0-pod", EvictionRule.RECLAIM)
    assert "evicted for ml/want of queue b: offline jobs are evicted first" in receipt.message
    assert receipt.returns == "when the resources that it requests are idle"


def test_who_takes_more_than_offline_work_has_to_have_the_right(spot: World) -> None:
    """b's borrowed card goes for c, which deserves it, beside offline work; not for b itself."""
    runs(spot, asks(spot, "held", "c", 0, on="b"))
    both = asks(spot, "want", "b", 0, "s0", "held")
    assert "has no more than it deserves" in spot.refusal(both)


def test_it_takes_nobody(spot: World) -> None:
    runs(spot, asks(spot, "plain", "b", 0, on="b"))
    assert "an offline job, which may not evict" in spot.refusal(
        asks(spot, "t0", "c", 0, "plain", on="b", offline=True, priority=9)
    )
    assert "an offline job, which may not evict" in spot.refusal(asks(spot, "t1", "c", 0, "s0", offline=True, priority=9))


def test_who_takes_it_stays_within_the_limits_of_its_own_queue(spot: World) -> None:
    rule(spot, "b", capability={GPU: 0})
    assert "may use 0 of nvidia.com/gpu" in spot.refusal(asks(spot, "want", "b", 0, "s0"))


def test_a_queue_has_no_more_of_it_than_its_administrators_say(spot: World) -> None:
    rule(spot, "b", pool_amounts={"capability": {SPOT: 1}})
    runs(spot, asks(spot, "t0", "b", 0, on="b", offline=True))
    assert f"may use 1 of {SPOT}" in spot.refusal(asks(spot, "t1", "b", 1, on="b", offline=True))


def test_the_class_gets_around_no_list_of_a_queue_and_no_quota_of_a_namespace(spot: World) -> None:
    rule(spot, "b", priority_classes=("high",))
    assert "takes jobs of PriorityClass high" in spot.refusal(asks(spot, "t0", "b", 0, on="b", offline=True))
    rule(spot, "b", namespaces=("others",))
    assert "others" in spot.refusal(asks(spot, "t1", "b", 0, on="b", offline=True))
    rule(spot, "b")
    quota = ClassQuota("ml", "q", (Match("PriorityClass", MatchOperator.IN, (OFFLINE_CLASS,)),), {"pods": 2})
    spot.state.limit_classes([quota])
    assert "allows 2 pods of PriorityClass offline" in spot.refusal(asks(spot, "t2", "b", 0, on="b", offline=True))
    spot.state.limit_classes([])
    spot.state.limit([CardQuota("ml", "q", {VENDORS.default.cards: 2})])
    assert spot.refuses(asks(spot, "t3", "b", 0, on="b", offline=True)) == "ResourceQuotaNotFit"


def test_a_class_that_is_named_later_changes_no_claim(spot: World) -> None:
    """Neither is work protected that was let in beyond a limit, nor does it leave that was not offline when it started."""
    runs(spot, asks(spot, "plain", "a", 0, on="b"))
    spot.classes.clear()
    spot.classes[JobId("plain")] = OFFLINE_CLASS
    spot.commits(asks(spot, "want", "b", 0, "s0"))
    assert "may not be taken from" in spot.refusal(asks(spot, "other", "c", 0, "plain", on="b"))


def test_pods_that_are_found_count_as_what_they_are(world: World) -> None:
    rule(world, "default", capability={GPU: 1})
    step = world.turn()
    found = replace(world.fact("one", "a", slices=[world.card(0)]), priority_class=OFFLINE_CLASS)
    lifecycle.observed(world.state, step, found)
    lifecycle.observed(world.state, step, replace(found, uid=PodUid("two"), name="two", slices=(world.card(1),), ours=False))
    assert [world.claim(pod).pool for pod in ("one", "two")] == [OFFLINE, ""]


@pytest.mark.parametrize("share", ["deserved", "guarantee"])
def test_nobody_is_promised_offline_work(share: str) -> None:
    assert parse_pool_amounts('{"~offline": {"capability": {"nvidia.com/gpu": 0}}}')
    with pytest.raises(InvalidRequest, match=f"has {share} for ~offline: offline jobs have no deserved or guaranteed share"):
        parse_pool_amounts(f'{{"~offline": {{"{share}": {{"nvidia.com/gpu": 1}}}}}}')
