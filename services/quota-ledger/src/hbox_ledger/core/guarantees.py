"""Limits of non-preemptible claims: they never take what is guaranteed to other queues (S4, `hbox_common.model.lending`), and pods of a non-preemptible class
are protected only within what their queue deserves (`lending.may_stay`).
"""

from hbox_common.events import Plan
from hbox_common.model import (
    Held,
    PodFact,
    QueueName,
    Refusal,
    RefusalReason,
    Resources,
    amounts_in,
    cards_by_model,
    is_offline,
)
from hbox_common.model.lending import may_stay
from hbox_common.model.resources import add

from .ledgerstate import LedgerState


def refuse(state: LedgerState, plan: Plan) -> Refusal | None:
    """Why the plan of a queue that gives nothing back would hold amounts guaranteed to other queues. A plan with victims is judged with the nominated places
    counted and as if all evicted pods were gone: one job of the queue may make room for another.
    """
    lending = state.lending
    if not lending.is_non_preemptible(plan.queue, preemptable=True) or is_offline(state.records.class_of(plan.job)):
        return None
    asked = _asked(state, plan)
    promised, leaving = list[Held](), list[Held]()
    if plan.victims:
        promised = [Held(p.queue, p.node, p.amounts, preemptable=True) for p in state.evicting.places()]
        leaving = state.held_by({*state.evicting.claims(), *(victim.claim for victim in plan.victims if not victim.to)})
    with lending.assuming(promised, leaving=leaving):
        headroom = lending.headroom(plan.queue, asked)
    return Refusal(RefusalReason.QUEUE_GUARANTEES, f"queue {plan.queue}: {headroom.message}") if headroom.times == 0 else None


def protects(state: LedgerState, plan: Plan) -> bool:
    """Whether the plan's pods may not be reclaimed: the administrators declare their class non-preemptible, their tenant does not offer them, the queue
    deserves
    the amounts, and other queues' guarantees remain covered. All else is lent, and can be reclaimed.
    """
    named = state.records.class_of(plan.job)
    if plan.preemptable or is_offline(named) or not state.queues.non_preemptible(plan.queue, named):
        return False
    if any(state.queues.borrows(plan.queue, state.pool_of(placement.node)) for placement in plan.placements):
        return False  # its owners can reclaim it at any time
    return _may_stay(state, plan.queue, _asked(state, plan))


def protects_found(state: LedgerState, fact: PodFact, held: Resources) -> bool:
    """Like `protects`, for an HBox pod that was found on a node."""
    if fact.preemptable or is_offline(fact.priority_class) or not state.queues.non_preemptible(fact.queue, fact.priority_class):
        return False
    pool = state.pool_of(fact.node)
    if fact.node not in state.nodes or state.queues.borrows(fact.queue, pool):
        return False
    return _may_stay(state, fact.queue, amounts_in(pool, held))


def _may_stay(state: LedgerState, queue: QueueName, asked: Resources) -> bool:
    return may_stay(state.queues, state.lending, state.protected_in, queue, asked)


def _asked(state: LedgerState, plan: Plan) -> Resources:
    """Amounts that the plan's pods get, cards also by model, in the pools of their nodes."""
    asked: Resources = {}
    for placement in plan.placements:
        node = state.nodes.get(placement.node)
        amounts = plan.requests[placement.requests] | cards_by_model(node, placement.slices)
        add(asked, amounts_in(state.pool_of(placement.node), amounts))
    return asked
