"""Spans of committed turns in the traces of jobs: commits of plans, and evictions, which link the traces of evictor and victims."""

from collections import Counter, defaultdict

from hbox_common.events import EvictionReceipt
from hbox_common.model import PlanId
from hbox_common.model.traceids import step_of, traceparent_of
from hbox_common.telemetry import decided, record

from .core.step import Step

#: Victims of one plan that its span links to; the attribute `victims` counts all.
MOST_LINKS = 64


def record_turn(step: Step, ended: float) -> None:
    """`ended`: seconds since the epoch."""
    for (plan, traceparent), binds in Counter((bind.plan, bind.traceparent) for bind in step.binds).items():
        record("commit", traceparent=traceparent, start=step.now, end=ended, plan=plan, binds=binds)
    by_plan: defaultdict[PlanId, list[EvictionReceipt]] = defaultdict(list)
    for receipt in step.receipts:
        by_plan[receipt.plan].append(receipt)
    for plan, receipts in by_plan.items():
        _record_evictions(plan, receipts, step.now, ended)


def _record_evictions(plan: PlanId, receipts: list[EvictionReceipt], start: float, end: float) -> None:
    """`plan`: of the evictor; empty if no job gets the places."""
    evictor = decided(traceparent_of(receipts[0].for_job)) if plan else ""
    making = step_of(evictor, "make-room", plan)
    victims = []
    for receipt in receipts:
        victim = decided(traceparent_of(receipt.job))
        own = step_of(victim, "evicted", plan or f"{receipt.at:.6f}")
        victims.append(own)
        record(
            "evicted",
            traceparent=victim,
            own=own,
            links=[making],
            start=start,
            end=end,
            rule=receipt.rule.value,
            pods=len(receipt.pods),
            for_job=receipt.for_job,
        )
    pods = sum(len(receipt.pods) for receipt in receipts)
    record(
        "make-room",
        traceparent=evictor,
        own=making,
        links=victims[:MOST_LINKS],
        start=start,
        end=end,
        plan=plan,
        victims=len(receipts),
        pods=pods,
    )
