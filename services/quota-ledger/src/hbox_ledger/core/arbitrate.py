"""Arbitration of plans: either all placements of a plan become claims, or none.

Checks, in this order; the first that fails is the answer: epoch and freeze (transient: the scheduler may propose the plan again), the ledger's own record of
the job (`records`), form, pods without a claim, queue, budget, quotas of the namespace, pools, the fabric, gang, then every placement against its node with
the same `validate_claim` that the proposer used, including the plan's earlier placements. When `arbitrate` returns, a committed plan is in the books; a
refused one leaves nothing there.

The gang rule does not trust the plan's `bound`: it counts the job's live claims. A plan of a gang that has not started may come in parts, if each part
leaves at least `min_member` live claims. An unwinding gang accepts no plan until it is empty, unless the rest of it may not be evicted and the plan
completes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hbox_common.events import GivenUp, Placement, Plan, PlanAnswer, PlanRefusal, PlanRefused, PlansProposed, QueueRefused
from hbox_common.model import (
    PUBLIC,
    Claim,
    Epoch,
    Index,
    NodeState,
    PlanId,
    PodUid,
    Queue,
    QueueName,
    QueuePhase,
    Refusal,
    RefusalReason,
    Resources,
    SchedulerId,
    cards_by_model,
    charge,
    name_slices,
    pool_of,
    validate_claim,
)
from hbox_common.model.bounds import INT32_MAX
from hbox_common.model.devices import VENDORS, layout_fault, relocated
from hbox_common.model.resources import add
from hbox_common.model.shards import shard_of

from . import guarantees
from .accounts import budget
from .claimids import claim_id
from .claimrecord import ClaimRecord, Decision, Gang
from .decisions import bind_of
from .evictions.nominations import successor_of
from .evictions.preemption import asked_of_queue, evict_own, preempt, to_be_freed
from .fabrics import bounds_of, domains_fault
from .ledgerstate import LedgerState
from .lifecycle import called_off, regroup, stuck
from .recovery import NO_SCHEDULER
from .step import Step, StoredAnswer

#: Maximum seconds to a plan's deadline: a partial gang keeps its cards until then.
MAX_DEADLINE_S = 3600.0


#: Refusals that depend on the moment, not on the plan: it may be proposed again.
_TRANSIENT = (RefusalReason.STALE_EPOCH, RefusalReason.FROZEN, RefusalReason.PODS_UNSEEN)


@dataclass(frozen=True, slots=True)
class Committed:
    records: tuple[ClaimRecord, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    refusal: Refusal
    refresh: Index  #: index from which on a view of the books shows the reason


def propose(state: LedgerState, step: Step, proposed: PlansProposed, answered: Mapping[PlanId, PlanAnswer]) -> None:
    """Answer every plan of one message, into `step`. `answered`: earlier answers, which are repeated unchanged."""
    outdated = state.schedulers.outdated(proposed.scheduler, step.now)
    for ended in proposed.given_up if not outdated else ():
        give_up(state, ended, proposed.scheduler)
    for plan in proposed.plans:
        before = answered.get(plan.id) or step.answers.get(proposed.scheduler, {}).get(plan.id)
        if before is not None and before.reason not in _TRANSIENT:
            step.answer(proposed.scheduler, before)
            continue
        verdict = _closed(state, proposed.epoch, outdated) or arbitrate(state, step, plan, proposed.scheduler)
        answer = _answer(plan, verdict)
        step.answer(proposed.scheduler, answer)
        if answer.reason in _TRANSIENT:
            continue
        step.stored.append(StoredAnswer(proposed.scheduler, answer))
        if isinstance(verdict, Refused) and answer.reason is not RefusalReason.JOB_UNKNOWN:
            step.refused.append(
                QueueRefused(
                    queue=plan.queue, job=plan.job, reason=verdict.refusal.reason, message=verdict.refusal.message, at=step.now
                )
            )
            refusal = PlanRefusal(queue=plan.queue, job=plan.job, code=verdict.refusal.reason)
            step.public.append(PlanRefused.of(refusal, at=step.now))


def _closed(state: LedgerState, epoch: Epoch, outdated: str) -> Refused | None:
    if epoch != state.epoch:
        message = f"the plan was made in epoch {epoch}, the ledger is in {state.epoch}"
        return Refused(Refusal(RefusalReason.STALE_EPOCH, message), state.index)
    if outdated:
        return Refused(Refusal(RefusalReason.STALE_EPOCH, outdated), state.index)
    if state.frozen:
        return Refused(Refusal(RefusalReason.FROZEN, "the ledger is reading what runs; ask again"), state.index)
    if state.held:
        return Refused(Refusal(RefusalReason.PODS_UNSEEN, state.held), state.index)
    return None


def _answer(plan: Plan, verdict: Committed | Refused) -> PlanAnswer:
    if isinstance(verdict, Committed):
        return PlanAnswer(plan=plan.id, job=plan.job, committed=True)
    refusal = verdict.refusal
    return PlanAnswer(
        plan=plan.id, job=plan.job, committed=False, reason=refusal.reason, message=refusal.message, refresh=verdict.refresh
    )


def give_up(state: LedgerState, ended: GivenUp, scheduler: SchedulerId = NO_SCHEDULER) -> None:
    """End a nomination, or the places held for the successors that it names. Nominations of other shards stay, unless their job now belongs to the scheduler's
    shard.
    """
    held = state.nominations.get(ended.plan)
    if held is not None and shard_of(scheduler) not in (shard_of(held.scheduler), state.records.shard_of(held.plan.job)):
        return
    if not ended.moved:
        state.give_up(ended.plan)
        return
    places = state.nominations.places(ended.plan)
    for place in map(successor_of, ended.moved):
        if place in places:
            state.settle(place)


def arbitrate(state: LedgerState, step: Step, plan: Plan, scheduler: SchedulerId = NO_SCHEDULER) -> Committed | Refused:
    """Enter the plan's claims into the books and its binds into `step`, or return the reason for refusal. `scheduler`: the plan's proposer."""
    if (unknown := state.records.refusal(plan, shard_of(scheduler))) is not None:
        return Refused(unknown, state.index)
    _locate(state, plan)
    if plan.victims and not plan.placements:
        refusal = _malformed(plan) or evict_own(state, step, plan)
        return Refused(refusal, state.index) if refusal is not None else Committed(())
    if plan.victims:
        for placement in plan.placements:
            state.settle(placement.pod_uid)
    regroup(state, step, plan.job)
    refusal = (
        _malformed(plan)
        or _claimed(state, plan)
        or _queue(state, plan)
        or budget.refuse(state, plan)
        or _namespace(state, plan)
        or _class(state, plan)
        or _pools(state, plan)
        or state.fabrics.refusal(plan)
        or guarantees.refuse(state, plan)
        or _gang(state, plan)
        or _spread(state, plan)
    )
    if refusal is None:
        refusal = preempt(state, step, plan, scheduler) if plan.victims else _nodes(state, plan)
    if refusal is not None:
        return Refused(refusal, state.index)
    if plan.victims:
        return Committed(())
    deadline = step.now + min(plan.deadline_s, MAX_DEADLINE_S)
    nodes = state.nodes
    protected = guarantees.protects(state, plan)
    protects = bool(state.evicted) or state.queues.run_time(plan.queue).min_run_s > 0
    records = tuple(
        _record(
            plan,
            placement,
            deadline,
            step.now,
            key=state.key,
            preemptable=not protected,
            node=nodes.get(placement.node),
            pool=state.counts_in(plan.job, placement.node),
            protected_until=state.protected_until(plan, placement, step.now) if protects else 0.0,
        )
        for placement in plan.placements
    )
    state.class_quotas.name(plan.job, state.records.class_of(plan.job))
    state.enter_plan(step, records, actor="scheduler-core", cause=f"plan {plan.id}")
    for pod in plan.succeeds:
        state.settle(successor_of(pod))
    step.binds.extend(bind_of(record, pod=record.claim.pod) for record in records)
    _begin_gang(state, step, plan, deadline)
    return Committed(records)


def _record(
    plan: Plan,
    placement: Placement,
    deadline: float,
    now: float,
    *,
    key: bytes,
    preemptable: bool,
    node: NodeState | None,
    pool: str,
    protected_until: float,
) -> ClaimRecord:
    claim = Claim(
        id=claim_id(key, plan.id, placement.pod_uid, placement.node, placement.slices),
        pod_uid=placement.pod_uid,
        namespace=plan.namespace,
        pod=placement.pod,
        job=plan.job,
        plan=plan.id,
        queue=plan.queue,
        priority=plan.priority,
        node=placement.node,
        requests=plan.requests[placement.requests],
        slices=placement.slices,
        min_member=plan.min_member,
        preemptable=preemptable,
        protected_until=protected_until,
        created_at=plan.created_at,
        claimed_at=now,
        models=cards_by_model(node, placement.slices),
        pool=pool,
    )
    return ClaimRecord(
        claim=claim,
        resource_version=placement.resource_version,
        deadline=deadline,
        changed_at=now,
        decision=Decision.BIND,
        traceparent=plan.traceparent,
        rank=placement.rank if 0 <= placement.rank <= INT32_MAX else -1,
        layout=placement.layout,
        volume_claims=placement.volume_claims,
        sent_at=now,
        sendings=1,
    )


def _locate(state: LedgerState, plan: Plan) -> None:
    """Set the ids and current indices of the cards in the plan's placements: an older scheduler writes indices alone."""
    for placement in plan.placements:
        if placement.slices and (node := state.nodes.get(placement.node)) is not None:
            slices = name_slices(placement.slices, node.cards)
            if placement.layout and any(a is not b for a, b in zip(slices, placement.slices, strict=True)):
                placement.layout = relocated(placement.layout, placement.slices, slices)
            placement.slices = slices


