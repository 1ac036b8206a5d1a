"""Plans that move pods say what that costs and gains; the ledger holds them to it (ADR 41). Two nodes with two cards each, three held; `p0` moves to where
`p3` was."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.events import Plan, Victim
from hbox_common.model import NodeName, PodUid, RefusalReason
from hbox_common.model.consolidation import MoveTerms
from hbox_ledger.core import lifecycle

from .conftest import World
from .test_preemption_rights import asks, full

TERMS = MoveTerms(
    cards_gained=1, gain_s=3600.0, pods_moved=1, cards_moved=1, pods_restarted=1, card_seconds_lost=120.0, most_an_hour=1
)


def moving(world: World, terms: MoveTerms | None) -> Plan:
    full(world)
    step = world.turn()
    lifecycle.end(world.state, step, world.state.live[world.claim("p3").id], actor="test", cause="gone")
    plan = asks(world, 0, priority=9)
    [victim] = plan.victims
    moved = Victim(claim=victim.claim, pod_uid=PodUid("p0"), to=NodeName("b"), slices=(world.card(1),))
    return plan.model_copy(update={"victims": (moved,), "moves": terms})


def test_a_move_that_pays_is_made_and_the_receipt_says_what_it_costs_and_gains(world: World) -> None:
    world.commits(moving(world, TERMS))
    [said] = world.last.receipts
    assert (
        "moved to make room for ml/want of queue a, which gains 1 card for 1 h (1 card-hours), 1 pod with 1 card moves and loses"
        in said.message
    )


def test_a_move_that_costs_as_much_as_it_gains_is_refused(world: World) -> None:
    [answer] = world.propose(moving(world, replace(TERMS, card_seconds_lost=3600.0)))
    assert (answer.committed, answer.reason) == (False, RefusalReason.VICTIM_PROTECTED)
    assert "costs more than it gains" in answer.message
    assert world.last.evictions == []


@pytest.mark.parametrize("wrong", [{"pods_moved": 0}, {"cards_gained": 2.0}, {"gain_s": 90_000.0}, {"gain_s": float("nan")}])
def test_terms_that_are_not_those_of_the_plan_are_refused(world: World, wrong: dict[str, Any]) -> None:
    [answer] = world.propose(moving(world, replace(TERMS, **wrong)))
    assert (answer.committed, answer.reason) == (False, RefusalReason.MALFORMED)


def test_an_older_scheduler_says_nothing_of_what_moves_cost_and_may_go_on(world: World) -> None:
    world.commits(moving(world, None))
    assert world.state.moves.within_hour(world.now) == 1


def test_no_more_pods_move_in_an_hour_than_the_policy_allows(world: World) -> None:
    plan = moving(world, TERMS)
    world.state.moves.note("another", 1, world.now - 3599.0)
    [answer] = world.propose(plan)
    assert (answer.committed, answer.reason) == (False, RefusalReason.EVICTIONS_PAUSED)
    assert answer.message == "1 pods were moved within the last hour, and 1 more would be above 1"
    world.now += 2.0
    world.commits(plan.model_copy(update={"id": "again"}))


def test_what_was_refused_counts_as_no_move(world: World) -> None:
    world.propose(moving(world, replace(TERMS, card_seconds_lost=3600.0)))
    assert world.state.moves.within_hour(world.now) == 0
