"""consolidate: running members move together, so that a gang finds room in one piece. Drawings: node [taken/cards]."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_scheduler.core.cluster.facts import DisruptionBudget
from hbox_scheduler.core.simulate.cycles import Report

from .small_world import SmallWorld, bound, evicted


def policy(*guards: str, moves: str = "") -> str:
    plugins = ", ".join(("{name: priority}", "{name: gang}", *guards))
    return f"""
actions: "allocate, consolidate"
tiers:
- plugins: [{plugins}]
- plugins: [{{name: predicates}}, {{name: binpack}}]
{moves}
"""


CONSOLIDATE = policy()


def promised(report: Report) -> dict[str, str]:
    return {name.removeprefix("d/"): node for name, node in report.nominations.items()}


def halves(cards: int = 4) -> SmallWorld:
    """n0 [3/4], n1 [3/4] of 2 and 1 on n1."""
    world = SmallWorld(2, cards=cards)
    world.gang("old", cards=2, on=[0], age_s=99)
    world.gang("mid", cards=1, on=[1], age_s=50)
    world.gang("new", cards=2, on=[1], age_s=10)
    return world


def test_one_moves_and_the_gang_gets_the_node() -> None:
    world = halves()
    world.gang("wide", cards=3)
    report = world.decide(CONSOLIDATE)
    assert evicted(report) == ["new-0"]
    assert promised(report) == {"new-0": "n0", "wide-0": "n1"}


def test_nobody_moves_where_one_of_them_would_find_no_place() -> None:
    world = SmallWorld(2, cards=4)
    world.gang("a", cards=3, on=[0])
    world.gang("b", cards=3, on=[1])
    world.gang("wide", cards=3)
    report = world.decide(CONSOLIDATE)
    assert (evicted(report), promised(report)) == ([], {})


def test_nobody_moves_for_a_gang_that_would_still_not_be_whole() -> None:
    world = halves()
    world.gang("wide", cards=3, pods=2)
    assert evicted(world.decide(CONSOLIDATE)) == []


def test_who_is_more_important_or_may_not_be_evicted_is_not_moved() -> None:
    for more in ({"priority": 5}, {"preemptable": False}):
        world = SmallWorld(2, cards=2)
        world.gang("a", on=[0], **more)
        world.gang("b", on=[1], **more)
        world.gang("wide", cards=2)
        assert evicted(world.decide(CONSOLIDATE)) == []


def test_where_there_is_room_nobody_moves() -> None:
    world = SmallWorld(2, cards=4)
    world.gang("a", cards=2, on=[0])
    world.gang("wide", cards=3)
    report = world.decide(CONSOLIDATE)
    assert (evicted(report), bound(report)) == ([], {"wide-0": "n1"})


def test_a_gang_that_moves_stays_whole() -> None:
    world = SmallWorld(2, cards=3)
    world.gang("g", pods=3, on=[0, 0, 1])
    world.gang("wide", cards=3)
    report = world.decide(CONSOLIDATE)
    assert evicted(report) == ["g-2"]
    assert promised(report) == {"g-2": "n0", "wide-0": "n1"}


def test_in_the_next_cycle_all_are_where_they_were_promised() -> None:
    world = halves()
    world.gang("wide", cards=3)
    assert bound(world.decide(CONSOLIDATE, cycles=2, requeue_evicted=True)) == {"new-0": "n0", "wide-0": "n1"}


def test_no_more_are_moved_than_the_policy_allows() -> None:
    def world() -> SmallWorld:
        world = SmallWorld(2, cards=4)
        for name, row in (("a", 0), ("b", 0), ("c", 1), ("d", 1)):
            world.gang(name, on=[row])
        world.gang("wide", cards=4)
        return world

    for limit, moved in ((1, 0), (2, 2), (-1, 2), (0, 0)):
        conf = policy(moves=f"configurations: [{{name: consolidate, arguments: {{maxMovedPods: {limit}}}}}]")
        assert len(world().decide(conf).evictions) == moved


def test_budgets_for_disruptions_hold() -> None:
    world = halves()
    world.gang("wide", cards=3)
    for gang in world.gangs:
        gang.members[0].labels = {"app": "a"}
    world.budgets = [DisruptionBudget("d", "a", {"app": "a"}, allowed=0)]
    assert evicted(world.decide(policy("{name: pdb}"))) == []


@pytest.mark.parametrize("argument", ["maxMovedPods: many", "maxMovedPods: -2", "maxMoved: 1"])
def test_a_wrong_argument_is_named(argument: str) -> None:
    with pytest.raises(InvalidRequest, match="consolidate"):
        SmallWorld(1).decide(policy(moves=f"configurations: [{{name: consolidate, arguments: {{{argument}}}}}]"))
