"""Who may take from whom, as data; and who has run too short a time, or would lose too much, to be taken from."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster.entities import QueueInfo

from .small_world import NOW, SmallWorld, evicted

LEVELS = """
actions: "preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: levels
    arguments:
      levels:
        high: {classes: [urgent], preempts: [low], preemptable: false}
        medium: {classes: [normal], preempts: [], preemptable: false}
        low: {classes: [batch], preempts: [], preemptable: true}
- plugins:
  - name: predicates
"""
CLASSES = {"urgent": 30, "normal": 20, "batch": 10}


@pytest.mark.parametrize(
    ("claimant", "holder", "taken"),
    [
        ("urgent", "batch", True),
        ("urgent", "normal", False),  # higher priority, but medium takes no part
        ("normal", "batch", False),
        ("urgent", "urgent", False),
        ("unknown", "batch", False),  # on the default level, medium
    ],
)
def test_high_takes_from_low_and_medium_takes_no_part(claimant: str, holder: str, taken: bool) -> None:
    world = SmallWorld(1, 1, classes=CLASSES)
    world.gang("holder", on=[0], priority=CLASSES[holder], priority_class=holder, age_s=60)
    world.gang("claimant", priority=CLASSES.get(claimant, 40), priority_class=claimant)
    assert evicted(world.decide(LEVELS)) == (["holder-0"] if taken else [])


STANDARD = """
actions: "{action}"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: levels
- plugins:
  - name: predicates
  - name: capacity
"""
THREE = {"high": 30, "medium": 20, "low": -10}


@pytest.mark.parametrize(
    ("claimant", "holder", "taken"),
    [
        ("high", "low", True),
        ("high", "medium", False),
        ("high", "high", False),
        ("medium", "low", False),
        ("high", "", True),  # on no level, of lower priority
        ("medium", "", False),
        ("", "low", True),
        ("", "medium", False),
    ],
)
def test_without_arguments_they_are_high_medium_and_low_once_there_are_such_classes(
    claimant: str, holder: str, *, taken: bool
) -> None:
    def evictions(classes: dict[str, int]) -> list[str]:
        world = SmallWorld(1, 1, classes=classes)
        world.gang("holder", on=[0], priority=THREE.get(holder, 0), priority_class=holder, age_s=60)
        world.gang("claimant", priority=THREE.get(claimant, 0), priority_class=claimant)
        return evicted(world.decide(STANDARD.format(action="preempt")))

    assert evictions(THREE) == (["holder-0"] if taken else [])
    by_priority = THREE.get(claimant, 0) > THREE.get(holder, 0)
    assert evictions({"high": 30, "low": -10}) == (["holder-0"] if by_priority else [])


@pytest.mark.parametrize(
    ("claimant", "holder", "moved"),
    [
        ("medium", "medium", True),
        ("medium", "low", True),
        ("low", "low", True),
        ("high", "medium", True),
        ("high", "high", False),
        ("medium", "high", False),
    ],
)
def test_who_gives_no_place_up_is_moved_whatever_it_may_be_preempted_for(claimant: str, holder: str, *, moved: bool) -> None:
    world = SmallWorld(2, cards=2, classes=THREE)
    for node in (0, 1):
        world.gang(f"h{node}", on=[node], priority=THREE[holder], priority_class=holder, age_s=60 + node)
    world.gang("wide", cards=2, priority=THREE[claimant], priority_class=claimant)
    assert len(evicted(world.decide(STANDARD.format(action="consolidate")))) == moved


@pytest.mark.parametrize("holder", ["", "high", "medium", "low"])
def test_a_share_is_taken_back_from_every_level(holder: str) -> None:
    """And from jobs without a class."""
    assert _reclaimed(STANDARD.format(action="reclaim"), THREE, holder) == ["holder-0"]


def test_but_not_from_one_that_is_left_out_of_it() -> None:
    kept = LEVELS.replace('"preempt"', '"reclaim"').replace("preempts: [], ", "preempts: [], reclaimable: false, ")
    kept += "  - name: capacity\n"
    assert _reclaimed(kept, CLASSES, "normal") == []
    assert _reclaimed(kept, CLASSES, "urgent") == ["holder-0"]


def _reclaimed(conf: str, classes: dict[str, int], holder: str) -> list[str]:
    queues = [QueueInfo(QueueName(name), deserved={GPU: cards}) for name, cards in (("mine", 1), ("theirs", 0))]
    world = SmallWorld(1, 1, queues=queues, classes=classes)
    world.gang("holder", queue="theirs", on=[0], priority=classes.get(holder, 0), priority_class=holder, age_s=60)
    world.gang("claimant", queue="mine")
    return evicted(world.decide(conf))


def test_rules_can_be_limited_to_queues() -> None:
    world = SmallWorld(1, 1, classes=CLASSES)
    world.gang("holder", on=[0], priority=10, priority_class="batch", age_s=60)
    world.gang("claimant", priority=30, priority_class="urgent")
    elsewhere = LEVELS.replace("      levels:\n", "      queues: other\n      levels:\n")
    assert evicted(world.decide(elsewhere)) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("preempts: [lowest]", "no level"),
        ("preempts: low, preemptible: true", "unknown key 'preemptible'"),
        ("preemptable: maybe", "preemptable 'maybe'"),
    ],
)
def test_a_wrong_rule_is_named(wrong: str, said: str) -> None:
    text = LEVELS.replace("classes: [urgent], preempts: [low], preemptable: false", f"classes: [urgent], {wrong}")
    with pytest.raises(InvalidRequest, match=said):
        SmallWorld(1).decide(text)


RUN_TIMES = """
actions: "preempt"
tiers:
- plugins:
  - name: minruntime
    arguments: {preempt: 10m}
  - name: priority
  - name: gang
