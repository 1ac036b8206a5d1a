"""What is lent of a pool, as the ledger judges it: node a of two cards is in the pool lab, which vision owns and lends; node b is pooled."""

from dataclasses import replace

import pytest

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import PodUid, Queue, QueueName, in_pool
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.pools import POOL
from hbox_ledger.core.accounts.loans import on_loan

from .conftest import World, node

LAB = in_pool(GPU, "lab")


@pytest.fixture
def lent(world: World) -> World:
    """b holds p0 and p1 on lab, p2 on pooled, as a gang of three."""
    world.state.know(node("a").name, replace(node("a"), labels={POOL: "lab"}))
    for queue in (
        Queue(QueueName("vision"), pools=("lab", "pooled"), lent_pools=("lab",)),
        Queue(QueueName("b"), deserved={GPU: 4, LAB: 4}),
        Queue(QueueName("c"), deserved={GPU: 4, LAB: 4}),
    ):
        world.state.rule(world.state.step(0.0), queue.name, queue)
    return world


def gang(world: World, *, needs: int) -> None:
    places = [("p0", "a", [world.card(0)]), ("p1", "a", [world.card(1)]), ("p2", "b", [world.card(0)])]
    world.commits(world.plan("gang", *places, min_member=needs, queue="b"))
    for pod, where, _ in places:
        world.outcome(pod, BindOutcome.BOUND, at=where)


def asks(world: World, queue: str, *victims: int, on: str = "a") -> Plan:
    made = world.plan("want", ("new", on, [world.card(0)]), queue=queue)
    named = tuple(Victim(claim=world.claim(f"p{n}").id, pod_uid=PodUid(f"p{n}")) for n in victims)
    return made.model_copy(update={"victims": named, "priority": -100})


def test_claims_note_their_pool_and_count_there(lent: World) -> None:
    gang(lent, needs=1)
    assert [lent.claim(pod).pool for pod in ("p0", "p1", "p2")] == ["lab", "lab", ""]
    used = lent.state.queues.used(QueueName("b"))
    assert (used[GPU], used[LAB]) == (1, 2)
    lent.state.know(node("a").name, replace(node("a"), labels={}))
    assert lent.state.queues.used(QueueName("b"))[LAB] == 2, "a label that changes moves no account"
    lent.state.validate()


def test_the_owner_has_it_back_whatever_shares_and_priorities_say(lent: World) -> None:
    gang(lent, needs=1)
    lent.commits(asks(lent, "vision", 0))
    [eviction] = lent.last.evictions
    assert eviction.pod == "p0"
    [receipt] = lent.last.receipts
    assert (
        receipt.message
        == "reclaimed for ml/want of queue vision, which owns pool lab: the owner reclaims its lent nodes on demand"
    )
    assert receipt.returns == "as soon as there is room in another pool, or lab is idle again"


def test_nobody_may_keep_what_is_lent_whatever_its_class(lent: World) -> None:
    b = lent.state.queues[QueueName("b")]
    lent.state.rule(lent.state.step(0.0), b.name, replace(b, non_preemptible_classes=("*",)))
    lent.commits(lent.plan("here", ("p0", "a", [lent.card(0)]), queue="b").model_copy(update={"preemptable": False}))
    lent.commits(lent.plan("there", ("p1", "b", [lent.card(0)]), queue="b").model_copy(update={"preemptable": False}))
    assert [lent.claim(pod).preemptable for pod in ("p0", "p1")] == [True, False]


def test_a_borrower_takes_nothing_from_another(lent: World) -> None:
    gang(lent, needs=1)
    assert "queue c deserves nothing of what is asked for" in lent.refusal(asks(lent, "c", 0))


def test_the_owner_takes_nothing_of_pooled_by_it(lent: World) -> None:
    gang(lent, needs=1)
    assert "queue b has no more than it deserves" in lent.refusal(asks(lent, "vision", 0, 2))
    assert "queue b has no more than it deserves" in lent.refusal(asks(lent, "vision", 2, on="b"))


def test_what_is_left_of_a_gang_that_breaks_by_it_goes_with_it(lent: World) -> None:
    gang(lent, needs=3)
    lent.commits(asks(lent, "vision", 0, 2))
    assert {eviction.pod for eviction in lent.last.evictions} == {"p0", "p2"}


def test_a_queue_that_names_lab_no_more_has_what_it_holds_there_on_loan(lent: World) -> None:
    made = lent.plan("own", ("p9", "a", [lent.card(0)]), queue="vision")
    lent.commits(made)
    assert (
        on_loan(dict(lent.state.queues.used(QueueName("vision"))), lent.state.queues.amounts(QueueName("vision")).deserved)
        == {}
    )
    rule = lent.state.step(0.0)
    lent.state.rule(rule, QueueName("vision"), Queue(QueueName("vision")))
    assert lent.state.queues.borrows(QueueName("vision"), "lab")
