"""Taking back by weight, as the ledger judges it: by what it has claims for and what job-controller says waits. Two nodes with two cards each, all four held by
queue b."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import (
    Generation,
    JobDemand,
    JobId,
    NodeName,
    PodPhase,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    RefusalReason,
    Resources,
    TaskDemand,
    Verdict,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.accounts.demand import GRACE_S
from hbox_ledger.core.records import Records

from .conftest import World, fact


def waits(job: str, queue: str, pods: Sequence[str], *, revision: int = 1, cards: int = 1) -> JobDemand:
    requests: Resources = {"cpu": 1000, "pods": 1, GPU: cards}
    task = TaskDemand(requests, tuple(PodRef(PodUid(pod), pod, "1") for pod in pods))
    return JobDemand(JobId(job), "ml", QueueName(queue), 0, 1, 0.0, revision, tasks=(task,))


def full(world: World, *, a: int = 1, b: int = 1, **b_rules: object) -> None:
    """b holds all four cards, which are all that there are; a asks for as many; weights a to b."""
    for name in ("a", "b"):
        state = world.node(name)
        world.state.know(state.name, replace(state, allocatable=state.allocatable | {GPU: 2}))
    world.state.count_demand()
    world.told = False
    world.state.queues[QueueName("a")] = Queue(QueueName("a"), weight=a)
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), weight=b, **b_rules)  # type: ignore[arg-type]
    for number, (where, card) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
        world.state.records.receive([waits(f"b{number}", "b", [f"p{number}"])])
        world.commits(world.plan(f"b{number}", (f"p{number}", where, [world.card(card)]), queue="b"))
        world.outcome(f"p{number}", BindOutcome.BOUND, at=where)
        world.state.records.withdraw([JobId(f"b{number}")], [2])
    for number in range(4):
        world.state.records.receive([waits(f"a{number}", "a", [f"n{number}"])])


def asks(world: World, victim: int, *, of: int = 0) -> Plan:
    """A plan for one pod of a's that asks for the place of this pod."""
    claim = world.claim(f"p{victim}")
    made = world.plan(f"a{of}", (f"n{of}", claim.node, list(claim.slices)), queue="a")
    victims = (Victim(claim=claim.id, pod_uid=PodUid(f"p{victim}")),)
    return made.model_copy(update={"victims": victims, "id": f"take-{of}"})


def leaves(world: World, pod: int) -> None:
    world.see(world.fact(f"p{pod}", world.claim(f"p{pod}").node, PodPhase.GONE))


@pytest.mark.parametrize(("weights", "most"), [((1, 1), 2), ((3, 1), 3), ((1, 3), 1)])
def test_who_has_less_than_its_share_takes_from_who_has_more_up_to_it(
    world: World, weights: tuple[int, int], most: int
) -> None:
    full(world, a=weights[0], b=weights[1])
    for number in range(most):
        world.commits(asks(world, number, of=number))
    [answer] = world.propose(asks(world, most, of=most))
    assert (answer.committed, answer.reason) == (False, RefusalReason.VICTIM_PROTECTED)
    assert answer.message == "queue b has no more than it deserves"


def test_without_the_setting_weights_are_no_right(world: World) -> None:
    full(world)
    world.state.records = Records()
    world.state.queues.divide({})
    world.told = True
    [answer] = world.propose(asks(world, 0))
    assert answer.message == "queue a deserves nothing of what is asked for"


def test_who_has_its_share_by_weight_gives_what_it_does_not_deserve_once_the_policy_has_no_weights(world: World) -> None:
    """By weight b keeps all that it asks for, of a node of another scheduler's pods too; by what queues deserve it gives two cards, and no more."""
    full(world, a=1, b=100)
    world.state.queues[QueueName("a")] = Queue(QueueName("a"), deserved={GPU: 2})
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), weight=100)
    state = world.node("c")
    world.state.know(state.name, replace(state, allocatable=state.allocatable | {GPU: 4}))
    [kept] = world.propose(asks(world, 0))
    assert kept.message == "queue b has no more than it deserves"
    world.state.records.by_weight = False
    world.commits(asks(world, 0, of=1))
    world.commits(asks(world, 1, of=2))
    [answer] = world.propose(asks(world, 2, of=3))
    assert answer.message == "queue a would have more than it deserves of nvidia.com/gpu"
    assert world.state.shares_of() is None
    assert not world.state.queues.shares


def test_shares_by_weight_come_back_with_the_policy(world: World) -> None:
    full(world)
    world.state.divide(world.now)
    shares = dict(world.state.queues.shares)
    world.state.records.by_weight = False
    world.state.divide(world.now)
    [answer] = world.propose(asks(world, 0))
    assert answer.message == "queue a deserves nothing of what is asked for"
    world.state.records.by_weight = True
    world.state.divide(world.now)
    assert world.state.queues.shares == shares
    world.commits(asks(world, 0, of=1))


