"""preempt and shuffle, and the plugins that guard victims. One queue; gangs of higher priority take from those of lower."""

from dataclasses import replace
from datetime import datetime

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardSlice, Match, MatchOperator, QueueName
from hbox_common.model.annotations import COOLDOWN, JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, REVOCABLE_ZONE, TASK_PRIORITY
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import PODS
from hbox_scheduler.core.cluster.entities import Gang, QueueInfo
from hbox_scheduler.core.cluster.facts import DisruptionBudget
from hbox_scheduler.core.framework import PodConstraints, PodTerm, Selector
from hbox_scheduler.core.plugins.durations import duration_s
from hbox_scheduler.core.simulate import node

from .small_world import NOW, SmallWorld, bound, evicted

_DAY_S = 86_400


def policy(*guards: str, actions: str = "allocate, preempt") -> str:
    listed = "".join(f", {guard}" for guard in ("{name: conformance}", *guards))
    return f"""
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}{listed}]
- plugins: [{{name: predicates}}]
"""


PREEMPT = policy()


def annotate(gang: Gang, key: str, value: str) -> None:
    for member in gang.members:
        member.annotations = {**member.annotations, key: value}


def test_the_more_important_gang_takes_the_place_of_the_least_important_one() -> None:
    world = SmallWorld(1, cards=2)
    world.gang("low", priority=1, on=[0], age_s=99)
    world.gang("mid", priority=2, on=[0])
    world.gang("high", priority=3)
    assert evicted(world.decide(PREEMPT)) == ["low-0"]


def test_equal_priority_is_never_taken_from() -> None:
    world = SmallWorld(1, cards=1)
    world.gang("one", priority=1, on=[0])
    world.gang("other", priority=1)
    assert evicted(world.decide(PREEMPT)) == []


def test_members_of_other_queues_are_not_touched() -> None:
    world = SmallWorld(1, cards=1, queues=(QueueInfo(QueueName("q")), QueueInfo(QueueName("other"))))
    world.gang("low", priority=0, queue="other", on=[0])
    world.gang("high", priority=9)
    assert evicted(world.decide(PREEMPT)) == []


def test_the_node_is_taken_where_those_least_to_be_spared_leave() -> None:
    world = SmallWorld(2, cards=2)
    world.gang("low0", priority=1, on=[0])
    world.gang("mid0", priority=2, on=[0])
    world.gang("low1", priority=1, on=[1])
    world.gang("low2", priority=1, on=[1])
    world.gang("high", priority=3, cards=2)
    report = world.decide(PREEMPT)
    assert evicted(report) == ["low1-0", "low2-0"]
    assert report.nominations == {"d/high-0": "n1"}


def test_fewer_leave_where_priority_is_the_same() -> None:
    world = SmallWorld(2, cards=2)
    world.gang("a0", priority=1, on=[0])
    world.gang("a1", priority=1, on=[0])
    world.gang("b", priority=1, cards=2, on=[1])
    world.gang("high", priority=3, cards=2)
    assert evicted(world.decide(PREEMPT)) == ["b-0"]


def test_of_as_many_those_leave_whose_priorities_are_less_in_all() -> None:
    """The most important of both nodes are alike, and that of node 0 came last."""
    world = SmallWorld(2, cards=2)
    world.gang("top0", priority=5, on=[0], age_s=1)
    world.gang("mid0", priority=4, on=[0])
    world.gang("top1", priority=5, on=[1], age_s=99)
    world.gang("low1", priority=1, on=[1])
    world.gang("high", priority=9, cards=2)
    assert evicted(world.decide(PREEMPT)) == ["low1-0", "top1-0"]


def test_whoever_turns_out_not_to_be_needed_stays() -> None:
    """The small one would go first, and then the large one makes it needless."""
    world = SmallWorld(1, cards=4)
    world.gang("large", priority=1, cards=3, on=[0], age_s=99)
    world.gang("small", priority=1, on=[0])
    world.gang("high", priority=3, cards=3)
    assert evicted(world.decide(PREEMPT)) == ["large-0"]


