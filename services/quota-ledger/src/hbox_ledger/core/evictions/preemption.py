"""Plans with victims: judging them and deciding the evictions.

The ledger is the bank: it checks the right to take (`hbox_common.model.rights`), not the choice of victims. Between queues, the taker gets no more than it
deserves and the giver has more than it deserves, both only in the requested dimensions; a gang is one loss if its minimum breaks (`rights.units`). In a
tree this is judged where the two branches part: between projects of one department by the projects' deserved shares, between departments by theirs. All
queues of the giving branch keep their guarantees. Inside a queue, lower priority gives. Jobs that may not be preempted never give. Pods on lent nodes of an
exclusive pool are evicted when an owner of the pool asks, without any of these checks (ADR 37). A pod that moves, with another place for its successor,
gives nothing: it may not be of higher priority, both places are kept, and the move pays (ADR 41). No eviction is in vain: the placements have to fit once
the victims are gone, by the same rule as every other claim, together with the places nominated for other pods (`nominations`).

A plan without placements gives back places of its own job that the policy wants to reassign (`shuffle`). The ledger then only checks that the job's pods may
be evicted.

Only evidence voids a victim's claim. The scheduler then proposes the freed place again, in a plan without victims; until then the plan's job is nominated
for it.
"""

from collections import Counter
from collections.abc import Sequence

from hbox_common.events import HeldNomination, Plan, Victim
from hbox_common.model import (
    OFFLINE,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    JobId,
    NodeName,
    QueueName,
    QueueTree,
    Refusal,
    RefusalReason,
    Resources,
    SchedulerId,
    TreeAmounts,
    amounts_in,
    by_pool,
    cards_by_model,
    is_offline,
    pool_of,
    validate_claim,
)
from hbox_common.model.cardparts import share_on
from hbox_common.model.claim import counted_models
from hbox_common.model.consolidation import LONGEST_GAIN_S, too_many
from hbox_common.model.devices import VENDORS
from hbox_common.model.minruntime import protects
from hbox_common.model.resources import PODS, add
from hbox_common.model.rights import (
    CARDS_BY_NAME,
    AtParting,
    Named,
    Reclaim,
    Standing,
    keeps_minimum,
    may_move,
    may_preempt,
    not_entitled,
    reclaimable,
    units,
)

from ..claimrecord import ClaimRecord, Decision
from ..decisions import take_back
from ..ledgerstate import LedgerState
from ..step import Step
from . import receipts
from .beneficiaries import MOVED, PREEMPTED, RECLAIMED
from .nominations import KEPT_S


def preempt(state: LedgerState, step: Step, plan: Plan, scheduler: SchedulerId) -> Refusal | None:
    """Decide the plan's evictions and nominate its job for the places, or return the reason for refusal."""
    victims = _victims(state, plan)
    if isinstance(victims, Refusal):
        return victims
    state.divide(step.now)
    refusal = (
        _rights(state, plan, victims, step.now)
        or _in_vain(state, plan, victims)
        or _moves_refused(state, plan, step.now)
        or _too_many(state, step, victims)
    )
    if refusal is not None:
        return refusal
    moved = {victim.claim: victim for victim in plan.victims if victim.to}
    places = {claim: victim.to for claim, victim in moved.items()}
    receipts.for_plan(state, step, plan, receipts.leaving(state, victims), places, _to_the_owner(state, plan, victims))
    for record in victims:
        message = PREEMPTED if record.claim.queue == plan.queue else RECLAIMED
        if record.claim.id in moved:
            message = f"{MOVED}{moved[record.claim.id].to}"
        take_back(state, step, record, f"{message} for {plan.namespace}/{plan.name} of queue {plan.queue}", beneficiary=plan.id)
    state.moves.note(plan.id, len(moved), step.now)
    pools = tuple(state.counts_in(plan.job, p.node) for p in plan.placements)
    nomination = HeldNomination(
        scheduler=scheduler,
        plan=plan,
        models=tuple(cards_by_model(state.nodes.get(p.node), p.slices) for p in plan.placements),
        pools=pools if any(pools) else (),
        moved=tuple(record.claim for record in victims if record.claim.id in moved),
        until=step.now + KEPT_S * state.clock_rate,
    )
    state.nominate(nomination)
    return None


