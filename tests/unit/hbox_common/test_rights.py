"""Who may take what from whom, and what a queue may still have: by plain amounts.

The paths of the cases below, and what each queue uses of cards:

    a      deserved 4              b      deserved 4, guarantee 2
      a1   deserved 3                b1   no line
      a2   deserved 1                b2   deserved 1, guarantee 1
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.rights import (
    CARDS_BY_NAME,
    AtParting,
    FairShares,
    KeyedCards,
    Limit,
    Named,
    Nearest,
    Reclaim,
    Rights,
    Standing,
    below_guarantee,
    excess,
    headroom,
    judged,
    keeps_minimum,
    lacking,
    may_lose,
    may_move,
    may_preempt,
    not_entitled,
    reclaimable,
    remaining,
    spare,
    units,
    within,
)

A100, H100 = f"{GPU}.A100", f"{GPU}.H100"


def cards(units: int) -> dict[str, int]:
    return {GPU: units}


NOTHING: Rights[str] = Rights()

RIGHTS = {
    "a": Rights(cards(4), {}, cards(4)),
    "a1": Rights(cards(3), {}, cards(3)),
    "a2": Rights(cards(1), {}, cards(1)),
    "b": Rights(cards(4), cards(2), cards(4)),
    "b1": NOTHING,
    "b2": Rights(cards(1), cards(1), cards(1)),
}


class Tree:
    def __init__(self, **used: int) -> None:
        self.of = {name: Counter(cards(units)) for name, units in used.items()}

    def rights(self, queue: str) -> Rights[str]:
        return RIGHTS[queue]

    def used(self, queue: str) -> Counter[str]:
        return self.of.get(queue, Counter())

    def copy_of_used(self, queue: str) -> Counter[str]:
        return Counter(self.used(queue))


AT_PARTING: AtParting[str, str] = AtParting(RIGHTS.__getitem__, CARDS_BY_NAME)


# What a queue may take back.


@pytest.mark.parametrize(
    ("entitlement", "used", "asked", "over"),
    [
        (4, 3, 1, []),
        (4, 4, 1, [GPU]),
        (4, 3, 2, [GPU]),  # the last gang crosses the line: nothing of it may be taken
        (0, 0, 1, [GPU]),
    ],
)
def test_a_queue_takes_no_more_than_it_is_entitled_to(entitlement: int, used: int, asked: int, over: list[str]) -> None:
    assert not_entitled(cards(entitlement), Named(cards(used)), cards(asked), CARDS_BY_NAME) == over


def test_a_queue_without_an_entitlement_to_anything_that_is_asked_for_takes_nothing() -> None:
    assert not_entitled({"cpu": 8}, Named({}), cards(1), CARDS_BY_NAME) is None


def test_arrays_have_a_limit_in_every_column() -> None:
    assert within([4, 8], [3, 8], [(0, 1)])
    assert not within([4, 8], [3, 8], [(0, 1), (1, 1)])
    assert not within([4, 8], [3, 8], [(0, 2)])


def test_all_that_is_named_has_to_be_within_the_entitlement() -> None:
    assert not_entitled({GPU: 4, "cpu": 8}, Named({"cpu": 8}), {GPU: 1, "cpu": 1, "memory": 1}, CARDS_BY_NAME) == ["cpu"]


# What a queue may lose.


@pytest.mark.parametrize(
    ("deserved", "used", "loss", "wanted", "gives"),
    [
        ({GPU: 4}, {GPU: 5}, {GPU: 2}, {GPU}, True),
        ({GPU: 4}, {GPU: 4}, {GPU: 1}, {GPU}, False),
        ({GPU: 4}, {GPU: 5}, {"cpu": 1}, {GPU}, False),  # nothing that is wanted becomes free
        ({GPU: 4}, {GPU: 4}, {GPU: 1, "cpu": 8}, {"cpu"}, False),  # no line in cpu, and none of its cards is borrowed
        ({}, {GPU: 1}, {GPU: 1}, {GPU}, True),
        ({GPU: 0}, {GPU: 1}, {GPU: 1}, {GPU}, True),
        ({GPU: 4, "cpu": 8}, {GPU: 4, "cpu": 9}, {GPU: 1, "cpu": 1}, {GPU, "cpu"}, True),
    ],
)
def test_a_queue_gives_only_beyond_what_it_deserves(
    deserved: dict[str, int], used: dict[str, int], loss: dict[str, int], wanted: set[str], gives: bool
) -> None:
    assert may_lose(deserved, Named(used), loss, wanted, CARDS_BY_NAME) is gives


@pytest.mark.parametrize(("used", "kept"), [(3, True), (2, False), (1, False)])
def test_what_is_guaranteed_is_not_taken(used: int, kept: bool) -> None:
    assert below_guarantee(cards(2), Named(cards(used)), cards(1)) == ([] if kept else [GPU])
    assert below_guarantee(cards(2), Named(cards(used)), {"cpu": 1}) == [], "nothing of it leaves"


def test_lines_of_models_stand_in_place_of_the_one_for_all_cards() -> None:
    loss = {GPU: 2, A100: 2}
    assert judged(loss, {GPU, A100}, CARDS_BY_NAME) == [A100]
    assert judged(loss, {GPU, H100}, CARDS_BY_NAME) == [GPU]
    assert judged({GPU: 2, A100: 1}, {GPU, A100}, CARDS_BY_NAME) == [GPU, A100], "a card of no known model counts by all cards"
    lines = {GPU: 1, A100: 4}
    assert not may_lose(lines, Named({GPU: 8, A100: 4}), loss, {GPU}, CARDS_BY_NAME)
    assert may_lose(lines, Named({GPU: 8, A100: 5}), loss, {GPU}, CARDS_BY_NAME)


def test_columns_are_judged_as_names_are() -> None:
    keys = KeyedCards({0: {2}})
    assert judged({0: 2, 1: 5, 2: 2}, {0, 1, 2}, keys) == [1, 2]
    assert not_entitled({0: 4, 1: 9}, [3, 9, 0], {0: 1, 1: 1}, keys) == [1]
    assert may_lose({0: 4}, [5, 0, 0], {0: 1}, {0}, keys)


@pytest.mark.parametrize(("used", "key", "more", "less"), [(5, GPU, 1, 0), (4, GPU, 0, 0), (1, GPU, 0, 3)])
def test_what_is_to_spare_and_what_is_lacking(used: int, key: str, more: int, less: int) -> None:
    assert (spare(RIGHTS["b"], Named(cards(used)), key), lacking(RIGHTS["b"], Named(cards(used)), key)) == (more, less)


def test_without_a_line_all_is_to_spare_and_none_is_in_excess() -> None:
    used = Named(cards(5))
    assert (spare(NOTHING, used, GPU), excess(NOTHING, used, GPU), lacking(NOTHING, used, GPU)) == (5, 0, 0)
    assert (spare(RIGHTS["b"], used, GPU), excess(RIGHTS["b"], used, GPU)) == (1, 1)


@pytest.mark.parametrize(("gives", "preemptable", "said"), [(True, True, True), (False, True, False), (True, False, False)])
def test_of_whom_anything_may_be_reclaimed(gives: bool, preemptable: bool, said: bool) -> None:
    class Queue:
        reclaimable = gives

    assert reclaimable(Queue(), preemptable=preemptable) is said
    assert not reclaimable(None, preemptable=True)


# Whole paths.

Case = tuple[dict[str, int], bool]


@pytest.mark.parametrize(
    ("used", "allowed"),
    [
        ({"a": 0, "b": 5}, True),
        ({"a": 0, "b": 4, "b1": 4}, False),  # the department has no more than it deserves, whatever its projects have
        ({"a": 4, "a1": 0, "b": 8}, False),  # a1 deserves more, its department does not
    ],
)
def test_where_paths_part_two_queues_are_compared(used: dict[str, int], allowed: bool) -> None:
    tree = Tree(**used)
    assert AT_PARTING.allows(["a", "a1"], ["b", "b1"], cards(1), {GPU}, cards(1), tree.used) is allowed


def test_between_projects_of_one_department_the_projects_are_compared() -> None:
    assert AT_PARTING.allows(["a1"], ["a2"], cards(1), {GPU}, cards(1), Tree(a=9, a1=2, a2=2).used)
    assert not AT_PARTING.allows(["a1"], ["a2"], cards(1), {GPU}, cards(1), Tree(a=9, a1=3, a2=2).used)
    assert not AT_PARTING.allows([], ["a2"], cards(1), {GPU}, cards(1), Tree().used), "nobody takes from below itself"


def test_volcano_compares_the_queues_themselves_and_so_many_ancestors() -> None:
    own: Nearest[str, str] = Nearest(RIGHTS.__getitem__, CARDS_BY_NAME, 0)
    both: Nearest[str, str] = Nearest(RIGHTS.__getitem__, CARDS_BY_NAME, 1)
    ours, theirs = ["a", "a1"], ["b", "b2"]
    department_within = Tree(a=4, a1=0, b=4, b2=2).used
    assert own.allows(ours, theirs, cards(1), {GPU}, cards(1), department_within)
    assert not both.allows(ours, theirs, cards(1), {GPU}, cards(1), department_within)
    project_beyond = Tree(a=0, a1=3).used
    assert not own.entitled(ours, cards(1), project_beyond)
    assert both.entitled(ours, cards(1), project_beyond), "one of the compared queues is enough"


def test_fair_shares_take_beyond_the_deserved_amount_from_those_beyond_their_share() -> None:
    takes: Mapping[str, Mapping[str, int]] = {"a": cards(6), "a1": cards(6)}
    rule: FairShares[str, str] = FairShares(RIGHTS.__getitem__, CARDS_BY_NAME, takes.__getitem__, lambda _: cards(6))

    def allowed(ours: int, theirs: int) -> bool:
        return rule.allows(["a", "a1"], ["b"], cards(1), {GPU}, cards(1), Tree(a=ours, a1=ours, b=theirs).used)

    assert allowed(3, 5), "within what it deserves: from all above theirs"
    assert not allowed(3, 4)
    assert allowed(4, 7), "beyond it: from those above their fair share"
    assert not allowed(4, 6)
    assert not allowed(6, 9), "nobody takes beyond its own fair share"


def test_who_may_leave_counts_as_gone_for_the_next() -> None:
    tree = Tree(b=4, b2=2)
    reclaim = Reclaim(tree)
    assert reclaim.guaranteed(["b", "b2"], cards(1)) is None
    reclaim.leaves(["b", "b2"], cards(1))
    assert reclaim.used("b")[GPU] == 3
    assert reclaim.guaranteed(["b", "b2"], cards(1)) == ("b2", [GPU])
    reclaim.leaves(["b"], cards(1))
    assert reclaim.guaranteed(["b", "b2"], cards(1)) == ("b", [GPU]), "from the top down"
    assert tree.used("b")[GPU] == 4, "the queues themselves are as before"


# Inside a queue.


@pytest.mark.parametrize(("victim", "preempted", "moved"), [(4, True, True), (5, False, True), (6, False, False)])
def test_only_a_lower_priority_is_preempted_and_an_equal_one_may_be_moved(victim: int, preempted: bool, moved: bool) -> None:
    assert may_preempt(5, victim) is preempted
    assert may_move(5, victim) is moved
    assert may_preempt(5, np.array([victim])).tolist() == [preempted]


# Limits.


def limits(**most: tuple[int, int]) -> list[Limit[str, str]]:
    return [Limit(name, cards(limit), Named(cards(used))) for name, (limit, used) in most.items()]


def test_the_limit_that_leaves_the_least_is_named() -> None:
    least = headroom(limits(a1=(8, 2), a=(10, 7)), {GPU: 2, "cpu": 1})
    assert least is not None
    assert (least.times, least.queue, least.key, least.limit, least.used) == (1, "a", GPU, 10, 7)


def test_a_limit_that_is_exceeded_leaves_none_and_what_is_not_limited_has_no_end() -> None:
    least = headroom(limits(a=(2, 5)), cards(1))
    assert least is not None
    assert least.times == 0
    assert headroom(limits(a=(2, 5)), {"cpu": 1}) is None


def test_of_equal_limits_the_nearest_is_named() -> None:
    least = headroom(limits(a1=(2, 2), a=(4, 4)), cards(1))
    assert least is not None
    assert least.queue == "a1"


def test_what_remains_is_what_the_tightest_limit_leaves() -> None:
    assert remaining(limits(a1=(8, 2), a=(10, 7)), lambda key: key == GPU) == cards(3)
    assert remaining(limits(a=(2, 5)), lambda key: key == GPU) == cards(0)
    assert remaining(limits(a=(2, 0)), lambda key: key == "cpu") == {}


def test_what_is_freed_is_not_in_use() -> None:
    assert Named(cards(4), cards(3))[GPU] == 1
    assert Named({}, cards(3))[GPU] == -3
    assert Named(cards(4))["cpu"] == 0


# Gangs.


@pytest.mark.parametrize(
    ("victims", "standing", "losses"),
    [
        ("aa", {"a": (4, 2)}, ["a", "a"]),  # it can spare both
        ("aaa", {"a": (4, 2)}, ["a", "a", "a"]),  # it would be left in pieces: each is a loss of its own
        ("aaaa", {"a": (4, 2)}, ["a", "a", "aa"]),  # it goes whole
        ("aaaa", {"a": (4, 4)}, ["aaaa"]),
        ("aaa", {"a": (3, 1)}, ["a", "a", "a"]),  # pods that need nobody else
        ("a", {"a": (1, 1)}, ["a"]),
        ("abab", {"a": (2, 2), "b": (4, 2)}, ["aa", "b", "b"]),  # in their order
        ("baab", {"a": (2, 2), "b": (2, 2)}, ["bb", "aa"]),
    ],
)
def test_gangs_are_judged_by_what_they_can_spare_and_then_whole(
    victims: str, standing: dict[str, tuple[int, int]], losses: list[str]
) -> None:
    found = units(victims, lambda victim: victim, lambda gang: Standing(*standing[gang]))
    assert ["".join(unit) for unit in found] == losses


def test_for_surplus_a_gang_gives_surplus_alone() -> None:
    """Single pods are no gang that could break."""
    assert [keeps_minimum(Standing(holding=5, needs=3), leave) for leave in (1, 2, 3)] == [True, True, False]
    assert keeps_minimum(Standing(holding=1, needs=1), 1)