@pytest.mark.parametrize("guarded", [False, True])
def test_of_two_on_a_node_of_whom_one_may_stay_the_more_important_does(*, guarded: bool) -> None:
    """Also where one that may not leave stands before them, so that each is asked for by itself."""
    world = SmallWorld(1, cards=5 + guarded)
    if guarded:
        world.gang("system", on=[0]).members[0].namespace = "kube-system"
    world.gang("small1", priority=1, on=[0])
    world.gang("small2", priority=2, on=[0])
    world.gang("large", priority=3, cards=3, on=[0])
    world.gang("high", priority=9, cards=4)
    assert evicted(world.decide(PREEMPT)) == ["large-0", "small1-0"]


def test_a_gang_that_would_not_be_whole_takes_nothing() -> None:
    world = SmallWorld(1, cards=2)
    world.gang("low", priority=1, on=[0])
    world.gang("pinned", priority=1, on=[0], preemptable=False)
    world.gang("high", priority=3, pods=2)
    assert evicted(world.decide(PREEMPT)) == []


def test_a_gang_that_lacks_a_role_does_not_start() -> None:
    world = SmallWorld(1)
    gang = world.gang("g", pods=2)
    gang.min_task_member = {"launcher": 1}
    gang.members[0].role = gang.members[1].role = "worker"
    report = world.decide(PREEMPT)
    assert bound(report) == {}
    assert {said.message for said in report.pending.values()} == {"GangIncomplete: task launcher needs 1 pods and 0 exist"}


@pytest.mark.parametrize("launcher", [0, 1, 2])
def test_a_gang_gives_none_of_a_role_of_which_it_needs_all(launcher: int) -> None:
    world = SmallWorld(1, cards=3)
    gang = world.gang("g", pods=3, min_member=2, on=[0, 0, 0])
    gang.min_task_member = {"launcher": 1}
    for number, member in enumerate(gang.members):
        member.role = "launcher" if number == launcher else "worker"
    world.gang("high", priority=3)
    (gone,) = evicted(world.decide(PREEMPT))
    assert gone != f"g-{launcher}"


def test_one_that_never_preempts_waits() -> None:
    world = SmallWorld(1, cards=1)
    world.gang("low", priority=1, on=[0])
    high = world.gang("high", priority=3)
    high.members[0].never_preempts = True
    assert evicted(world.decide(PREEMPT)) == []


def test_a_full_queue_makes_room_within_itself_though_nodes_are_idle() -> None:
    world = SmallWorld(1, cards=4, queues=(QueueInfo(QueueName("q"), capability={GPU: 1}),))
    world.gang("low", priority=1, on=[0])
    world.gang("high", priority=3)
    conf = PREEMPT.replace("{name: predicates}", "{name: predicates}, {name: capacity}")
    assert evicted(world.decide(conf)) == ["low-0"]


def test_no_room_in_the_queue_whoever_leaves_means_that_nobody_does() -> None:
    world = SmallWorld(1, cards=4, queues=(QueueInfo(QueueName("q"), capability={GPU: 2}),))
    world.gang("low", priority=1, on=[0])
    world.gang("high", priority=3, cards=3)
    conf = PREEMPT.replace("{name: predicates}", "{name: predicates}, {name: capacity}")
    assert evicted(world.decide(conf)) == []


def test_within_a_gang_the_more_important_member_takes_a_place() -> None:
    world = SmallWorld(1, cards=1)
    gang = world.gang("g", pods=2, min_member=0, on=[0])
    gang.members[0].priority, gang.members[1].priority = 1, 5
    report = world.decide(PREEMPT.replace("{name: gang}", "{name: gang, enableJobStarving: false}"))
    assert evicted(report) == ["g-0"]
    assert report.nominations == {"d/g-1": "n0"}


def test_within_a_gang_the_priority_that_a_member_says_of_itself_counts() -> None:
    world = SmallWorld(1, cards=1)
    gang = world.gang("g", pods=2, min_member=0, on=[0])
    gang.members[1].annotations = {TASK_PRIORITY: "7"}
    report = world.decide(PREEMPT.replace("{name: gang}", "{name: gang, enableJobStarving: false}"))
    assert evicted(report) == ["g-0"]


