"""Pods move so that others get room in one piece, in the running scheduler as in `hbox simulate cycle`. Drawing: n0 [2/4] of `old`, n1 [3/4] of `mid` (1) and
`new` (2); `wide` wants 3."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from hbox_common.events import Plan, PlanAnswer
from hbox_common.model import ClaimId, ClaimState, Epoch, Index, Job, JobId, PodGroupTask, PodRef, PodUid, RefusalReason
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .small_world import SmallWorld, evicted

MOVING = """
actions: "allocate, consolidate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: binpack, arguments: {binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 10}}]
"""


def halves(*, gang: bool = False, more: str = "") -> Simulation:
    """`gang`: `new` is a gang of one pod."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=parse_conf(MOVING + more, plugins=list(PLUGINS)))
    simulation.put_nodes(node(f"n{i}", cards=4) for i in range(2))
    new = replace(job("new", cards=2, created_at=4.0), gang=gang)
    for one in (
        job("old", cards=2, created_at=1.0),
        job("filler", cards=2, created_at=2.0),
        job("mid", cards=1, created_at=3.0),
        new,
    ):
        simulation.submit([one])
        simulation.run()
    simulation.finish([PodUid("filler-0")])
    assert where(simulation) == {"old-0": "n0", "mid-0": "n1", "new-0": "n1"}
    return simulation


def where(simulation: Simulation) -> Mapping[str, str]:
    return {str(uid): str(claim.node) for uid, claim in simulation.claims.items()}


def wide(simulation: Simulation) -> list[Plan]:
    simulation.submit([job("wide", cards=3, created_at=10.0)])
    return simulation.run()


def leaves(simulation: Simulation, *pods: str) -> None:
    simulation.evicted.clear()
    simulation.gone([PodUid(pod) for pod in pods])


def test_the_same_pod_moves_to_the_same_place_as_in_a_simulated_cycle() -> None:
    (plan,) = wide(halves())
    world = SmallWorld(2, cards=4)
    world.gang("old", cards=2, on=[0], age_s=99)
    world.gang("mid", cards=1, on=[1], age_s=50)
    world.gang("new", cards=2, on=[1], age_s=10)
    world.gang("wide", cards=3)
    report = world.decide(MOVING)
    assert [str(victim.pod_uid) for victim in plan.victims] == evicted(report) == ["new-0"]
    promised = {name.removeprefix("d/"): place for name, place in report.nominations.items()}
    assert promised == {str(plan.victims[0].pod_uid): plan.victims[0].to, "wide-0": plan.placements[0].node}
    assert len(plan.victims[0].slices) == 2


def test_both_get_what_they_were_promised_whoever_else_comes() -> None:
    simulation = halves()
    wide(simulation)
    simulation.submit([job("thief", cards=1, created_at=0.0, priority=5)])
    simulation.run()
    assert "thief-0" not in where(simulation), "two cards of n0 and one of n1 are idle, and kept"
    leaves(simulation, "new-0")
    simulation.submit([job("newer", cards=2, created_at=20.0)])
    simulation.run()
    assert where(simulation) == {"old-0": "n0", "mid-0": "n1", "wide-0": "n1", "newer-0": "n0"}


def test_the_place_is_for_one_that_asks_for_the_same() -> None:
    simulation = halves()
    wide(simulation)
    leaves(simulation, "new-0")
    simulation.submit([job("other", cards=1, created_at=0.0), job("thinner", cards=2, cpu_milli=500, created_at=0.0)])
    simulation.run()
    assert where(simulation) == {"old-0": "n0", "mid-0": "n1", "wide-0": "n1"}


def test_the_place_is_for_one_of_the_same_namespace() -> None:
    simulation = halves()
    wide(simulation)
    leaves(simulation, "new-0")
    simulation.submit([replace(job("stranger", cards=2, created_at=0.0), namespace="another")])
    simulation.run()
    assert where(simulation) == {"old-0": "n0", "mid-0": "n1", "wide-0": "n1"}


def test_who_has_no_successor_within_a_minute_loses_the_place() -> None:
    simulation = halves()
    wide(simulation)
    leaves(simulation, "new-0")
    simulation.run()
    simulation.submit([job("other", cards=1, created_at=0.0)])
    simulation.now += 59.0
    simulation.run()
    assert "other-0" not in where(simulation)
    simulation.now += 2.0
    simulation.run()
    simulation.now += 2.0
    simulation.run()
    assert where(simulation)["other-0"] == "n0"