def _malformed(plan: Plan) -> Refusal | None:
    def wrong(what: str) -> Refusal:
        return Refusal(RefusalReason.MALFORMED, what)

    if not plan.placements and not plan.victims:
        return wrong("the plan places nothing")
    if plan.min_member < 1 or plan.deadline_s <= 0 or not plan.queue:
        return wrong("a plan needs a queue, a min_member of at least 1 and a deadline in the future")
    if any(amount < 0 for requests in plan.requests for amount in requests.values()):
        return wrong("a request is negative")
    if wrong_domain := domains_fault(plan.domains, len(plan.placements)):
        return wrong(wrong_domain)
    pods: set[PodUid] = set()
    for placement in plan.placements:
        if not 0 <= placement.requests < len(plan.requests):
            return wrong(f"pod {placement.pod} points at requests that the plan does not have")
        if placement.pod_uid in pods:
            return wrong(f"pod {placement.pod} is placed twice")
        pods.add(placement.pod_uid)
        asked = VENDORS.asked(plan.requests[placement.requests])
        if placement.layout:
            if fault := layout_fault(placement.layout, placement.slices, asked):
                return wrong(f"pod {placement.pod}: {fault}")
        elif len(placement.slices) != asked:
            return wrong(f"pod {placement.pod} asks for other cards than it is given")
        for s in placement.slices:
            if s.cores < 0 or s.memory_mib < 0 or s.slots < 1:
                return wrong(f"pod {placement.pod} is given less than nothing of a card")
    return None


