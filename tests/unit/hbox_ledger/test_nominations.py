"""How long a nominated place is kept: until its pod has a claim or is gone, its scheduler gives it up, its job is withdrawn, or its time is over."""

from collections.abc import Callable

import pytest

from hbox_common.events import BindOutcome, GivenUp, Victim
from hbox_common.model import PlanId, PodPhase, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.arbitrate import give_up
from hbox_ledger.core.evictions.nominations import KEPT_S

from .conftest import World


def nominated(world: World) -> World:
    """Queue b holds all four cards; p0 has left card 0 of node a for `new` of queue a."""
    for name in ("a", "b"):
        world.state.queues[QueueName(name)] = Queue(QueueName(name), deserved={GPU: 2})
    for number, (where, card) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
        world.commits(world.plan(f"b{number}", (f"p{number}", where, [world.card(card)]), queue="b"))
        world.outcome(f"p{number}", BindOutcome.BOUND, at=where)
    victim = Victim(claim=world.claim("p0").id, pod_uid=PodUid("p0"))
    asked = world.plan("want", ("new", "a", [world.card(0)]), queue="a")
    world.commits(asked.model_copy(update={"victims": (victim,), "priority": 9}))
    leaves(world, "p0")
    return world


def leaves(world: World, pod: str) -> None:
    world.see(world.fact(pod, "", PodPhase.GONE))


def placed_elsewhere(world: World) -> None:
    leaves(world, "p3")
    world.commits(world.plan("elsewhere", ("new", "b", [world.card(1)]), queue="a"))


def withdrawn(world: World) -> None:
    world.state.records.withdraw([world.plan("want", ("new", "a", [])).job], [1 << 60])
    world.wait(1)


def test_it_is_kept_after_the_victims_have_left(world: World) -> None:
    nominated(world)
    assert [place.node for place in world.state.evicting.places()] == ["a"]
    world.wait(KEPT_S - 10)
    assert len(world.state.evicting.places()) == 1


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda world: leaves(world, "new"), id="its pod is gone"),
        pytest.param(placed_elsewhere, id="its pod has a claim elsewhere"),
        pytest.param(lambda world: give_up(world.state, GivenUp(plan=PlanId("want"))), id="its scheduler gives it up"),
        pytest.param(withdrawn, id="its job is withdrawn"),
        pytest.param(lambda world: world.wait(KEPT_S + 1), id="its time is over"),
    ],
)
def test_it_ends(world: World, end: Callable[[World], object]) -> None:
    nominated(world)
    end(world)
    assert not world.state.evicting.places()
    assert not len(world.state.nominations)
    world.state.validate()
