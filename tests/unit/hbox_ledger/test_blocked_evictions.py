"""What may not be evicted (429 of a disruption budget): a victim stays and its plan comes to nothing, a gang that is unwound is stuck in part until it is
completed. Two nodes with two cards each."""

from hbox_common.events import BindOutcome, EvictKind, Plan
from hbox_common.model import ClaimState, JobId, PodPhase
from hbox_ledger.core.claimrecord import Decision

from .conftest import World
from .test_leaving_in_vain import asks, decision, full, gone

TRAIN = JobId("train")


def test_a_victim_that_may_not_be_evicted_stays_and_its_plans_scheduler_is_told(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    step = world.blocked("p0")
    [kept] = step.evictions
    assert (kept.pod, kept.kind, kept.reason) == ("p0", EvictKind.REVOKE, "it may not be evicted now")
    assert step.stayed == ["p0"]
    assert not world.blocked("p0", generation=2).stayed, "late news"
    world.outcome("p0", BindOutcome.BOUND, at="a")
    assert (decision(world, "p0"), world.claim("p0").id in world.state.evicting) == (Decision.NONE, False)


def test_another_takes_its_place_at_once(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    world.blocked("p0")
    world.commits(asks(world, "other", "new", 1))
    assert [(e.pod, e.kind) for e in world.last.evictions] == [("p1", EvictKind.EVICT)]


def test_nobody_else_leaves_for_a_plan_that_comes_to_nothing(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0, 1))
    world.blocked("p0")
    assert {(e.pod, e.kind) for e in world.wait(1).evictions} == {("p1", EvictKind.REVOKE)}


def test_who_leaves_for_another_plan_too_goes_on_leaving(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0, 1))
    world.commits(asks(world, "also", "other", 1))
    world.blocked("p0")
    assert not world.wait(1).evictions


def test_an_eviction_of_before_a_restart_that_is_blocked_is_taken_back(world: World) -> None:
    """For whom it was is not kept."""
    full(world)
    world.commits(asks(world, "want", "new", 0))
    world.state.beneficiaries = type(world.state.beneficiaries)()
    assert [e.kind for e in world.blocked("p0").evictions] == [EvictKind.REVOKE]


# --- gangs


def rest(world: World, id: str, *pods: str, min_member: int = 3) -> Plan:
    placed = [(pod, "b", [world.card(number)]) for number, pod in enumerate(pods)]
    return world.plan(id, *placed, job=TRAIN, min_member=min_member)


def stuck(world: World) -> None:
    """Two of three are bound, the third has failed, and the two may not be evicted."""
    bound = [("w0", "a", [world.card(0)]), ("w1", "a", [world.card(1)]), ("w2", "b", [world.card(0)])]
    world.commits(world.plan("start", *bound, job=TRAIN, min_member=3))
    for pod in ("w0", "w1"):
        world.outcome(pod, BindOutcome.BOUND, at="a")
    world.outcome("w2", BindOutcome.GONE)
    world.wait(61)
    assert world.refuses(rest(world, "early", "w3")) == "GangIncomplete"
    for pod in ("w0", "w1"):
        assert not world.blocked(pod).evictions, "it is asked for again"


def test_a_gang_that_cannot_be_unwound_is_completed_when_the_rest_of_it_gets_places(world: World) -> None:
    stuck(world)
    world.commits(rest(world, "complete", "w3"))
    assert {(e.pod, e.kind, e.reason) for e in world.last.evictions} == {
        ("w0", EvictKind.REVOKE, "its gang is completed"),
        ("w1", EvictKind.REVOKE, "its gang is completed"),
    }
    assert not world.state.gangs[TRAIN].unwinding
    for pod in ("w0", "w1"):
        world.outcome(pod, BindOutcome.BOUND, at="a")
    world.outcome("w3", BindOutcome.BOUND, at="b")
    assert TRAIN not in world.state.gangs
    assert not world.wait(300).evictions


def test_it_is_unwound_again_where_the_rest_is_not_bound_in_time(world: World) -> None:
    stuck(world)
    world.commits(rest(world, "complete", "w3"))
    for pod in ("w0", "w1"):
        world.outcome(pod, BindOutcome.BOUND, at="a")
    assert {(e.pod, e.kind) for e in world.wait(61).evictions} == {
        ("w0", EvictKind.EVICT),
        ("w1", EvictKind.EVICT),
        ("w3", EvictKind.REVOKE),
    }


def test_it_is_not_completed_by_fewer_than_it_needs(world: World) -> None:
    stuck(world)
    world.outcome("w1", BindOutcome.EVICTED)
    assert world.refuses(rest(world, "too few", "w3")) == "GangIncomplete"
    assert decision(world, "w0") is Decision.EVICT
    world.commits(rest(world, "enough", "w3", "w4"))


def test_it_is_completed_while_one_of_it_leaves(world: World) -> None:
    """Who was let go does not count; the others are not kept waiting for its end."""
    stuck(world)
    world.outcome("w1", BindOutcome.EVICTED)
    world.commits(rest(world, "complete", "w3", "w4"))
    for pod, where in (("w0", "a"), ("w3", "b"), ("w4", "b")):
        world.outcome(pod, BindOutcome.BOUND, at=where)
    world.see(world.fact("w1", "", PodPhase.GONE))
    assert (TRAIN in world.state.gangs, decision(world, "w0")) == (False, Decision.NONE)


def test_a_gang_of_which_one_may_still_be_evicted_is_not_completed(world: World) -> None:
    bound = [("w0", "a", [world.card(0)]), ("w1", "a", [world.card(1)]), ("w2", "b", [world.card(0)])]
    world.commits(world.plan("start", *bound, job=TRAIN, min_member=3))
    for pod in ("w0", "w1"):
        world.outcome(pod, BindOutcome.BOUND, at="a")
    world.outcome("w2", BindOutcome.GONE)
    world.wait(61)
    world.blocked("w0")
    assert world.refuses(rest(world, "early", "w3")) == "GangIncomplete"


def test_a_gang_whose_last_binding_came_late_has_started_where_it_may_not_be_unwound(world: World) -> None:
    bound = [("w0", "a", [world.card(0)]), ("w1", "a", [world.card(1)]), ("w2", "b", [world.card(0)])]
    world.commits(world.plan("start", *bound, job=TRAIN, min_member=3))
    for pod in ("w0", "w1"):
        world.outcome(pod, BindOutcome.BOUND, at="a")
    world.wait(61)
    world.outcome("w2", BindOutcome.BOUND, at="b")
    for pod in ("w0", "w1", "w2"):
        step = world.blocked(pod)
    assert {e.kind for e in step.evictions} == {EvictKind.REVOKE}
    assert TRAIN not in world.state.gangs
    assert world.claim_state("w2") is ClaimState.POSTED


def test_what_was_let_go_after_all_while_the_gang_was_completed_makes_it_incomplete_again(world: World) -> None:
    stuck(world)
    world.commits(rest(world, "complete", "w3"))
    world.outcome("w0", BindOutcome.EVICTED, generation=2)
    gone(world, "w0")
    world.outcome("w1", BindOutcome.BOUND, at="a")
    world.outcome("w3", BindOutcome.BOUND, at="b")
    assert {(e.pod, e.kind) for e in world.wait(61).evictions} == {("w1", EvictKind.EVICT), ("w3", EvictKind.EVICT)}
