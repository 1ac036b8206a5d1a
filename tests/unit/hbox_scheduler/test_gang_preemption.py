"""gangpreempt and gangreclaim: whole gangs make room for themselves inside one domain, and nobody leaves in vain."""

from collections.abc import Sequence

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName, SubGangPolicy
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.cluster.facts import DisruptionBudget
from hbox_scheduler.core.simulate.cycles import Report

from .fabric_world import SOFT, Fabric, hard, placed

LEAVES = {"s0": {"n0": 1, "n1": 1}, "s1": {"n2": 1, "n3": 1}}


def evicted(report: Report) -> list[str]:
    return sorted(eviction.member.name for eviction in report.evictions)


def preempt(fabric: Fabric, **more: object) -> Report:
    return fabric.run(actions="allocate, gangpreempt", **more)  # type: ignore[arg-type]


def test_surplus_goes_before_a_gang_is_broken() -> None:
    fabric = Fabric(LEAVES)
    fabric.gang("whole", 2, on=["n0", "n1"])
    fabric.gang("more", 2, least=1, on=["n2", "n3"])
    fabric.gang("high", 1, priority=9)
    report = preempt(fabric)
    assert evicted(report) in (["more-000"], ["more-001"])
    assert list(report.nominations) == ["ns/high-000"]


def test_equal_priority_is_not_taken_from() -> None:
    fabric = Fabric(LEAVES)
    fabric.gang("old", 4, least=1, on=["n0", "n1", "n2", "n3"])
    fabric.gang("new", 2)
    assert not evicted(preempt(fabric))


def test_a_hard_gang_gets_one_leaf_of_those_where_least_is_lost() -> None:
    fabric = Fabric(LEAVES, above={"top": ["s0", "s1"]})
    fabric.gang("whole", 2, on=["n0", "n2"])
    fabric.gang("loose", 2, least=0, on=["n1", "n3"])
    fabric.gang("other", 1, priority=5)
    report = preempt(fabric)
    assert evicted(report) in (["loose-000"], ["loose-001"])

    fabric = Fabric(LEAVES, above={"top": ["s0", "s1"]})
    fabric.gang("whole", 2, on=["n0", "n1"])
    fabric.gang("loose", 2, least=0, on=["n2", "n3"])
    fabric.gang("high", 2, wish=hard(1), priority=9)
    report = preempt(fabric)
    assert evicted(report) == ["loose-000", "loose-001"]
    assert set(report.nominations.values()) == {"n2", "n3"}


def test_nobody_leaves_where_no_single_domain_would_do() -> None:
    fabric = Fabric(LEAVES, above={"top": ["s0", "s1"]})
    fabric.gang("old", 4, least=0, on=["n0", "n1", "n2", "n3"])
    fabric.gang("high", 3, wish=hard(1), priority=9)
    report = preempt(fabric)
    assert not evicted(report)
    assert not report.nominations


def test_who_leaves_a_node_that_the_gang_does_not_use_stays() -> None:
    fabric = Fabric({"s0": {"n0": 2, "n1": 4}})
    fabric.gang("small", 2, least=0, on=["n0", "n0"])
    fabric.gang("large", 1, least=0, cores=4, on=["n1"], priority=1)
    fabric.gang("high", 1, cores=4, priority=9)
    assert evicted(preempt(fabric)) == ["large-000"]


def test_of_gangs_that_are_alike_the_smaller_one_is_broken() -> None:
    fabric = Fabric({"s0": {f"n{i}": 1 for i in range(6)}})
    fabric.gang("four", 4, on=["n0", "n1", "n2", "n3"])
    fabric.gang("two", 2, on=["n4", "n5"])
    fabric.gang("high", 2, priority=9)
    assert evicted(preempt(fabric)) == ["two-000", "two-001"]


def test_sub_gangs_stay_whole_as_long_as_others_can_go() -> None:
    fabric = Fabric({"s0": {f"n{i}": 1 for i in range(5)}})
    fabric.gang(
        "old",
        5,
        least=2,
        on=[f"n{i}" for i in range(5)],
        policies=[SubGangPolicy("pair", labels=("pair",), size=2, min_sub_gangs=2)],
        labels=[{"pair": "x"}, {"pair": "x"}, {"pair": "y"}, {"pair": "y"}, {"pair": "y"}],
    )
    fabric.gang("high", 1, priority=9)
    assert evicted(preempt(fabric)) in (["old-002"], ["old-003"], ["old-004"])


def test_a_gang_that_never_preempts_takes_nothing() -> None:
    fabric = Fabric(LEAVES)
    fabric.gang("old", 4, least=0, on=["n0", "n1", "n2", "n3"])
    gang = fabric.gang("high", 1, priority=9)
    gang.members[0].never_preempts = True
    assert not evicted(preempt(fabric))


def test_the_gang_starts_on_what_was_made_free_for_it() -> None:
    fabric = Fabric(LEAVES, above={"top": ["s0", "s1"]})
    fabric.gang("old", 4, least=0, on=["n0", "n1", "n2", "n3"])
    gang = fabric.gang("high", 2, wish=SOFT, priority=9)
    report = preempt(fabric, cycles=2)
    assert len(evicted(report)) == 2
    assert len(fabric.leaves_used(placed(report, gang))) == 1
    assert placed(report, gang).total() == 2


def test_whole_gangs_are_spared_where_the_action_is_told_so() -> None:
    fabric = Fabric(LEAVES)
    fabric.gang("old", 4, on=["n0", "n1", "n2", "n3"])
    fabric.gang("high", 1, priority=9)
    conf = """
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
configurations:
- name: gangpreempt
  arguments: {{allowWholeBundle: false}}
"""
    assert not evicted(preempt(fabric, conf=conf))
    with pytest.raises(InvalidRequest, match="allowWholeBundles"):
        preempt(fabric, conf=conf.replace("allowWholeBundle:", "allowWholeBundles:"))


