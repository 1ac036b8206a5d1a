"""Quota by card model in the ledger's core. Node a has two A100, b two H100, c one of each; what plans say of models counts for nothing.

vision       train, serve
speech       asr
"""

from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.kube import Queue as QueueObject
from hbox_common.kube.objects import Metadata, QueueSpec
from hbox_common.kube.queues import queue_of
from hbox_common.model import Card, Generation, NodeName, NodeState, PodPhase, PodUid, Queue, QueueName, Resources
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.accounts.loans import on_loan
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.step import Bucket

from .conftest import World

A100, H100 = f"{GPU}.A100", f"{GPU}.H100"


def node(name: str, *models: str) -> NodeState:
    cards = tuple(Card(i, f"{name}-{i}", model, 40_960, shares=4) for i, model in enumerate(models))
    allocatable = {"cpu": 8000, "pods": 10, GPU: 4 * len(models)}
    return NodeState(NodeName(name), name, Generation(1), ready=True, allocatable=allocatable, cards=cards)


@pytest.fixture
def world() -> World:
    made = World()
    for name, models in (("a", ("A100", "A100")), ("b", ("H100", "H100")), ("c", ("A100", "H100"))):
        made.state.nodes[NodeName(name)] = node(name, *models)
    return made


def rule(world: World, name: str, parent: str = "", **amounts: Resources) -> None:
    rules: Any = amounts
    queue = Queue(QueueName(name), parent=parent, **rules)
    world.state.rule(world.turn(), queue.name, queue)
    world.state.validate()


def wants(world: World, pod: str, queue: str, where: str, *cards: int, victims: tuple[str, ...] = ()) -> Plan:
    made = world.plan(f"plan-{pod}", (pod, where, [world.card(i) for i in cards]), queue=queue)
    named = tuple(Victim(claim=world.claim(v).id, pod_uid=PodUid(v)) for v in victims)
    return made.model_copy(update={"victims": named})


def runs(world: World, queue: str, *places: tuple[str, int]) -> None:
    """A pod on each of these cards, named by its place."""
    for where, card in places:
        world.commits(wants(world, f"{where}{card}", queue, where, card))
        world.outcome(f"{where}{card}", BindOutcome.BOUND, at=where)


def used(state: LedgerState, queue: str) -> Resources:
    return {name: units for name, units in state.queues.used(QueueName(queue)).items() if units and name.startswith(GPU)}


def test_capability_of_a_model_is_a_limit_for_cards_of_that_model_alone(world: World) -> None:
    rule(world, "train", capability={H100: 1})
    runs(world, "train", ("b", 0), ("a", 0), ("c", 0))
    assert (
        world.refusal(wants(world, "more", "train", "b", 1))
        == f"queue train may use 1 of {H100}, 1 are in use and 1 more are asked for"
    )
    world.commits(wants(world, "other", "train", "a", 1))
    assert used(world.state, "train") == {GPU: 4, A100: 3, H100: 1}


def test_the_wall_of_a_queue_above_holds_and_is_named(world: World) -> None:
    rule(world, "vision", capability={H100: 2, GPU: 5})
    rule(world, "train", "vision")
    rule(world, "serve", "vision", capability={H100: 2})
    runs(world, "train", ("b", 0), ("b", 1))
    refused = world.refusal(wants(world, "more", "serve", "c", 1))
    assert refused == f"queue vision, above queue serve, may use 2 of {H100}, 2 are in use and 1 more are asked for"


def test_a_gang_counts_whole_and_every_card_by_its_own_model(world: World) -> None:
    rule(world, "train", capability={H100: 2})
    both = [world.card(0), world.card(1)]
    gang = world.plan("g", ("p0", "b", both), ("p1", "c", both), job="g", min_member=2, queue="train")
    assert f"may use 2 of {H100}, 0 are in use and 3 more are asked for" in world.refusal(gang)
    rule(world, "train", capability={H100: 3})
    world.commits(gang.model_copy(update={"id": "again"}))
    assert used(world.state, "train") == {GPU: 4, A100: 1, H100: 3}