def evict_own(state: LedgerState, step: Step, plan: Plan) -> Refusal | None:
    """Decide the evictions of a plan without placements: a job gives up places that the policy wants back. No pod is nominated for them."""
    victims = _victims(state, plan)
    if isinstance(victims, Refusal):
        return victims
    for record in victims:
        claim = record.claim
        if claim.job != plan.job:
            return _protected(f"{claim.namespace}/{claim.pod} is of another job than the plan, which places nothing")
        if not claim.preemptable:
            return _protected(f"{claim.namespace}/{claim.pod} may not be preempted")
    if (refusal := _too_many(state, step, victims)) is not None:
        return refusal
    reason = "shuffled: the policy wants it elsewhere"
    receipts.shuffled(state, step, receipts.leaving(state, victims), reason)
    for record in victims:
        take_back(state, step, record, reason)
    return None


def _moves_refused(state: LedgerState, plan: Plan, now: float) -> Refusal | None:
    """Whether the plan's moves do not pay, or exceed the policy's moves per hour (`hbox_common.model.consolidation`). Only the scheduler knows how long the
    pods
    have run since their last checkpoints, so its figures count; the ledger itself counts the moves and their gain.
    """
    moved, terms = [victim for victim in plan.victims if victim.to], plan.moves
    if not moved or terms is None:
        return None
    cards = sum(len(placement.slices) for placement in plan.placements) or len(plan.placements)
    if terms.pods_moved != len(moved) or terms.cards_gained > cards or not 0 <= terms.gain_s <= LONGEST_GAIN_S:
        return Refusal(
            RefusalReason.MALFORMED, f"the plan moves {len(moved)} pods for {cards} cards, but its terms are: {terms.text}"
        )
    if not terms.pays:
        return _protected(f"to move them costs more than it gains: {terms.text}")
    if why := too_many(terms.most_an_hour, state.moves.within_hour(now), len(moved)):
        return Refusal(RefusalReason.EVICTIONS_PAUSED, why)
    return None


def _too_many(state: LedgerState, step: Step, victims: Sequence[ClaimRecord]) -> Refusal | None:
    """Whether evictions are paused. Call it last: evictions that pass are counted."""
    fresh = sum(record.claim.id not in state.evicting for record in victims)
    return state.brake.refusal(fresh, live=len(state.live), now=step.now)


def _victims(state: LedgerState, plan: Plan) -> list[ClaimRecord] | Refusal:
    victims: list[ClaimRecord] = []
    for victim in plan.victims:
        record = state.live.get(victim.claim)
        if record is None or record.claim.pod_uid != victim.pod_uid or record.claim.state is not ClaimState.POSTED:
            return Refusal(RefusalReason.VICTIM_GONE, f"claim {victim.claim} holds nothing that could be taken")
        if record.decision is Decision.REVOKE:
            message = f"{record.claim.namespace}/{record.claim.pod} was to leave, which is being taken back; ask again"
            return Refusal(RefusalReason.VICTIM_PROTECTED, message)
        victims.append(record)
    return victims


def asked_of_queue(state: LedgerState, plan: Plan) -> Resources:
    """Amounts that the placements count against their queue: the pods' requests and, if any queue names models, the models of their cards, in the pools of
    their
    nodes, by the inventory.
    """
    asked: Resources = {}
    for (number, pool), pods in Counter((p.requests, state.counts_in(plan.job, p.node)) for p in plan.placements).items():
        add(asked, amounts_in(pool, plan.requests[number]) if pool else plan.requests[number], pods)
    for placement in plan.placements:
        node = state.nodes.get(placement.node)
        if not state.queues.by_model and (node is None or not share_on(node)):
            continue
        if counted := counted_models(cards_by_model(node, placement.slices), by_model=state.queues.by_model):
            add(asked, amounts_in(state.counts_in(plan.job, placement.node), counted))
    return asked


def to_be_freed(state: LedgerState, plan: Plan) -> dict[QueueName, Resources]:
    """How much less each queue and all queues below it will use than now, once the plan's victims and all other evicted pods are gone and all nominated pods
    have
    their places.

    Empty for a plan without victims: it is judged by the present state.
    """
    freed: dict[QueueName, Resources] = {}
    if not plan.victims:
        return freed
    for sums, times in ((state.evicting.used, 1), (state.evicting.nominated, -1)):
        for queue, amounts in sums.items():
            for name in state.queues.path(queue):
                add(freed.setdefault(name, {}), amounts, times)
    for victim in plan.victims:
        record = state.live.get(victim.claim)
        if record is not None and victim.claim not in state.evicting and not victim.to:
            for name in state.queues.path(record.claim.queue):
                add(freed.setdefault(name, {}), record.claim.amounts)
    return freed


