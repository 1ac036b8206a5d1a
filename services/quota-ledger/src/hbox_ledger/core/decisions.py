"""Decisions on claims, as the binder gets them: to bind a pod, to evict it, to see to it that it will not be bound."""

from hbox_common.events import Bind, Evict, EvictKind
from hbox_common.model import ClaimState, PlanId

from .claimids import BIND, decision_id
from .claimrecord import ClaimRecord, Decision
from .ledgerstate import LedgerState
from .step import Step

#: The beneficiary of an eviction that no plan asked for.
NO_PLAN = PlanId("")

_KIND = {Decision.EVICT: EvictKind.EVICT, Decision.REVOKE: EvictKind.REVOKE}


def bind_of(record: ClaimRecord, *, pod: str) -> Bind:
    """The decision to bind this claim's pod, the same at every sending."""
    claim = record.claim
    id = decision_id(claim.id, record.generation, BIND)
    return Bind(
        id, claim.id, record.generation, claim.plan, claim.job, claim.queue, claim.namespace, pod, claim.pod_uid, record.resource_version, claim.node,
        claim.slices, record.deadline, record.traceparent, record.rank, record.layout,
        record.volume_claims,
    )  # fmt: skip


def send(step: Step, record: ClaimRecord) -> None:
    """Send the open decision of a live claim."""
    claim = record.claim
    record.sent_at, record.sendings = step.now, record.sendings + 1
    if record.decision is Decision.BIND:
        step.binds.append(bind_of(record, pod=claim.pod))
        return
    kind = _KIND[record.decision]
    step.evictions.append(
        Evict(
            id=decision_id(claim.id, record.generation, kind),
            kind=kind,
            claim=claim.id,
            generation=record.generation,
            job=claim.job,
            namespace=claim.namespace,
            pod=claim.pod,
            pod_uid=claim.pod_uid,
            reason=record.reason,
            beneficiary=record.beneficiary,
            traceparent=record.traceparent,
            notice_s=record.notice_s,
        )
    )


def take_back(
    state: LedgerState, step: Step, record: ClaimRecord, reason: str, *, beneficiary: PlanId = NO_PLAN, notice_s: int = -1
) -> None:
    """Decide that this claim has to end: evict its pod if it is bound, else make sure that it will not be. `beneficiary`: the plan that needs its room;
    `notice_s`: see `Evict.notice_s`."""
    decision = Decision.EVICT if record.claim.state is ClaimState.POSTED else Decision.REVOKE
    if record.decision is decision or record.claim.id in state.evicting:
        return  # decided already; an eviction that was accepted is on its way (S9)
    record.generation, record.reason, record.sendings = record.generation + 1, reason, 0
    record.beneficiary, record.notice_s = beneficiary, notice_s
    if decision is Decision.EVICT:
        state.evicting.add(record)
    state.decide(step, record, decision)
    send(step, record)


def keep(state: LedgerState, step: Step, record: ClaimRecord, reason: str = "no job needs its place any more") -> None:
    """Take back an eviction: a decision of a higher generation, which the binder follows instead. What it finds bound, stays."""
    record.generation, record.reason, record.sendings = record.generation + 1, reason, 0
    state.decide(step, record, Decision.REVOKE)
    send(step, record)