def test_system_pods_are_spared() -> None:
    world = SmallWorld(1, cards=1)
    system = world.gang("system", priority=1, on=[0])
    system.members[0].priority = 2_000_000_001
    world.gang("high", priority=3)
    assert evicted(world.decide(PREEMPT)) == []
    system.members[0].priority, system.members[0].namespace = 1, "kube-system"
    assert evicted(world.decide(PREEMPT)) == []


def test_budgets_for_disruptions_hold_over_the_whole_session() -> None:
    world = SmallWorld(1, cards=3)
    for name in ("a", "b", "c"):
        gang = world.gang(name, priority=1, on=[0])
        gang.members[0].labels = {"app": "web"}
    world.gang("h1", priority=3, age_s=9)
    world.gang("h2", priority=3)
    world.budgets = [DisruptionBudget("d", "web", {"app": "web"}, allowed=1)]
    report = world.decide(policy("{name: pdb}"))
    assert len(report.evictions) == 1
    assert list(report.nominations) == ["d/h1-0"]
    said = {
        name: "pods whose PodDisruptionBudgets let no more go: 2 of queue q (d/web)" in one.message
        for name, one in report.pending.items()
    }
    assert said == {"d/h1-0": False, "d/h2-0": True}


def test_whoever_started_a_moment_ago_is_spared() -> None:
    world = SmallWorld(1, cards=2)
    young = world.gang("young", priority=1, on=[0], ran_s=100)
    old = world.gang("old", priority=1, on=[0], ran_s=800, age_s=900)
    for gang in (young, old):
        annotate(gang, COOLDOWN, "600s")
    world.gang("high", priority=3)
    assert evicted(world.decide(policy("{name: cdp}"))) == ["old-0"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("600s", 600),
        ("1h30m", 5400),
        ("300ms", 0.3),
        ("1.5h", 5400),
        ("600", None),
        ("600abc", None),
        ("", None),
        ("1" * 70 + "s", None),
    ],
)
def test_durations_are_written_as_in_go(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds


def test_by_drf_a_gang_with_less_takes_from_one_with_more() -> None:
    conf = """
actions: "allocate, preempt"
tiers:
- plugins: [{name: drf}, {name: gang, enablePreemptable: false}, {name: predicates}]
"""
    world = SmallWorld(1, cards=4)
    world.gang("rich", pods=4, min_member=1, on=[0, 0, 0, 0])
    world.gang("poor", pods=2, min_member=2)
    assert evicted(world.decide(conf)) == ["rich-2", "rich-3"]


def _zone(world: SmallWorld, zone: str) -> None:
    state = node("n0", cards=world.cards, cpu=128, labels={REVOCABLE_ZONE: zone})
    world.columns.put_node(state)


@pytest.mark.parametrize(
    ("budget", "leave"),
    [
        ({JDB_MAX_UNAVAILABLE: "50%"}, 3),
        ({JDB_MIN_AVAILABLE: "4"}, 1),
        ({}, 1),
        # that let nobody go, ever
        ({JDB_MAX_UNAVAILABLE: "0"}, 1),
        ({JDB_MAX_UNAVAILABLE: "0%"}, 1),
        ({JDB_MIN_AVAILABLE: "5"}, 1),
        ({JDB_MIN_AVAILABLE: "100%"}, 1),
        ({JDB_MIN_AVAILABLE: "999999999"}, 1),
    ],
)
def test_a_closed_zone_is_left_within_the_gangs_budget(budget: dict[str, str], leave: int) -> None:
    world = SmallWorld(1)
    _zone(world, "night")
    world.gang("g", pods=5, min_member=0, on=[0] * 5, annotations=budget)
    conf = 'actions: "shuffle"\ntiers:\n- plugins: [{name: tdm, arguments: {tdm.revocable-zone.night: "22:00-6:00"}}]\n'
    noon = NOW - NOW % _DAY_S + _DAY_S / 2
    assert len(world.decide(conf, now=noon).evictions) == leave
    world = SmallWorld(1)
    _zone(world, "night")
    world.gang("g", pods=5, min_member=0, on=[0] * 5, annotations=budget)
    assert len(world.decide(conf, now=noon + _DAY_S / 2).evictions) == 0


@pytest.mark.parametrize(
    ("guard", "leave"),
    [
        ("", 4),
        (", {name: pdb}", 1),
        (", {name: cdp}", 3),
        (", {name: conformance}", 3),
        (", {name: pdb, enabledVictim: false}", 4),
    ],
)
def test_who_has_to_leave_a_closed_zone_leaves_within_what_guards_allow(guard: str, leave: int) -> None:
    """Four pods; a budget for one, one that started a moment ago, one of the system."""
    world = SmallWorld(1)
    _zone(world, "night")
    gang = world.gang("g", pods=4, min_member=0, on=[0] * 4, annotations={JDB_MAX_UNAVAILABLE: "100%"})
    for member in gang.members:
        member.labels = {"app": "web"}
    gang.members[0].annotations = {**gang.annotations, COOLDOWN: "600s"}
    gang.members[1].priority = 2_000_000_001
    world.budgets = [DisruptionBudget("d", "web", {"app": "web"}, allowed=1)]
    zones = '{name: tdm, arguments: {tdm.revocable-zone.night: "22:00-6:00"}}'
    noon = NOW - NOW % _DAY_S + _DAY_S / 2
    for when in gang.members:
        when.started_at = noon - 60
    report = world.decide(f'actions: "shuffle"\ntiers:\n- plugins: [{zones}{guard}]\n', now=noon)
    assert len(report.evictions) == leave


def test_only_who_may_be_taken_away_comes_into_a_zone_and_only_while_it_is_open() -> None:
    conf = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: tdm, arguments: {tdm.revocable-zone.night: "22:00-6:00"}}]\n'
    noon = NOW - NOW % _DAY_S + _DAY_S / 2
    for now, hosted in ((noon, []), (noon + _DAY_S / 2, ["loose-0"])):
        world = SmallWorld(1)
        _zone(world, "night")
        world.gang("loose", annotations={REVOCABLE_ZONE: "*"})
        world.gang("firm")
        assert list(bound(world.decide(conf, now=now))) == hosted


