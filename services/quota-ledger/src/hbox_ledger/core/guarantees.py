"""What may be held such that nobody can take it back: never what others are guaranteed (S4, `hbox_common.model.lending`), and of a class that
nobody takes from only what its queue deserves (`lending.may_stay`)."""

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
    """Why a queue that gives nothing back would hold with the plan what others are guaranteed. With victims it is judged beside what was promised to
    others, and as if all that leave were gone: of its own jobs one may make room for another."""
    lending = state.lending
    if not lending.is_non_preemptible(plan.queue, preemptable=True) or is_offline(state.records.class_of(plan.job)):
        return None
    asked = _asked(state, plan)
    promised, leaving = list[Held](), list[Held]()
    if plan.victims:
        promised = [Held(p.queue, p.node, p.amounts, preemptable=True) for p in state.evicting.places()]
        leaving = state.held_by({*state.evicting.claims(), *(victim.claim for victim in plan.victims if not victim.to)})
    with lending.beside(promised, leaving=leaving):
        headroom = lending.headroom(plan.queue, asked)
    return Refusal(RefusalReason.QUEUE_GUARANTEES, f"queue {plan.queue}: {headroom.message}") if headroom.times == 0 else None


def protects(state: LedgerState, plan: Plan) -> bool:
    """Whether nobody may take what the plan's pods are given: the administrators say so of their class, their tenant does not offer them, the queue deserves
    it and what is guaranteed to others is left. What is not so is lent, and goes when it is asked for."""
    named = state.records.class_of(plan.job)
    if plan.preemptable or is_offline(named) or not state.queues.non_preemptible(plan.queue, named):
        return False
    if any(state.queues.borrows(plan.queue, state.pool_of(placement.node)) for placement in plan.placements):
        return False  # its owners have it back whenever they ask
    return _may_stay(state, plan.queue, _asked(state, plan))


def protects_found(state: LedgerState, fact: PodFact, held: Resources) -> bool:
    """The same of a pod of ours that was found on a node."""
    if fact.preemptable or is_offline(fact.priority_class) or not state.queues.non_preemptible(fact.queue, fact.priority_class):
        return False
    pool = state.pool_of(fact.node)
    if fact.node not in state.nodes or state.queues.borrows(fact.queue, pool):
        return False
    return _may_stay(state, fact.queue, amounts_in(pool, held))


def _may_stay(state: LedgerState, queue: QueueName, asked: Resources) -> bool:
    return may_stay(state.queues, state.lending, state.protected_in, queue, asked)


def _asked(state: LedgerState, plan: Plan) -> Resources:
    """What the plan's pods are given, cards also by model, in the pools of their nodes."""
    asked: Resources = {}
    for placement in plan.placements:
        node = state.nodes.get(placement.node)
        amounts = plan.requests[placement.requests] | cards_by_model(node, placement.slices)
        add(asked, amounts_in(state.pool_of(placement.node), amounts))
    return asked
