"""Guarantees that are lent: how much non-preemptible work is admitted beside them. Two nodes of four cards each, unless drawn otherwise.

kept     guarantee 3          nobody uses it at first
lab      guarantee 2          below it: bench, guarantee 1
open     no amounts
stern    no amounts, reclaimable: false
"""

from dataclasses import replace

import pytest

from hbox_common.model import (
    Card,
    Generation,
    Held,
    Lending,
    NodeName,
    NodeState,
    Queue,
    QueueName,
    QueueTree,
    Resources,
    Verdict,
    in_pool,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import add

KEPT, LAB, BENCH, OPEN, STERN = map(QueueName, ("kept", "lab", "bench", "open", "stern"))


class World:
    def __init__(self) -> None:
        self.used: dict[QueueName, Resources] = {}
        self.tree = QueueTree(self.used)
        self.held: list[Held] = []
        self.nodes = {name: node(name) for name in ("a", "b")}
        self.verdicts: dict[str, Verdict] = {}
        self.lending = Lending(
            self.tree, lambda: self.held, lambda: ((n, self.verdicts.get(n.name)) for n in self.nodes.values())
        )
        self.rule(Queue(KEPT, guarantee={GPU: 3}))
        self.rule(Queue(LAB, guarantee={GPU: 2}))
        self.rule(Queue(BENCH, parent="lab", guarantee={GPU: 1}))
        self.rule(Queue(OPEN))
        self.rule(Queue(STERN, reclaimable=False))

    def rule(self, queue: Queue) -> None:
        self.tree[queue.name] = queue

    def holds(self, queue: str, cards: int, on: str = "a", *, non_preemptible: bool = True, pool: str = "") -> Held:
        held = Held(QueueName(queue), NodeName(on), {in_pool(GPU, pool): cards}, preemptable=not non_preemptible)
        self.held.append(held)
        self.lending.book(held)
        add(self.used.setdefault(held.queue, {}), held.requests)
        self.lending.validate()
        return held

    def ends(self, held: Held) -> None:
        self.held.remove(held)
        self.lending.book(held, -1)
        self.lending.validate()

    def is_told(self, state: NodeState, verdict: Verdict | None = None) -> None:
        self.nodes[state.name] = state
        if verdict is not None:
            self.verdicts[state.name] = verdict
        self.lending.node(state, verdict)
        self.lending.validate()

    def headroom(self, queue: str, cards: int = 1) -> int | None:
        return self.lending.headroom(QueueName(queue), {GPU: cards}).times


def node(name: str, cards: int = 4, **labels: str) -> NodeState:
    there = tuple(Card(i, f"{name}{i}", "m", 100, 1) for i in range(cards))
    found = {f"hbox.io/{key}": value for key, value in labels.items()}
    return NodeState(NodeName(name), name, Generation(1), ready=True, labels=found, allocatable={GPU: cards}, cards=there)


@pytest.fixture
def world() -> World:
    return World()


def test_firm_work_leaves_what_others_are_guaranteed(world: World) -> None:
    assert world.headroom("open") == 3  # 8 cards, 5 are guaranteed
    assert world.headroom("open", cards=2) == 1
    world.holds("open", 3)
    assert world.headroom("open") == 0


def test_work_that_gives_way_takes_nothing_from_it(world: World) -> None:
    world.holds("open", 8, non_preemptible=False)
    assert world.headroom("open") == 3


def test_a_queue_that_gives_nothing_back_stands_firm_whatever_its_jobs_say(world: World) -> None:
    assert world.lending.is_non_preemptible(STERN, preemptable=True)
    assert not world.lending.is_non_preemptible(OPEN, preemptable=True)
    world.holds("stern", 2, non_preemptible=False)
    assert world.headroom("open") == 1


def test_what_is_guaranteed_to_a_queue_it_may_always_have(world: World) -> None:
    assert world.headroom("kept") == 6  # three of its own, and the three that nobody is guaranteed
    world.holds("open", 3)
    assert world.headroom("kept") == 3
    world.holds("kept", 2, on="b")
    assert (world.headroom("kept"), world.headroom("open")) == (1, 0)


def test_a_guarantee_below_another_counts_once(world: World) -> None:
    world.holds("bench", 1)
    assert world.headroom("open") == 3
    world.holds("bench", 1)
    assert world.headroom("open") == 3  # now lab's own two are held
    world.holds("bench", 1)
    assert world.headroom("open") == 2


def test_what_ends_gives_room_again(world: World) -> None:
    held = world.holds("open", 3)
    assert world.headroom("open") == 0
    world.lending.eased = False
    world.ends(held)
    assert world.lending.eased
    assert world.headroom("open") == 3


def test_pods_of_others_stand_firm(world: World) -> None:
    world.holds("", 2, non_preemptible=False)
    assert world.headroom("open") == 1


def test_cards_that_are_broken_and_nodes_that_take_nothing_do_not_count(world: World) -> None:
    bad = Verdict(NodeName("a"), Generation(1), healthy=True, bad_cards=(0, 1))
    assert world.headroom("open") == 3
    world.is_told(world.nodes["a"], bad)
    assert world.headroom("open") == 1
    world.is_told(replace(world.nodes["b"], unschedulable=True))
    assert (world.headroom("open"), world.headroom("kept")) == (0, 3)
    world.is_told(node("c", cards=8))
    assert world.headroom("open") == 5
    world.is_told(replace(world.nodes["c"], gone=True))
    assert world.headroom("open") == 0


def test_what_is_over_booked_lends_nothing_from_elsewhere(world: World) -> None:
    world.holds("", 6, on="a")
    assert world.headroom("open") == 0  # four on b are left for five
    assert world.headroom("kept") == 3


def test_a_guarantee_counts_in_its_pool(world: World) -> None:
    own = in_pool(GPU, "own")
    world.rule(Queue(KEPT, guarantee={GPU: 3}, pools=("own",)))
    world.is_told(node("c", cards=4, pool="own"))
    world.rule(Queue(QueueName("other"), pools=("own", "pooled")))
    other = QueueName("other")
    assert (world.headroom("open"), world.lending.headroom(other, {own: 1}).times) == (6, 1)
    world.holds("other", 1, on="c", pool="own")
    assert (world.headroom("open"), world.lending.headroom(other, {own: 1}).times) == (6, 0)
    assert world.lending.headroom(other, {GPU: 1}).times == 6


def test_a_node_whose_pool_changes_does_not_have_what_it_gave(world: World) -> None:
    world.rule(Queue(KEPT, guarantee={GPU: 3}, pools=("own",)))
    world.holds("open", 2, on="a")
    world.is_told(node("a", cards=4, pool="own"))
    assert world.lending.headroom(OPEN, {in_pool(GPU, "own"): 1}).times == 0  # three of own are owed, two are there


def test_rules_that_change_are_counted_by_at_once(world: World) -> None:
    world.holds("open", 3)
    world.rule(Queue(KEPT, guarantee={GPU: 1}))
    assert world.headroom("open") == 2
    world.rule(Queue(KEPT, guarantee={GPU: 8}))
    assert world.headroom("open") == 0
    del world.tree[KEPT]
    del world.tree[LAB]
    del world.tree[BENCH]
    assert world.headroom("open") is None


def test_only_what_is_guaranteed_is_compared(world: World) -> None:
    assert world.lending.headroom(OPEN, {"cpu": 10**9}).times is None
    assert world.lending.headroom(OPEN, {"cpu": 10**9, GPU: 1}).times == 3


def test_who_stands_in_a_circle_is_owed_nothing(world: World) -> None:
    world.rule(Queue(KEPT, guarantee={GPU: 3}, parent="lab"))
    world.rule(Queue(LAB, guarantee={GPU: 2}, parent="kept"))
    assert world.headroom("open") is None or world.headroom("open") == 8


def test_the_message_says_how_much_is_guaranteed_and_left(world: World) -> None:
    world.holds("open", 3)
    assert world.lending.headroom(OPEN, {GPU: 2}).message == (
        "5 of nvidia.com/gpu are guaranteed to queues that do not hold them, 5 are free or could be taken back for them; "
        "2 more, from which queue open gives nothing back, would leave too few"
    )


def test_promises_count_while_somebody_is_judged_beside_them(world: World) -> None:
    with world.lending.assuming([Held(OPEN, NodeName("a"), {GPU: 2}, preemptable=False)]):
        assert world.headroom("open") == 1
    assert world.headroom("open") == 3
