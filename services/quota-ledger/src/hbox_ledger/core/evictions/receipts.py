"""Receipts of evictions for the owners of the evicted pods: beneficiary, rule, amounts, what the job keeps, and when it may come back.

There is one receipt per job and plan, written in the transaction that decides the evictions: no pod is evicted without a receipt, and there is no receipt
without an eviction. All amounts are those at the time of the decision.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hbox_common.events import (
    MOST_NODES,
    EvictedPod,
    EvictionReceipt,
    EvictionRule,
    JobEvicted,
    JobEviction,
    Plan,
    QueueReclaimed,
    Reclaim,
    places_of,
)
from hbox_common.model import (
    OFFLINE,
    Claim,
    ClaimId,
    JobId,
    NodeName,
    PlanId,
    QueueName,
    QueueTree,
    Resources,
    amounts_in,
    by_pool,
)
from hbox_common.model.resources import PODS, add, quantity

from ..claimrecord import ClaimRecord
from ..ledgerstate import LedgerState
from ..step import Step


def leaving(state: LedgerState, records: Iterable[ClaimRecord]) -> list[ClaimRecord]:
    """The claims that are not being evicted already."""
    return [record for record in records if record.claim.id not in state.evicting]


def for_plan(  # noqa: PLR0917  # whose, for whom, and by what right
    state: LedgerState,
    step: Step,
    plan: Plan,
    records: Sequence[ClaimRecord],
    moved: Mapping[ClaimId, NodeName],
    lent: Collection[ClaimId] = (),
) -> None:
    """Write the receipts of a plan's victims: moved (with their successors' places), preempted in their own queue, or reclaimed from other queues; `lent`:
    victims on nodes that the plan's queue has lent. Call it before the victims count as evicting.
    """
    asked: Resources = {}
    reclaimed: list[ClaimRecord] = []
    for placement in plan.placements:
        add(asked, amounts_in(state.pool_of(placement.node), plan.requests[placement.requests]))
    for job, own in _by_job(records).items():
        claim = own[0].claim
        head = f"{plan.namespace}/{plan.name} of queue {plan.queue}"
        if claim.id in moved:
            rule = EvictionRule.CONSOLIDATE
            message = f"moved to make room for {head}" + (f", which {plan.moves.text}" if plan.moves is not None else "")
            returns = f"at once: places are kept on {_nodes(moved[record.claim.id] for record in own)}"
        elif claim.pool == OFFLINE:
            rule = EvictionRule.PREEMPT if claim.queue == plan.queue else EvictionRule.RECLAIM
            message = f"evicted for {head}: offline jobs are evicted first"
            returns = "when the resources that it requests are idle"
        elif back := [record.claim for record in own if record.claim.id in lent]:
            rule = EvictionRule.RECLAIM
            pools = ", ".join(sorted({one.pool for one in back if state.queues.owns(plan.queue, one.pool)}))
            message = f"reclaimed for {head}, which owns pool {pools}: the owner reclaims its lent nodes on demand"
            returns = f"as soon as there is room in another pool, or {pools} is idle again"
        elif claim.queue == plan.queue:
            rule = EvictionRule.PREEMPT
            message = f"preempted for {head}, whose priority {plan.priority} is above {claim.priority}"
            returns = "when cards or other resources are free that no job of higher priority of its queue waits for"
        else:
            rule = EvictionRule.RECLAIM
            ours, theirs = state.queues.parting(plan.queue, claim.queue)
            names = _named(state.queues, asked, own[0].claim, ours[:1] + theirs[:1])
            message = f"reclaimed for {head}: {'; '.join(_line(state.queues, one, names) for one in (*ours[:1], *theirs[:1]))}"
            returns = _returns(state, own, names)
        _write(state, step, job, own, rule, message, returns, plan=plan, moved=moved)
        if rule is EvictionRule.RECLAIM:
            reclaimed += own
    if reclaimed:
        _reclaimed(step, plan, reclaimed)


def shuffled(state: LedgerState, step: Step, records: Sequence[ClaimRecord], message: str) -> None:
    """Write the receipts of pods whose places the policy reassigns."""
    for job, own in _by_job(records).items():
        _write(state, step, job, own, EvictionRule.SHUFFLE, message, "as soon as another place is free")


def unwound(state: LedgerState, step: Step, records: Sequence[ClaimRecord], message: str) -> None:
    """Write the receipts of an unwound gang that did not start completely in time."""
    for job, own in _by_job(records).items():
        _write(state, step, job, own, EvictionRule.GANG_DEADLINE, message, "when there is room for the whole gang")


def for_health(state: LedgerState, step: Step, records: Sequence[ClaimRecord], message: str, *, notice_s: int) -> None:
    """Write the receipts of pods on sick hardware, and of the other members of their gangs."""
    for job, own in _by_job(records).items():
        _write(state, step, job, own, EvictionRule.HEALTH, message, "at once, on other hardware", notice_s=notice_s)


def _by_job(records: Iterable[ClaimRecord]) -> dict[JobId, list[ClaimRecord]]:
    found: dict[JobId, list[ClaimRecord]] = {}
    for record in records:
        found.setdefault(record.claim.job, []).append(record)
    return found


def _write(  # noqa: PLR0917  # pods, rule and texts of a receipt
    state: LedgerState,
    step: Step,
    job: JobId,
    records: Sequence[ClaimRecord],
    rule: EvictionRule,
    message: str,
    returns: str,
    *,
    plan: Plan | None = None,
    moved: Mapping[ClaimId, NodeName] | None = None,
    notice_s: int = -1,
) -> None:
    going = {record.claim.id for record in records}
    stay = [state.live[id].claim for id in state.jobs[job].live if id not in going and id not in state.evicting]
    claim, to = records[0].claim, moved or {}
    step.receipts.append(
        EvictionReceipt(
            job=job,
            namespace=claim.namespace,
            queue=claim.queue,
            rule=rule,
            pods=tuple(
                EvictedPod(pod=r.claim.pod, pod_uid=r.claim.pod_uid, node=r.claim.node, to=to.get(r.claim.id, NodeName("")))
                for r in records
            ),
            plan=plan.id if plan is not None else PlanId(""),
            for_job=plan.job if plan is not None else JobId(""),
            for_namespace=plan.namespace if plan is not None else "",
            for_name=plan.name if plan is not None else "",
            for_queue=plan.queue if plan is not None else QueueName(""),
            pods_kept=len(stay),
            cards_kept=sum(len(one.slices) for one in stay),
            message=message,
            returns=returns,
            at=step.now,
            notice_s=state.notice_s if plan is not None else notice_s,
        )
    )
    receipt = step.receipts[-1]
    step.public.append(
        JobEvicted.of(
            JobEviction(
                job=job,
                namespace=claim.namespace,
                queue=claim.queue,
                code=rule,
                plan=receipt.plan,
                pods=tuple(record.claim.pod for record in records[:MOST_NODES]),
                pods_kept=receipt.pods_kept,
                cards_kept=receipt.cards_kept,
                notice_s=receipt.notice_s,
                **_places(records),
            ),
            at=step.now,
        )
    )


def _reclaimed(step: Step, plan: Plan, records: Sequence[ClaimRecord]) -> None:
    """Report what the plan's queue takes back."""
    data = Reclaim(queue=plan.queue, job=plan.job, namespace=plan.namespace, name=plan.name, plan=plan.id, **_places(records))
    step.public.append(QueueReclaimed.of(data, at=step.now))