def _claimed(state: LedgerState, plan: Plan) -> Refusal | None:
    for placement in plan.placements:
        if placement.pod_uid in state.by_pod:
            return Refusal(RefusalReason.POD_CLAIMED, f"pod {placement.pod} has a live claim already")
        if placement.pod_uid in state.gone:
            return Refusal(RefusalReason.POD_CLAIMED, f"pod {placement.pod} is gone")
    return None


def _queue(state: LedgerState, plan: Plan) -> Refusal | None:
    """The limits of the plan's queue and of all queues above it. A plan with victims is judged as if all victims were gone, and again when they are."""
    if refusal := state.queues.refusal(plan.queue):
        return refusal
    if forbidden := state.queues.forbids(plan.queue, plan.namespace, state.records.class_of(plan.job)):
        return forbidden
    headroom = state.queues.headroom(plan.queue, asked_of_queue(state, plan), to_be_freed(state, plan))
    return Refusal(RefusalReason.QUEUE_CAPABILITY, headroom.message) if headroom.times == 0 else None


def _namespace(state: LedgerState, plan: Plan) -> Refusal | None:
    """The namespace's quotas of cards. A quota causes no evictions: claims count until their pods are gone, and for a plan with victims the places nominated
    for
    other pods count as well.
    """
    if plan.namespace not in state.card_quotas:
        return None
    asked: Resources = {}
    for placement in plan.placements:
        add(asked, charge(plan.requests[placement.requests], placement.slices))
    headroom = state.card_quotas.headroom(
        plan.namespace, asked, state.evicting.nominated_in(plan.namespace) if plan.victims else None
    )
    if headroom.times != 0 or not any(placement.slices for placement in plan.placements):
        return None
    return Refusal(RefusalReason.NAMESPACE_QUOTA, headroom.message)