- plugins:
  - name: predicates
"""


def test_nobody_goes_before_it_has_run_for_its_time() -> None:
    world = SmallWorld(1, 2)
    world.gang("fresh", on=[0], age_s=60)
    world.gang("old", on=[0], age_s=6000)
    world.gang("claimant", priority=9)
    assert evicted(world.decide(RUN_TIMES)) == ["old-0"]


@pytest.mark.parametrize(
    ("asks", "age_s", "goes"), [("3h", 6000, True), ("3h", 60, False), ("1m", 90, True), ("1m", 30, False)]
)
def test_a_tenants_annotation_makes_the_policys_time_shorter_and_never_longer(asks: str, age_s: float, goes: bool) -> None:
    world = SmallWorld(1, 1)
    world.gang("holder", on=[0], age_s=age_s, annotations={"hbox.io/min-run-time": asks})
    world.gang("claimant", priority=9)
    assert evicted(world.decide(RUN_TIMES)) == (["holder-0"] if goes else [])


CHECKPOINTS = """
actions: "preempt"
tiers:
- plugins:
  - name: checkpoint
  - name: priority
  - name: gang
- plugins:
  - name: predicates
"""


@pytest.mark.parametrize(
    "written",
    [{"hbox.io/checkpoint-interval": "100s"}, {"hbox.io/checkpoint-every": "100s"}, {"hbox.io/checkpointed-at": "999950"}],
)
def test_of_several_jobs_the_one_goes_first_that_loses_least_since_its_checkpoint(written: dict[str, str]) -> None:
    """It ran for 2 hours and 50 seconds, the others for a half and a quarter of an hour."""
    for conf, goes in ((CHECKPOINTS, "careful-0"), (CHECKPOINTS.replace("  - name: checkpoint\n", ""), "quarter-0")):
        world = SmallWorld(1, 3)
        world.gang("careful", on=[0], age_s=7250, annotations=written)
        world.gang("half", on=[0], age_s=1800)
        world.gang("quarter", on=[0], age_s=900)
        world.gang("claimant", priority=9)
        assert evicted(world.decide(conf)) == [goes]


@pytest.mark.parametrize(
    "wrong", [{"hbox.io/checkpoint-interval": "0s"}, {"hbox.io/checkpointed-at": "5e9"}, {"hbox.io/checkpointed-at": "-5e9"}]
)
def test_what_is_written_never_makes_a_loss_larger_than_the_run(wrong: dict[str, str]) -> None:
    world = SmallWorld(1, 2)
    world.gang("boasts", on=[0], age_s=100, annotations=wrong)
    world.gang("long", on=[0], age_s=7250)
    world.gang("claimant", priority=9)
    assert evicted(world.decide(CHECKPOINTS)) == ["boasts-0"]


@pytest.mark.parametrize(
    ("at", "believed"),
    [
        ("999999", True),
        ("1000030", True),
        ("1000070", False),
        ("9e9", False),
        ("992000", False),
        ("1970-01-12T13:46:39Z", True),
        ("1970-01-12T14:46:39+01:00", True),
        ("1970-01-12T13:46:39", False),
        ("tomorrow", False),
    ],
)
def test_a_moment_that_cannot_be_is_as_if_not_written(at: str, believed: bool) -> None:
    """It has run for 7,250 s, until 1,000,000 s after the epoch; the other one for 1,800."""
    world = SmallWorld(1, 2)
    world.gang("writes", on=[0], age_s=7250, annotations={"hbox.io/checkpointed-at": at})
    world.gang("silent", on=[0], age_s=1800)
    world.gang("claimant", priority=9)
    assert evicted(world.decide(CHECKPOINTS)) == ["writes-0" if believed else "silent-0"]


@pytest.mark.parametrize("conf", [CHECKPOINTS, CHECKPOINTS.replace('"preempt"', '"gangpreempt"')])
@pytest.mark.parametrize(("until_s", "goes"), [(5, []), (0, ["holder-0"]), (1e9, ["holder-0"])])
def test_whom_the_ledger_protects_nobody_takes_from_under_any_policy(conf: str, until_s: float, goes: list[str]) -> None:
    """What is said to end in years is nothing that a queue can say: a clock was set."""
    world = SmallWorld(1, 1)
    holder = world.gang("holder", on=[0], age_s=10)
    world.gang("claimant", priority=9)
    holder.members[0].protected_until = NOW + until_s
    assert evicted(world.decide(conf)) == goes


def test_who_waits_for_a_pod_of_its_own_queue_that_cools_down_is_told_so() -> None:
    """Not who has no priority over it, and not while anybody else goes. The queue has no minimum run time."""

    def messages_of(conf: str, priority: int = 9, others: int = 0) -> list[str]:
        world = SmallWorld(1, 1 + others)
        holder = world.gang("holder", on=[0], age_s=10)
        for number in range(others):
            world.gang(f"free{number}", on=[0], age_s=9)
        world.gang("claimant", priority=priority)
        holder.members[0].protected_until = NOW + 5
        report = world.decide(conf, explain=True)
        return [one.message for one in report.pending.values()]

    [message] = messages_of(CHECKPOINTS)
    assert messages_of(CHECKPOINTS.replace('"preempt"', '"gangpreempt"')) == [message]
    assert message.endswith(
        "; pods that are not evictable yet: 1 of queue q in cool-down (their jobs were evicted recently) until 1970-01-12 13:46:45 UTC"
    )
    assert not any("not evictable yet" in one for one in messages_of(CHECKPOINTS, priority=0))
    assert not any("not evictable yet" in one for one in messages_of(CHECKPOINTS, others=1))


def test_of_whom_the_policy_gives_nobody_away_nothing_is_told() -> None:
    """Level medium, in its cool-down: level high takes none of it, now or later."""

    def messages_of(holder: str) -> str:
        world = SmallWorld(1, 1, classes=THREE)
        held = world.gang("holder", on=[0], priority=THREE[holder], priority_class=holder, age_s=10)
        world.gang("claimant", priority=THREE["high"], priority_class="high")
        held.members[0].protected_until = NOW + 5
        [message] = [one.message for one in world.decide(STANDARD.format(action="preempt"), explain=True).pending.values()]
        return message

    assert "1 of queue q in cool-down" in messages_of("low")
    assert "not evictable yet" not in messages_of("medium")


def test_inside_a_gang_whoever_checkpointed_last_loses_least_and_goes_first() -> None:
    """An elastic gang of three that needs one: the member that wrote its checkpoint a minute ago goes."""
    world = SmallWorld(1, 3)
    gang = world.gang("elastic", pods=3, min_member=1, on=[0, 0, 0], age_s=9000)
    gang.members[0].annotations = {"hbox.io/checkpointed-at": "999000"}
    gang.members[1].annotations = {"hbox.io/checkpointed-at": "999940"}
    world.gang("claimant", priority=9)
    assert evicted(world.decide(RUN_TIMES)) == ["elastic-1"]
