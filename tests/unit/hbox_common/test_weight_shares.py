"""Shares by weight: Volcano's water filling, what is deserved before it, and trees."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import Queue, QueueName, QueuePhase, QueueTree, Resources
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.weightshares import Demand, divide_by_weight, fill, shares_by_weight, whole


@pytest.mark.parametrize(
    ("amount", "siblings", "shares"),
    [
        (16, [Demand(1, 16), Demand(3, 16)], [4, 12]),
        (16, [Demand(1, 16), Demand(3, 6)], [10, 6]),  # what one does not ask for goes to the other
        (16, [Demand(1, 16), Demand(3, 0)], [16, 0]),
        (16, [Demand(1, 16, most=2), Demand(1, 16)], [2, 14]),
        (16, [Demand(1, 16), Demand(1, 16, guarantee=12)], [4, 12]),  # nobody counts on what is guaranteed to others
        (16, [Demand(0, 16), Demand(1, 4)], [0, 4]),
        (16, [Demand(0, 16, guarantee=3), Demand(1, 16)], [3, 13]),
        (16, [Demand(1, 16, deserved=12), Demand(1, 16), Demand(1, 16)], [12 + 4 / 3, 4 / 3, 4 / 3]),
        (16, [Demand(1, 2, deserved=12), Demand(1, 16)], [2, 14]),  # what is deserved and not asked for is lent
        (10, [Demand(1, inf), Demand(1, inf), Demand(1, inf)], [10 / 3] * 3),
        (0, [Demand(1, 3)], [0]),
        (-5, [Demand(1, 3)], [0]),
        (5, [], []),
    ],
)
def test_what_there_is_is_divided(amount: float, siblings: list[Demand], shares: list[float]) -> None:
    assert divide_by_weight(amount, siblings) == pytest.approx(shares)


@given(amount=st.floats(0, 100), of=st.lists(st.tuples(st.floats(0, 50), st.integers(-1, 5)), max_size=6))
def test_filling_gives_all_away_and_nobody_more_than_wanted(amount: float, of: list[tuple[float, int]]) -> None:
    wanted, weights = [want for want, _ in of], [weight for _, weight in of]
    got = fill(amount, wanted, weights)
    assert all(has <= want + 1e-9 for has, want in zip(got, wanted, strict=True))
    assert sum(got) <= amount + 1e-6
    if any(has < want - 1e-6 and weight > 0 for has, want, weight in zip(got, wanted, weights, strict=True)):
        assert sum(got) >= amount - 1e-6


@given(amount=st.integers(0, 2**53), weights=st.lists(st.integers(1, 65535), min_size=1, max_size=6))
def test_whole_units_are_never_more_than_there_are(amount: int, weights: list[int]) -> None:
    shares = divide_by_weight(amount, [Demand(weight, 2**53) for weight in weights])
    assert sum(map(whole, shares)) <= amount
    assert divide_by_weight(sum(weights), [Demand(weight, 2**53) for weight in weights]) == weights


DEMANDS = st.builds(
    Demand,
    weight=st.integers(0, 4),
    asked=st.integers(0, 20),
    guarantee=st.integers(0, 3),
    deserved=st.integers(0, 8),
    most=st.one_of(st.just(inf), st.integers(0, 20)),
    last=st.integers(0, 2),
    kept=st.integers(0, 5),
)


@given(
    amount=st.integers(0, 40), siblings=st.lists(DEMANDS, min_size=1, max_size=5), who=st.integers(0, 4), more=st.integers(1, 9)
)
def test_who_asks_for_more_never_gives_others_more(amount: int, siblings: list[Demand], who: int, more: int) -> None:
    """So nobody makes room for itself elsewhere by asking, and whoever is taken from is not entitled to more by it."""
    who %= len(siblings)
    eager = [one._replace(asked=one.asked + more * (place == who)) for place, one in enumerate(siblings)]
    before, after = divide_by_weight(amount, siblings), divide_by_weight(amount, eager)
    assert after[who] >= before[who] - 1e-6
    assert all(now <= was + 1e-6 for place, (was, now) in enumerate(zip(before, after, strict=True)) if place != who)


def tree(**uses: int) -> QueueTree:
    own: dict[QueueName, Resources] = {QueueName(name): {GPU: cards} for name, cards in uses.items()}
    return QueueTree(own)


def cards(shares: dict[QueueName, Resources]) -> dict[str, int]:
    return {str(name): share[GPU] for name, share in shares.items() if share[GPU]}


def test_in_a_tree_the_children_divide_what_is_their_parents() -> None:
    """vision 1 : speech 3; below vision train 1 : serve 1, of which serve asks for one."""
    queues = tree(train=16)
    rules = {"vision": (1, ""), "speech": (3, ""), "train": (1, "vision"), "serve": (1, "vision"), "asr": (1, "speech")}
    for name, (weight, parent) in rules.items():
        queues[QueueName(name)] = Queue(QueueName(name), weight=weight, parent=parent)
    waiting = {QueueName("serve"): {GPU: 1}, QueueName("asr"): {GPU: 20}}
    shares = shares_by_weight(queues, {GPU: 16}, waiting)
    assert cards(shares) == {"vision": 4, "train": 3, "serve": 1, "speech": 12, "asr": 12}


def test_queues_that_take_no_work_take_no_part_and_those_that_nobody_made_but_default_have_none() -> None:
    queues = tree(closed=4, stranger=4, default=4)
    queues[QueueName("closed")] = Queue(QueueName("closed"), phase=QueuePhase.CLOSED)
    queues[QueueName("a")] = Queue(QueueName("a"))
    waiting = {QueueName("a"): {GPU: 16}, QueueName("stranger"): {GPU: 9}}
    assert cards(shares_by_weight(queues, {GPU: 16}, waiting)) == {"a": 12, "default": 4}


def test_rights_are_at_least_the_share_and_at_least_what_the_object_says() -> None:
    queues = tree(a=4)
    queues[QueueName("a")] = Queue(QueueName("a"), deserved={GPU: 3}, guarantee={GPU: 1})
    for share, line in ((8, 8), (2, 3)):
        queues.divide({QueueName("a"): {GPU: share, "cpu": 7}})
        rights = queues.rights(QueueName("a"))
        assert (dict(rights.deserved), dict(rights.entitlement)) == ({GPU: line, "cpu": 7}, {GPU: line, "cpu": 7})
        assert dict(queues.ruled(QueueName("a")).entitlement) == {GPU: 3}, (
            "what nobody may take does not move with what others ask for"
        )
    queues.divide({})
    assert dict(queues.rights(QueueName("a")).deserved) == {GPU: 3}
