"""Evictions from sick hardware (ADR 109): health-monitor names the hardware, the ledger decides which pods leave it.

Until health-monitor withdraws a request, each turn of the clock applies it to the pods that are there: nothing is lost or done twice if either program
restarts. A gang of two or more ends whole: it unwinds like a gang that did not start in time, so that no plan is accepted for it until its last pod is
gone, and refused evictions are repeated. The verdict keeps the successors off the hardware.
"""

from hbox_common.events import HealthEvictionAsked
from hbox_common.model import Claim, ClaimState, JobId, NodeState
from hbox_common.model.devices import short_cards
from hbox_common.model.sickhardware import SickPolicy

from ..claimrecord import ClaimRecord, Decision, Gang
from ..decisions import take_back
from ..ledgerstate import LedgerState
from ..step import Step
from . import receipts


def leave(state: LedgerState, step: Step) -> None:
    """Decide the evictions that the standing requests demand now."""
    state.sick.forget(state.jobs, step.now, rate=state.clock_rate)
    for asked in list(state.sick.requests()):
        for job, records in _jobs_on(state, asked).items():
            if not _leave(state, step, asked, job, records):
                return


def _jobs_on(state: LedgerState, asked: HealthEvictionAsked) -> dict[JobId, list[ClaimRecord]]:
    """Claims of HBox's jobs on the hardware, by job. Pods of other schedulers are left to these."""
    found: dict[JobId, list[ClaimRecord]] = {}
    for id in state.with_cards.get(asked.node, ()):
        record = state.live[id]
        if record.claim.queue and _uses(state, record.claim, asked):
            found.setdefault(record.claim.job, []).append(record)
    return found


def _uses(state: LedgerState, claim: Claim, asked: HealthEvictionAsked) -> bool:
    node = state.nodes.get(asked.node)
    if asked.jobs and not (claim.job in asked.jobs and _refused(state, claim, node)):
        return False
    if not asked.cards:
        return True
    ids = {s.card for s in claim.slices}
    if node is not None:
        cards = [card for s in claim.slices if (card := node.known_card(s.card)) is not None]
        ids |= {card.id for card in cards} | {card.parent_id for card in cards}
    return not ids.isdisjoint(asked.cards)


def _refused(state: LedgerState, claim: Claim, node: NodeState | None) -> bool:
    """Whether the verdict would refuse the pod now. If it would not, a successor would be placed here again."""
    verdict = state.verdicts.get(claim.node)
    return node is not None and verdict is not None and bool(verdict.refusal(node, claim.requests, claim.slices))


def _leave(state: LedgerState, step: Step, asked: HealthEvictionAsked, job: JobId, there: list[ClaimRecord]) -> bool:
    """Evict what has to leave of one job. False: evictions are paused."""
    policy = _policy(state, asked, there[0])
    if policy is SickPolicy.IGNORE:
        return True
    on_it = {record.claim.id for record in there}
    live = [state.live[id] for id in state.jobs[job].live]
    staying = [record for record in live if _stays(state, record)]
    least = max(record.claim.min_member for record in live)
    shrinks = policy is SickPolicy.SHRINK and sum(record.claim.id not in on_it for record in staying) >= least
    whole = least > 1 and not shrinks
    reason = _reason(asked)
    if whole and (gang := state.gangs.get(job)) is not None and gang.unwinding:
        gang.why = gang.why or reason  # a restart lost it
    records = staying if whole else [record for record in staying if record.claim.id in on_it]
    if not records or not state.sick.due(on_it, step.now, rate=state.clock_rate):
        return True
    bound = [record for record in records if record.claim.state is ClaimState.POSTED]
    if state.brake.refusal(len(bound), live=len(state.live), now=step.now) is not None:
        return False
    notice_s = state.sick.notice_s if policy is SickPolicy.CHECKPOINT else -1
    receipts.for_health(state, step, bound, reason, notice_s=notice_s)
    if whole:
        _unwind(state, step, job, least, reason)
    for record in records:
        take_back(state, step, record, reason, notice_s=notice_s)
    return True


def has_to_leave(state: LedgerState, record: ClaimRecord) -> bool:
    """Whether a request applies to the pod, and its job's policy does not let it stay."""
    return any(
        asked.node == record.claim.node
        and _uses(state, record.claim, asked)
        and _policy(state, asked, record) is not SickPolicy.IGNORE
        for asked in state.sick.requests()
    )


def _policy(state: LedgerState, asked: HealthEvictionAsked, record: ClaimRecord) -> SickPolicy:
    return state.sick.policy(record.claim.job) or state.queues.sick_policy(record.claim.queue) or asked.policy


def _stays(state: LedgerState, record: ClaimRecord) -> bool:
    return record.claim.id not in state.evicting and record.decision is not Decision.REVOKE


def _unwind(state: LedgerState, step: Step, job: JobId, least: int, why: str) -> None:
    gang = state.gangs.get(job) or Gang(job, least, deadline=step.now)
    gang.unwinding, gang.why = True, why
    state.gangs[job] = step.gangs[job] = gang


def _reason(asked: HealthEvictionAsked) -> str:
    part = f"{short_cards(asked.cards)} of node" if asked.cards and not asked.jobs else "node"
    return f"{part} {asked.node} is sick: {asked.reason or 'unknown fault'} (incident {asked.incident})"
