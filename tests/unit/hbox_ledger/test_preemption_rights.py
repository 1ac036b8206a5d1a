"""The right to take what others hold, as the ledger judges it: two nodes with two cards each, all four held by queue b."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.events import BindOutcome, Evict, Plan, Victim
from hbox_common.model import ClaimId, NodeName, PodUid, Queue, QueueName, QueuePhase, RefusalReason
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.ledgerstate import LedgerState

from .conftest import World


def full(world: World, *, a: int = 2, b: int = 2, **b_rules: Any) -> None:
    """b holds all four cards; a and b deserve so many."""
    world.state.queues[QueueName("a")] = Queue(QueueName("a"), deserved={GPU: a})
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), deserved={GPU: b}, **b_rules)
    for number, (where, card) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
        made = world.plan(f"b{number}", (f"p{number}", where, [world.card(card)]), queue="b")
        world.commits(made.model_copy(update={"priority": 5}))
        world.outcome(f"p{number}", BindOutcome.BOUND, at=where)


def asks(world: World, *victims: int, queue: str = "a", priority: int = 5, cards: int = 1) -> Plan:
    """A plan for one pod on node a that asks for the places of these pods."""
    made = world.plan("want", ("new", "a", [world.card(i) for i in range(cards)]), queue=queue)
    named = tuple(Victim(claim=world.claim(f"p{n}").id, pod_uid=PodUid(f"p{n}")) for n in victims)
    return made.model_copy(update={"victims": named, "priority": priority})


def evictions(world: World) -> list[Evict]:
    return list(world.last.evictions)


def test_a_queue_below_what_it_deserves_takes_from_one_above_and_its_plan_is_named(world: World) -> None:
    full(world)
    world.commits(asks(world, 0))
    [eviction] = evictions(world)
    assert (eviction.pod, eviction.beneficiary) == ("p0", "want")
    assert "reclaimed for ml/want of queue a" in eviction.reason
    assert len(world.state.live) == 4, "nothing is claimed, and nothing is freed before the pod is gone"


def test_the_giver_keeps_what_it_deserves_counting_those_that_leave_already(world: World) -> None:
    full(world, a=3, b=3)
    world.commits(asks(world, 0))
    second = asks(world, 1).model_copy(update={"id": "second"})
    assert "no more than it deserves" in world.refusal(second)


@pytest.mark.parametrize(
    ("rules", "plan", "said"),
    [
        ({"a": 0}, {}, "more than it deserves of nvidia.com/gpu"),
        ({"b": 4}, {}, "queue b has no more than it deserves"),
        ({"reclaimable": False}, {}, "queue b gives nothing back"),
        ({"b": 0, "guarantee": {GPU: 4}}, {}, "is guaranteed"),
        ({}, {"queue": "b"}, "has priority 5"),
        ({}, {"queue": "b", "priority": 4}, "has priority 5"),
    ],
)
def test_what_is_protected_stays(world: World, rules: dict[str, Any], plan: dict[str, Any], said: str) -> None:
    full(world, **rules)
    assert said in world.refusal(asks(world, 0, **plan))
    assert not evictions(world)


@pytest.mark.parametrize(("b", "said"), [(4, "queue b has no more than it deserves"), (2, ""), (None, "")])
def test_who_wants_cpu_alone_takes_nobodys_cards(world: World, b: int | None, said: str) -> None:
    """b says nothing of cpu: its pods with cards leave only if it has more of these than it deserves, or says nothing of them either."""
    full(world)
    world.state.queues[QueueName("a")] = Queue(QueueName("a"), deserved={"cpu": 64_000})
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), deserved={} if b is None else {GPU: b})
    [answer] = world.propose(asks(world, 0, cards=0))
    assert said in answer.message
    assert answer.committed is (not said)


def test_higher_priority_takes_from_lower_in_its_own_queue(world: World) -> None:
    full(world)
    world.commits(asks(world, 0, queue="b", priority=6))
    assert "preempted" in evictions(world)[0].reason


def test_nothing_is_evicted_in_vain(world: World) -> None:
    """Two cards of node a are needed and one would be free; or the victim is on another node."""
    full(world)
    assert "too little" in world.refusal(asks(world, 0, cards=2))
    assert "too little" in world.refusal(asks(world, 2))
    assert not evictions(world)


def test_a_victim_that_holds_nothing_is_none(world: World) -> None:
    full(world)
    gone = asks(world, 0).model_copy(update={"victims": (Victim(claim=ClaimId("x"), pod_uid=PodUid("p0")),)})
    [answer] = world.propose(gone)
    assert answer.reason is RefusalReason.VICTIM_GONE


def test_asking_twice_evicts_once(world: World) -> None:
    full(world)
    world.commits(asks(world, 0))
    world.commits(asks(world, 0).model_copy(update={"id": "again"}))
    assert not evictions(world)


def test_a_pod_whose_eviction_was_accepted_is_not_evicted_again_for_the_next_who_asks(world: World) -> None:
    full(world)
    world.commits(asks(world, 0))
    world.outcome("p0", BindOutcome.EVICTED)
    world.commits(asks(world, 0).model_copy(update={"id": "next"}))
    assert not evictions(world)


def test_what_leaves_is_known_after_a_restart(world: World) -> None:
    full(world, a=3, b=3)
    world.commits(asks(world, 0))
    world.outcome("p0", BindOutcome.EVICTED)
    restarted = LedgerState(world.state.epoch)
    restarted.load(world.state.live.values(), world.state.gangs.values())
    assert [*restarted.evicting.claims()] == [*world.state.evicting.claims()] == [asks(world, 0).victims[0].claim]


def test_room_that_was_promised_to_one_is_not_counted_on_by_the_next(world: World) -> None:
    """a may have two cards of b's. Who asks second, for the place that comes free for the first, would evict somebody in vain."""
    full(world)
    first, second = asks(world, 0), asks(world, 1)
    world.commits(first)
    same_place = replace(second.placements[0], pod_uid=PodUid("another"))
    answer = world.refusal(second.model_copy(update={"id": "second", "placements": (same_place,)}))
    assert "card a-0" in answer
    assert not evictions(world)
    beside = replace(same_place, slices=(world.card(1),))
    world.commits(second.model_copy(update={"id": "third", "placements": (beside,)}))


