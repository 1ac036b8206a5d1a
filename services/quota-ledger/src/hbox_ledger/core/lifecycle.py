"""The life of a claim after its plan was committed: what each piece of evidence does to it.

    claim     open decision   evidence                                                    becomes
    --------  --------------  ----------------------------------------------------------  -----------------------------------------
    PENDING   bind            outcome BOUND on its node; pod seen there                    POSTED
    PENDING   bind, revoke    outcome CONFLICT, EXPIRED, REVOKED, GONE                     VOID
    PENDING   bind, revoke    outcome GONE, CONFLICT that names its node (bound there)     POSTED
    PENDING   bind            outcome REJECTED of the bind                                 VOID
    PENDING   bind            deadline passed                                              same, revoke
    PENDING   bind            the fabric changed, and nothing of its gang is bound         same, revoke
    PENDING   revoke          outcome BOUND                                                POSTED; evict if its gang is unwound for its deadline
    live      any             pod seen elsewhere, or under another claim that was issued   VOID, and a claim as found
    adopted   revoke          outcome BOUND, or CONFLICT that names its node               same; a fact of the pod follows
    adopted   revoke          pod seen there                                               VOID, and a claim as found, with its cards
    live      none, bind      on hardware that health-monitor took out of use (`health`)   same, evict or revoke, by the job's policy
    POSTED    evict, revoke   outcome EVICTED                                              same, no decision open (its end is evidence)
    POSTED    evict, revoke   outcome GONE                                                 VOID
    POSTED    evict           no pod that it makes room for waits any more                 same, revoke: its eviction is reverted (S7)
    POSTED    evict           outcome UNKNOWN, blocked, and its gang is not unwound        same, revoke: other victims are chosen
    POSTED    evict           its gang is completed                                        same, revoke
    POSTED    revoke          outcome BOUND, CONFLICT                                      same, it stays; evict if its gang is unwound
    POSTED    any             outcome of its bind                                          same (late message)
    live      any             pod seen terminal or gone                                    VOID
    POSTED    none            its kubelet gave it other cards (`kubelet_cards`)           VOID, and a claim as found, on these
    POSTED    none            pod seen there, with more or less cpu or memory              VOID, and a claim as found
    POSTED    none            pod seen there, member of another job that has pods to place   VOID, and the same claim of that job
    POSTED    any             consistent read of its pod, by uid: gone, or terminal         VOID
    VOID      -               consistent read of its pod, by uid: there, reported gone       a claim as found
    live      any             outcome UNKNOWN, REJECTED of a revoke or an eviction         same; the decision is sent again
    VOID      -               anything else                                                VOID (S12)
    none      -               pod seen bound or running                                    POSTED as found, even over-booked

Adopted is PENDING and forced: see `recovery`.

A clock voids no claim (S13): a deadline causes a revocation or an eviction, and its outcome voids the claim. GONE as the outcome of a bind leaves a posted
claim alone, since a pod that is being deleted still holds its node; the eviction's outcome or the watch of pods reports that its uid is absent.

Tenants can write and remove a pod's annotations. So only the pod's node shows that it is on its claim's node, and the claim determines which cards it holds.
Annotations count only if they prove another claim that the ledger issued (`find`).

A gang of two or more is starting (`Gang`) from its first claims until `min_member` are posted or have succeeded. At its deadline the whole gang is unwound:
bound members are evicted, the other claims revoked. The unwinding ends when the gang has started or has no claims left. If all remaining members may not be
evicted, for example under a disruption budget, the gang is stuck: a plan with places for the rest completes it (`called_off`), and until then the evictions
are retried. A gang that has to leave sick hardware is not completed there. If an eviction for another reason than unwinding is refused, it is reverted at
once.
"""

from collections.abc import Iterable
from dataclasses import replace

from hbox_common.events import BindOutcome, Outcome, PodRead, PodStanding
from hbox_common.model import (
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    JobId,
    PlanId,
    PodFact,
    PodPhase,
    QueueName,
    Resources,
    cards_by_model,
    counts_in,
    is_host_port,
    is_offline,
)
from hbox_common.model.claim import KUBELET_GAVE
from hbox_common.model.devices import VENDORS
from hbox_common.model.ids import is_missing_group_job
from hbox_common.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from hbox_common.pacing import backoff_s

from . import guarantees
from .claimids import found_claim_id
from .claimrecord import ClaimRecord, Decision, Gang
from .decisions import keep, send, take_back
from .evictions import receipts
from .evictions.health import has_to_leave, leave
from .foreign_pods import handed_over, proven, renumbered, slices_of
from .ledgerstate import LedgerState
from .step import Step

