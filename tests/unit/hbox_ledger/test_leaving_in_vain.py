"""Evictions that nobody needs any more are taken back (S7): two nodes with two cards each, all four held by queue b, one of which a may have."""

from typing import Any

from hbox_common.events import BindOutcome, ClaimsChanged, EvictKind, Leaving, Plan, Victim
from hbox_common.model import ClaimState, PodPhase, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.claimrecord import Decision
from hbox_ledger.core.evictions.preemption import to_be_freed
from hbox_ledger.messages import messages_of

from .conftest import World


def full(world: World, *, rules: Queue | None = None, **plan: Any) -> None:
    for name in ("a", "b"):
        world.state.queues[QueueName(name)] = Queue(QueueName(name), deserved={GPU: 2})
    if rules is not None:
        world.state.queues[rules.name] = rules
    for number, (where, card) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
        made = world.plan(f"b{number}", (f"p{number}", where, [world.card(card)]), queue="b")
        world.commits(made.model_copy(update=plan))
        world.outcome(f"p{number}", BindOutcome.BOUND, at=where)


def asks(world: World, id: str, pod: str, *victims: int) -> Plan:
    """A plan for one pod on node a."""
    made = world.plan(id, (pod, "a", [world.card(victims[0])]), queue="a")
    named = tuple(Victim(claim=world.claim(f"p{n}").id, pod_uid=PodUid(f"p{n}")) for n in victims)
    return made.model_copy(update={"victims": named, "priority": 9})


def decision(world: World, pod: str) -> Decision:
    return world.state.live[world.claim(pod).id].decision


def gone(world: World, pod: str) -> None:
    world.see(world.fact(pod, "", PodPhase.GONE))


def test_who_was_to_leave_for_a_pod_that_is_deleted_stays(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "new")
    [kept] = world.wait(1).evictions
    assert (kept.pod, kept.kind, kept.generation, kept.reason) == ("p0", EvictKind.REVOKE, 3, "no job needs its place any more")
    assert world.claim("p0").id in world.state.evicting, "it may have been evicted meanwhile"
    world.outcome("p0", BindOutcome.BOUND, at="a")
    assert decision(world, "p0") is Decision.NONE
    assert world.claim("p0").id not in world.state.evicting
    assert not world.wait(300).evictions


def test_it_may_be_chosen_again_but_not_before_that_is_certain(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "new")
    world.wait(1)
    assert world.refuses(asks(world, "next", "other", 0)) == "VictimProtected"
    world.outcome("p0", BindOutcome.BOUND, at="a")
    world.commits(asks(world, "later", "third", 0))
    assert [(e.kind, e.generation) for e in world.last.evictions] == [(EvictKind.EVICT, 4)]