def test_a_queue_takes_back_what_it_deserves_and_no_more() -> None:
    fabric = Fabric(LEAVES, above={"top": ["s0", "s1"]})
    old = fabric.gang("old", 4, least=0, on=["n0", "n1", "n2", "n3"])
    old.queue = QueueName("other")
    fabric.gang("one", 2, wish=hard(1))
    fabric.gang("two", 1)
    conf = """
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: capacity}}, {{name: network-topology-aware}}]
"""
    queues = [QueueInfo(QueueName(name), deserved={"cpu": 2000}) for name in ("q", "other")]
    report = fabric.run(actions="allocate, gangreclaim", conf=conf, queues=queues)
    assert len(evicted(report)) == 2
    assert set(report.nominations) == {"ns/one-000", "ns/one-001"}
    assert len(fabric.leaves_used(dict.fromkeys(report.nominations.values(), 1))) == 1


RECLAIM = """
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {{name: network-topology-aware}}, {{name: capacity}}]
"""
PDB = "- plugins: [{{name: pdb}}]"
GUARDED = [RECLAIM + PDB, RECLAIM.replace("tiers:", "tiers:\n" + PDB)]


def reclaim(
    fabric: Fabric,
    *,
    others_deserve: int,
    guaranteed: int = 0,
    deserved: int = 4,
    conf: str = RECLAIM,
    budgets: Sequence[DisruptionBudget] = (),
) -> Report:
    """Gangs named `old...` are of another queue."""
    for gang in fabric.gangs:
        gang.queue = QueueName("other" if gang.name.startswith("old") else "q")
    queues = [
        QueueInfo(QueueName("q"), deserved={"cpu": 1000 * deserved}),
        QueueInfo(QueueName("other"), deserved={"cpu": 1000 * others_deserve}, guarantee={"cpu": 1000 * guaranteed}),
    ]
    return fabric.run(actions="gangreclaim", conf=conf, queues=queues, budgets=budgets)


ONE_LEAF = {"s0": {f"n{i}": 1 for i in range(4)}}


@pytest.mark.parametrize(("least", "wanted"), [(3, 3), (3, 2), (4, 3), (4, 1)])
def test_a_gang_that_is_broken_goes_whole_with_its_surplus(least: int, wanted: int) -> None:
    fabric = Fabric(ONE_LEAF, above={"top": ["s0"]})
    fabric.gang("old", 4, least=least, on=["n0", "n1", "n2", "n3"])
    fabric.gang("new", wanted, wish=hard(1))
    report = reclaim(fabric, others_deserve=0)
    assert evicted(report) == ["old-000", "old-001", "old-002", "old-003"]
    assert len(report.nominations) == wanted


def test_its_members_in_other_domains_go_too() -> None:
    fabric = Fabric(LEAVES, above={"top": ["s0", "s1"]})
    fabric.gang("old", 3, on=["n0", "n1", "n2"])
    fabric.gang("old-other", 1, on=["n3"])
    fabric.gang("new", 2, wish=hard(1))
    report = reclaim(fabric, others_deserve=0)
    assert evicted(report) == ["old-000", "old-001", "old-002"]
    assert set(report.nominations.values()) == {"n0", "n1"}


def test_a_gang_of_which_one_member_may_not_be_taken_is_left_alone() -> None:
    """Its queue is guaranteed one core: the last member is its own."""
    fabric = Fabric(ONE_LEAF, above={"top": ["s0"]})
    fabric.gang("old", 4, on=["n0", "n1", "n2", "n3"])
    fabric.gang("new", 3, wish=hard(1))
    assert not evicted(reclaim(fabric, others_deserve=1, guaranteed=1))


def test_a_gang_goes_whole_although_its_queue_has_less_than_it_deserves_then() -> None:
    fabric = Fabric(ONE_LEAF, above={"top": ["s0"]})
    fabric.gang("old", 4, on=["n0", "n1", "n2", "n3"])
    fabric.gang("new", 3, wish=hard(1))
    assert len(evicted(reclaim(fabric, others_deserve=1))) == 4


def test_a_gang_that_cannot_go_whole_does_not_stand_before_one_that_can() -> None:
    """The youngest is asked first; without its four members its queue would have less than it is guaranteed."""
    leaf = {"s0": {f"n{i}": 1 for i in range(7)}}
    fabric = Fabric(leaf, above={"top": ["s0"]})
    fabric.gang("old-three", 3, on=["n0", "n1", "n2"])
    fabric.gang("old-four", 4, on=["n3", "n4", "n5", "n6"])
    fabric.gang("new", 3, wish=hard(1))
    assert evicted(reclaim(fabric, others_deserve=4, guaranteed=4)) == ["old-three-000", "old-three-001", "old-three-002"]


@pytest.mark.parametrize("conf", GUARDED, ids=["budgets last", "budgets first"])
def test_a_gang_of_which_a_budget_keeps_one_does_not_stand_before_one_that_can(conf: str) -> None:
    """The youngest is asked first, and would be all that its queue has to give back; its budget lets three of its four members go."""
    fabric = Fabric({"s0": {f"n{i}": 1 for i in range(7)}}, above={"top": ["s0"]})
    fabric.gang("old-three", 3, on=["n0", "n1", "n2"])
    fabric.gang("old-four", 4, on=["n3", "n4", "n5", "n6"])
    fabric.gang("new", 3, wish=hard(1))
    budget = DisruptionBudget("ns", "kept", {"gang": "old-four"}, 3)
    report = reclaim(fabric, others_deserve=3, conf=conf, budgets=[budget])
    assert evicted(report) == ["old-three-000", "old-three-001", "old-three-002"]