def test_the_model_is_the_inventorys_and_stays_the_claims_when_the_inventory_changes(world: World) -> None:
    rule(world, "train", capability={H100: 2})
    runs(world, "train", ("a", 0))
    world.state.nodes[NodeName("a")] = node("a", "H100", "H100")
    world.state.validate()
    assert used(world.state, "train") == {GPU: 1, A100: 1}
    runs(world, "train", ("a", 1))
    assert used(world.state, "train") == {GPU: 2, A100: 1, H100: 1}
    world.see(world.fact("a0", "a", PodPhase.GONE), world.fact("a1", "a", PodPhase.GONE))
    assert used(world.state, "train") == {}


def test_cards_of_no_model_count_in_the_sum_alone(world: World) -> None:
    world.state.nodes[NodeName("d")] = node("d", "", "")
    rule(world, "train", capability={H100: 0, A100: 0})
    runs(world, "train", ("d", 0))
    assert used(world.state, "train") == {GPU: 1}


def test_nothing_is_counted_by_model_until_a_queue_names_one_and_then_what_is_held_already_is(world: World) -> None:
    rule(world, "train")
    runs(world, "train", ("a", 0), ("b", 0))
    assert used(world.state, "train") == {GPU: 2}
    assert not [move for move in world.last.moves if move.resource in (A100, H100)]
    step = world.turn()
    world.state.rule(step, QueueName("other"), Queue(QueueName("other"), guarantee={H100: 1}))
    world.state.validate()
    assert used(world.state, "train") == {GPU: 2, A100: 1, H100: 1}
    assert {(m.resource, m.debit, m.credit): n for m, n in step.moves.items()} == {
        (A100, Bucket.FREE, Bucket.POSTED): 1,
        (H100, Bucket.FREE, Bucket.POSTED): 1,
    }
    step = world.turn()
    world.state.rule(step, QueueName("other"), None)
    world.state.validate()
    assert used(world.state, "train") == {GPU: 2}
    assert {(m.resource, m.debit, m.credit): n for m, n in step.moves.items()} == {
        (A100, Bucket.POSTED, Bucket.FREE): 1,
        (H100, Bucket.POSTED, Bucket.FREE): 1,
    }


def test_a_pod_that_is_found_bound_counts_for_the_model_of_its_cards(world: World) -> None:
    rule(world, "default", capability={H100: 1})
    world.see(world.fact("found", "b", slices=[world.card(0)], cards=1))
    assert used(world.state, "default") == {GPU: 1, H100: 1}
    assert f"1 of {H100}, 1 are in use" in world.refusal(wants(world, "more", "default", "c", 1))


