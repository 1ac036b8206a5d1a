"""minSubGroups counts where room is taken: who takes goes on until its sub-groups are whole, who gives keeps as many whole ones as it needs."""

import pytest

from hbox_common.model import SubGangPolicy
from hbox_scheduler.core.cluster.entities import Gang

from .small_world import SmallWorld

POLICY = """
actions: "allocate, %s"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}]
"""


def in_pairs(gang: Gang, min_sub_groups: int) -> None:
    """Members 0, 2 and 1, 3 are two sub-groups of two."""
    gang.sub_gang_policies = (SubGangPolicy("pairs", ("pair",), size=2, min_sub_gangs=min_sub_groups),)
    for number, member in enumerate(gang.members):
        member.labels = {"pair": str(number % 2)}


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_who_needs_two_sub_groups_takes_room_for_both(action: str) -> None:
    world = SmallWorld(1, cards=4)
    for number in range(4):
        world.gang(f"old{number}", on=[0])
    in_pairs(world.gang("new", pods=4, min_member=2, priority=9), min_sub_groups=2)
    report = world.decide(POLICY % action)
    assert sorted(eviction.member.name for eviction in report.evictions) == ["old0-0", "old1-0", "old2-0", "old3-0"]
    assert sorted(report.nominations) == [f"d/new-{number}" for number in range(4)]


@pytest.mark.parametrize(
    ("min_sub_groups", "gone"),
    [
        pytest.param(1, ["old-1", "old-3"], id="one pair is enough for it, so that the other goes"),
        pytest.param(2, ["old-0", "old-1", "old-2", "old-3"], id="it needs both, so that it goes whole"),
    ],
)
def test_who_gives_keeps_the_sub_groups_that_it_needs_or_goes_whole(min_sub_groups: int, gone: list[str]) -> None:
    world = SmallWorld(1, cards=4)
    in_pairs(world.gang("old", pods=4, on=[0] * 4, min_member=2), min_sub_groups)
    world.gang("new", cards=2, priority=9)
    assert sorted(eviction.member.name for eviction in world.decide(POLICY % "preempt").evictions) == gone
