"""The books follow what kubelets gave, and say where they cannot."""

from dataclasses import replace

import pytest

from hbox_common.events import BindOutcome, HealthEvictionAsked
from hbox_common.model import (
    CardId,
    CardSlice,
    ClaimState,
    ClassQuota,
    ContainerHolds,
    DeviceIds,
    Generation,
    JobId,
    Match,
    MatchOperator,
    NodeDevices,
    NodeName,
    NodeState,
)
from hbox_common.model.claim import KUBELET_GAVE
from hbox_common.model.devices import card_id
from hbox_ledger import kubelets
from hbox_ledger.core.kubelet_cards import Moves, move, moves
from hbox_ledger.core.overbooked import overbooked
from hbox_ledger.kubelets import CONFLICT_S, FRESH_S, Kubelets

from .conftest import World, card, node

GPU, A = "nvidia.com/gpu", NodeName("a")


@pytest.fixture
def world(world: World) -> World:
    four = node("a", cards=4)
    cards = tuple(replace(one, uuid=f"GPU-{one.index}") for one in four.cards)  # `a-0` would be made up
    world.state.know(A, replace(four, cards=cards))
    return world


def bound(world: World, pod: str, *indexes: int, where: str = "a") -> None:
    world.commits(world.plan(f"plan-{pod}", (pod, where, [card(i) for i in indexes])))
    world.outcome(pod, BindOutcome.BOUND, at=where)
    world.see(world.fact(pod, where))


def reported(**pods: str) -> NodeDevices:
    """Pod -> the digits of its cards."""
    holds = [
        ContainerHolds("ns", pod, "main", (DeviceIds(GPU, tuple(f"GPU-{digit}" for digit in digits)),), uid=pod)
        for pod, digits in pods.items()
    ]
    return NodeDevices(A, 1.0, holds=tuple(holds))


def follow(world: World, word: NodeDevices) -> Moves:
    found = moves(world.state, word)
    move(world.state, world.turn(), found)
    return found


def cards(world: World, pod: str) -> list[int]:
    return [s.index for s in world.claim(pod).slices]


def test_a_claim_moves_to_the_cards_that_its_pod_has(world: World) -> None:
    bound(world, "p", 0, 1)
    before = world.claim("p")
    found = follow(world, reported(p="23"))
    after = world.claim("p")
    assert (cards(world, "p"), found.conflicts, found.waits) == ([2, 3], [], False)
    assert (after.state, after.reason, after.plan) == (ClaimState.POSTED, KUBELET_GAVE, "")
    assert (after.requests, after.queue, after.preemptable) == (before.requests, before.queue, before.preemptable)
    assert after.id != before.id
    held = world.state.by_node[A].cards
    assert [held[i].pods if i in held else 0 for i in (CardId(f"gpu:GPU-{n}") for n in range(4))] == [0, 0, 1, 1]
    assert follow(world, reported(p="23")).slices == {}, "it is so now"


def test_a_claim_that_moves_keeps_its_part_of_a_card_under_new_labels(world: World) -> None:
    def label(replicas: str) -> None:
        labels = {
            "nvidia.com/gpu.sharing-strategy": "time-slicing",
            "nvidia.com/gpu.count": "2",
            "nvidia.com/gpu.replicas": replicas,
        }
        world.state.know(A, replace(world.state.nodes[A], labels=labels))

    label("4")
    bound(world, "p", 0)
    [given] = [record.claim.models for record in world.state.live.values()]
    assert any(name.endswith(":1/4") for name in given)
    label("2")
    follow(world, reported(p="1"))
    [claim] = [record.claim for record in world.state.live.values()]
    assert (claim.slices[0].card, claim.models) == (card_id("GPU-1"), given)


def test_claim_moves_to_the_card_of_its_pod_that_the_node_lost_since(world: World) -> None:
    bound(world, "p", 0)
    has = world.state.nodes[A]
    world.state.know(A, replace(has, cards=has.cards[:2], lost=(replace(has.cards[2], healthy=False),)))
    follow(world, reported(p="2"))
    assert [s.card for s in world.claim("p").slices] == ["gpu:GPU-2"]
    assert follow(world, reported(p="2")) == Moves()


def test_what_a_pod_wears_of_its_plan_does_not_take_it_back(world: World) -> None:
    world.state.key = b"k" * 32
    bound(world, "p", 0, 1)
    planned = world.claim("p")
    follow(world, reported(p="23"))
    world.see(world.fact("p", "a", claim=planned.id, slices=list(planned.slices)))
    assert cards(world, "p") == [2, 3]