def _class(state: LedgerState, plan: Plan) -> Refusal | None:
    """The namespace's quota for the job's PriorityClass. It causes no evictions: the plan's victims count as well."""
    asked: Resources = {}
    named = state.records.class_of(plan.job)
    for placement in plan.placements if named else ():
        add(asked, plan.requests[placement.requests])
    message = state.class_quotas.refusal(plan.namespace, named, asked)
    return Refusal(RefusalReason.NAMESPACE_QUOTA, message) if message else None


def _spread(state: LedgerState, plan: Plan) -> Refusal | None:
    """Whether the plan's gang would be on several nodes, one of which its verdict excludes from such gangs."""
    if not state.single_node or plan.min_member <= 1 or not any(placement.slices for placement in plan.placements):
        return None
    nodes = {placement.node for placement in plan.placements}
    excluded = sorted(nodes & state.single_node)
    if (job := state.jobs.get(plan.job)) is not None:
        nodes |= {state.live[claim].claim.node for claim in job.live}
    if not excluded or len(nodes) == 1:
        return None
    return Refusal(
        RefusalReason.NODE_UNHEALTHY, f"{excluded[0]} takes no gangs over several nodes: {state.verdicts[excluded[0]].reason}"
    )


def _pools(state: LedgerState, plan: Plan) -> Refusal | None:
    for placement in plan.placements:
        node = state.nodes.get(placement.node)
        if node is not None and not state.queues.may_use(plan.queue, pool := pool_of(node.labels)):
            pools = (PUBLIC, *state.queues.reach(plan.queue))
            message = f"{node.name} is of pool {pool}; queue {plan.queue} may use {', '.join(pools)}"
            return Refusal(RefusalReason.NODE_POOL, message)
    return None


def _gang(state: LedgerState, plan: Plan) -> Refusal | None:
    gang, job = state.gangs.get(plan.job), state.jobs.get(plan.job)
    members = len(job.live) if job is not None else 0
    if gang is not None and gang.unwinding:
        staying = stuck(state, gang)
        if not staying:
            why = ", since the fabric changed" if gang.moved else f": {gang.reason}"
            message = f"{plan.name} is planned anew{why}; its members are being taken back"
            return Refusal(RefusalReason.GANG_INCOMPLETE, message)
        members = len(staying)
    live = members + (gang.finished if gang is not None else 0)
    if live + len(plan.placements) < plan.min_member:
        message = (
            f"{plan.name} has {live} members with a claim and places {len(plan.placements)}; it starts with {plan.min_member}"
        )
        return Refusal(RefusalReason.GANG_INCOMPLETE, message)
    return None


def _nodes(state: LedgerState, plan: Plan) -> Refusal | None:
    """Validate every placement together with the earlier ones, and book it. If one is refused, nothing stays booked."""
    for done, placement in enumerate(plan.placements):
        requests, node = plan.requests[placement.requests], state.node(placement.node)
        refusal = validate_claim(
            state.nodes.get(placement.node), state.verdicts.get(placement.node), node, requests, placement.slices
        )
        if refusal is not None:
            for earlier in plan.placements[:done]:
                state.node(earlier.node).book(plan.requests[earlier.requests], earlier.slices, -1)
            return refusal
        node.book(requests, placement.slices)
    return None


def _begin_gang(state: LedgerState, step: Step, plan: Plan, deadline: float) -> None:
    if plan.job not in state.gangs and (plan.min_member <= 1 or state.jobs[plan.job].posted >= plan.min_member):
        return
    if (gang := state.gangs.get(plan.job)) is not None:  # its deadline stays: a gang that is completed repeatedly must end
        if gang.unwinding:
            called_off(state, step, gang)
            gang.deadline = deadline
        gang.min_member = plan.min_member
        gang.bounds = (*gang.bounds, *bounds_of(plan))
        step.gangs[plan.job] = gang
        return
    state.gangs[plan.job] = step.gangs[plan.job] = Gang(
        plan.job, plan.min_member, deadline, bounds=tuple(bounds_of(plan)), judged=state.fabrics.changes
    )


def published_queue(state: LedgerState, queue: Queue) -> Queue:
    """The queue as published: closing while it or a queue below it has claims, then closed."""
    if queue.phase is QueuePhase.OPEN:
        return queue
    phase = QueuePhase.CLOSING if any(state.queues.used(queue.name).values()) else QueuePhase.CLOSED
    return queue if queue.phase is phase else replace(queue, phase=phase)


def usage(state: LedgerState) -> dict[QueueName, Resources]:
    """What the live claims of each queue add up to, without zeros."""
    return {name: {r: n for r, n in used.items() if n} for name, used in state.used.items()}