#: Seconds until an open decision without an outcome is sent again, doubled each time up to the second figure.
RESEND_S, RESEND_MAX_S = 15.0, 120.0

#: Resources that can be resized in place (KEP-1287).
RESIZABLE = (CPU, MEMORY)

#: Resources of every node, also of an unknown one.
_EVERYWHERE = frozenset({CPU, MEMORY, EPHEMERAL, PODS})

_STAYS = (BindOutcome.BOUND, BindOutcome.CONFLICT)
#: On the claim's own node these outcomes prove that the pod is bound there, whatever its annotations contain.
_THERE = (BindOutcome.BOUND, BindOutcome.CONFLICT, BindOutcome.GONE)
_VOIDS = (BindOutcome.CONFLICT, BindOutcome.EXPIRED, BindOutcome.REVOKED, BindOutcome.GONE)


def outcome(state: LedgerState, step: Step, result: Outcome) -> None:
    """Apply the outcome of a decision."""
    record = state.live.get(result.claim)
    if record is None:
        return
    if result.outcome is BindOutcome.UNKNOWN:
        if result.blocked and record.decision is Decision.EVICT and result.generation == record.generation:
            _blocked(state, step, record, result.message)
        return
    claim, of_bind = record.claim, result.generation <= 1
    cause = f"{result.outcome}: {result.message}" if result.message else str(result.outcome)
    if claim.state is ClaimState.PENDING:
        bound = result.outcome is BindOutcome.BOUND
        there = result.node == claim.node and result.outcome in _THERE
        if (bound or there) and record.forced:
            return  # see `observed`
        if there or (bound and not result.node):
            _posted(state, step, record, actor="binder", cause=cause)
            state.unseen[claim.id] = record.posted
        elif result.outcome in (*_VOIDS, BindOutcome.BOUND) or (of_bind and result.outcome is BindOutcome.REJECTED):
            end(state, step, record, actor="binder", cause=cause)
        return
    if of_bind:
        return
    if result.outcome is BindOutcome.EVICTED:
        state.leave(step, record)
        if result.grace_s >= 0:
            step.leaving[claim.pod_uid] = result.grace_s
    elif result.generation != record.generation:
        return
    elif result.outcome is BindOutcome.GONE:
        state.bury(claim.pod_uid)
        end(state, step, record, actor="binder", cause=cause)
    elif result.outcome in _STAYS and record.decision is Decision.REVOKE:
        state.stay(step, record)
        if (gang := state.gangs.get(claim.job)) is not None and gang.unwinding:
            take_back(state, step, record, gang.reason)


def _blocked(state: LedgerState, step: Step, record: ClaimRecord, why: str) -> None:
    """Its pod may not be evicted now."""
    gang = state.gangs.get(record.claim.job)
    if gang is not None and gang.unwinding:
        record.blocked = why or "its eviction is refused"
        if len(stuck(state, gang)) + gang.finished >= gang.min_member:  # its last binds succeeded late
            called_off(state, step, gang)
            _end(state, step, gang)
        return
    for plan in state.beneficiaries.thwart(record.claim.id):
        state.give_up(plan)
    keep(state, step, record, "it may not be evicted now")
    step.stayed.append(record.claim.pod_uid)


def stuck(state: LedgerState, gang: Gang) -> list[ClaimRecord]:
    """Blocked members of an unwinding gang, if all its other members are being evicted, and none of the blocked is on sick hardware; else an empty list."""
    job = state.jobs.get(gang.job)
    records = [state.live[claim] for claim in job.live] if job is not None else []
    going = [h for h in records if h.decision is Decision.NONE and h.claim.id in state.evicting]
    blocked = [h for h in records if h.blocked]
    if len(blocked) + len(going) < len(records) or any(has_to_leave(state, record) for record in blocked):
        return []
    return blocked


def called_off(state: LedgerState, step: Step, gang: Gang) -> None:
    """Stop unwinding the gang: its stuck members stay."""
    for record in [state.live[claim] for claim in state.jobs[gang.job].live if state.live[claim].blocked]:
        keep(state, step, record, "its gang is completed")
    gang.unwinding = False
    step.gangs[gang.job] = gang


