"""For how long nobody takes from a pod that got its place, as the ledger judges it: two nodes with two cards each, all four held by queue b."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import Claim, PodPhase, PodUid, Queue, QueueName
from hbox_common.model.annotations import COOL_DOWN, QUEUE_MIN_RUN_TIME
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.minruntime import check_run_time
from hbox_ledger.core import lifecycle

from .conftest import World
from .test_preemption_rights import asks, full


def rule(world: World, name: str, deserved: int, parent: str = "", **annotations: str) -> None:
    world.state.queues[QueueName(name)] = Queue(
        QueueName(name), deserved={GPU: deserved}, parent=parent, annotations=annotations
    )


def claim(world: World, pod: str) -> Claim:
    return world.state.live[world.state.by_pod[PodUid(pod)]].claim


def bound(world: World, plan: Plan) -> None:
    world.commits(plan)
    for placement in plan.placements:
        world.outcome(placement.pod_uid, BindOutcome.BOUND, at=placement.node)


def gone(world: World, pod: str) -> None:
    """The pod was evicted, and is no more."""
    world.outcome(pod, BindOutcome.EVICTED)
    step = world.turn()
    lifecycle.observed(world.state, step, world.fact(pod, "a", PodPhase.GONE))


def taken(world: World, victim: int, *, plan: str = "want", queue: str = "a") -> None:
    """An eviction of p<victim> for the owner, until the pod is gone."""
    world.commits(asks(world, victim, queue=queue).model_copy(update={"id": plan}))
    gone(world, f"p{victim}")


def test_without_a_word_of_the_administrators_an_owner_waits_for_nothing(world: World) -> None:
    full(world)
    assert claim(world, "p0").protected_until == 0
    world.commits(asks(world, 0))


def test_a_queue_says_for_how_long_nobody_takes_from_it(world: World) -> None:
    full(world, annotations={QUEUE_MIN_RUN_TIME: "10m"})
    assert claim(world, "p0").protected_until == world.now + 600
    world.now += 599
    assert "for another 1 s" in world.refusal(asks(world, 0))
    world.now += 1
    world.commits(asks(world, 0))


def test_inside_a_queue_it_holds_too(world: World) -> None:
    full(world, annotations={QUEUE_MIN_RUN_TIME: "10m"})
    assert "for another 600 s" in world.refusal(asks(world, 0, queue="b", priority=9))


def test_the_nearest_queue_of_the_path_that_says_something_counts(world: World) -> None:
    rule(world, "top", 4, **{QUEUE_MIN_RUN_TIME: "10m"})
    rule(world, "b", 2, "top")
    rule(world, "c", 2, "top", **{QUEUE_MIN_RUN_TIME: "0s"})
    assert world.state.queues.run_time(QueueName("b")).min_run_s == 600
    assert world.state.queues.run_time(QueueName("c")).min_run_s == 0


def test_a_gang_that_was_evicted_cools_down_where_it_starts_again_and_others_do_not(world: World) -> None:
    rule(world, "a", 2)
    rule(world, "b", 0)
    bound(world, world.plan("first", ("p0", "a", [world.card(0)]), job="gang", queue="b"))
    taken(world, 0)
    bound(world, world.plan("again", ("p1", "a", [world.card(0)]), job="gang", queue="b"))
    bound(world, world.plan("other", ("p2", "a", [world.card(1)]), job="other", queue="b"))
    assert claim(world, "p1").protected_until == world.now + 60
    assert claim(world, "p2").protected_until == 0
    world.now += 59
    assert "for another 1 s" in world.refusal(asks(world, 1))
    world.now += 1
    world.commits(asks(world, 1).model_copy(update={"id": "later"}))


def test_a_pod_that_its_controller_makes_anew_cools_down_by_the_name_that_all_of_them_have(world: World) -> None:
    rule(world, "a", 2)
    rule(world, "b", 0)
    for name, card in (("web-6c9f-x2x1z", 0), ("db-0", 1)):
        bound(world, world.plan(name, (name, "a", [world.card(card)]), job=name, queue="b"))
    victim = Victim(claim=world.claim("web-6c9f-x2x1z").id, pod_uid=PodUid("web-6c9f-x2x1z"))
    world.commits(asks(world).model_copy(update={"victims": (victim,)}))
    gone(world, "web-6c9f-x2x1z")
    for name, card in (("web-6c9f-7qqqq", 0), ("web-1111-7qqqq", 1)):
        bound(world, world.plan(name, (name, "b", [world.card(card)]), job=name, queue="b"))
    assert claim(world, "web-6c9f-7qqqq").protected_until == world.now + 60
    assert claim(world, "web-1111-7qqqq").protected_until == 0


def test_an_eviction_of_an_hour_ago_makes_no_cool_down(world: World) -> None:
    rule(world, "a", 2)
    rule(world, "b", 0)
    bound(world, world.plan("first", ("p0", "a", [world.card(0)]), job="gang", queue="b"))
    taken(world, 0)
    world.now += 3601
    bound(world, world.plan("again", ("p1", "a", [world.card(0)]), job="gang", queue="b"))
    assert claim(world, "p1").protected_until == 0


def test_who_left_by_itself_does_not_cool_down(world: World) -> None:
    rule(world, "b", 0)
    bound(world, world.plan("first", ("p0", "a", [world.card(0)]), job="gang", queue="b"))
    step = world.turn()
    lifecycle.observed(world.state, step, world.fact("p0", "a", PodPhase.GONE))
    bound(world, world.plan("again", ("p1", "a", [world.card(0)]), job="gang", queue="b"))
    assert claim(world, "p1").protected_until == 0


def test_a_queue_without_a_cool_down_has_none(world: World) -> None:
    rule(world, "a", 2)
    rule(world, "b", 0, **{COOL_DOWN: "0s"})
    bound(world, world.plan("first", ("p0", "a", [world.card(0)]), job="gang", queue="b"))
    taken(world, 0)
    bound(world, world.plan("again", ("p1", "a", [world.card(0)]), job="gang", queue="b"))
    assert claim(world, "p1").protected_until == 0


def test_a_clock_that_was_set_back_protects_nobody_for_years(world: World) -> None:
    full(world, annotations={QUEUE_MIN_RUN_TIME: "10m"})
    world.now -= 90_000
    world.commits(asks(world, 0))


@pytest.mark.parametrize("wrong", ["", "ten", "-5m", "25h", "1e9s", "9" * 70 + "s"])
def test_a_wrong_time_is_named_with_what_to_write(wrong: str) -> None:
    for name in (QUEUE_MIN_RUN_TIME, COOL_DOWN):
        with pytest.raises(InvalidRequest, match=name):
            check_run_time({name: wrong})
    check_run_time({QUEUE_MIN_RUN_TIME: "24h", COOL_DOWN: "0s"})