def test_who_has_more_than_it_deserves_of_a_model_gives_of_that_model_alone(world: World) -> None:
    """b has borrowed an H100; of A100 it has what it deserves, though of all cards together it has more."""
    rule(world, "asr", deserved={GPU: 3, H100: 2})
    rule(world, "train", deserved={GPU: 3, A100: 2, H100: 2})
    runs(world, "train", ("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 1))
    refused = world.refusal(wants(world, "new", "asr", "a", 0, victims=("a0",)))
    assert refused == "queue train has no more than it deserves"
    world.commits(wants(world, "new", "asr", "b", 0, victims=("b0",)))
    assert [eviction.pod for eviction in world.last.evictions] == ["b0"]
    assert world.refusal(wants(world, "next", "asr", "c", 1, victims=("c1",))) == "queue train has no more than it deserves"


def test_who_takes_stays_within_what_it_deserves_of_the_model_whatever_it_has_borrowed_of_others(world: World) -> None:
    rule(world, "asr", deserved={GPU: 2, H100: 1})
    rule(world, "train", deserved={GPU: 3})
    runs(world, "asr", ("a", 0), ("a", 1))
    runs(world, "train", ("b", 0), ("b", 1), ("c", 0), ("c", 1))
    world.commits(wants(world, "new", "asr", "b", 0, victims=("b0",)))
    world.see(world.fact("b0", "b", PodPhase.GONE))
    world.commits(wants(world, "new2", "asr", "b", 0))
    world.see(world.fact("c0", "c", PodPhase.GONE))
    rule(world, "train", deserved={GPU: 1})
    refused = world.refusal(wants(world, "next", "asr", "b", 1, victims=("b1",)))
    assert refused == f"queue asr would have more than it deserves of {H100}"


def test_a_guarantee_of_a_model_is_kept_whatever_is_deserved_of_all_cards(world: World) -> None:
    rule(world, "asr", deserved={GPU: 4})
    rule(world, "train", deserved={GPU: 1}, guarantee={H100: 2})
    runs(world, "train", ("a", 0), ("b", 0), ("b", 1))
    assert world.refusal(wants(world, "new", "asr", "b", 0, victims=("b0",))) == f"queue train is guaranteed its {H100}"
    world.commits(wants(world, "new", "asr", "a", 0, victims=("a0",)).model_copy(update={"id": "other"}))


def test_a_guarantee_of_a_model_may_be_taken_back(world: World) -> None:
    rule(world, "asr", guarantee={H100: 1})
    rule(world, "train", deserved={GPU: 1})
    runs(world, "train", ("a", 0), ("b", 0))
    refused = world.refusal(wants(world, "new", "asr", "a", 0, victims=("a0",)))
    assert refused == "queue asr deserves nothing of what is asked for"
    world.commits(wants(world, "new", "asr", "b", 0, victims=("b0",)).model_copy(update={"id": "other"}))


def test_what_leaves_and_what_is_promised_counts_by_model(world: World) -> None:
    """asr was promised the H100 that it deserves; a second pod cannot be promised one beside it."""
    rule(world, "asr", deserved={H100: 1}, capability={H100: 1})
    rule(world, "train", deserved={GPU: 1})
    runs(world, "train", ("a", 0), ("b", 0), ("b", 1))
    world.commits(wants(world, "new", "asr", "b", 0, victims=("b0",)))
    refused = world.refusal(wants(world, "next", "asr", "b", 1, victims=("b1",)))
    assert refused == f"queue asr may use 1 of {H100}, 1 are in use and 1 more are asked for"


def test_who_moves_keeps_its_model_where_queues_name_models(world: World) -> None:
    rule(world, "train", capability={A100: 4})
    runs(world, "train", ("a", 0))
    moving = wants(world, "new", "train", "a", 0, victims=("a0",))
    to = {"to": NodeName("b"), "slices": (world.card(0),)}
    elsewhere = moving.model_copy(update={"victims": (moving.victims[0].model_copy(update=to),)})
    assert "another model" in world.refusal(elsewhere)
    to = {"to": NodeName("c"), "slices": (world.card(0),)}
    world.commits(moving.model_copy(update={"id": "same", "victims": (moving.victims[0].model_copy(update=to),)}))


def test_loans_are_by_model_and_who_deserves_models_alone_deserves_so_many_cards() -> None:
    queue = Queue(QueueName("q"), deserved={A100: 2, H100: 1})
    assert on_loan({GPU: 5, A100: 2, H100: 3}, queue.deserved) == {GPU: 2, H100: 2}
    assert on_loan({GPU: 3, A100: 2, H100: 1}, queue.deserved) == {}


def test_a_queues_amounts_of_models_are_whole_numbers_of_cards() -> None:
    def read(quantity: str) -> Queue:
        return queue_of(QueueObject(metadata=Metadata(name="q", uid="u"), spec=QueueSpec(capability={H100: quantity})))

    assert read("16").capability == {H100: 16}
    with pytest.raises(InvalidRequest, match=r"capability of nvidia.com/gpu.H100: 2500m is no whole number of cards"):
        read("2500m")