def test_whose_successor_came_early_and_found_another_place_leaves_the_kept_one_to_others() -> None:
    """As most controllers make them: while the pod that moves still ends. Who is of another namespace succeeds nobody."""
    simulation = halves()
    wide(simulation)
    simulation.put_nodes([node("n2", cards=4)])
    for name in ("a", "b", "waits"):
        simulation.submit([replace(job(name, cards=2, created_at=10.0), namespace="another")])
        simulation.run()
    assert {name: place for name, place in where(simulation).items() if place != "n1"} == {
        "old-0": "n0",
        "a-0": "n2",
        "b-0": "n2",
    }
    simulation.submit([job("again", cards=2, created_at=11.0, priority=5)])
    simulation.finish([PodUid("a-0")])
    simulation.run()
    assert where(simulation)["again-0"] == "n2"
    simulation.run()
    assert where(simulation)["waits-0"] == "n0"


def test_a_pod_of_a_gang_is_succeeded_by_its_own_gang_alone() -> None:
    simulation = halves(gang=True)
    wide(simulation)
    leaves(simulation, "new-0")
    simulation.submit([job("alike", cards=2, created_at=0.0)])
    simulation.run()
    assert "alike-0" not in where(simulation)
    own = replace(job("new", cards=2, created_at=4.0, revision=2), gang=True)
    pods = (PodRef(PodUid("again"), "again", "1"),)
    simulation.submit([replace(own, tasks=(replace(own.tasks[0], pods=pods),))])
    simulation.run()
    assert where(simulation)["again"] == "n0"


def test_where_the_ledger_does_not_let_it_go_nothing_is_kept() -> None:
    simulation = halves()
    simulation.submit([job("wide", cards=3, created_at=10.0)])
    before = simulation.scheduler.reports.placed_on()
    (plan,) = simulation.scheduler.cycle(simulation.now, simulation.now).plans
    answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.VICTIM_PROTECTED)
    simulation.scheduler.on_answers(epoch=Epoch(1), index=Index(4), answers=[answer], now=simulation.now)
    assert simulation.scheduler.reports.placed_on() == before
    simulation.submit([job("thief", cards=2, created_at=0.0)])
    simulation.run()
    assert where(simulation)["thief-0"] == "n0"


@pytest.mark.parametrize("more", ["configurations: [{name: consolidate, arguments: {maxMovedPods: 0}}]"])
def test_no_more_move_than_the_policy_allows(more: str) -> None:
    assert wide(halves(more=more)) == []


def test_of_whom_only_the_claim_is_known_nobody_moves() -> None:
    """A scheduler that has just started does not know where else a running pod might be."""
    simulation = halves()
    fresh = Simulation(policy_of(PolicyName.BINPACK), conf=parse_conf(MOVING, plugins=list(PLUGINS)))
    fresh.put_nodes(node(f"n{i}", cards=4) for i in range(2))
    fresh.scheduler.on_claims_snapshot(epoch=Epoch(1), index=Index(1), frozen=False, claims=simulation.claims.values(), now=0.0)
    fresh.scheduler.on_jobs([job("wide", cards=3, created_at=10.0)])
    assert fresh.scheduler.cycle(5.0, 5.0).plans == []


@pytest.mark.parametrize("seed", range(40))
def test_every_promise_is_kept_on_random_clusters(seed: int) -> None:
    """Some of many pods end, two larger ones come. Whoever moves has a successor where it was promised, whoever it moves for gets its place, and nobody
    moves for nothing; the simulated ledger refuses what does not fit."""
    rng = Random(seed)
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=parse_conf(MOVING, plugins=list(PLUGINS)))
    simulation.put_nodes(node(f"n{i}", cards=8, cpu=64) for i in range(4))
    small = {
        f"s{i}": job(f"s{i}", cards=rng.choice((1, 1, 2, 3)), priority=rng.choice((0, 0, 5)), created_at=float(i))
        for i in range(24)
    }
    for one in small.values():
        simulation.submit([one])
        simulation.run()
    simulation.finish([uid for uid in list(simulation.claims) if rng.random() < 0.45])
    unplaced = [one.id for one in small.values() if f"{one.id}-0" not in where(simulation)]
    simulation.scheduler.on_withdrawn(unplaced, [2] * len(unplaced))
    simulation.now = 100.0
    simulation.submit([job(f"large{i}", cards=rng.choice((4, 6, 8)), created_at=100.0 + i) for i in range(2)])
    plans = [plan for plan in simulation.run() if plan.victims]
    moved = {str(victim.pod_uid).removesuffix("-0"): victim for plan in plans for victim in plan.victims}
    assert all(victim.to and small[name].priority == 0 for name, victim in moved.items())
    simulation.evicted.clear()
    simulation.scheduler.on_withdrawn([small[name].id for name in moved], [2] * len(moved))
    simulation.gone([victim.pod_uid for victim in moved.values()])
    simulation.run()
    for plan in plans:
        assert where(simulation)[plan.placements[0].pod_uid] == plan.placements[0].node
    for name in moved:
        simulation.submit([replace(small[name], id=JobId(f"{name}b"), tasks=(again(small[name]),))])
    simulation.run()
    promised = sorted((victim.to, len(victim.slices)) for victim in moved.values())
    assert sorted((simulation.claims[PodUid(f"{n}b")].node, small[n].tasks[0].requests[GPU]) for n in moved) == promised


