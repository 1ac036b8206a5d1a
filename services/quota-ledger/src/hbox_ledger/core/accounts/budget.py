"""Budgets: how many card-hours a queue and all queues below it may use in a calendar month (UTC). At 80 % the ledger warns; at 100 % it refuses plans with
cards.

Running pods continue, and continue to count. Usage is that of the last accrual (`usage`), at most a minute old; idle shares do not count.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from hbox_common.events import BudgetUsed, Plan
from hbox_common.model import Queue, QueueName, Refusal, RefusalReason
from hbox_common.model.devices import VENDORS

from ..ledgerstate import LedgerState
from ..step import Step
from .usage import CARD, HOUR_S, Accrued


class Level(IntEnum):
    """Percent of the budget from which on the ledger acts."""

    NONE = 0
    WARNED = 80
    SPENT = 100


def month_of(second: int) -> int:
    """The first second of the month, Unix time."""
    return int(_month(second).timestamp())


def level(spent: int, budget: int | None) -> Level:
    """`spent`: thousandths of card-seconds; `budget`: card-hours, None = no limit."""
    if budget is None:
        return Level.NONE
    return max(mark for mark in Level if spent * 100 >= mark * budget * HOUR_S * CARD)


def spent_of(state: LedgerState, name: QueueName, own: Mapping[QueueName, int] | None = None) -> int:
    """What the queue and all queues below it have used, in thousandths of card-seconds. `own`: each queue's usage, if it differs from the books."""
    used = state.spent if own is None else own
    return sum(used.get(one, 0) for one in (name, *state.queues.below(name)))


def spend(state: LedgerState, step: Step, accrued: Accrued) -> None:
    """Enter accrued usage, and report budgets that reached a level. A new month begins at zero."""
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
        _report(state, step, queue, level(spent_of(state, name, before), queue.budget_card_hours))
        if bool(stopped.get(name)) != bool(stop(state, name)):
            step.queues.add(name)


def change(state: LedgerState, step: Step, queue: Queue) -> None:
    """Report if a queue's new rules bring its budget to a level. Call it while the books have the old rules."""
    if queue.budget_card_hours is None:
        return
    old = state.queues.get(queue.name)
    _report(state, step, queue, level(spent_of(state, queue.name), old.budget_card_hours if old is not None else None))


def stop(state: LedgerState, name: QueueName) -> str:
    """Why this queue gets no cards now; empty if its budget is not used up."""
    queue = state.queues.get(name)
    if queue is None or queue.budget_card_hours is None:
        return ""
    if level(spent_of(state, name), queue.budget_card_hours) is not Level.SPENT:
        return ""
    following = (_month(state.month) + timedelta(days=32)).replace(day=1)
    return f"{_used(state, queue)}; it is given cards again from {following:%Y-%m-%d} on (UTC), or with a larger budget"


def refuse(state: LedgerState, plan: Plan) -> Refusal | None:
    """The refusal, if the plan asks for cards and the budget of its queue, or of a queue above it, is used up."""
    reason = next((reason for name in state.queues.path(plan.queue) if (reason := stop(state, name))), "")
    if not reason or not any(VENDORS.asked(plan.requests[p.requests]) for p in plan.placements):
        return None
    return Refusal(RefusalReason.QUEUE_BUDGET, reason)


def _report(state: LedgerState, step: Step, queue: Queue, before: Level) -> None:
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