def away(world: World, *victims: int, job: str = "b0") -> Plan:
    """A plan of that job that places nothing."""
    return asks(world, *victims).model_copy(update={"id": "away", "job": job, "requests": (), "placements": (), "queue": "b"})


def test_a_job_may_give_up_places_of_its_own_for_nobody(world: World) -> None:
    full(world)
    world.commits(away(world, 0))
    [eviction] = evictions(world)
    assert (eviction.pod, eviction.beneficiary) == ("p0", "")
    assert "the policy wants it elsewhere" in eviction.reason
    assert len(world.state.live) == 4
    world.commits(away(world, 0).model_copy(update={"id": "again"}))
    assert not evictions(world), "it is on its way"


def test_also_in_a_queue_that_takes_nothing_new(world: World) -> None:
    full(world)
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), phase=QueuePhase.CLOSED)
    world.commits(away(world, 0))
    assert len(evictions(world)) == 1


def test_but_not_those_of_another_nor_who_may_not_be_taken_away(world: World) -> None:
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), deserved={GPU: 2}, non_preemptible_classes=("*",))
    for name, number in (("b0", 0), ("b1", 1)):
        made = world.plan(name, (f"p{number}", "a", [world.card(number)]), queue="b")
        world.commits(made.model_copy(update={"preemptable": name == "b1"}))
        world.outcome(f"p{number}", BindOutcome.BOUND, at="a")
    assert "is of another job than the plan, which places nothing" in world.refusal(away(world, 1))
    assert "may not be preempted" in world.refusal(away(world, 0).model_copy(update={"id": "other"}))
    assert not evictions(world)


def half_empty(world: World, *, capability: int | None = None) -> None:
    """b has one card of node a and one of node b, and deserves both; one of each is free."""
    limits = {} if capability is None else {GPU: capability}
    world.state.queues[QueueName("a")] = Queue(QueueName("a"))
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), deserved={GPU: 2}, capability=limits)
    for number, where in enumerate("ab"):
        made = world.plan(f"b{number}", (f"p{number}", where, [world.card(0)]), queue="b")
        world.commits(made.model_copy(update={"priority": 5}))
        world.outcome(f"p{number}", BindOutcome.BOUND, at=where)


