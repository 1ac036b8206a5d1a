"""What users write on their pods is theirs: whatever it is, all others are placed as ever."""

import pytest

from hbox_common.model.annotations import POLICY_ANNOTATIONS, REVOCABLE_ZONE
from hbox_scheduler.core.simulate import node

from .small_world import SmallWorld, bound

#: Plugins that read annotations of pods or their groups, and actions that ask them.
POLICY = """
actions: "enqueue, allocate, backfill, preempt, reclaim, shuffle, gangpreempt"
tiers:
- plugins: [{name: sla}, {name: priority}, {name: gang}, {name: conformance}, {name: cdp}, {name: minruntime}]
- plugins: [{name: drf}, {name: predicates}, {name: network-topology-aware}, {name: task-topology},
            {name: tdm, arguments: {tdm.revocable-zone.night: "22:00-22:01"}}]
"""

STRANGE = (
    "", " ", "-", "--5", "-1", "²", "٣", "1e3", "nan", "inf", "0x10", "1_000", "9" * 5000, "50%%", "%", "-20%", "null", "true", "[]", "a,b;c,,;;",
    "9" * 400 + "h", "1h-1m", "2026-13-40T99:99:99", "9999-12-31T23:59:59", "0001-01-01T00:00:00", "\x00", "node;node", "singleSwitch,none",
)  # fmt: skip


RESERVING = POLICY.replace("{name: minruntime}", "{name: minruntime}, {name: reservation, arguments: {after: 1s}}")


def world_of(note: str) -> SmallWorld:
    """Node n0 is in a zone that is lent by the hour. Gangs with each of these texts run, wait, and take; one without a note waits."""
    world = SmallWorld(2, cards=40)
    world.columns.put_node(node("n0", cards=40, cpu=128, labels={REVOCABLE_ZONE: "night"}))
    for number, text in enumerate(STRANGE):
        for gang in (
            world.gang(f"runs{number}", pods=2, min_member=1, on=[0, 1], age_s=60, annotations={note: text}),
            world.gang(f"waits{number}", pods=2, cards=2, age_s=30, annotations={note: text}),
            world.gang(f"takes{number}", pods=2, cards=20, priority=9, age_s=20, annotations={note: text}),
        ):
            gang.members[0].role = "a"
    world.gang("other", age_s=90)
    return world


@pytest.mark.parametrize("note", POLICY_ANNOTATIONS)
def test_whatever_a_note_says_others_are_placed(note: str) -> None:
    assert bound(world_of(note).decide(POLICY))["other-0"] == "n1"


@pytest.mark.parametrize("note", POLICY_ANNOTATIONS)
def test_whatever_a_note_says_nodes_are_set_aside_by_the_orders_of_plugins_in_later_tiers(note: str) -> None:
    assert "d/takes0-0" in world_of(note).decide(RESERVING).pending