def test_what_nobody_has_asked_for_is_no_reason_to_take(world: World) -> None:
    """A plan's word counts for nothing: by job-controller's, a third queue waits for all, and a's share is less."""
    full(world)
    world.state.queues[QueueName("c")] = Queue(QueueName("c"), weight=6)
    world.commits(asks(world, 0))
    world.state.records.receive([waits("c0", "c", [f"c{n}" for n in range(9)])])
    [answer] = world.propose(asks(world, 1, of=1))
    assert answer.message == "queue a would have more than it deserves of nvidia.com/gpu"
    world.state.records.withdraw([JobId("c0")], [2])
    world.commits(asks(world, 1, of=2))


def test_what_an_object_says_that_it_deserves_is_kept_whatever_the_weights(world: World) -> None:
    full(world, a=60, deserved={GPU: 4})
    [answer] = world.propose(asks(world, 0))
    assert not answer.committed


def test_a_pod_with_a_claim_waits_no_more_though_the_news_of_its_job_is_older(world: World) -> None:
    full(world)
    demand = world.state.demand
    assert demand is not None
    assert demand.waiting[QueueName("a")][GPU] == 4
    world.state.records.receive([waits("b9", "b", ["p0", "x"])])  # p0 runs
    assert demand.waiting[QueueName("b")][GPU] == 1
    leaves(world, 0)
    assert demand.waiting[QueueName("b")][GPU] == 2
    world.state.records.receive([waits("b9", "b", ["x"], revision=2)])
    assert demand.waiting[QueueName("b")][GPU] == 1
    world.state.records.ask()
    world.state.records.only([])
    assert not any(any(amounts.values()) for amounts in demand.waiting.values())
    demand.validate()


def test_what_was_taken_counts_as_asked_for_until_it_had_time_to_be_made_anew(world: World) -> None:
    """Three queues of equal weight: while b's pod is made anew, a third may not have what is b's."""
    full(world)
    demand = world.state.demand
    assert demand is not None
    world.commits(asks(world, 0))
    leaves(world, 0)
    assert demand.waiting[QueueName("b")][GPU] == 1
    world.now += GRACE_S
    world.state.divide(world.now)
    assert demand.waiting[QueueName("b")][GPU] == 0


def test_cards_of_nodes_that_take_no_work_are_nobodys_but_those_that_are_held(world: World) -> None:
    full(world)
    assert world.state.total()[GPU] == 4
    world.state.know(NodeName("b"), verdict=Verdict(NodeName("b"), Generation(1), healthy=False))
    assert world.state.total()[GPU] == 4
    leaves(world, 2)
    assert world.state.total()[GPU] == 3


def test_foreign_amounts_are_excluded_from_shares(world: World) -> None:
    """Each node has two cards; a pod of another scheduler holds one of them."""
    full(world)
    leaves(world, 2)
    world.see(fact("foreign", "b", cards=1, ours=False))
    assert world.state.total()[GPU] == 3
    world.see(fact("foreign", "b", PodPhase.GONE, cards=1, ours=False))
    assert world.state.total()[GPU] == 4


def test_held_unallocatable_cards_are_part_of_shares(world: World) -> None:
    full(world)
    before = world.state.nodes[NodeName("b")]
    world.state.know(NodeName("b"), replace(before, allocatable={**before.allocatable, GPU: 0}))
    assert world.state.total()[GPU] == 4


def test_books_that_are_read_anew_know_what_waits(world: World) -> None:
    full(world)
    demand = world.state.demand
    assert demand is not None
    before = {name: dict(amounts) for name, amounts in demand.waiting.items()}
    world.state.keep_records(world.state.records)
    assert world.state.demand is not demand
    world.state.validate()
    assert world.state.demand is not None
    assert {n: a for n, a in world.state.demand.waiting.items() if any(a.values())} == {
        n: a for n, a in before.items() if any(a.values())
    }


def test_a_share_by_weight_protects_nobody_for_good(world: World) -> None:
    full(world)
    world.state.queues[QueueName("b")] = Queue(QueueName("b"), non_preemptible_classes=("*",))
    leaves(world, 0)
    world.state.records.receive([replace(waits("b9", "b", ["b9-0"]), preemptable=False)])
    world.state.divide(world.now)
    made = world.plan("b9", ("b9-0", "a", [world.card(0)]), queue="b")
    world.commits(made.model_copy(update={"preemptable": False}))
    assert world.claim("b9-0").preemptable


def test_a_pod_waits_once_whichever_job_it_is_said_to_be_of_and_no_more_when_these_are_gone(world: World) -> None:
    """A tenant writes another PodGroup on its pod, again and again: the job that it comes to is told of before the one that it leaves is withdrawn."""
    full(world)
    demand = world.state.demand
    assert demand is not None
    for revision in (1, 3, 5):
        world.state.records.receive([waits("alone", "b", ["x"], revision=revision)])
        world.state.records.receive([waits("group", "b", ["x"], revision=revision)])
        assert demand.waiting[QueueName("b")][GPU] == 1
        world.state.records.withdraw([JobId("alone")], [revision + 1])
        assert demand.waiting[QueueName("b")][GPU] == 1, "the group waits for it"
        world.state.records.withdraw([JobId("group")], [revision + 1])
        assert demand.waiting[QueueName("b")][GPU] == 0
        demand.validate()