def test_an_eviction_that_was_accepted_goes_on(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    world.outcome("p0", BindOutcome.EVICTED)
    gone(world, "new")
    assert not world.wait(1).evictions
    assert world.claim("p0").id in world.state.evicting


def test_one_that_was_accepted_while_it_was_taken_back_is_believed_in_any_order(world: World) -> None:
    for order in ((BindOutcome.EVICTED, BindOutcome.BOUND), (BindOutcome.BOUND, BindOutcome.EVICTED)):
        world = type(world)(state=type(world.state)(world.state.epoch, nodes=world.state.nodes, frozen=False))
        full(world)
        world.commits(asks(world, "want", "new", 0))
        gone(world, "new")
        world.wait(1)
        for outcome in order:
            world.outcome("p0", outcome, generation=2 if outcome is BindOutcome.EVICTED else 3, at="a")
        assert world.claim("p0").id in world.state.evicting
        assert decision(world, "p0") is Decision.NONE
        assert not world.wait(300).evictions, "it would be evicted twice"


def test_one_that_is_gone_when_it_is_taken_back_is_freed(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "new")
    world.wait(1)
    world.outcome("p0", BindOutcome.GONE)
    assert world.claim_state("p0") is None


def test_who_leaves_for_two_leaves_while_one_of_them_waits(world: World) -> None:
    """p0 shares nothing; the second plan asks for it too, and for a place that is its own."""
    full(world)
    world.commits(asks(world, "one", "new", 0))
    second = asks(world, "two", "other", 1, 0)
    world.commits(second)
    gone(world, "new")
    assert not [e for e in world.wait(1).evictions if e.kind is EvictKind.REVOKE]
    gone(world, "other")
    assert {e.pod for e in world.wait(1).evictions if e.kind is EvictKind.REVOKE} == {"p0", "p1"}


def test_a_plan_that_is_made_anew_for_the_same_pods_goes_on_needing_them(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    world.commits(asks(world, "again", "new", 0))
    assert not [e for e in world.wait(1).evictions if e.kind is EvictKind.REVOKE]


def test_a_pod_that_found_another_place_needs_nobody_to_leave(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "p3")
    world.commits(world.plan("elsewhere", ("new", "b", [world.card(1)]), queue="a"))
    assert [(e.pod, e.kind) for e in world.wait(1).evictions] == [("p0", EvictKind.REVOKE)]


def test_members_of_a_gang_that_is_unwound_leave_all_the_same(world: World) -> None:
    for name in ("a", "b"):
        world.state.queues[QueueName(name)] = Queue(QueueName(name), deserved={GPU: 1})
    pods = [("g0", "a", [world.card(0)]), ("g1", "b", [world.card(0)])]
    world.commits(world.plan("gang", *pods, queue="b", min_member=2))
    world.outcome("g0", BindOutcome.BOUND, at="a")
    victim = Victim(claim=world.claim("g0").id, pod_uid=PodUid("g0"))
    asked = world.plan("want", ("new", "a", [world.card(0)]), queue="a").model_copy(update={"victims": (victim,)})
    world.commits(asked)
    gone(world, "new")
    world.wait(1)
    world.wait(600)  # its deadline
    world.outcome("g0", BindOutcome.BOUND, at="a")
    assert world.claim_state("g0") is ClaimState.POSTED
    assert decision(world, "g0") is Decision.EVICT


def test_a_gang_that_is_unwound_is_not_kept_since_nobody_needs_its_places(world: World) -> None:
    for name in ("a", "b"):
        world.state.queues[QueueName(name)] = Queue(QueueName(name), deserved={GPU: 1})
    world.commits(world.plan("gang", ("g0", "a", [world.card(0)]), ("g1", "b", [world.card(0)]), queue="b", min_member=2))
    world.outcome("g0", BindOutcome.BOUND, at="a")
    world.wait(600)  # its deadline
    victim = Victim(claim=world.claim("g0").id, pod_uid=PodUid("g0"))
    asked = world.plan("want", ("new", "a", [world.card(0)]), queue="a").model_copy(update={"victims": (victim,)})
    world.commits(asked)
    gone(world, "new")
    world.wait(1)
    assert decision(world, "g0") is Decision.EVICT


def test_late_news_of_an_eviction_do_not_settle_the_decision_that_took_it_back(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "new")
    world.wait(1)
    world.outcome("p0", BindOutcome.BOUND, generation=2, at="a")
    assert decision(world, "p0") is Decision.REVOKE
    world.outcome("p0", BindOutcome.BOUND, generation=3, at="a")
    assert decision(world, "p0") is Decision.NONE


def test_who_leaves_already_makes_room_once_however_many_plans_name_it(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    assert to_be_freed(world.state, asks(world, "next", "other", 0))[QueueName("b")][GPU] == 1
    assert to_be_freed(world.state, asks(world, "next", "other", 1))[QueueName("b")][GPU] == 2


def test_who_may_not_be_preempted_stays_in_its_own_queue_too(world: World) -> None:
    full(world, rules=Queue(QueueName("b"), deserved={GPU: 4}, non_preemptible_classes=("*",)), preemptable=False)
    asked = asks(world, "want", "new", 0).model_copy(update={"queue": "b"})
    assert world.refuses(asked) == "VictimProtected"


def test_a_victim_whose_claim_is_of_another_pod_is_gone(world: World) -> None:
    full(world)
    mistaken = Victim(claim=world.claim("p0").id, pod_uid=PodUid("p1"))
    assert world.refuses(asks(world, "want", "new", 0).model_copy(update={"victims": (mistaken,)})) == "VictimGone"


def test_grace_period_of_an_accepted_eviction_is_published(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    step = world.outcome("p0", BindOutcome.EVICTED, grace_s=7)
    events = [message.event for message in messages_of(step, epoch=world.state.epoch, index=world.state.index)]
    assert [event.leaving for event in events if isinstance(event, ClaimsChanged) and event.leaving] == [
        (Leaving(pod_uid=PodUid("p0"), grace_s=7),)
    ]
