"""What the owners of pods that leave are told: two nodes with two cards each, all four held by queue b."""

from hbox_common.events import BindOutcome, EvictionReceipt, EvictionRule, Victim
from hbox_common.model import JobId, NodeName, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core import lifecycle
from hbox_ledger.messages import messages_of

from .conftest import World
from .test_preemption_rights import asks, full


def receipts(world: World) -> list[EvictionReceipt]:
    return list(world.last.receipts)


def test_who_is_reclaimed_from_is_told_for_whom_by_which_amounts_and_that_it_waits_for_idle_cards(world: World) -> None:
    full(world)
    world.commits(asks(world, 0))
    [said] = receipts(world)
    assert (said.rule, said.job, said.queue, said.plan) == (EvictionRule.RECLAIM, "b0", "b", "want")
    assert (said.for_namespace, said.for_name, said.for_queue) == ("ml", "want", "a")
    assert [(one.pod, one.pod_uid, one.node) for one in said.pods] == [("p0", "p0", "a")]
    assert "queue a uses 0 of nvidia.com/gpu and deserves 2" in said.message
    assert "queue b uses 4 of nvidia.com/gpu and deserves 2" in said.message
    assert "are idle" in said.returns
    [message] = [m for m in messages_of(world.last, epoch=world.state.epoch, index=world.state.index) if m.event == said]
    assert message.keys == ("b", "b0")


def test_a_gang_is_told_once_with_what_it_keeps(world: World) -> None:
    world.state.queues[QueueName("a")] = Queue(QueueName("a"), deserved={GPU: 2})
    world.state.queues[QueueName("b")] = Queue(QueueName("b"))
    places = [("p0", "a", [world.card(0)]), ("p1", "a", [world.card(1)]), ("p2", "b", [world.card(0)])]
    world.commits(world.plan("gang", *places, queue="b"))
    for pod, where, _ in places:
        world.outcome(pod, BindOutcome.BOUND, at=where)
    world.commits(asks(world, 0, 1, cards=2))
    [said] = receipts(world)
    assert sorted(one.pod for one in said.pods) == ["p0", "p1"]
    assert (said.pods_kept, said.cards_kept) == (1, 1)
    assert "queue b uses 3 of nvidia.com/gpu and deserves no amount of it" in said.message


def test_who_is_told_to_leave_already_is_not_told_again(world: World) -> None:
    full(world)
    world.commits(asks(world, 0))
    again = asks(world, 0).model_copy(update={"id": "other"})
    world.propose(again)
    assert receipts(world) == []


def test_inside_a_queue_the_priorities_are_told(world: World) -> None:
    full(world)
    world.commits(asks(world, 0, queue="b", priority=9))
    [said] = receipts(world)
    assert said.rule is EvictionRule.PREEMPT
    assert "whose priority 9 is above 5" in said.message


def test_who_moves_is_told_where_its_place_is_kept(world: World) -> None:
    full(world)
    step = world.turn()
    lifecycle.end(world.state, step, world.state.live[world.claim("p3").id], actor="test", cause="gone")
    plan = asks(world, 0, priority=9)
    [victim] = plan.victims
    moving = Victim(claim=victim.claim, pod_uid=PodUid("p0"), to=NodeName("b"), slices=(world.card(1),))
    world.commits(plan.model_copy(update={"victims": (moving,)}))
    [said] = receipts(world)
    assert said.rule is EvictionRule.CONSOLIDATE
    assert said.pods[0].to == "b"
    assert "places are kept on b" in said.returns


def test_a_gang_that_did_not_start_whole_is_told_that_it_is_unwound(world: World) -> None:
    plan = world.plan("gang", ("p0", "a", [world.card(0)]), ("p1", "a", [world.card(1)]), min_member=2)
    world.commits(plan)
    world.outcome("p0", BindOutcome.BOUND, at="a")
    world.now += 1000
    step = world.turn()
    lifecycle.tick(world.state, step)
    [said] = step.receipts
    assert said.rule is EvictionRule.GANG_DEADLINE
    assert [one.pod for one in said.pods] == ["p0"], "the other was never bound"
    assert said.job == JobId("gang")


def test_a_gang_that_keeps_less_than_its_queue_deserves_is_told_that_it_takes_it_back(world: World) -> None:
    world.state.queues[QueueName("a")] = Queue(QueueName("a"), deserved={GPU: 2})
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), deserved={GPU: 2})
    places = [
        ("p0", "a", [world.card(0)]),
        ("p1", "a", [world.card(1)]),
        ("p2", "b", [world.card(0)]),
        ("p3", "b", [world.card(1)]),
    ]
    world.commits(world.plan("gang", *places, queue="b", min_member=4))
    for pod, where, _ in places:
        world.outcome(pod, BindOutcome.BOUND, at=where)
    world.commits(asks(world, 0, 1, 2, 3, cards=2))
    [said] = receipts(world)
    assert "deserves 2 of nvidia.com/gpu more than it has then" in said.returns
