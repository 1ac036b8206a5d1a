"""The brake on evictions: what a cluster's size allows within five minutes, and no more; it goes on by itself."""

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import PodUid
from hbox_ledger.core.evictions.brake import WINDOW_S, Brake

from .conftest import World


def test_a_gang_may_reclaim_its_share_of_a_large_cluster_and_a_small_one_may_change_hands() -> None:
    assert Brake().refusal(2_000, live=10_000, now=0.0) is None
    small = Brake()
    assert small.refusal(100, live=100, now=0.0) is None
    assert small.refusal(100, live=100, now=1.0) is None
    refused = small.refusal(1, live=100, now=2.0)
    assert refused is not None
    assert "200 pods were evicted" in refused.message


def test_a_quarter_of_a_large_cluster_is_the_most_and_it_goes_on_as_the_window_moves() -> None:
    brake = Brake()
    for second in range(10):
        assert brake.refusal(1_000, live=40_000, now=float(second)) is None
    assert brake.refusal(1_000, live=40_000, now=10.0) is not None
    assert brake.paused
    assert brake.refusal(1_000, live=40_000, now=WINDOW_S) is None
    assert not brake.paused


def test_when_nobody_asks_any_more_nothing_is_paused() -> None:
    brake = Brake(most=5)
    assert brake.refusal(5, live=10, now=0.0) is None
    assert brake.refusal(1, live=10, now=1.0) is not None
    brake.pass_(WINDOW_S + 1)
    assert not brake.paused


def test_released_it_counts_from_nothing() -> None:
    brake = Brake(most=5)
    assert brake.refusal(5, live=10, now=0.0) is None
    assert brake.refusal(1, live=10, now=1.0) is not None
    assert brake.release() == 5
    assert not brake.paused
    assert brake.refusal(5, live=10, now=2.0) is None
    assert brake.refusal(1, live=10, now=3.0) is not None, "it is let go once, not for good"


def test_a_clock_that_is_set_back_stops_nobody_for_ever() -> None:
    brake = Brake(most=5)
    assert brake.refusal(5, live=10, now=1e9) is None
    assert brake.refusal(5, live=10, now=0.0) is None


def wants(world: World, victim: str, number: int) -> Plan:
    made = world.plan(f"want{number}", (f"new{number}", "a", [world.card(0)])).model_copy(update={"priority": 9})
    return made.model_copy(update={"victims": (Victim(claim=world.claim(victim).id, pod_uid=PodUid(victim)),)})


def test_plans_beyond_it_evict_nobody_and_are_accepted_later(world: World) -> None:
    world.state.brake.most = 1
    for number, node in enumerate("ab"):
        world.commits(world.plan(f"p{number}", (f"p{number}", node, [world.card(0)])))
        world.outcome(f"p{number}", BindOutcome.BOUND, at=node)
    world.commits(wants(world, "p0", 0))
    assert len(world.last.evictions) == 1
    other = wants(world, "p1", 1)
    other = other.model_copy(update={"placements": (world.plan("x", ("new1", "b", [world.card(0)])).placements)})
    assert world.refuses(other) == "EvictionsPaused"
    assert not world.last.evictions
    world.now += WINDOW_S
    world.commits(other.model_copy(update={"id": "again"}))
    assert len(world.last.evictions) == 1
