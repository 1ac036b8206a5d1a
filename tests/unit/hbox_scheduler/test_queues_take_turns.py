"""Queues, their amounts, and who takes back what from whom. Clusters are drawn as nodes with cards; q:n = a queue that deserves n cards."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName, QueuePhase
from hbox_common.model.annotations import HIERARCHY, HIERARCHY_WEIGHTS, NODE_GROUP_LIMITS, OVER_QUOTA_WEIGHT
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.simulate.cycles import Report

from .small_world import SmallWorld, bound, evicted


def queue(
    name: str,
    deserved: int | None = None,
    *,
    capability: int | None = None,
    guarantee: int = 0,
    parent: str = "",
    weight: int = 1,
    over_quota: str | None = None,
    reclaimable: bool = True,
) -> QueueInfo:
    return QueueInfo(
        QueueName(name),
        weight=weight,
        parent=QueueName(parent) if parent else None,
        deserved={} if deserved is None else {GPU: deserved},
        capability={} if capability is None else {GPU: capability},
        guarantee={GPU: guarantee} if guarantee else {},
        reclaimable=reclaimable,
        annotations={} if over_quota is None else {OVER_QUOTA_WEIGHT: over_quota},
    )


def policy(share: str = "capacity", *, actions: str = "allocate, reclaim", arguments: str = "") -> str:
    return f"""
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: predicates}}, {{name: {share}, enableHierarchy: true{arguments}}}]
"""


CAPACITY = policy()


def nominated(report: Report) -> list[str]:
    return sorted(name.removeprefix("d/") for name in report.nominations)


def test_a_queue_takes_back_what_it_deserves_and_the_newest_leave() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("mine", 2), queue("theirs", 2)))
    for i in range(4):
        world.gang(f"t{i}", queue="theirs", on=[0], age_s=100.0 - i)
    world.gang("m", queue="mine", cards=2)
    report = world.decide(CAPACITY)
    assert evicted(report) == ["t2-0", "t3-0"]
    assert nominated(report) == ["m-0"]


def test_nothing_is_taken_beyond_what_is_deserved() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("mine", 1), queue("theirs", 2)))
    for i in range(4):
        world.gang(f"t{i}", queue="theirs", on=[0])
    world.gang("m", queue="mine", cards=2)
    assert evicted(world.decide(CAPACITY)) == []


def test_the_other_queue_keeps_what_it_deserves() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("mine", 4), queue("theirs", 3)))
    for i in range(4):
        world.gang(f"t{i}", queue="theirs", on=[0])
    world.gang("m", queue="mine", cards=2)
    report = world.decide(CAPACITY)
    assert evicted(report) == []
    assert nominated(report) == []


def test_a_gang_gets_all_its_places_or_nobody_leaves() -> None:
    world = SmallWorld(2, cards=2, queues=(queue("mine", 4), queue("theirs", 1)))
    world.gang("t0", queue="theirs", on=[0], age_s=9)
    world.gang("t1", queue="theirs", on=[0])
    world.gang("pinned", queue="theirs", on=[1, 1], pods=2, preemptable=False)
    world.gang("m", queue="mine", pods=3)
    assert evicted(world.decide(CAPACITY)) == []


def test_idle_cards_are_used_before_anybody_leaves() -> None:
    world = SmallWorld(2, cards=2, queues=(queue("mine", 4), queue("theirs", 0)))
    world.gang("t0", queue="theirs", on=[0], age_s=9)
    world.gang("t1", queue="theirs", on=[0])
    world.gang("t2", queue="theirs", on=[1], age_s=99)
    world.gang("m", queue="mine", pods=2)
    report = world.decide(CAPACITY)
    assert evicted(report) == ["t1-0"]
    assert nominated(report) == ["m-0", "m-1"]


def test_a_gang_at_its_minimum_leaves_whole_and_a_larger_one_gives_its_surplus() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("mine", 4), queue("theirs", 0)))
    world.gang("whole", queue="theirs", pods=2, on=[0, 0])
    world.gang("elastic", queue="theirs", pods=2, min_member=1, on=[0, 0], age_s=99)
    world.gang("m", queue="mine")
    assert evicted(world.decide(CAPACITY)) == ["elastic-1"]


def test_where_one_member_of_a_gang_has_to_go_all_go() -> None:
    world = SmallWorld(2, cards=2, queues=(queue("mine", 4), queue("theirs", 0)))
    world.gang("whole", queue="theirs", pods=4, on=[0, 0, 1, 1])
    world.gang("m", queue="mine")
    assert evicted(world.decide(CAPACITY)) == ["whole-0", "whole-1", "whole-2", "whole-3"]


def test_a_guarantee_is_never_taken() -> None:
    world = SmallWorld(1, cards=2, queues=(queue("mine", 2), queue("theirs", 0, guarantee=1)))
    world.gang("t0", queue="theirs", on=[0], age_s=9)
    world.gang("t1", queue="theirs", on=[0])
    world.gang("m1", queue="mine", age_s=9)
    world.gang("m2", queue="mine")
    assert evicted(world.decide(CAPACITY)) == ["t1-0"]


def test_a_queue_that_is_not_reclaimable_gives_nothing() -> None:
    world = SmallWorld(1, cards=1, queues=(queue("mine", 1), queue("theirs", 0, reclaimable=False)))
    world.gang("t", queue="theirs", on=[0])
    world.gang("m", queue="mine")
    assert evicted(world.decide(CAPACITY)) == []


def test_the_nearest_relatives_are_asked_first() -> None:
    tree = (
        queue("team", 2), queue("mine", 2, parent="team"), queue("sister", 0, parent="team"), queue("far", 0),
    )  # fmt: skip
    world = SmallWorld(1, cards=2, queues=tree)
    world.gang("near", queue="sister", on=[0], age_s=99)
    world.gang("away", queue="far", on=[0])
    world.gang("m", queue="mine")
    assert evicted(world.decide(CAPACITY)) == ["near-0"]


def test_the_capability_of_an_ancestor_is_a_limit() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("team", 2, capability=2), queue("mine", 2, parent="team")))
    world.gang("m", queue="mine", pods=3, min_member=1)
    assert len(bound(world.decide(CAPACITY))) == 2


@pytest.mark.parametrize(("deserved", "leave"), [({GPU: 2}, []), ({GPU: 0}, ["t-0"]), ({}, ["t-0"])])
def test_who_wants_cpu_alone_takes_nobodys_cards(deserved: dict[str, int], leave: list[str]) -> None:
    """Theirs says nothing of cpu: who has cards there leaves only if its queue has more of these than it deserves, or says nothing of them either. All of
    the cpu is theirs."""
    mine = QueueInfo(QueueName("mine"), deserved={"cpu": 64_000})
    world = SmallWorld(1, cards=2, queues=(mine, QueueInfo(QueueName("theirs"), deserved=deserved)))
    world.gang("t", queue="theirs", on=[0])
    world.columns.put_node(node("n0", cards=2, cpu=1))
    world.gang("m", queue="mine", cards=0)
    assert evicted(world.decide(CAPACITY)) == leave


def test_what_others_are_guaranteed_is_left_to_them() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("mine"), queue("theirs", guarantee=3)))
    world.gang("m", queue="mine", pods=3, min_member=1)
    assert len(bound(world.decide(CAPACITY))) == 1


def test_a_closed_queue_takes_nothing() -> None:
    mine = queue("mine", 2)
    mine.phase = QueuePhase.CLOSED
    world = SmallWorld(1, cards=2, queues=(mine, queue("theirs", 0)))
    world.gang("t", queue="theirs", on=[0], cards=2)
    world.gang("m", queue="mine")
    report = world.decide(CAPACITY)
    assert (bound(report), evicted(report)) == ({}, [])


def test_by_proportion_a_queue_deserves_its_weight_of_what_both_ask_for() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("mine", weight=3), queue("theirs", weight=1)))
    for i in range(4):
        world.gang(f"t{i}", queue="theirs", on=[0], age_s=100.0 - i)
    world.gang("m", queue="mine", pods=3)
    conf = policy("proportion").replace(", enableHierarchy: true", "")
    assert evicted(world.decide(conf)) == ["t1-0", "t2-0", "t3-0"]


def test_two_queues_of_equal_weight_that_want_everything_end_with_halves() -> None:
    world = SmallWorld(1, cards=8, queues=(queue("one"), queue("other")))
    for name in ("one", "other"):
        world.gang(name, queue=name, pods=8, min_member=1)
    got = bound(world.decide(policy("proportion", actions="allocate").replace(", enableHierarchy: true", "")))
    assert sum(name.startswith("one") for name in got) == 4
    assert sum(name.startswith("other") for name in got) == 4


def test_beyond_what_is_deserved_the_fair_share_is_the_line() -> None:
    """6 cards, 1 deserved each: of the 4 left over 1 and 3 by weight."""
    queues = (queue("mine", 1, over_quota="3"), queue("theirs", 1, over_quota="1"))
    world = SmallWorld(1, cards=6, queues=queues)
    for i in range(6):
        world.gang(f"t{i}", queue="theirs", on=[0], age_s=100.0 - i)
    world.gang("m", queue="mine", cards=4)
    assert evicted(world.decide(CAPACITY)) == ["t2-0", "t3-0", "t4-0", "t5-0"]


def test_more_than_the_fair_share_is_not_taken() -> None:
    queues = (queue("mine", 1, over_quota="3"), queue("theirs", 1, over_quota="1"))
    world = SmallWorld(1, cards=6, queues=queues)
    for i in range(6):
        world.gang(f"t{i}", queue="theirs", on=[0])
    world.gang("m", queue="mine", cards=5)
    assert evicted(world.decide(CAPACITY)) == []


def test_what_cannot_be_taken_back_stays_within_what_is_deserved() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("mine", 1, over_quota="1"),))
    world.gang("a", queue="mine", preemptable=False, age_s=9)
    world.gang("b", queue="mine", preemptable=False)
    world.gang("c", queue="mine")
    assert sorted(bound(world.decide(CAPACITY))) == ["a-0", "c-0"]


def test_departments_are_compared_where_their_paths_part() -> None:
    """Both departments deserve one card; the queue below deserves more than its department does."""
    queues = (
        queue("d1", 1, over_quota="0"), queue("d2", 1, over_quota="0"),
        queue("mine", 2, parent="d1", over_quota="0"), queue("theirs", 2, parent="d2", over_quota="0"),
    )  # fmt: skip
    world = SmallWorld(1, cards=2, queues=queues)
    world.gang("t0", queue="theirs", on=[0], age_s=9)
    world.gang("t1", queue="theirs", on=[0])
    world.gang("m0", queue="mine", age_s=9)
    world.gang("m1", queue="mine")
    report = world.decide(CAPACITY)
    assert evicted(report) == ["t1-0"]
    assert nominated(report) == ["m0-0"]


def test_an_ancestors_deserved_amount_counts_where_the_policy_says_so() -> None:
    queues = (queue("team", 1), queue("mine", parent="team"), queue("theirs"))
    for arguments, taken in (("", []), (", arguments: {ancestorReclaimLevel: 1}", ["t-0"])):
        world = SmallWorld(1, cards=1, queues=queues)
        world.gang("t", queue="theirs", on=[0])
        world.gang("m", queue="mine")
        assert evicted(world.decide(policy(arguments=arguments))) == taken


def test_the_places_that_were_made_go_to_whom_they_were_made_for() -> None:
    """Cycle after cycle: the one that left comes back first in line, and waits."""
    world = SmallWorld(1, cards=2, queues=(queue("theirs", 1), queue("mine", 1)))
    world.gang("t", queue="theirs", cards=2, on=[0], age_s=99)
    world.gang("m", queue="mine")
    assert bound(world.decide(CAPACITY, cycles=2, requeue_evicted=True)) == {"m-0": "n0"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (", arguments: {ancestorReclaimLevel: -1}", "ancestorReclaimLevel"),
        (", arguments: {ancestorLevel: 1}", "ancestorLevel"),
    ],
)
def test_a_wrong_argument_is_named(arguments: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        SmallWorld(1).decide(policy(arguments=arguments))


BAD_QUEUES = [
    (CAPACITY, {OVER_QUOTA_WEIGHT: "much"}, "over-quota-weight: 'much' is not a number"),
    (CAPACITY, {OVER_QUOTA_WEIGHT: "nan"}, "over-quota-weight: nan is not a number of at least 0"),
    (policy("drf", actions="allocate"), {HIERARCHY: "root/a/b", HIERARCHY_WEIGHTS: "1/2"}, "does not fit"),
    (policy("drf", actions="allocate"), {HIERARCHY: "root/a", HIERARCHY_WEIGHTS: "1/nan"}, "each more than 0"),
    (policy("nodegroup", actions="allocate", arguments=", arguments: {strict: false}"), {NODE_GROUP_LIMITS: "["}, "is not an object of groups"),
]  # fmt: skip


@pytest.mark.parametrize(("conf", "annotations", "said"), BAD_QUEUES)
def test_a_queue_that_cannot_be_read_is_refused_alone(conf: str, annotations: dict[str, str], said: str) -> None:
    bad = QueueInfo(QueueName("bad"), annotations=annotations)
    world = SmallWorld(1, cards=2, queues=(bad, queue("good", 1)))
    for name in ("bad", "good"):
        world.gang(name, queue=name)
    report = world.decide(conf)
    assert bound(report) == {"good-0": "n0"}
    message = report.pending["d/bad-0"].message
    assert message.startswith("QueueInvalid: queue bad")
    assert said in message


def test_beyond_what_they_deserve_queues_are_served_by_weight() -> None:
    """Four cards: own gets its two, the others go to heavy, of three times the weight; light came first."""
    world = SmallWorld(1, cards=4, queues=(queue("own", 2), queue("light"), queue("heavy", weight=3)))
    for number, name in enumerate(("light", "heavy", "own")):
        for place in range(4):
            world.gang(f"{name}{place}", queue=name, age_s=100.0 - 10 * number)
    report = world.decide(policy(actions="allocate", arguments=", arguments: {reclaimAtParting: true}"))
    assert sorted(pod.partition("-")[0].rstrip("0123") for pod in bound(report)) == ["heavy", "heavy", "own", "own"]


def test_a_gang_that_runs_takes_back_for_the_rest_of_its_pods_what_its_queue_deserves() -> None:
    """It needs one pod and has it; three more wait, of which its queue deserves two. They take single pods, and what others have beyond their minimums."""
    world = SmallWorld(1, cards=8, queues=(queue("mine", 3), queue("theirs", 0)))
    world.gang("single", queue="theirs", on=[0], age_s=99)
    world.gang("elastic", queue="theirs", pods=3, min_member=2, on=[0, 0, 0])
    world.gang("whole", queue="theirs", pods=3, on=[0, 0, 0], age_s=99)
    world.gang("m", queue="mine", pods=4, min_member=1, on=[0])
    report = world.decide(CAPACITY)
    assert evicted(report) == ["elastic-2", "single-0"]
    assert nominated(report) == ["m-1", "m-2"]


def test_for_more_than_its_minimum_no_other_gang_is_broken() -> None:
    world = SmallWorld(1, cards=4, queues=(queue("mine", 4), queue("theirs", 0)))
    world.gang("whole", queue="theirs", pods=3, on=[0, 0, 0])
    world.gang("m", queue="mine", pods=4, min_member=1, on=[0])
    assert evicted(world.decide(CAPACITY)) == []


def test_who_starves_takes_before_those_that_want_more_than_their_minimum() -> None:
    world = SmallWorld(1, cards=2, queues=(queue("grows", 2), queue("starves", 1), queue("theirs", 0)))
    world.gang("t", queue="theirs", on=[0])
    world.gang("g", queue="grows", pods=2, min_member=1, on=[0], age_s=999)
    world.gang("s", queue="starves")
    report = world.decide(CAPACITY)
    assert evicted(report) == ["t-0"]
    assert nominated(report) == ["s-0"]