def observed(state: LedgerState, step: Step, fact: PodFact, *, actor: str = "job-controller") -> None:
    """Apply a fact about a pod that has, or had, a node."""
    known = state.by_pod.get(fact.uid)
    record = state.live[known] if known is not None else None
    state.regrouped.drop(fact.uid)
    if not fact.phase.holds:
        state.bury(fact.uid)
        if record is not None:
            finished = fact.phase is PodPhase.SUCCEEDED
            end(state, step, record, actor=actor, cause=f"its pod is {fact.phase}", finished=finished)
        return None
    if fact.uid in state.gone:
        # The fact is older than the books; or the API server's store was restored from a backup, and the pod runs. A list shows both, and is compared with its
        # time.
        if actor == "job-controller":
            state.contradicted[fact.uid] = fact
        return None
    if fact.ours:
        state.class_quotas.name(fact.job, fact.priority_class)
        state.sick.note_policy(fact.job, fact.on_sick)
    if record is not None:
        claim = record.claim
        state.suspects.pop(claim.id, None)
        state.unseen.pop(claim.id, None)
        there = claim.node == fact.node
        ours = there and not _contradicted(state, claim, fact)
        adopted = record.forced and claim.state is ClaimState.PENDING
        if ours and not adopted:
            if claim.state is ClaimState.PENDING:
                _posted(state, step, record, actor=actor, cause=f"its pod is {fact.phase}")
            if _is_of_another_job(state, record, fact):
                return _move(state, step, record, fact, actor)
            if (cards := _cards_known(state, record, fact)) is not None:
                end(state, step, record, actor=actor, cause="the cards that its pod holds became known")
                return _force(state, step, fact, actor, slices=cards, protected_until=claim.protected_until)
            if not _resized(state, record, fact):
                return _await_cards(state, record, fact)
            end(state, step, record, actor=actor, cause="its pod was resized in place")
            return _force(state, step, fact, actor, slices=claim.slices, protected_until=claim.protected_until)
        if ours:
            end(state, step, record, actor=actor, cause="its pod was found bound, with all that it asks for")
            return _force(state, step, fact, actor, slices=claim.slices)
        cause = f"its pod was bound under claim {fact.claim}" if there else f"its pod was bound by another, to {fact.node}"
        end(state, step, record, actor=actor, cause=cause)
    return _force(state, step, fact, actor, slices=slices_of(state, fact))


def _is_of_another_job(state: LedgerState, record: ClaimRecord, fact: PodFact) -> bool:
    """Whether the claim has to move to the job of which the pod is a member now, since its PodGroup was deleted and created again: the claims of a job count
    for its gang.

    False while one of the two gangs is being bound, or the pod's claim has an open decision or an eviction. Then `regroup` decides when the pod's current job
    is planned."""
    claim = record.claim
    if not fact.ours or fact.job == claim.job or is_missing_group_job(fact.job):
        return False
    on_its_way = claim.job in state.gangs or fact.job in state.gangs
    if state.records.knows(fact.job) and not (on_its_way or record.decision is not Decision.NONE or claim.id in state.evicting):
        return True
    state.regrouped.put(fact)
    return False


def regroup(state: LedgerState, step: Step, job: JobId) -> None:
    """Move claims of the job's members that belong to another job to this job."""
    for fact in state.regrouped.of(job):
        known = state.by_pod.get(fact.uid)
        record = state.live[known] if known is not None else None
        if record is None or record.claim.node != fact.node or record.claim.state is not ClaimState.POSTED:
            state.regrouped.drop(fact.uid)
        elif _is_of_another_job(state, record, fact):
            state.regrouped.drop(fact.uid)
            _move(state, step, record, fact, "job-controller")


def _move(state: LedgerState, step: Step, record: ClaimRecord, fact: PodFact, actor: str) -> None:
    """Replace the claim by one of the pod's current job. Its queue and its times stay, so that recreating a PodGroup never moves a pod out of a queue."""
    held = record.claim
    end(state, step, record, actor=actor, cause="its PodGroup was made again")
    claim = replace(
        held,
        id=found_claim_id(fact.uid, state.epoch, state.index),
        job=fact.job,
        plan=PlanId(""),
        min_member=fact.min_member,
        state=ClaimState.POSTED,
    )
    moved = ClaimRecord(claim, fact.resource_version, deadline=0.0, changed_at=step.now, forced=True)
    state.enter(step, moved, actor=actor, cause="found in another PodGroup")


def _contradicted(state: LedgerState, claim: Claim, fact: PodFact) -> bool:
    """Whether the pod proves, by another claim issued for it, that it holds other cards: a claim that these books lost or voided too early."""
    if claim.reason == KUBELET_GAVE:  # the annotation holds the planned cards
        return False
    return fact.claim != claim.id and state.named(fact.node, fact.slices) != claim.slices and proven(state, fact)


