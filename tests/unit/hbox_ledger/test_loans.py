"""Loans: what a queue uses beyond what it deserves is a transfer from the pool, and goes back when it uses less or deserves more."""

from hbox_common.model import DEFAULT_QUEUE, PodPhase, Queue
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.accounts import loans
from hbox_ledger.core.step import Bucket, Step

from .conftest import World


def lent(world: World, step: Step) -> dict[str, int]:
    """Cards and other resources that go to the default queue on loan in this step; negative: that come back."""
    loans.lend(world.state, step, [DEFAULT_QUEUE])
    found: dict[str, int] = {}
    for move, amount in step.moves.items():
        if Bucket.POOL in (move.debit, move.credit):
            found[move.resource] = amount if move.credit is Bucket.BORROWED else -amount
    return found


def deserving(world: World, **deserved: int) -> None:
    world.state.queues[DEFAULT_QUEUE] = Queue(
        DEFAULT_QUEUE, deserved={GPU if n == "cards" else n: units for n, units in deserved.items()}
    )


def test_within_what_it_deserves_a_queue_owes_nothing(world: World) -> None:
    deserving(world, cards=2)
    world.commits(world.plan("p", ("pod", "a", [world.card(0), world.card(1)])))
    assert lent(world, world.last) == {}


def test_what_is_beyond_is_lent_and_goes_back_with_the_pod(world: World) -> None:
    deserving(world, cards=1)
    world.commits(world.plan("p", ("one", "a", [world.card(0)])), world.plan("q", ("two", "b", [world.card(0), world.card(1)])))
    assert lent(world, world.last) == {GPU: 2}
    assert lent(world, world.see(world.fact("two", "b", PodPhase.GONE))) == {GPU: -2}


def test_a_step_that_gives_and_takes_lends_the_difference(world: World) -> None:
    deserving(world, cards=0)
    world.commits(world.plan("p", ("one", "a", [world.card(0)])))
    assert lent(world, world.last) == {GPU: 1}
    assert lent(
        world,
        world.see(
            world.fact("one", "a", PodPhase.GONE), world.fact("two", "b", slices=[world.card(0), world.card(1)], cards=2)
        ),
    ) == {GPU: 1}


def test_rules_that_change_move_loans(world: World) -> None:
    deserving(world, cards=2, cpu=500)
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    assert lent(world, world.last) == {"cpu": 500}
    deserving(world, cards=0)
    assert lent(world, world.turn()) == {"cpu": -500, GPU: 1}
    del world.state.queues[DEFAULT_QUEUE]
    assert lent(world, world.turn()) == {}


def test_only_cards_are_lent_where_nothing_is_promised(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    assert lent(world, world.last) == {GPU: 1}
