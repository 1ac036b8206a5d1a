"""Budgets of queues: told at 80 %, no more cards at 100 %, and everything anew with the month."""

from datetime import UTC, datetime

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.events import BudgetUsed
from hbox_common.kube import Queue as QueueObject
from hbox_common.kube.objects import Metadata
from hbox_common.kube.queues import queue_of
from hbox_common.model import DEFAULT_QUEUE, Queue, QueueName
from hbox_ledger.core.accounts import budget
from hbox_ledger.core.accounts.usage import Account, Accrued, Amounts
from hbox_ledger.core.step import Step

from .conftest import World

HOUR = 3_600_000
NOVEMBER = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
DECEMBER = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp())


def budgeted(world: World, card_hours: int | None = 100) -> None:
    world.state.queues[DEFAULT_QUEUE] = Queue(DEFAULT_QUEUE, budget_card_hours=card_hours)


def use(world: World, card_hours: float, *, hour: int = NOVEMBER, borrowed: float = 0, idle: float = 0) -> Step:
    step = world.turn()
    amounts = Amounts(int(card_hours * HOUR), int(borrowed * HOUR), int(idle * HOUR))
    budget.spend(world.state, step, Accrued(hour, hour + 1, {Account(DEFAULT_QUEUE, "ml", "A100", hour): amounts}))
    return step


def told(step: Step) -> list[int]:
    assert all(isinstance(event, BudgetUsed) for event in step.budgets)
    return [event.percent for event in step.budgets]


def test_each_level_is_told_once(world: World) -> None:
    budgeted(world)
    assert [told(use(world, hours)) for hours in (79, 1, 19, 1, 50)] == [[], [80], [], [100], []]


def test_both_levels_in_one_step_are_told_as_the_higher(world: World) -> None:
    budgeted(world)
    [event] = use(world, 70, borrowed=50.25).budgets
    assert (event.percent, event.message) == (100, "queue default has used 120.2 of its 100 card-hours of 2026-11")


def test_idle_shares_are_not_spent(world: World) -> None:
    budgeted(world)
    assert told(use(world, 10, idle=500)) == []


def test_a_spent_budget_refuses_cards_and_says_until_when(world: World) -> None:
    budgeted(world)
    use(world, 100)
    [answer] = world.propose(world.plan("p", ("pod", "a", [world.card(0)])))
    assert (answer.committed, answer.reason) == (False, "QueueBudgetSpent")
    assert answer.message == (
        "queue default has used 100.0 of its 100 card-hours of 2026-11; it is given cards again from 2026-12-01 on (UTC), "
        "or with a larger budget"
    )
    world.commits(world.plan("q", ("without", "a", [])))


def test_a_new_month_begins_with_nothing_spent(world: World) -> None:
    budgeted(world)
    use(world, 100)
    step = use(world, 1, hour=DECEMBER)
    assert told(step) == []
    assert DEFAULT_QUEUE in step.queues, "that it may start work again has to be told"
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    assert told(use(world, 80, hour=DECEMBER)) == [80]


def test_a_smaller_budget_is_told_of_and_a_larger_one_opens_again(world: World) -> None:
    budgeted(world, 1000)
    use(world, 90)
    step = world.turn()
    budget.change(world.state, step, Queue(DEFAULT_QUEUE, budget_card_hours=100))
    assert told(step) == [80]
    budgeted(world, 90)
    assert world.refuses(world.plan("p", ("pod", "a", [world.card(0)]))) == "QueueBudgetSpent"
    budgeted(world, None)
    world.commits(world.plan("q", ("pod", "a", [world.card(0)])))


def test_a_budget_of_nothing_gives_nothing(world: World) -> None:
    budgeted(world, 0)
    assert world.refuses(world.plan("p", ("pod", "a", [world.card(0)]))) == "QueueBudgetSpent"


def test_the_budget_of_a_department_is_for_all_of_its_projects(world: World) -> None:
    world.state.queues[QueueName("vision")] = Queue(QueueName("vision"), budget_card_hours=100)
    world.state.queues[DEFAULT_QUEUE] = Queue(DEFAULT_QUEUE, parent="vision")
    assert [told(use(world, hours)) for hours in (79, 1, 20)] == [[], [80], [100]]
    [answer] = world.propose(world.plan("p", ("pod", "a", [world.card(0)])))
    assert answer.message.startswith("queue vision has used 100.0 of its 100 card-hours of 2026-11")


@pytest.mark.parametrize(("text", "card_hours"), [("1000", 1000), ("0", 0)])
def test_the_budget_is_read_off_the_queues_annotation(text: str, card_hours: int) -> None:
    assert queue_of(_object(text)).budget_card_hours == card_hours


@pytest.mark.parametrize("text", ["", "lots", "-1", "1.5", "1" * 13])
def test_an_annotation_that_is_no_budget_is_refused_with_its_words(text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"hbox.io/budget-card-hours is '{text}', which is no number of card-hours"):
        queue_of(_object(text))


def _object(text: str) -> QueueObject:
    return QueueObject(metadata=Metadata(name="q", uid="u", annotations={"hbox.io/budget-card-hours": text}))