def _resized(state: LedgerState, record: ClaimRecord, fact: PodFact) -> bool:
    """Whether the pod was resized in place and has to be accounted for again. A pod under eviction keeps its old amounts, and a gang that has not started keeps
    its count; the next comparison finds them.
    """
    claim = record.claim
    if record.decision is not Decision.NONE or claim.id in state.evicting or claim.job in state.gangs:
        return False
    return any(fact.requests.get(name, 0) != claim.requests.get(name, 0) for name in RESIZABLE)


def _cards_known(state: LedgerState, record: ClaimRecord, fact: PodFact) -> tuple[CardSlice, ...] | None:
    """The cards of a pod that was found bound, if they differ from its claim's: another scheduler's annotation, or the node's inventory, arrived after the pod.
    Likewise of a pod that an older ledger placed by index, if the cards were `renumbered`. None: no change."""
    claim = record.claim
    if not (record.forced or renumbered(state, fact)) or claim.reason == KUBELET_GAVE or not fact.cards:
        return None
    if record.decision is not Decision.NONE or claim.id in state.evicting or claim.job in state.gangs:
        return None
    found = handed_over(state, fact) or (() if claim.slices else slices_of(state, fact))
    return found if found and set(found) != set(claim.slices) else None


def _await_cards(state: LedgerState, record: ClaimRecord, fact: PodFact) -> None:
    """Record a pod in `unplaced` if it was found bound and its node's inventory does not contain its cards yet."""
    if record.forced and fact.cards and (not record.claim.slices or (fact.allocated and not handed_over(state, fact))):
        state.unplaced.setdefault(fact.node, {})[fact.uid] = fact


def find_cards(state: LedgerState, step: Step) -> None:
    """Account again for the pods in `unplaced` on nodes whose state has changed. Call it before plans are judged: until then their cards look idle."""
    described, state.described = state.described, set()
    for node in sorted(described & state.unplaced.keys()):
        for fact in list(state.unplaced[node].values()):
            observed(state, step, fact)


def tick(state: LedgerState, step: Step) -> None:
    """Apply deadlines: unwind gangs, revoke overdue binds, end nominations."""
    for plan in state.nominations.overdue(step.now):
        for place in sorted(state.nominations.places(plan)):
            state.settle(place)
    for plan, job in state.nominations.by_job().items():
        if state.records.is_withdrawn(job):
            state.give_up(plan)
    for gang in list(state.gangs.values()):
        moved = _moved(state, gang)
        if moved or (not gang.unwinding and gang.deadline <= step.now):
            gang.unwinding, gang.moved = True, bool(moved)
            step.gangs[gang.job] = gang
            reason = moved or gang.reason
            records = [state.live[claim] for claim in state.jobs[gang.job].live]
            bound = [record for record in records if record.claim.state is ClaimState.POSTED]
            receipts.unwound(state, step, receipts.leaving(state, bound), reason)
            for record in records:
                take_back(state, step, record, reason)
    leave(state, step)
    for id in state.beneficiaries.in_vain():
        leaving = state.open.get(id)
        if leaving is not None and leaving.decision is Decision.EVICT and not _unwinds(state, leaving):
            keep(state, step, leaving)
    for record in list(state.open.values()):
        if record.decision is Decision.BIND and 0 < record.deadline <= step.now:
            take_back(state, step, record, "its deadline passed")


def _moved(state: LedgerState, gang: Gang) -> str:
    """Why a gang without bound pods violates its topology constraint, because the fabric changed; "" if it does not."""
    if gang.judged == state.fabrics.changes or not gang.bounds or gang.unwinding:
        return ""
    gang.judged = state.fabrics.changes
    if state.jobs[gang.job].posted or gang.finished:
        return ""  # it has begun: a started gang is not split
    return next(filter(None, map(state.fabrics.problem, gang.bounds)), "")


def send_again(state: LedgerState, step: Step) -> None:
    """Send open decisions again whose backoff has passed without an outcome."""
    rate = state.clock_rate
    for record in list(state.open.values()):
        waits_s = rate * backoff_s(max(0, record.sendings - 1), base_s=RESEND_S, cap_s=RESEND_MAX_S)
        if not 0 <= step.now - record.sent_at < waits_s:
            send(step, record)  # the backoff has passed, or the clock was set back and the time is unknown


def _unwinds(state: LedgerState, record: ClaimRecord) -> bool:
    gang = state.gangs.get(record.claim.job)
    return gang is not None and gang.unwinding


def send_open(state: LedgerState, step: Step, claims: Iterable[ClaimId]) -> None:
    """Send the open decisions of these claims again."""
    for claim in claims:
        if (record := state.open.get(claim)) is not None:
            send(step, record)


