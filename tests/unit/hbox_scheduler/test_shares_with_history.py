"""What queues used of late decides whose turn it is beyond what they deserve: clusters of some cards, queues with histories, in cards used on average."""

from dataclasses import replace

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName
from hbox_common.model.annotations import OVER_QUOTA_WEIGHT
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster.entities import QueueInfo

from .small_world import SmallWorld, bound, evicted


def queue(
    name: str, *, recent: float = 0.0, deserved: int | None = None, weight: int = 1, parent: str = "", over_quota: str = ""
) -> QueueInfo:
    return QueueInfo(
        QueueName(name),
        weight=weight,
        parent=QueueName(parent) if parent else None,
        deserved={} if deserved is None else {GPU: deserved},
        annotations={OVER_QUOTA_WEIGHT: over_quota} if over_quota else {},
        recent_cards=recent,
    )


def policy(share: str = "capacity", *, k: float | str | None = 1.0, actions: str = "allocate") -> str:
    arguments = "" if k is None else f", arguments: {{usageWeight: {k}}}"
    return f"""
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {{name: {share}, enableHierarchy: {str(share == "capacity").lower()}{arguments}}}]
"""


def given(world: SmallWorld, conf: str) -> dict[str, int]:
    """Cards by queue, of those that were given now."""
    report = world.decide(conf)
    counts: dict[str, int] = {}
    for binding in report.bindings:
        name = binding.member.gang.queue
        counts[name] = counts.get(name, 0) + 1
    return counts


def waiting(queues: tuple[QueueInfo, ...], *, cards: int, each: int) -> SmallWorld:
    """All of the cluster free, so many gangs of a card in each queue, those of the first the oldest."""
    world = SmallWorld(1, cards=cards, queues=queues)
    for place, one in enumerate(q for q in queues if not any(o.parent == q.name for o in queues)):
        for number in range(each):
            world.gang(f"{one.name}{number}", queue=one.name, age_s=100.0 - 10 * place - number / 10)
    return world


@pytest.mark.parametrize("share", ["capacity", "proportion"])
@pytest.mark.parametrize(
    ("recent", "k", "shares"),
    [
        ((8.0, 0.0), 1.0, {"b": 8}),  # twice its part or more: the other goes first
        ((4.0, 0.0), 1.0, {"a": 3, "b": 5}),  # 1/2 against 1
        ((4.0, 4.0), 1.0, {"a": 4, "b": 4}),
        ((0.0, 0.0), 1.0, {"a": 4, "b": 4}),
        ((4.0, 0.0), 0.5, {"a": 3, "b": 5}),  # 1/2 against 3/4
    ],
)
def test_who_used_less_gets_more_until_it_has_caught_up(
    share: str, recent: tuple[float, float], k: float, shares: dict[str, int]
) -> None:
    world = waiting((queue("a", recent=recent[0]), queue("b", recent=recent[1])), cards=8, each=8)
    assert given(world, policy(share, k=k)) == shares


@pytest.mark.parametrize("share", ["capacity", "proportion"])
def test_what_nobody_else_wants_goes_to_whoever_has_used_most(share: str) -> None:
    world = waiting((queue("a", recent=8.0), queue("b")), cards=8, each=3)
    world.gang("a-more", queue="a", pods=2, age_s=1)
    assert given(world, policy(share)) == {"a": 5, "b": 3}


@pytest.mark.parametrize("arguments", [None, 0, 0.0])
@pytest.mark.parametrize("share", ["capacity", "proportion"])
def test_without_a_weight_history_is_nothing(share: str, arguments: float | None) -> None:
    plain = waiting((queue("a", weight=2), queue("b")), cards=8, each=8)
    remembered = waiting((queue("a", weight=2, recent=8.0), queue("b")), cards=8, each=8)
    assert bound(remembered.decide(policy(share, k=arguments))) == bound(plain.decide(policy(share, k=None)))


