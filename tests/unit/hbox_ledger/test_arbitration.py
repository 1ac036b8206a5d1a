"""Which plans become claims, and why others do not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hbox_common.events import BindDecided, Plan, decode, encode, headers
from hbox_common.events.plans import PlansAnswered
from hbox_common.model import (
    ClaimState,
    Epoch,
    Generation,
    HostPort,
    Index,
    NodeName,
    PodPhase,
    Queue,
    QueueName,
    QueuePhase,
    Verdict,
    port_amounts,
)
from hbox_ledger.messages import messages_of

from .conftest import World


def test_a_plan_that_fits_becomes_a_pending_claim_and_a_bind(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    assert world.claim_state("pod") is ClaimState.PENDING
    [bind] = world.last.binds
    assert (bind.pod_uid, bind.node, bind.generation, bind.slices) == ("pod", "a", 1, (world.on("a", 0),))
    assert bind.deadline == world.now + 60
    [message] = [m.event for m in messages_of(world.last, epoch=Epoch(1), index=Index(1)) if isinstance(m.event, BindDecided)]
    assert decode(encode(message), headers(message, source="ledger", message_id="1", now=0.0)) == message, (
        "made without validation, and valid"
    )


@pytest.mark.parametrize(("said", "written"), [(3, 3), (0, 0), (-1, -1), (-7, -1), (1 << 40, -1)])
def test_a_bind_says_the_rank_that_the_plan_gives_where_it_can_be_one(world: World, said: int, written: int) -> None:
    plan = world.plan("p", ("pod", "a", [world.card(0)]))
    world.commits(plan.model_copy(update={"placements": (replace(plan.placements[0], rank=said),)}))
    [bind] = world.last.binds
    assert bind.rank == written


def test_ids_follow_from_the_plan_and_the_pod(world: World) -> None:
    other = type(world)()
    other.state.nodes.update(world.state.nodes)
    for w in (world, other):
        w.commits(w.plan("p", ("pod", "a", [])))
    assert world.claim("pod").id == other.claim("pod").id
    assert world.last.binds[0].id == other.last.binds[0].id


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ((100, 40_960), (100, 40_960), False),
        ((50, 10_000), (50, 10_000), True),
        ((50, 10_000), (51, 10_000), False),
        ((50, 30_000), (20, 20_000), False),
        ((0, 10_000), (100, 40_960), False),
    ],
)
def test_a_card_is_given_away_once(world: World, first: tuple[int, int], second: tuple[int, int], fits: bool) -> None:
    world.commits(world.plan("p1", ("one", "a", [world.card(0, *first)])))
    [answer] = world.propose(world.plan("p2", ("two", "a", [world.card(0, *second)])))
    assert answer.committed == fits


def test_a_host_port_is_given_away_once_a_node_and_counts_in_no_queue(world: World) -> None:
    port = port_amounts([HostPort(8080)])

    def on(node: str, pod: str) -> Plan:
        made = world.plan(f"plan-{pod}", (pod, node, []))
        return made.model_copy(update={"requests": ({**made.requests[0], **port},)})

    world.commits(on("a", "one"))
    assert world.refuses(on("a", "two")) == "NodeResourcesInsufficient"
    world.commits(on("b", "two"))
    assert world.state.used[QueueName("default")] == {"cpu": 2000, "pods": 2}
    world.see(world.fact("one", "a", PodPhase.GONE))
    world.commits(on("a", "three"))
    # What runs is accounted for, also where it clashes.
    world.see(replace(world.fact("mirror", "a", ours=False), requests={"cpu": 1, **port}))
    assert world.state.node(NodeName("a")).used["hostport/TCP/8080"] == 2 * port["hostport/TCP/8080"]


def test_the_placements_of_one_plan_are_judged_beside_each_other(world: World) -> None:
    both = world.plan("p", ("one", "a", [world.card(0)]), ("two", "a", [world.card(0)]), job="gang", min_member=2)
    assert world.refuses(both) == "CardTaken"
    assert not world.state.node(NodeName("a")).cards[world.on("a", 0).card].pods


def test_plans_of_one_batch_see_those_before_them(world: World) -> None:
    answers = world.propose(world.plan("p1", ("one", "a", [world.card(0)])), world.plan("p2", ("two", "a", [world.card(0)])))
    assert [a.committed for a in answers] == [True, False]
    assert answers[1].refresh == 1 == world.state.index


def test_a_gang_is_refused_whole_when_one_member_does_not_fit(world: World) -> None:
    gang = world.plan("p", ("one", "a", []), ("two", "nowhere", []), job="gang", min_member=2)
    assert world.refuses(gang) == "NodeUnknown"
    assert world.claim_state("one") is None


def test_fewer_members_than_a_gang_needs_are_refused(world: World) -> None:
    assert world.refuses(world.plan("p", ("one", "a", []), job="gang", min_member=2)) == "GangIncomplete"


def test_what_the_plan_says_is_bound_does_not_count_only_live_claims_do(world: World) -> None:
    lying = world.plan("p", ("one", "a", []), job="gang", min_member=2).model_copy(update={"bound": 5})
    assert world.refuses(lying) == "GangIncomplete"
    world.commits(world.plan("p2", ("one", "a", []), ("two", "a", []), job="gang", min_member=2))
    world.commits(world.plan("p3", ("three", "b", []), job="gang", min_member=2))


def test_a_pod_has_one_claim(world: World) -> None:
    world.commits(world.plan("p1", ("pod", "a", [])))
    assert world.refuses(world.plan("p2", ("pod", "b", []))) == "PodAlreadyClaimed"


def test_a_pod_that_is_gone_gets_no_claim(world: World) -> None:
    world.see(world.fact("pod", "a", PodPhase.GONE))
    assert world.refuses(world.plan("p", ("pod", "a", []))) == "PodAlreadyClaimed"


def test_the_same_plan_again_gets_the_same_answer_to_the_byte(world: World) -> None:
    first = world.plan("p", ("pod", "a", []))
    [answer] = world.propose(first)
    stored = {first.id: answer}
    [again] = world.propose(first, answered=stored)
    assert not world.last.durable
    assert [encode(PlansAnswered(epoch=Epoch(7), index=Index(1), answers=(a,))) for a in (answer, again)] == [
        encode(PlansAnswered(epoch=Epoch(7), index=Index(1), answers=(answer,)))
    ] * 2
    assert len(world.state.live) == 1


def test_the_same_plan_twice_in_one_batch_has_one_effect(world: World) -> None:
    p = world.plan("p", ("pod", "a", []))
    assert [a.committed for a in world.propose(p, p)] == [True]
    assert len(world.last.changes) == 1


@pytest.mark.parametrize(
    ("epoch", "frozen", "reason"), [(6, False, "StaleEpoch"), (8, False, "StaleEpoch"), (7, True, "LedgerReconciling")]
)
def test_other_epochs_and_a_frozen_ledger_refuse_without_storing(world: World, epoch: int, frozen: bool, reason: str) -> None:
    world.state.frozen = frozen
    [answer] = world.propose(world.plan("p", ("pod", "a", [])), epoch=epoch)
    assert answer.reason == reason
    assert not world.last.durable


def test_the_default_queue_exists_without_an_object_and_others_do_not(world: World) -> None:
    world.commits(world.plan("p", ("one", "a", [])))
    assert world.refuses(world.plan("q", ("two", "a", []), queue="nope")) == "QueueNotFound"


def test_a_closed_queue_takes_nothing(world: World) -> None:
    world.state.queues[QueueName("q")] = Queue(QueueName("q"), QueuePhase.CLOSED)
    assert world.refuses(world.plan("p", ("pod", "a", []), queue="q")) == "QueueClosed"


def test_capability_counts_pending_claims_and_frees_with_them(world: World) -> None:
    world.state.queues[QueueName("q")] = Queue(QueueName("q"), capability={"nvidia.com/gpu": 2, "cpu": 100_000})
    world.commits(world.plan("p1", ("one", "a", [world.card(0)]), queue="q"))
    world.commits(world.plan("p2", ("two", "a", [world.card(1)]), queue="q"))
    assert world.refuses(world.plan("p3", ("three", "b", [world.card(0)]), queue="q")) == "QueueCapabilityExceeded"
    world.see(world.fact("one", "a", PodPhase.SUCCEEDED))
    world.commits(world.plan("p4", ("three", "b", [world.card(0)]), queue="q"))


def test_unhealthy_and_cordoned_nodes_get_no_new_claim(world: World) -> None:
    world.state.verdicts[NodeName("a")] = Verdict(NodeName("a"), Generation(1), healthy=True, bad_cards=(0,))
    b = NodeName("b")
    world.state.nodes[b] = replace(world.state.nodes[b], unschedulable=True)
    assert world.refuses(world.plan("p1", ("pod", "a", [world.card(0)]))) == "CardUnhealthy"
    assert world.refuses(world.plan("p2", ("pod", "b", []))) == "NodeNotReady"
    world.commits(world.plan("p3", ("pod", "a", [world.card(1)])))


@pytest.mark.parametrize(
    "broken",
    [
        lambda w: w.plan("p"),
        lambda w: w.plan("p", ("pod", "a", []), ("pod", "b", [])),
        lambda w: w.plan("p", ("pod", "a", []), cpu=-1),
        lambda w: w.plan("p", ("pod", "a", [w.card(0, -5)])),
        lambda w: w.plan("p", ("pod", "a", []), min_member=0),
        lambda w: w.plan("p", ("pod", "a", []), queue=""),
        lambda w: w.plan("p", ("pod", "a", [])).model_copy(update={"requests": ()}),
        lambda w: w.plan("p", ("pod", "a", [])).model_copy(update={"requests": ({"nvidia.com/gpu": 1},)}),
    ],
)
def test_malformed_plans_are_refused_and_leave_nothing(world: World, broken: Callable[[World], Plan]) -> None:
    assert world.refuses(broken(world)) == "PlanMalformed"