def _rights(state: LedgerState, plan: Plan, victims: Sequence[ClaimRecord], now: float) -> Refusal | None:
    tree = state.queues
    asked = {name: units for name, units in asked_of_queue(state, plan).items() if by_pool(name)[0] != PODS and units > 0}
    reclaim = _reclaim(state)
    preemptors: dict[QueueName, None] = {}
    reclaimed: list[Claim] = []
    moved = {victim.claim for victim in plan.victims if victim.to}
    to_the_owner = _to_the_owner(state, plan, victims)
    if is_offline(state.records.class_of(plan.job)):
        return _protected(f"{plan.name} is an offline job, which may not evict")
    for record in victims:
        claim = record.claim
        pod = f"{claim.namespace}/{claim.pod}"
        if claim.pool == OFFLINE and claim.id not in moved:
            continue  # offline work gives first, to any job
        if claim.id in to_the_owner:
            continue
        if not claim.preemptable:
            return _protected(f"{pod} may not be preempted")
        if protects(claim.protected_until, now):
            return _protected(
                f"{pod} may not be taken from for another {claim.protected_until - now:.0f} s (minimum run time, or cool-down)"
            )
        if claim.id in moved:
            if not may_move(plan.priority, claim.priority):
                return _protected(f"{pod} has priority {claim.priority}, {plan.name} has {plan.priority}")
            continue
        if claim.queue == plan.queue:
            if not may_preempt(plan.priority, claim.priority):
                return _protected(f"{pod} has priority {claim.priority}, {plan.name} has {plan.priority}")
            continue
        ours, theirs = tree.parting(plan.queue, claim.queue)
        if not reclaimable(tree.get(claim.queue), preemptable=claim.preemptable) or not ours or not theirs:
            return _protected(f"queue {claim.queue} gives nothing back")
        preemptors[ours[0]] = None
        if claim.id not in state.evicting:
            reclaimed.append(claim)
    if reclaimed and _has_its_minimum(state, plan):
        for job, leave in Counter(claim.job for claim in reclaimed).items():
            if not keeps_minimum(_standing(state, job), leave):
                return _protected(f"{plan.name} has its minimum, and for more of its pods no other gang is broken")
    for unit in units(reclaimed, lambda claim: claim.job, lambda job: _standing(state, job)):
        _, theirs = tree.parting(plan.queue, unit[0].queue)
        if refusal := _may_reclaim(tree, reclaim, unit, asked, theirs):
            return refusal
    freed = to_be_freed(state, plan) if preemptors else {}
    for preemptor in preemptors:
        used = Named(tree.used(preemptor), freed.get(preemptor))
        over = not_entitled(tree.rights(preemptor).entitlement, used, asked, CARDS_BY_NAME)
        if over or over is None:
            what = f"would have more than it deserves of {', '.join(over)}" if over else "deserves nothing of what is asked for"
            return _protected(f"queue {_named(preemptor, plan.queue)} {what}")
    return None


def _to_the_owner(state: LedgerState, plan: Plan, victims: Sequence[ClaimRecord]) -> set[ClaimId]:
    """Victims on nodes of a pool that the plan's queue owns and theirs does not, if the plan places pods in that pool: lent nodes are returned at once,
    whatever
    the shares, priorities and classes. Includes the other members of gangs that break.
    """
    pools = {pool for p in plan.placements if state.queues.owns(plan.queue, pool := state.pool_of(p.node))}
    if not pools:
        return set()
    lent = {r.claim.id: r.claim for r in victims if r.claim.pool in pools and state.queues.borrows(r.claim.queue, r.claim.pool)}
    going = Counter(claim.job for claim in lent.values() if claim.id not in state.evicting)
    broken = {job for job, count in going.items() if (now := _standing(state, job)).holding - count < now.needs}
    return {*lent, *(r.claim.id for r in victims if r.claim.job in broken)}


def _reclaim(state: LedgerState) -> Reclaim[QueueName, str]:
    """A reclaim with no victims judged yet, in which all evicted pods are already gone."""
    reclaim = Reclaim(TreeAmounts(state.queues))
    for queue, amounts in state.evicting.used.items():
        reclaim.leaves(state.queues.path(queue), amounts)
    return reclaim


def _standing(state: LedgerState, job: JobId) -> Standing:
    live = [state.live[claim].claim for claim in state.jobs[job].live if claim not in state.evicting]
    return Standing(len(live), max(claim.min_member for claim in live))


