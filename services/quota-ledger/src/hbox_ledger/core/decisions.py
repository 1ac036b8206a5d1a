"""Decisions on claims, as the binder gets them: to bind a pod, to evict it, to see to it that it will not be bound."""

from hbox_common.events import Bind, Evict, EvictKind
from hbox_common.model import ClaimState, PlanId

from .books import Books
from .holding import Holding, Intent
from .identity import BIND, decision_id
from .step import Step

#: The beneficiary of an eviction that no plan asked for.
NOBODY = PlanId("")

_KIND = {Intent.EVICT: EvictKind.EVICT, Intent.REVOKE: EvictKind.REVOKE}


def bind_of(holding: Holding, *, pod: str) -> Bind:
    """The decision to bind this claim's pod, the same at every sending."""
    claim = holding.claim
    id = decision_id(claim.id, holding.generation, BIND)
    return Bind(
        id, claim.id, holding.generation, claim.plan, claim.job, claim.queue, claim.namespace, pod, claim.pod_uid, holding.resource_version, claim.node,
        claim.slices, holding.deadline, holding.traceparent,
    )  # fmt: skip


def send(step: Step, holding: Holding) -> None:
    """Send the open decision of a live claim."""
    claim = holding.claim
    holding.sent_at, holding.sendings = step.now, holding.sendings + 1
    if holding.intent is Intent.BIND:
        step.binds.append(bind_of(holding, pod=claim.pod))
        return
    kind = _KIND[holding.intent]
    step.evictions.append(
        Evict(
            id=decision_id(claim.id, holding.generation, kind),
            kind=kind,
            claim=claim.id,
            generation=holding.generation,
            job=claim.job,
            namespace=claim.namespace,
            pod=claim.pod,
            pod_uid=claim.pod_uid,
            reason=holding.reason,
            beneficiary=holding.beneficiary,
            traceparent=holding.traceparent,
        )
    )


def take_back(books: Books, step: Step, holding: Holding, reason: str, *, beneficiary: PlanId = NOBODY) -> None:
    """Decide that this claim has to end: evict its pod if it is bound, else make sure that it will not be. `beneficiary`: the plan that needs its room."""
    intent = Intent.EVICT if holding.claim.state is ClaimState.POSTED else Intent.REVOKE
    if holding.intent is intent or holding.claim.id in books.leaving:
        return  # decided already; an eviction that was accepted is on its way (S9)
    holding.generation, holding.reason, holding.sendings = holding.generation + 1, reason, 0
    holding.beneficiary = beneficiary
    if intent is Intent.EVICT:
        books.leaving.add(holding)
    books.intend(step, holding, intent)
    send(step, holding)


def keep(books: Books, step: Step, holding: Holding, reason: str = "nobody needs its place any more") -> None:
    """Take back an eviction: a decision of a higher generation, which the binder follows instead. What it finds bound, stays."""
    holding.generation, holding.reason, holding.sendings = holding.generation + 1, reason, 0
    books.intend(step, holding, Intent.REVOKE)
    send(step, holding)