def test_pods_that_move_use_up_the_quota_of_their_class_all_the_while(world: World) -> None:
    only_urgent = Match("PriorityClass", MatchOperator.IN, ("urgent",))
    world.state.limit_classes([ClassQuota("ml", "urgent", (only_urgent,), {"pods": 1})])
    world.classes[JobId("plan-p")] = "urgent"
    bound(world, "p", 0)
    follow(world, reported(p="2"))
    assert [quota.used for quota in world.state.class_quotas.usage()] == [{"pods": 1}]
    world.classes[JobId("plan-q")] = "urgent"
    [answer] = world.propose(world.plan("plan-q", ("q", "a", [card(1)])))
    assert not answer.committed
    assert "1 are in use and 1 more are asked for" in answer.message


def test_pods_that_move_keep_their_jobs_policy_for_sick_hardware(world: World) -> None:
    bound(world, "p", 0)
    world.see(replace(world.fact("p", "a", job="plan-p"), on_sick="ignore"))
    world.state.sick.put(HealthEvictionAsked(node=A, incident="i1", cards=(card_id("GPU-2"),)))
    follow(world, reported(p="2"))
    assert world.wait(1).evictions == []


def test_two_that_have_each_others_cards_change_places(world: World) -> None:
    bound(world, "p", 0, 1)
    bound(world, "q", 2, 3)
    follow(world, reported(p="23", q="01"))
    assert (cards(world, "p"), cards(world, "q")) == ([2, 3], [0, 1])
    assert overbooked(world.state, A) == ""


def test_nobody_moves_to_a_card_that_another_keeps(world: World) -> None:
    bound(world, "p", 0)
    bound(world, "q", 2)
    found = follow(world, reported(p="2"))
    assert (cards(world, "p"), cards(world, "q")) == ([0], [2])
    assert found.waits
    assert found.conflicts == ["the kubelet gave card GPU-2 to ml/p, and the ledger to ml/q"]
    assert follow(world, reported(p="2", q="1")).conflicts == []
    assert (cards(world, "p"), cards(world, "q")) == ([2], [1])


def test_who_would_follow_one_that_stays_stays_too(world: World) -> None:
    bound(world, "p", 0)
    bound(world, "q", 1)
    bound(world, "r", 2)
    follow(world, reported(p="1", q="2"))
    assert [cards(world, pod) for pod in "pqr"] == [[0], [1], [2]]


def test_two_pods_on_one_card_and_another_number_of_cards_are_conflicts(world: World) -> None:
    bound(world, "p", 0)
    bound(world, "q", 1)
    found = follow(world, reported(p="3", q="3"))
    assert found.conflicts == ["the kubelet gave card GPU-3 to ml/q and to ml/p"]
    assert cards(world, "p") == [3]
    found = follow(world, reported(q="02"))
    assert found.conflicts == ["the kubelet gave ml/q 2 cards, and its claim has 1 cards or parts of cards"]


def test_parts_of_one_card_move_to_the_cards_that_a_plain_plugin_gave(world: World) -> None:
    """It does not divide cards, so that each pod has one; pods with whole cards are no longer in the way of their claims either."""
    for pod in "pq":
        world.commits(world.plan(f"plan-{pod}", (pod, "a", [CardSlice(0, 30, 1000)])))
        world.outcome(pod, BindOutcome.BOUND, at="a")
        world.see(world.fact(pod, "a"))
    bound(world, "r", 1)
    found = follow(world, reported(p="1", q="2", r="0"))
    assert (found.conflicts, found.waits) == ([], False)
    assert [cards(world, pod) for pod in "pqr"] == [[1], [2], [0]]
    assert [(s.cores, s.memory_mib) for pod in "pqr" for s in world.claim(pod).slices] == [
        (30, 1000),
        (30, 1000),
        (100, 40_960),
    ]
    assert follow(world, reported(p="1", q="2", r="0")).slices == {}


def test_parts_that_a_plugin_takes_from_annotations_are_left_where_they_are(world: World) -> None:
    world.state.know(A, replace(world.state.nodes[A], registered=("NVIDIA",)))
    world.commits(world.plan("plan-p", ("p", "a", [CardSlice(0, 30, 1000)])))
    world.outcome("p", BindOutcome.BOUND, at="a")
    assert follow(world, reported(p="2")).slices == {}