def _has_its_minimum(state: LedgerState, plan: Plan) -> bool:
    """Whether all placements of the plan exceed its job's minimum, by the ledger's own books."""
    if (held := state.jobs.get(plan.job)) is None or not held.live:
        return False
    live = [state.live[claim].claim for claim in held.live if claim not in state.evicting]
    return len(live) >= max(plan.min_member, *(claim.min_member for claim in live)) if live else False


def _may_reclaim(
    tree: QueueTree, reclaim: Reclaim[QueueName, str], unit: Sequence[Claim], asked: Resources, theirs: Sequence[QueueName]
) -> Refusal | None:
    """Whether the branch of these claims of one job keeps its own share, from where it parts from the taker's branch, when all of them are evicted together. If
    so, they are subtracted.
    """
    claim, head = unit[0], theirs[0]
    amounts: Resources = {}
    for one in unit:
        add(amounts, one.amounts)
    if not AtParting(tree.rights, CARDS_BY_NAME).gives(theirs, asked, amounts, reclaim.used):
        return _protected(f"queue {_named(head, claim.queue)} has no more than it deserves")
    if (short := reclaim.guaranteed(theirs, amounts)) is not None:
        queue, below = short
        return _protected(f"queue {_named(queue, claim.queue)} is guaranteed its {', '.join(below)}")
    reclaim.leaves(tree.path(claim.queue), amounts)
    return None


def _named(name: QueueName, below: QueueName) -> str:
    return name if name == below else f"{name}, above queue {below},"


def _in_vain(state: LedgerState, plan: Plan, victims: Sequence[ClaimRecord]) -> Refusal | None:
    """Whether the placements do not fit once the victims and all other evicted pods are gone and nominated pods have their places. Leaves the books
    unchanged."""
    moves = [(h.claim, victim) for h, victim in zip(victims, plan.victims, strict=True) if victim.to]
    wanted = [(p.node, plan.requests[p.requests], p.slices) for p in plan.placements]
    wanted += [(victim.to, claim.requests, victim.slices) for claim, victim in moves]
    nodes = dict.fromkeys(node for node, _, _ in wanted)
    gone = {h.claim.id: h for name in nodes for h in state.evicting.on(name)}
    gone |= {h.claim.id: h for h in victims if h.claim.node in nodes}
    booked: list[tuple[NodeName, Resources, Sequence[CardSlice], int]] = [
        *((h.claim.node, h.claim.requests, h.claim.slices, -1) for h in gone.values()),
        *((place.node, place.requests, place.slices, 1) for name in nodes for place in state.evicting.places_on(name)),
    ]
    for name, requests, slices, times in booked:
        state.node(name).book(requests, slices, times)
    refusal = _elsewhere(state, moves)
    for name, requests, slices in wanted if refusal is None else ():
        node = state.node(name)
        refusal = validate_claim(state.nodes.get(name), state.verdicts.get(name), node, requests, slices)
        if refusal is not None:
            break
        node.book(requests, slices)
        booked.append((name, requests, slices, 1))
    for name, requests, slices, times in booked:
        state.node(name).book(requests, slices, -times)
    return refusal


def _elsewhere(state: LedgerState, moves: Sequence[tuple[Claim, Victim]]) -> Refusal | None:
    """Whether a moved pod's new place is one that its queue may not use, or lacks its cards."""
    for claim, victim in moves:
        node = state.nodes.get(victim.to)
        if node is not None and not state.queues.may_use(claim.queue, pool := pool_of(node.labels)):
            return Refusal(RefusalReason.NODE_POOL, f"{node.name} is of pool {pool}, which queue {claim.queue} may not use")
        if len(victim.slices) != VENDORS.asked(claim.requests):
            return Refusal(RefusalReason.MALFORMED, f"pod {claim.pod} moves to other cards than it asks for")
        if state.pool_of(victim.to) != claim.pool:
            return _protected(f"{claim.namespace}/{claim.pod} moves to a node of another pool; queues are given cards by pool")
        by_model = state.queues.by_model
        if counted_models(cards_by_model(node, victim.slices), by_model=by_model) != counted_models(
            claim.models, by_model=by_model
        ):
            return _protected(
                f"{claim.namespace}/{claim.pod} moves to cards of another model or size; queues are given cards by both"
            )
    return None


def _protected(message: str) -> Refusal:
    return Refusal(RefusalReason.VICTIM_PROTECTED, message)