def again(one: Job) -> PodGroupTask:
    """The same for another pod."""
    return replace(one.tasks[0], pods=(PodRef(PodUid(f"{one.id}b"), f"{one.id}b", "1"),))


def succeeded() -> tuple[Simulation, Plan]:
    """`new` has moved for `wide`, a thief whose turn is before everybody's waits, and the ledger is asked for the place that was kept: the plan."""
    simulation = halves()
    wide(simulation)
    leaves(simulation, "new-0")
    simulation.run()
    simulation.submit([job("newer", cards=2, created_at=20.0), job("thief", cards=1, created_at=0.0, priority=5)])
    [plan] = simulation.scheduler.cycle(1.0).plans
    assert (plan.placements[0].pod_uid, plan.succeeds) == ("newer-0", ("new-0",))
    return simulation, plan


def refuse(simulation: Simulation, plan: Plan, reason: RefusalReason) -> None:
    one = simulation.scheduler
    answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=reason)
    one.on_answers(epoch=one.epoch, index=one.index, answers=[answer], now=1.1)


@pytest.mark.parametrize("reason", [RefusalReason.CARD_TAKEN, RefusalReason.PODS_UNSEEN, None])
def test_the_place_stays_the_successors_where_its_plan_is_refused_and_nothing_is_said_against_it(
    reason: RefusalReason | None,
) -> None:
    """None: the next ledger knows nothing of the plan."""
    simulation, plan = succeeded()
    one = simulation.scheduler
    if reason is None:
        one.on_claims_snapshot(epoch=Epoch(2), index=Index(1), frozen=False, claims=tuple(simulation.claims.values()), now=1.1)
    else:
        refuse(simulation, plan, reason)
    [again] = one.cycle(1.2).plans
    assert (again.placements[0].pod_uid, again.succeeds) == ("newer-0", ("new-0",))
    assert PodUid("thief-0") not in one.reports.placed_on()


def test_the_place_stays_kept_for_another_successor_where_the_first_one_is_gone_before_its_plan_is_refused() -> None:
    simulation, plan = succeeded()
    one = simulation.scheduler
    one.on_withdrawn([JobId("newer")], [9])
    refuse(simulation, plan, RefusalReason.CARD_TAKEN)
    assert one.cycle(1.2).plans == []
    one.on_jobs([job("newest", cards=2, created_at=21.0)])
    [again] = one.cycle(1.3).plans
    assert (again.placements[0].pod_uid, again.succeeds) == ("newest-0", ("new-0",))


def test_a_place_that_the_ledger_has_something_against_is_nobodys() -> None:
    simulation, plan = succeeded()
    refuse(simulation, plan, RefusalReason.NODE_UNHEALTHY)
    cycle = simulation.scheduler.cycle(1.2)
    assert [p.pod_uid for plan in cycle.plans for p in plan.placements] == ["thief-0"]
    assert [given.moved for given in cycle.given_up] == [("new-0",)], "the ledger would keep it for another three minutes"


def test_a_pod_that_was_told_to_be_gone_in_error_keeps_the_place_to_which_it_moves_until_it_is() -> None:
    simulation = halves()
    wide(simulation)
    one, claim = simulation.scheduler, simulation.claims[PodUid("new-0")]
    for state, pod, now in ((ClaimState.VOID, "gone", 1.0), (ClaimState.POSTED, "found", 20.0)):
        told = replace(claim, state=state, id=claim.id if pod == "gone" else ClaimId("found"))
        assert one.on_claims(epoch=one.epoch, previous=one.index, index=Index(one.index + 1), claims=[told], now=now)
        one.cycle(now + 0.1)
    out = one.cycle(100.0)
    assert out.wake_at is None or out.wake_at > 100.0, "it would spin"
    assert PodUid("new-0/moved") in one.reports.placed_on()