def moving(world: World, *, to: str = "b", card: int = 1, queue: str = "a", priority: int = 5, id: str = "want") -> Plan:
    """`new` wants both cards of node a; p0 moves to this card."""
    made = asks(world, 0, queue=queue, priority=priority, cards=2)
    [victim] = made.victims
    slices = (world.card(card),) if card >= 0 else ()
    return made.model_copy(update={"id": id, "victims": (victim.model_copy(update={"to": to, "slices": slices}),)})


def test_a_pod_moves_for_one_who_has_no_right_to_take_since_it_loses_nothing(world: World) -> None:
    half_empty(world)
    assert "no more than it deserves" in world.refusal(asks(world, 0, cards=2).model_copy(update={"id": "taken"}))
    world.commits(moving(world))
    [eviction] = evictions(world)
    assert (eviction.pod, eviction.beneficiary, eviction.reason.startswith("moved to b for ml/want")) == ("p0", "want", True)


def test_it_does_not_move_for_one_less_important_or_in_vain(world: World) -> None:
    half_empty(world)
    assert "p0 has priority 5" in world.refusal(moving(world, priority=4))
    assert "card b-0" in world.refusal(moving(world, card=0, id="onto p1"))
    assert "too little" in world.refusal(moving(world, to="a", id="nowhere"))
    assert "moves to other cards than it asks for" in world.refusal(moving(world, card=-1, id="without"))
    assert not evictions(world)


def test_where_its_queue_may_not_be_it_does_not_move(world: World) -> None:
    half_empty(world)
    world.state.nodes[NodeName("b")] = replace(world.state.nodes[NodeName("b")], labels={"hbox.io/pool": "lab"})
    assert "b is of pool lab, which queue b may not use" in world.refusal(moving(world))


def test_its_new_place_is_counted_on_by_nobody_while_it_leaves(world: World) -> None:
    half_empty(world)
    world.commits(moving(world))
    other = world.plan("other", ("other", "b", [world.card(1)]), queue="b")
    [victim] = asks(world, 1, queue="b").victims
    second = other.model_copy(update={"victims": (victim,), "priority": 6})
    assert "card b-1" in world.refusal(second)


def test_to_move_frees_nothing_of_a_queue(world: World) -> None:
    """b is at its wall: that one of its pods moves gives it no room for another."""
    half_empty(world, capability=3)
    assert "may use 3" in world.refusal(moving(world, queue="b"))
    half_room = moving(world, queue="b", id="within").model_copy(
        update={"placements": asks(world, 0).placements, "requests": asks(world, 0).requests}
    )
    world.commits(half_room)


@pytest.mark.parametrize(("least", "said"), [(1, ""), (2, "for more of its pods no other gang is broken")])
def test_for_more_than_its_minimum_a_job_breaks_no_other_gang(world: World, least: int, said: str) -> None:
    """`want` runs with the one pod that it needs; b's gang of two is left with one, which is enough for it, or not."""
    world.state.queues[QueueName("a")] = Queue(QueueName("a"), deserved={GPU: 2})
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), deserved={GPU: 0})
    pods = [(f"p{i}", "a", [world.card(i)]) for i in range(2)]
    world.commits(world.plan("gang", *pods, min_member=least, queue="b"))
    world.commits(world.plan("first", ("old", "b", [world.card(0)]), job="want", queue="a"))
    for pod, where in (("p0", "a"), ("p1", "a"), ("old", "b")):
        world.outcome(pod, BindOutcome.BOUND, at=where)
    [answer] = world.propose(asks(world, 0))
    assert said in answer.message
    assert answer.committed is (not said)


def test_for_its_minimum_a_job_breaks_a_gang_as_before(world: World) -> None:
    world.state.queues[QueueName("a")] = Queue(QueueName("a"), deserved={GPU: 2})
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), deserved={GPU: 0})
    world.commits(world.plan("gang", *((f"p{i}", "a", [world.card(i)]) for i in range(2)), min_member=2, queue="b"))
    for pod in ("p0", "p1"):
        world.outcome(pod, BindOutcome.BOUND, at="a")
    world.commits(asks(world, 0, 1))
