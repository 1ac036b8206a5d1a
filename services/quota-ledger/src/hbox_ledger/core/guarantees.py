"""What queues are guaranteed and others use meanwhile can be taken back: no plan is let in that would end that (S4, `hbox_common.model.lending`)."""

from hbox_common.events import Plan
from hbox_common.model import Held, Refusal, RefusalReason, Resources, cards_by_model, pool_of
from hbox_common.model.resources import add

from .ledgerstate import LedgerState


def refuse(state: LedgerState, plan: Plan) -> Refusal | None:
    """Why the plan would hold non-preemptibly what others are guaranteed. With victims it is judged beside what was promised to others."""
    lending = state.lending
    if not lending.is_non_preemptible(plan.queue, preemptable=plan.preemptable):
        return None
    asked: Resources = {}
    by_pool: dict[str, Resources] = {}
    for placement in plan.placements:
        node = state.nodes.get(placement.node)
        amounts = plan.requests[placement.requests] | cards_by_model(node, placement.slices)
        add(asked, amounts)
        if node is not None:
            add(by_pool.setdefault(pool_of(node.labels), {}), amounts)
    promised = [Held(p.queue, p.node, p.amounts, p.preemptable) for p in state.evicting.places()] if plan.victims else []
    with lending.beside(promised):
        headroom = lending.headroom(plan.queue, asked, by_pool=by_pool)
    return Refusal(RefusalReason.QUEUE_GUARANTEES, f"queue {plan.queue}: {headroom.message}") if headroom.times == 0 else None
