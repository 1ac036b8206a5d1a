"""Public events of a step (`hbox_common.events.cloud`): changed quotas and drained nodes. Evictions and refusals are added where they are decided."""

from hbox_common.events import MOST_RESOURCES, MOST_TEXT, NodeDrain, NodeDrained, QueueQuota, QuotaChange, QuotaChanged
from hbox_common.model import Queue
from hbox_common.model.resources import PODS

from .ledgerstate import LedgerState
from .step import Step


def quota(state: LedgerState, step: Step, queue: Queue, *, gone: bool) -> None:
    """Report new amounts of a queue, or that it is gone. Call it while the books have the old rules."""
    before = state.queues.get(queue.name)
    old, new = _amounts(before) if before is not None else None, None if gone else _amounts(queue)
    if old != new:
        change = QuotaChange(queue=queue.name, old=old and _listed(old), new=new and _listed(new))
        step.public.append(QuotaChanged.of(change, at=step.now))


def drained(state: LedgerState, step: Step) -> None:
    """Report cordoned nodes whose last pod ended in the step: the last one that HBox placed, or that holds cards."""
    for name in sorted({record.claim.node for record in step.freed.values()}):
        node = state.nodes.get(name)
        if node is None or not node.unschedulable or state.with_cards.get(name):
            continue
        if state.by_node[name].used.get(PODS, 0) <= state.foreign.get(name, {}).get(PODS, 0):
            step.public.append(
                NodeDrained.of(
                    NodeDrain(
                        node=name, uid=node.uid, cordoned_by=node.cordoned_by[:MOST_TEXT], reason=node.cordon_reason[:MOST_TEXT]
                    ),
                    at=step.now,
                )
            )


def _amounts(queue: Queue) -> QueueQuota:
    return QueueQuota(
        guarantee=queue.guarantee,
        deserved=queue.deserved,
        capability=queue.capability,
        weight=queue.weight,
        budget_card_hours=queue.budget_card_hours,
    )


def _listed(quota: QueueQuota) -> QueueQuota:
    """As published: a queue may name more resources than a message holds."""
    return quota.model_copy(
        update={
            amount: dict(sorted(getattr(quota, amount).items())[:MOST_RESOURCES])
            for amount in ("guarantee", "deserved", "capability")
        }
    )