def _posted(state: LedgerState, step: Step, record: ClaimRecord, *, actor: str, cause: str) -> None:
    state.post(step, record, actor=actor, cause=cause)
    gang = state.gangs.get(record.claim.job)
    if gang is None:
        return
    # The bind finished before the message about the fabric: it stays, and the rest is planned next to it.
    if gang.unwinding and gang.moved:
        gang.unwinding = gang.moved = False
        step.gangs[gang.job] = gang
    if gang.unwinding:
        take_back(state, step, record, gang.reason)
    elif state.jobs[gang.job].posted + gang.finished >= gang.min_member:
        _end(state, step, gang)


def end(state: LedgerState, step: Step, record: ClaimRecord, *, actor: str, cause: str, finished: bool = False) -> None:
    """Void a claim, on evidence, and end its gang's start if no claim of it is left. `finished`: the pod succeeded."""
    job = record.claim.job
    state.regrouped.drop(record.claim.pod_uid)
    state.void(step, record, actor=actor, cause=cause)
    gang = state.gangs.get(job)
    if gang is None:
        return
    if finished:
        gang.finished += 1
        step.gangs[job] = gang
    left = state.jobs.get(job)
    if left is None or (not gang.unwinding and left.posted + gang.finished >= gang.min_member):
        _end(state, step, gang)


def _end(state: LedgerState, step: Step, gang: Gang) -> None:
    del state.gangs[gang.job]
    step.gangs[gang.job] = None


def _force(
    state: LedgerState, step: Step, fact: PodFact, actor: str, *, slices: tuple[CardSlice, ...], protected_until: float = 0.0
) -> None:
    """Account for a pod that runs without a live claim. It is never refused, even if it over-books the node."""
    held = _held(state, fact)
    claim = Claim(
        id=found_claim_id(fact.uid, state.epoch, state.index),
        pod_uid=fact.uid,
        namespace=fact.namespace,
        pod=fact.name,
        job=fact.job or JobId(fact.uid),
        plan=PlanId(""),
        queue=fact.queue if fact.ours else QueueName(""),
        priority=fact.priority,
        node=fact.node,
        requests=held,
        slices=slices,
        state=ClaimState.POSTED,
        min_member=fact.min_member,
        preemptable=fact.ours and not guarantees.protects_found(state, fact, held),
        protected_until=protected_until,
        created_at=fact.created_at,
        claimed_at=step.now,
        models=cards_by_model(state.nodes.get(fact.node), slices),
        pool=counts_in(state.pool_of(fact.node), offline=fact.ours and is_offline(fact.priority_class)),
    )
    record = ClaimRecord(claim, fact.resource_version, deadline=0.0, changed_at=step.now, forced=True)
    if fact.ours:  # the class is dropped with the last claim of its job, which may just have ended
        state.class_quotas.name(claim.job, fact.priority_class)
    state.look_at.add(fact.node)
    state.enter(step, record, actor=actor, cause="found bound without a live claim")
    _await_cards(state, record, fact)


def read(state: LedgerState, step: Step, found: PodRead) -> None:
    """Apply a consistent read of a pod that is suspect or `contradicted`. A suspect on another node than its claim's stays suspect until the watch delivers its
    complete fact.
    """
    if found.uid in state.contradicted and found.standing is not PodStanding.UNKNOWN:
        fact = state.contradicted.pop(found.uid)
        if found.standing is PodStanding.HOLDS and found.node == fact.node:
            del state.gone[found.uid]
            observed(state, step, fact, actor="binder")
        return
    known = state.by_pod.get(found.uid)
    record = state.live[known] if known is not None else None
    if record is None or record.claim.state is not ClaimState.POSTED:
        return
    if found.standing in (PodStanding.GONE, PodStanding.ENDED):
        state.bury(found.uid)
        end(state, step, record, actor="binder", cause=f"the API server reports its pod as {found.standing}")
    elif found.standing is PodStanding.HOLDS and found.node == record.claim.node:
        state.suspects.pop(record.claim.id, None)


def _held(state: LedgerState, fact: PodFact) -> Resources:
    """The requested amounts of resources that the node has: a pod can name any number of resources that do not exist, and each would get an account."""
    node = state.nodes.get(fact.node)
    there = node.allocatable if node is not None else {}
    return {
        name: amount
        for name, amount in fact.requests.items()
        if amount > 0 and (name in there or name in _EVERYWHERE or name in VENDORS or is_host_port(name))
    }
