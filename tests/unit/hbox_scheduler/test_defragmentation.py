"""Moves have to pay: what the gang gains against what those who move lose (ADR 41), in `simulate cycle` and in the running scheduler. Drawing: three nodes of 8
cards, two singles on each; a gang of two pods with 8 cards each waits."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.events import Plan, PlanAnswer
from hbox_common.model import Epoch, Index, Job, JobId, PlanId, PodUid, RefusalReason, SchedulerId, TopologyMode, TopologyWish
from hbox_common.model.annotations import CHECKPOINT_INTERVAL, WALLTIME
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.scheduler import Scheduler
from hbox_scheduler.core.simulate.cycles import Report
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .small_world import NOW, SmallWorld, bound, evicted

HOUR_S = 3600.0


def policy(arguments: str = "", *, plugins: str = "") -> str:
    return f"""
actions: "allocate, consolidate"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: pdb}}]
- plugins: [{{name: predicates}}, {{name: binpack, arguments: {{binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 10}}}}{plugins}]
configurations: [{{name: consolidate, arguments: {{{arguments}}}}}]
"""


def singles(*, ran_s: float, annotations: dict[str, str] | None = None, **more: object) -> SmallWorld:
    world = SmallWorld(3)
    for number in range(6):
        world.gang(f"s{number}", on=[number // 2], age_s=ran_s, annotations=annotations, **more)  # type: ignore[arg-type]
    return world


def wide(world: SmallWorld, arguments: str = "", *, annotations: dict[str, str] | None = None) -> Report:
    world.gang("wide", cards=8, pods=2, annotations=annotations)
    return world.decide(policy(arguments))


def why(report: Report) -> str:
    return report.pending["d/wide-0"].message


def test_singles_move_so_that_a_gang_of_whole_nodes_starts() -> None:
    report = wide(singles(ran_s=600.0))
    assert len(report.evictions) == 4
    assert len({report.nominations[f"d/wide-{n}"] for n in range(2)}) == 2
    (left,) = {report.nominations[eviction.member.id] for eviction in report.evictions}
    assert left not in {report.nominations[f"d/wide-{n}"] for n in range(2)}


def test_nobody_moves_where_more_work_is_lost_than_cards_are_gained() -> None:
    """16 cards for an hour are gained; four singles lose five hours each, and two minutes to start again."""
    report = wide(singles(ran_s=5 * HOUR_S))
    assert evicted(report) == []
    assert (
        "moving 4 pods would make room for it, which costs more than it gains: gains 16 cards for 1 h (16 card-hours)"
        in why(report)
    )
    assert "4 pods with 4 cards move and lose 20 card-hours" in why(report)


@pytest.mark.parametrize(("hours", "moved"), [(3.9, 4), (4.0, 0)])
def test_the_line_is_where_as_much_is_lost_as_gained(hours: float, moved: int) -> None:
    assert len(wide(singles(ran_s=hours * HOUR_S - 60.0), "restart: 1m").evictions) == moved


def test_what_was_saved_by_a_checkpoint_is_not_lost() -> None:
    long = {CHECKPOINT_INTERVAL: "30m"}
    assert len(wide(singles(ran_s=50 * HOUR_S, annotations=long)).evictions) == 4


def test_those_are_moved_from_whom_least_is_lost() -> None:
    """The singles of n0 have run for long; the others have not."""
    world = SmallWorld(3)
    for number in range(6):
        world.gang(f"s{number}", on=[number // 2], age_s=10 * HOUR_S if number < 2 else 600.0 + number)
    assert evicted(wide(world)) == ["s2-0", "s3-0", "s4-0", "s5-0"]


def test_of_several_queues_too_those_are_moved_from_whom_least_is_lost() -> None:
    from hbox_common.model import QueueName  # noqa: PLC0415
    from hbox_scheduler.core.cluster.entities import QueueInfo  # noqa: PLC0415

    for dear in ("a", "z"):
        world = SmallWorld(2, queues=[QueueInfo(QueueName(name)) for name in ("a", "q", "z")])
        world.gang("dear", on=[0], queue=dear, age_s=3 * HOUR_S)
        world.gang("cheap", on=[1], queue="a" if dear == "z" else "z", age_s=60.0)
        world.gang("wide", cards=8)
        assert evicted(world.decide(policy())) == ["cheap-0"]


def test_a_gang_that_ends_soon_gains_little() -> None:
    report = wide(singles(ran_s=600.0), annotations={WALLTIME: "2m"})
    assert evicted(report) == []
    assert "gains 16 cards for 0.033 h" in why(report)


def test_a_gang_that_a_move_breaks_starts_anew_whole() -> None:
    """Eight pods on two nodes need each other; two of them would move, and all eight would lose their hour."""

    def world(min_member: int) -> SmallWorld:
        world = SmallWorld(2, cards=6)
        world.gang("g", pods=8, on=[0] * 5 + [1] * 3, min_member=min_member, age_s=HOUR_S)
        world.gang("wide", cards=4)
        return world

    assert len(world(min_member=1).decide(policy("restart: 0s")).evictions) == 1
    report = world(min_member=8).decide(policy("restart: 0s"))
    assert evicted(report) == []
    assert "1 pod with 1 card (and 7 more of their gangs that start anew) moves and loses 8 card-hours" in why(report)


def test_parts_of_cards_gain_parts_and_cards_that_move_lose_whole() -> None:
    from hbox_common.model import CardRequest  # noqa: PLC0415

    world = SmallWorld(1, cards=1)
    share = CardRequest(1, cores=50, memory_mib=1000)
    world.gang("wide", cards=share)
    report = world.decide(policy())
    assert set(bound(report)) == {"wide-0"}, "there is room: nothing is gained by moves"


def test_pods_with_cards_do_not_move_for_a_gang_without() -> None:
    world = SmallWorld(2, cards=8)
    world.gang("a", on=[0])
    world.gang("b", on=[1])
    gang = world.gang("cpu", cards=0)
    many = replace(
        gang.members[0].task, requests={"cpu": 127_500, "pods": 1}, amount=((world.columns.resource("cpu"), 127_500),)
    )
    gang.members[0].task = many
    assert evicted(world.decide(policy())) == []


def test_minimum_run_times_hold() -> None:
    world = singles(ran_s=600.0)
    for gang in world.gangs:
        gang.members[0].protected_until = NOW + 1.0
    assert evicted(wide(world)) == []
    world = singles(ran_s=600.0)
    for gang in world.gangs:
        gang.members[0].protected_until = NOW
    assert len(wide(world).evictions) == 4


def test_who_may_not_be_preempted_never_moves() -> None:
    assert evicted(wide(singles(ran_s=600.0, preemptable=False))) == []


def test_members_of_a_gang_that_is_bound_to_a_domain_of_the_fabric_do_not_leave_it() -> None:
    world = singles(ran_s=600.0)
    for gang in world.gangs:
        gang.topology = TopologyWish(TopologyMode.HARD, 1)
    assert evicted(wide(world)) == []


def test_in_preview_moves_are_told_of_and_nobody_leaves() -> None:
    report = wide(singles(ran_s=600.0), "mode: preview")
    assert evicted(report) == []
    assert "moving 4 pods would make room for it, which pays, but the policy has mode: preview: gains 16 cards" in why(report)


@pytest.mark.parametrize("off", ["off", "'off'"])
def test_with_the_mode_off_nothing_is_looked_for(off: str) -> None:
    report = wide(singles(ran_s=600.0), f"mode: {off}")
    assert evicted(report) == []
    assert "moving" not in why(report)


def test_no_more_pods_move_in_an_hour_than_the_policy_allows() -> None:
    for most, moved in ((3, 0), (4, 4), (-1, 4), (0, 0)):
        report = wide(singles(ran_s=600.0), f"maxMovesPerHour: {most}")
        assert len(report.evictions) == moved
    assert "which has to wait, for 0 pods were moved within the last hour, and 4 more would be above 0" in why(report)


def test_moves_of_one_look_and_of_the_cycles_before_count_together() -> None:
    """Two gangs, each for one move, and one move an hour."""
    world = SmallWorld(4, cards=2)
    for number in range(4):
        world.gang(f"s{number}", on=[number], age_s=60.0)
    for name in ("x", "y"):
        world.gang(name, cards=2)
    assert len(world.decide(policy("maxMovesPerHour: 1"), cycles=3, requeue_evicted=True).evictions) == 1


@pytest.mark.parametrize(
    "argument",
    ["mode: perhaps", "horizon: long", "horizon: 25h", "restart: -1s", "maxMovesPerHour: -2", "maxMovesPerHour: .nan"],
)
def test_a_wrong_argument_is_named(argument: str) -> None:
    with pytest.raises(InvalidRequest, match="action consolidate"):
        wide(singles(ran_s=600.0), argument)


# The same in the running scheduler.


def spread(arguments: str = "", *, ran_s: float = 600.0) -> Simulation:
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=parse_conf(policy(arguments), plugins=list(PLUGINS)))
    simulation.put_nodes(node(f"n{i}", cards=8, cpu=64) for i in range(3))
    for number in range(3):
        for single in range(2):
            simulation.submit([job(f"s{number}{single}", cards=1, created_at=float(number))])
        simulation.submit([job(f"filler{number}", cards=6, created_at=float(number))])
        simulation.run()
    simulation.finish([PodUid(f"filler{number}-0") for number in range(3)])
    simulation.now += ran_s
    return simulation


def submit_wide(simulation: Simulation) -> list[Plan]:
    simulation.submit([job("wide", cards=8, pods=2, min_member=2, created_at=simulation.now)])
    return [plan for plan in simulation.run() if plan.victims]


def words(scheduler: Scheduler) -> str:
    return " ".join(scheduler._facts.move_reasons.values())


def test_the_plan_says_what_it_costs_and_gains() -> None:
    (plan,) = submit_wide(spread(ran_s=600.0))
    terms = plan.moves
    assert terms is not None
    assert (terms.cards_gained, terms.gain_s, terms.pods_moved, terms.most_an_hour) == (16, 3600.0, 4, 100)
    assert 4 * (600 + 120) <= terms.card_seconds_lost <= 4 * (620 + 120)
    assert {victim.to for victim in plan.victims} == {"n0", "n1", "n2"} - {placement.node for placement in plan.placements}


def test_in_the_running_scheduler_too_nobody_moves_where_that_costs_more() -> None:
    simulation = spread(ran_s=5 * HOUR_S)
    verdicts = []
    simulation.submit([job("wide", cards=8, pods=2, min_member=2, created_at=simulation.now)])
    for _ in range(4):
        out = simulation.scheduler.cycle(simulation.now, simulation.now)
        assert out.plans == []
        verdicts += [verdict.message for verdict in out.verdicts if verdict.job == "wide"]
        simulation.now += 2.5
    assert "costs more than it gains" in verdicts[-1]
    assert simulation.scheduler.reports.jobs_by_state, "and it goes on"


def test_what_is_said_of_moves_stays_while_they_are_the_same() -> None:
    """Else a job that waits would get its turn again and again."""
    simulation = spread(ran_s=5 * HOUR_S)
    submit_wide(simulation)
    before = words(simulation.scheduler)
    simulation.now += 30.0
    simulation.scheduler.invalidate_sessions()
    simulation.run()
    assert before
    assert words(simulation.scheduler) == before
    simulation.now += 3000.0
    simulation.run()
    assert words(simulation.scheduler) != before, "after a while the hours are said anew"


def test_of_a_job_that_is_gone_nothing_is_kept() -> None:
    simulation = spread(ran_s=5 * HOUR_S)
    submit_wide(simulation)
    simulation.scheduler.on_withdrawn([JobId("wide")], [2])
    simulation.run()
    assert words(simulation.scheduler) == ""


def test_when_the_ledger_has_moves_wait_it_is_not_asked_again_for_a_minute() -> None:
    simulation = spread()
    simulation.submit([job("wide", cards=8, pods=2, min_member=2, created_at=simulation.now)])
    scheduler = simulation.scheduler
    (plan,) = scheduler.cycle(simulation.now, simulation.now).plans
    answer = PlanAnswer(
        plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.EVICTIONS_PAUSED, message="100 pods were moved"
    )
    scheduler.on_answers(epoch=Epoch(1), index=Index(9), answers=[answer], now=simulation.now)
    for _ in range(20):
        simulation.now += 2.5
        assert scheduler.cycle(simulation.now, simulation.now).plans == []
    assert "which has to wait, for 100 pods were moved" in words(scheduler)
    simulation.now += 15.0
    assert len(scheduler.cycle(simulation.now, simulation.now).plans) == 1


def test_a_refused_plan_moved_nobody() -> None:
    simulation = spread("maxMovesPerHour: 4")
    simulation.submit([job("wide", cards=8, pods=2, min_member=2, created_at=simulation.now)])
    scheduler = simulation.scheduler
    (plan,) = scheduler.cycle(simulation.now, simulation.now).plans
    answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.VICTIM_PROTECTED, message="")
    scheduler.on_answers(epoch=Epoch(1), index=Index(9), answers=[answer], now=simulation.now)
    plans: list[PlanId] = []
    for _ in range(4):
        simulation.now += 2.5
        plans += [plan.id for plan in scheduler.cycle(simulation.now, simulation.now).plans]
    assert len(plans) == 1


def test_a_gang_of_the_fabric_that_runs_is_not_torn_apart() -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=parse_conf(policy(), plugins=list(PLUGINS)))
    simulation.put_nodes(node(f"n{i}", cards=8, cpu=64) for i in range(2))
    for name in ("a", "b"):
        tight = replace(job(name, cards=1, created_at=1.0), topology=TopologyWish(TopologyMode.HARD, 1))
        simulation.submit([tight, job(f"filler-{name}", cards=7, created_at=2.0)])
        simulation.run()
    simulation.finish([PodUid("filler-a-0"), PodUid("filler-b-0")])
    simulation.submit([job("wide", cards=8, created_at=10.0)])
    assert [plan for plan in simulation.run() if plan.victims] == []


# Pods that were placed before this process began.


def successor() -> Scheduler:
    """Another scheduler on the same cluster, to which the ledger has not spoken yet."""
    fresh = Scheduler(
        id=SchedulerId("next"), policy=policy_of(PolicyName.BINPACK), conf=parse_conf(policy(), plugins=list(PLUGINS))
    )
    for number in range(3):
        fresh.on_node(node(f"n{number}", cards=8, cpu=64))
    return fresh


def read_claims(fresh: Scheduler, before: Simulation) -> None:
    claims = before.claims.values()
    fresh.on_claims_snapshot(epoch=Epoch(1), index=Index(1), frozen=False, claims=claims, now=before.now)


def placed_jobs() -> list[Job]:
    return [job(f"s{number}{single}", cards=1, created_at=float(number)) for number in range(3) for single in range(2)]


def moved_by(fresh: Scheduler, now: float) -> int:
    fresh.on_jobs([job("wide", cards=8, pods=2, min_member=2, created_at=now)])
    return sum(len(plan.victims) for plan in fresh.cycle(now, now).plans)


@pytest.mark.parametrize("claims_first", [True, False])
def test_they_move_once_job_controller_has_said_what_they_ask_for(*, claims_first: bool) -> None:
    before, fresh = spread(), successor()
    if claims_first:
        read_claims(fresh, before)
        assert fresh.reports.defragmentation(fresh.reports.preview_moves()).unknown_pods == 6
    fresh.on_placed(placed_jobs())
    if not claims_first:
        read_claims(fresh, before)
    assert fresh.reports.defragmentation(fresh.reports.preview_moves()).unknown_pods == 0
    assert moved_by(fresh, before.now) == 4


SAID_WRONG = {
    "nothing": lambda one: replace(one, tasks=()),
    "another request": lambda one: replace(one, tasks=(replace(one.tasks[0], requests=one.tasks[0].requests | {"cpu": 1}),)),
    "another job": lambda one: replace(one, id=JobId(f"{one.id}-other")),
    "bound to a domain of the fabric": lambda one: replace(one, topology=TopologyWish(TopologyMode.HARD, 1)),
    "a selector that no other node has": lambda one: replace(
        one, tasks=(replace(one.tasks[0], node_selector={"kubernetes.io/hostname": "nowhere"}),)
    ),
}


@pytest.mark.parametrize("wrong", SAID_WRONG.values(), ids=SAID_WRONG.keys())
def test_they_stay_where_that_does_not_fit_their_claims_or_lets_them_go_nowhere(wrong: Callable[[Job], Job]) -> None:
    before, fresh = spread(), successor()
    read_claims(fresh, before)
    fresh.on_placed(map(wrong, placed_jobs()))
    assert moved_by(fresh, before.now) == 0


def test_a_pod_that_is_moved_then_has_its_place_kept_for_one_that_asks_for_the_same() -> None:
    before, fresh = spread(), successor()
    read_claims(fresh, before)
    fresh.on_placed(placed_jobs())
    fresh.on_jobs([job("wide", cards=8, pods=2, min_member=2, created_at=before.now)])
    [plan] = fresh.cycle(before.now, before.now).plans
    answer = PlanAnswer(plan=plan.id, job=plan.job, committed=True)
    fresh.on_answers(epoch=Epoch(1), index=Index(2), answers=[answer], now=before.now)
    gone = {victim.pod_uid for victim in plan.victims}
    left = [claim for uid, claim in before.claims.items() if uid not in gone]
    fresh.on_claims_snapshot(epoch=Epoch(1), index=Index(3), frozen=False, claims=left, now=before.now)
    fresh.on_jobs([job("again", cards=1, created_at=before.now)])
    placed = {plan.job: plan for plan in fresh.cycle(before.now + 1.0, before.now + 1.0).plans}
    assert [one.node for one in placed[JobId("again")].placements] == [plan.victims[0].to]
    assert placed[JobId("again")].succeeds