@pytest.mark.parametrize(
    ("time_zone", "utc", "hosted"),
    [
        ("UTC", "2026-01-15T22:30", True),
        ("Asia/Shanghai", "2026-01-15T22:30", False),
        ("Asia/Shanghai", "2026-01-15T14:30", True),
        ("Europe/Berlin", "2026-01-15T20:30", False),
        ("Europe/Berlin", "2026-07-15T20:30", True),
    ],
)
def test_windows_are_in_the_time_zone_that_the_policy_names_summer_time_included(
    time_zone: str, utc: str, hosted: bool
) -> None:
    arguments = f'{{tdm.revocable-zone.night: "22:00-6:00", tdm.time-zone: {time_zone}}}'
    conf = f'actions: "allocate"\ntiers:\n- plugins: [{{name: gang}}, {{name: tdm, arguments: {arguments}}}]\n'
    world = SmallWorld(1)
    _zone(world, "night")
    world.gang("loose", annotations={REVOCABLE_ZONE: "*"})
    assert bool(bound(world.decide(conf, now=datetime.fromisoformat(f"{utc}+00:00").timestamp()))) is hosted


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ('{name: tdm, arguments: {tdm.revocable-zone.x: "22-6"}}', "tdm.revocable-zone.x"),
        ("{name: tdm, arguments: {tdm.time-zone: Asia/Peking}}", "tdm.time-zone: no time zone is called 'Asia/Peking'"),
        ("{name: tdm, arguments: {tdm.time-zone: Asia}}", "tdm.time-zone: no time zone is called 'Asia'"),
        ("{name: tdm, arguments: {tdm.time-zone: ../etc/passwd}}", "tdm.time-zone: no time zone"),
        ("{name: tdm, arguments: {tdm.evict.period: often}}", "tdm.evict.period"),
        ("{name: sla, arguments: {sla-waiting-time: soon}}", "sla-waiting-time"),
        ("{name: overcommit, arguments: {overcommit-factor: much}}", "overcommit-factor"),
        ("{name: pdb, arguments: {pdb: 1}}", "pdb has no argument"),
    ],
)
def test_wrong_arguments_are_named(plugin: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        SmallWorld(1).decide(policy(plugin))


def test_a_promised_card_is_not_given_away_though_as_many_leave_as_are_promised() -> None:
    """n0: one idle card and two that leave; the promise takes the idle one and one of those."""
    world = SmallWorld(1, cards=3)
    world.gang("low", priority=1, cards=2, on=[0])
    low = world.gangs[0].members[0]
    low.slices = tuple(CardSlice(index, 100, 40_960) for index in (1, 2))
    world.gang("high", priority=3, cards=2, age_s=9)
    world.gang("late")
    report = world.decide(policy(actions="preempt, allocate"))
    assert evicted(report) == ["low-0"]
    assert bound(report) == {}
    assert sorted(report.nominations) == ["d/high-0", "d/late-0"]


def test_a_gang_that_goes_goes_to_the_last_member() -> None:
    """Two of its cards would do; one member alone would be less than its minimum."""
    world = SmallWorld(1, cards=3)
    world.gang("low", priority=1, pods=3, min_member=2, on=[0, 0, 0])
    world.gang("high", priority=3, cards=2)
    assert evicted(world.decide(PREEMPT)) == ["low-0", "low-1", "low-2"]


@pytest.mark.parametrize(("resolve", "leave"), [("true", ["shy-0"]), ("false", [])])
def test_whom_a_filter_objects_to_leaves_where_the_policy_says_so(resolve: str, leave: list[str]) -> None:
    """n0 has room beside both; one of those there wants to be apart from pods such as the one that waits."""
    world = SmallWorld(1, cards=4)
    world.columns.put_node(node("n0", cards=4, cpu=128, labels={"kubernetes.io/hostname": "n0"}))
    world.gang("other", priority=1, on=[0])
    shy = world.gang("shy", priority=1, on=[0], age_s=99)
    high = world.gang("high", priority=3)
    term = PodTerm("kubernetes.io/hostname", Selector((Match("app", MatchOperator.IN, ("a",)),)))
    shy.members[0].constraints = PodConstraints(anti_affinity=(term,))
    high.members[0].labels = {"app": "a"}
    conf = PREEMPT + f"configurations: [{{name: preempt, arguments: {{enableTopologyAwarePreemption: {resolve}}}}}]\n"
    assert evicted(world.decide(conf)) == leave


def crowded(*, nodes: int = 1, room: int = 2) -> SmallWorld:
    """Nodes that take so many pods, whatever these ask for."""
    world = SmallWorld(nodes)
    for number in range(nodes):
        state = node(f"n{number}", cards=8, cpu=128)
        world.columns.put_node(replace(state, allocatable=state.allocatable | {PODS: room}))
    return world


def test_where_no_node_takes_one_more_pod_those_that_ask_for_nothing_take_from_such_as_them() -> None:
    world = crowded()
    world.gang("asks", cards=0, priority=1, on=[0], age_s=1)
    world.gang("modest", cards=0, modest=True, priority=1, on=[0], age_s=99)
    world.gang("high", cards=0, modest=True, priority=3)
    assert evicted(world.decide(policy(actions="allocate, preempt, backfill"))) == ["modest-0"], (
        "asks-0 is newer, and asks for something"
    )


def test_while_there_is_room_for_one_more_pod_nobody_leaves_for_one_that_asks_for_nothing() -> None:
    world = crowded(nodes=2, room=1)
    world.gang("modest", cards=0, modest=True, priority=1, on=[0])
    world.gang("high", cards=0, modest=True, priority=3)
    report = world.decide(policy(actions="allocate, preempt, backfill"))
    assert (evicted(report), bound(report)) == ([], {"high-0": "n1"})


def test_nor_for_one_that_is_no_more_important() -> None:
    world = crowded(room=1)
    world.gang("modest", cards=0, modest=True, priority=1, on=[0])
    world.gang("other", cards=0, modest=True, priority=1)
    assert evicted(world.decide(policy(actions="allocate, preempt, backfill"))) == []


def test_nor_for_a_gang_of_such_that_would_still_not_be_whole() -> None:
    world = crowded()
    world.gang("modest", cards=0, modest=True, priority=1, on=[0])
    world.gang("asks", cards=0, priority=1, on=[0])
    world.gang("high", pods=2, cards=0, modest=True, priority=3)
    assert evicted(world.decide(policy(actions="allocate, preempt, backfill"))) == []