@pytest.mark.parametrize("name", ["pending", "leaving", "a gang on its way"])
def test_what_is_under_way_is_not_touched_and_looked_at_again(world: World, name: str) -> None:
    if name == "pending":
        world.commits(world.plan("plan-p", ("p", "a", [card(0)])))
    elif name == "leaving":
        bound(world, "p", 0)
        world.state.leave(world.turn(), world.state.live[world.state.by_pod["p"]])  # type: ignore[index]
    else:
        world.commits(world.plan("plan-p", ("p", "a", [card(0)]), ("q", "a", [card(1)]), min_member=2, job="g"))
        world.outcome("p", BindOutcome.BOUND, at="a")
    found = follow(world, reported(p="2"))
    assert (cards(world, "p"), found.waits) == ([0], True)


def test_slots_names_that_came_back_and_made_up_ids_say_nothing(world: World) -> None:
    bound(world, "p", 0)
    slots = (DeviceIds(GPU, ("GPU-3-7",)),)
    assert moves(world.state, NodeDevices(A, 1.0, holds=(ContainerHolds("ns", "p", "main", slots, uid="p"),))) == Moves()
    card_3 = (DeviceIds(GPU, ("GPU-3",)),)
    assert moves(world.state, NodeDevices(A, 1.0, holds=(ContainerHolds("ns", "p", "main", card_3, uid=""),))) == Moves()
    other = NodeDevices(A, 1.0, holds=(ContainerHolds("ns", "p", "main", card_3, uid="another"),))
    assert moves(world.state, other) == Moves(waits=True)
    bound(world, "b", 0, where="b")
    made_up = NodeDevices(NodeName("b"), 1.0, holds=(ContainerHolds("ns", "b", "main", (DeviceIds(GPU, ("b-1",)),), uid="b"),))
    assert moves(world.state, made_up) == Moves()


def test_replicas_are_the_card_that_they_share(world: World) -> None:
    bound(world, "p", 0)
    replica = (DeviceIds(GPU, ("GPU-3::1",)),)
    follow(world, NodeDevices(A, 1.0, holds=(ContainerHolds("ns", "p", "main", replica, uid="p"),)))
    assert cards(world, "p") == [3]


def test_a_conflict_is_told_when_it_lasts_and_when_it_ends(world: World) -> None:
    now = [100.0]
    books = Kubelets(lambda: now[0])
    bound(world, "p", 0)
    bound(world, "q", 2)
    books.receive(reported(p="2"))
    assert books.look(world.state) == ([], [])
    now[0] += CONFLICT_S
    _, notes = books.look(world.state)
    assert [(note.subject, note.change) for note in notes] == [("node a", "cards-differ")]
    assert books.look(world.state)[1] == [], "once"
    books.receive(reported(p="2", q="1"))
    found, notes = books.look(world.state)
    assert [len(one.slices) for one in found] == [2]
    assert [note.change for note in notes] == ["cards-agree"]


def test_a_word_that_waits_is_looked_at_again_until_it_is_old(world: World) -> None:
    now = [100.0]
    books = Kubelets(lambda: now[0])
    books.receive(reported(p="2"))
    assert books.look(world.state)[0] == []
    bound(world, "p", 0)
    [found] = books.look(world.state)[0]
    assert len(found.slices) == 1
    books.receive(reported(nobody="1"))
    now[0] += FRESH_S
    books.look(world.state)
    assert books.look(world.state) == ([], [])
    assert not books._look_at


def test_ids_that_become_known_later_count_then(world: World) -> None:
    books = Kubelets(lambda: 1.0)
    bound(world, "p", 0)
    known = world.state.nodes[A]
    world.state.know(A, replace(known, cards=node("a", cards=4).cards))
    books.receive(reported(p="2"))
    assert books.look(world.state)[0] == []
    world.state.know(A, known)
    books.node_changed(A)
    assert len(books.look(world.state)[0]) == 1
    assert kubelets.AT_ONCE > 1


def test_a_node_that_is_gone_is_forgotten(world: World) -> None:
    books = Kubelets(lambda: 1.0)
    books.receive(reported(p="2"))
    books.receive(NodeDevices(A, 2.0, gone=True))
    assert books.look(world.state) == ([], [])
    world.state.know(A, NodeState(A, "a", Generation(9), ready=False, gone=True))
    assert moves(world.state, reported(p="2")) == Moves()
