"""Budgets: how many card-hours a queue, with all below it, may use in a calendar month (UTC). At 80 % it is told, at 100 % no plan gives it cards any more.

What runs goes on, and goes on to count. Use is known as of the last accrual (`usage`), a minute ago at most; idle shares are not used.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from hbox_common.events import BudgetUsed, Plan
from hbox_common.model import Queue, QueueName, Refusal, RefusalReason
from hbox_common.model.devices import VENDORS

from .ledgerstate import LedgerState
from .step import Step
from .usage import CARD, HOUR_S, Accrued


class Level(IntEnum):
    """Percent of the budget from which on something is done."""

    NONE = 0
    TOLD = 80
    SPENT = 100


def month_of(second: int) -> int:
    """The first second of the month, since the epoch."""
    return int(_month(second).timestamp())


def level(spent: int, budget: int | None) -> Level:
    """`spent`: thousandths of card-seconds; `budget`: card-hours, None = no limit."""
    if budget is None:
        return Level.NONE
    return max(mark for mark in Level if spent * 100 >= mark * budget * HOUR_S * CARD)


def spent_of(state: LedgerState, name: QueueName, own: Mapping[QueueName, int] | None = None) -> int:
    """What the queue and all below it have used, in thousandths of card-seconds. `own`: what each used, if not what the books say."""
    used = state.spent if own is None else own
    return sum(used.get(one, 0) for one in (name, *state.queues.below(name)))


def spend(state: LedgerState, step: Step, accrued: Accrued) -> None:
    """Enter what was accrued, and tell of budgets that came to a level. A new month begins with nothing spent."""
    step.usage = accrued
    state.history.enter(accrued)
    month = month_of(accrued.until)
    budgeted = [name for name, queue in state.queues.items() if queue.budget_card_hours is not None]
    stopped = {name: message for name in budgeted if (message := stop(state, name))}
    if month != state.month:
        state.month, state.spent = month, {}
    before = dict(state.spent)
    for account, amounts in accrued.amounts.items():
        if account.hour >= month:
            state.spent[account.queue] = state.spent.get(account.queue, 0) + amounts.own + amounts.borrowed
    for name in budgeted:
        queue = state.queues[name]
        _tell(state, step, queue, level(spent_of(state, name, before), queue.budget_card_hours))
        if bool(stopped.get(name)) != bool(stop(state, name)):
            step.queues.add(name)


def change(state: LedgerState, step: Step, queue: Queue) -> None:
    """Tell where a queue's new rules bring its budget to a level. The books have the old ones."""
    if queue.budget_card_hours is None:
        return
    old = state.queues.get(queue.name)
    _tell(state, step, queue, level(spent_of(state, queue.name), old.budget_card_hours if old is not None else None))


def stop(state: LedgerState, name: QueueName) -> str:
    """Why this queue is given no cards now; empty where its budget lasts."""
    queue = state.queues.get(name)
    if queue is None or queue.budget_card_hours is None:
        return ""
    if level(spent_of(state, name), queue.budget_card_hours) is not Level.SPENT:
        return ""
    following = (_month(state.month) + timedelta(days=32)).replace(day=1)
    return f"{_used(state, queue)}; it is given cards again from {following:%Y-%m-%d} on (UTC), or with a larger budget"


def refuse(state: LedgerState, plan: Plan) -> Refusal | None:
    """Whether the plan asks for cards that the budget of its queue, or of one above it, does not allow any more."""
    said = next((said for name in state.queues.path(plan.queue) if (said := stop(state, name))), "")
    if not said or not any(VENDORS.asked(plan.requests[p.requests]) for p in plan.placements):
        return None
    return Refusal(RefusalReason.QUEUE_BUDGET, said)


def _tell(state: LedgerState, step: Step, queue: Queue, before: Level) -> None:
    spent, budget = spent_of(state, queue.name), queue.budget_card_hours
    now = level(spent, budget)
    if budget is None or now <= before:
        return
    step.budgets.append(
        BudgetUsed(
            queue=queue.name, percent=int(now), budget_card_hours=budget, spent=spent, month=state.month, message=_used(state, queue), at=step.now
        )
    )  # fmt: skip


def _used(state: LedgerState, queue: Queue) -> str:
    spent = spent_of(state, queue.name) / (HOUR_S * CARD)
    return f"queue {queue.name} has used {spent:.1f} of its {queue.budget_card_hours} card-hours of {_month(state.month):%Y-%m}"


def _month(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