def _places(records: Iterable[ClaimRecord]) -> dict[str, Any]:
    return dict(places_of((record.claim.node, record.claim.slices) for record in records))


def _named(tree: QueueTree, asked: Resources, claim: Claim, queues: Iterable[QueueName]) -> list[str]:
    """The taken resources for which one of the queues has a limit or share; all taken resources if none has."""
    taken = [name for name in asked if asked[name] > 0 and claim.amounts.get(name, 0) > 0 and by_pool(name)[0] != PODS]
    lines = {name for queue in queues for name in tree.rights(queue).entitlement}
    return [name for name in taken if name in lines] or taken[:1]


def _line(tree: QueueTree, queue: QueueName, names: Iterable[str]) -> str:
    """Usage of the queue, including all queues below it, and what it deserves."""
    entitlement, used = tree.rights(queue).entitlement, tree.used(queue)
    parts = [
        f"uses {quantity(name, used.get(name, 0))} of {name} and deserves "
        + (quantity(name, entitlement[name]) if name in entitlement else "no amount of it")
        for name in names
    ]
    return f"queue {queue} {', '.join(parts)}"


def _returns(state: LedgerState, records: Sequence[ClaimRecord], names: Sequence[str]) -> str:
    """When the reclaimed amounts may come back: at once if the queue is still entitled to them."""
    queue = records[0].claim.queue
    gone: Resources = {}
    for record in records:
        add(gone, record.claim.amounts)
    add(gone, state.evicting.used.get(queue, {}))
    entitlement, used = state.queues.rights(queue).entitlement, state.queues.used(queue)
    short = [name for name in names if name in entitlement and used.get(name, 0) - gone.get(name, 0) < entitlement[name]]
    if short:
        left = ", ".join(
            f"{quantity(name, entitlement[name] - used.get(name, 0) + gone.get(name, 0))} of {name}" for name in short
        )
        return f"as soon as it waits: its queue {queue} deserves {left} more than it has then, and takes them back"
    return f"when the resources that it requests are idle: its queue {queue} has what it deserves"


def _nodes(names: Iterable[NodeName]) -> str:
    return ", ".join(dict.fromkeys(names))