def test_what_is_deserved_is_not_touched() -> None:
    queues = (queue("a", recent=8.0, deserved=3), queue("b", deserved=1))
    assert given(waiting(queues, cards=4, each=8), policy()) == {"a": 3, "b": 1}
    assert given(waiting(queues, cards=8, each=8), policy()) == {"a": 3, "b": 5}


def test_higher_queues_go_first_whatever_they_used() -> None:
    queues = (replace(queue("a", recent=8.0), priority=1), queue("b"))
    assert given(waiting(queues, cards=8, each=6), policy()) == {"a": 6, "b": 2}


def test_departments_are_compared_by_the_history_of_all_below_them() -> None:
    queues = (
        queue("d", recent=8.0), queue("e"),
        queue("d1", parent="d"), queue("d2", parent="d", recent=8.0), queue("e1", parent="e"),
    )  # fmt: skip
    assert given(waiting(queues, cards=8, each=6), policy()) == {"e1": 6, "d1": 2}


def crowded(*, recent: tuple[float, float], over_quota: str = "1") -> SmallWorld:
    """a has all eight cards, b asks for some; half of it would be each one's fair share."""
    queues = (
        queue("a", recent=recent[0], deserved=0, over_quota=over_quota),
        queue("b", recent=recent[1], deserved=0, over_quota=over_quota),
    )
    world = SmallWorld(1, cards=8, queues=queues)
    for number in range(8):
        world.gang(f"a{number}", queue="a", on=[0], age_s=100.0 - number)
    for number in range(8):
        world.gang(f"b{number}", queue="b", age_s=50.0 - number)
    return world


@pytest.mark.parametrize(
    ("recent", "k", "leave"),
    [
        ((0.0, 0.0), 1.0, 4),
        ((8.0, 0.0), None, 4),
        ((8.0, 0.0), 1.0, 4),  # b might have all of it: but what is evicted has to be right without history too
        ((0.0, 4.0), 1.0, 3),  # b has used its part: it takes no more than that leaves it
        ((0.0, 8.0), 1.0, 0),
    ],
)
def test_history_forbids_evictions_and_never_justifies_one(recent: tuple[float, float], k: float | None, leave: int) -> None:
    report = crowded(recent=recent).decide(policy(k=k, actions="allocate, reclaim"))
    assert len(evicted(report)) == leave


@pytest.mark.parametrize("share", ["capacity", "proportion"])
@pytest.mark.parametrize(("k", "wrong"), [("x", "'x' is not a number"), (-1, "-1 is not a number of at least 0")])
def test_a_wrong_weight_is_told(share: str, k: float | str, wrong: str) -> None:
    with pytest.raises(InvalidRequest, match=f"plugin {share}, argument usageWeight: {wrong}"):
        SmallWorld(1).decide(policy(share, k=k))


def test_a_share_that_moves_makes_nobody_take_back_and_forth() -> None:
    """Two queues want all eight cards, hour by hour, while what they used moves their shares: after the first hour nobody leaves any more."""
    wants = {"a": [f"a{n}" for n in range(8)], "b": [f"b{n}" for n in range(8)]}
    held, recent, evictions = list(wants["a"]), {"a": 0.0, "b": 0.0}, []
    for hour in range(30):
        queues = tuple(queue(name, recent=recent[name], deserved=0, over_quota="1") for name in wants)
        world = SmallWorld(1, cards=8, queues=queues)
        for name, gangs in wants.items():
            for number, gang in enumerate(gangs):
                world.gang(gang, queue=name, on=[0] if gang in held else [], age_s=1000.0 + 100 * (gang in held) - number)
        report = world.decide(policy(actions="allocate, reclaim"))
        gone = [name.removesuffix("-0") for name in evicted(report)]
        evictions.append(len(gone))
        held = [gang for gang in held if gang not in gone] + [name.removesuffix("-0") for name in bound(report)]
        keep = 0.5 ** (1 / 5)  # a half-life of five hours
        for name, gangs in wants.items():
            recent[name] = recent[name] * keep + sum(gang in held for gang in gangs) * (1 - keep)
        assert hour == 0 or len(held) == 8, "nothing stays idle"
    assert evictions == [4] + [0] * 29
