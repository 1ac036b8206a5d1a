"""The life of a claim after its plan was committed: what each piece of evidence does to it.

    claim     open decision   evidence                                                    becomes
    --------  --------------  ----------------------------------------------------------  -----------------------------------------
    PENDING   bind            outcome BOUND on its node; pod seen there                    POSTED
    PENDING   bind, revoke    outcome CONFLICT, EXPIRED, REVOKED, GONE                     VOID
    PENDING   bind, revoke    outcome GONE, CONFLICT that names its node (bound there)     POSTED
    PENDING   bind            outcome REJECTED of the bind                                 VOID
    PENDING   bind            deadline passed                                              same, revoke
    PENDING   revoke          outcome BOUND                                                POSTED; evict if its gang is unwound
    live      any             pod seen elsewhere, or under another claim that was issued   VOID, and a claim as found
    adopted   revoke          outcome BOUND, or CONFLICT that names its node               same; the pod will be seen
    adopted   revoke          pod seen there                                               VOID, and a claim as found, with its cards
    POSTED    evict, revoke   outcome EVICTED                                              same, no decision open (its going is evidence)
    POSTED    evict, revoke   outcome GONE                                                 VOID
    POSTED    evict           no pod for which it leaves waits any more                    same, revoke: its eviction is taken back (S7)
    POSTED    evict           outcome UNKNOWN, blocked, and its gang is not unwound        same, revoke: others have to leave instead
    POSTED    evict           its gang is completed                                        same, revoke
    POSTED    revoke          outcome BOUND, CONFLICT                                      same, it stays; evict if its gang is unwound
    POSTED    any             outcome of its bind                                          same (late news)
    live      any             pod seen terminal or gone                                    VOID
    POSTED    none            pod seen there, with more or less cpu or memory              VOID, and a claim as found
    POSTED    any             consistent read of its pod, by uid: gone, or terminal         VOID
    VOID      -               consistent read of its pod, by uid: there, told gone in error  a claim as found
    live      any             outcome UNKNOWN, REJECTED of a revoke or an eviction         same; the decision is sent again
    VOID      -               anything else                                                VOID (S12)
    none      -               pod seen bound or running                                    POSTED as found, even over-booked

Adopted is PENDING and forced: see `recovery`.

A clock frees nothing (S13): a deadline makes a revocation or an eviction, and their result frees. A bind's GONE leaves a posted claim alone,
since a pod that is being deleted still holds its node; that its uid is absent is told by the eviction or by the watch of pods.

What is written on a pod is its tenant's to write, and to remove: that a pod is on its claim's node is seen from its node alone, and which cards it holds is
what the claim says. Its annotations count where they prove another claim that the ledger issued (`find`).

A gang of two and more is on its way (`Gang`) from its first claims until `min_member` are posted or have succeeded. At its deadline it is
unwound whole: bound members are evicted, the others revoked. It ends when it has started, or when nothing of it is left. Where all that is left of it may not
be evicted, as under a disruption budget, it is stuck in part: then it is completed as soon as a plan has places for the rest (`called_off`), and until then
the evictions are asked for again. An eviction that is refused for any other reason than unwinding is taken back at once.
"""

from collections.abc import Iterable

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
    is_host_port,
)
from hbox_common.model.devices import GPU
from hbox_common.model.resources import CPU, EPHEMERAL, MEMORY, PODS

from .books import Books
from .decisions import keep, send, take_back
from .find import proven, slices_of
from .holding import Gang, Holding, Intent
from .identity import found_claim_id
from .step import Step

#: An open decision without a result is sent again after so long, then after twice as long, up to the second figure.
RESEND_S, RESEND_MAX_S = 15.0, 120.0

#: What a pod may take more or less of while it runs (KEP-1287).
RESIZABLE = (CPU, MEMORY)

#: Nodes name them, but for one that is not known yet.
_EVERYWHERE = frozenset({CPU, MEMORY, EPHEMERAL, PODS, GPU})

_STAYS = (BindOutcome.BOUND, BindOutcome.CONFLICT)
#: With its claim's node: the pod is bound there, whatever is written on it.
_THERE = (BindOutcome.BOUND, BindOutcome.CONFLICT, BindOutcome.GONE)
_VOIDS = (BindOutcome.CONFLICT, BindOutcome.EXPIRED, BindOutcome.REVOKED, BindOutcome.GONE)


def outcome(books: Books, step: Step, result: Outcome) -> None:
    """Take in what became of a decision."""
    holding = books.live.get(result.claim)
    if holding is None:
        return
    if result.outcome is BindOutcome.UNKNOWN:
        if result.blocked and holding.intent is Intent.EVICT and result.generation == holding.generation:
            _blocked(books, step, holding, result.message)
        return
    claim, of_bind = holding.claim, result.generation <= 1
    cause = f"{result.outcome}: {result.message}" if result.message else str(result.outcome)
    if claim.state is ClaimState.PENDING:
        bound = result.outcome is BindOutcome.BOUND
        there = result.node == claim.node and result.outcome in _THERE
        if (bound or there) and holding.forced:
            return  # see `observed`
        if there or (bound and not result.node):
            _posted(books, step, holding, actor="binder", cause=cause)
            books.unseen[claim.id] = holding.posted
        elif result.outcome in (*_VOIDS, BindOutcome.BOUND) or (of_bind and result.outcome is BindOutcome.REJECTED):
            end(books, step, holding, actor="binder", cause=cause)
        return
    if of_bind:
        return
    if result.outcome is BindOutcome.EVICTED:
        books.leave(step, holding)
    elif result.generation != holding.generation:
        return
    elif result.outcome is BindOutcome.GONE:
        books.bury(claim.pod_uid)
        end(books, step, holding, actor="binder", cause=cause)
    elif result.outcome in _STAYS and holding.intent is Intent.REVOKE:
        books.stay(step, holding)
        if (gang := books.gangs.get(claim.job)) is not None and gang.unwinding:
            take_back(books, step, holding, f"its gang of {gang.min_member} did not start whole in time")


def _blocked(books: Books, step: Step, holding: Holding, why: str) -> None:
    """Its pod may not be evicted now."""
    gang = books.gangs.get(holding.claim.job)
    if gang is not None and gang.unwinding:
        holding.blocked = why or "its eviction is refused"
        if len(stuck(books, gang)) + gang.finished >= gang.min_member:  # its last bindings came late
            called_off(books, step, gang)
            _end(books, step, gang)
        return
    books.needs.thwart(holding.claim.id)
    keep(books, step, holding, "it may not be evicted now")
    step.stayed.append(holding.claim.pod_uid)


def stuck(books: Books, gang: Gang) -> list[Holding]:
    """Members of a gang that is unwound which may not be evicted, where that is all that is left of it beside those who leave; else nothing."""
    job = books.jobs.get(gang.job)
    holdings = [books.live[claim] for claim in job.live] if job is not None else []
    going = [h for h in holdings if h.intent is Intent.NONE and h.claim.id in books.leaving]
    blocked = [h for h in holdings if h.blocked]
    return blocked if len(blocked) + len(going) == len(holdings) else []


def called_off(books: Books, step: Step, gang: Gang) -> None:
    """The gang is not unwound any more: what is stuck of it stays."""
    for holding in [books.live[claim] for claim in books.jobs[gang.job].live if books.live[claim].blocked]:
        keep(books, step, holding, "its gang is completed")
    gang.unwinding = False
    step.gangs[gang.job] = gang


def observed(books: Books, step: Step, fact: PodFact, *, actor: str = "job-controller") -> None:
    """Take in what Kubernetes says of a pod that has, or had, a node."""
    known = books.by_pod.get(fact.uid)
    holding = books.live[known] if known is not None else None
    if not fact.phase.holds:
        books.bury(fact.uid)
        if holding is not None:
            finished = fact.phase is PodPhase.SUCCEEDED
            end(books, step, holding, actor=actor, cause=f"its pod is {fact.phase}", finished=finished)
        return None
    if fact.uid in books.gone:
        return None  # older news than what is known
    if holding is not None:
        claim = holding.claim
        books.suspects.pop(claim.id, None)
        books.unseen.pop(claim.id, None)
        there = claim.node == fact.node
        ours = there and not _contradicted(books, claim, fact)
        adopted = holding.forced and claim.state is ClaimState.PENDING
        if ours and not adopted:
            if claim.state is ClaimState.PENDING:
                _posted(books, step, holding, actor=actor, cause=f"its pod is {fact.phase}")
            if not _resized(books, holding, fact):
                return None
            end(books, step, holding, actor=actor, cause="its pod was resized in place")
            return _force(books, step, fact, actor, slices=claim.slices)
        if ours:
            end(books, step, holding, actor=actor, cause="its pod was found bound, with all that it asks for")
            return _force(books, step, fact, actor, slices=claim.slices)
        cause = f"its pod was bound under claim {fact.claim}" if there else f"its pod was bound by another, to {fact.node}"
        end(books, step, holding, actor=actor, cause=cause)
    return _force(books, step, fact, actor, slices=slices_of(books, fact))


def _contradicted(books: Books, claim: Claim, fact: PodFact) -> bool:
    """Whether the pod proves that it holds other cards, by another claim that was issued for it: one that these books have lost, or gave up too early."""
    return fact.claim != claim.id and fact.slices != claim.slices and proven(books, fact)


def _resized(books: Books, holding: Holding, fact: PodFact) -> bool:
    """Whether the pod takes another amount of what can be changed while it runs, and is to be accounted for anew. One that leaves goes with what it was
    given, and a gang that has not started keeps its count; the next comparison finds them."""
    claim = holding.claim
    if holding.intent is not Intent.NONE or claim.id in books.leaving or claim.job in books.gangs:
        return False
    return any(fact.requests.get(name, 0) != claim.requests.get(name, 0) for name in RESIZABLE)


def tick(books: Books, step: Step) -> None:
    """Make what time asks for: unwind gangs, revoke binds that are overdue."""
    for gang in list(books.gangs.values()):
        if not gang.unwinding and gang.deadline <= step.now:
            gang.unwinding = True
            step.gangs[gang.job] = gang
            reason = f"its gang of {gang.min_member} did not start whole in time"
            for claim in list(books.jobs[gang.job].live):
                take_back(books, step, books.live[claim], reason)
    for id in books.needs.in_vain():
        leaving = books.open.get(id)
        if leaving is not None and leaving.intent is Intent.EVICT and not _unwinds(books, leaving):
            keep(books, step, leaving)
    for holding in list(books.open.values()):
        if holding.intent is Intent.BIND and 0 < holding.deadline <= step.now:
            take_back(books, step, holding, "its deadline passed")


def send_again(books: Books, step: Step) -> None:
    """Send again what has had no result for so long."""
    for holding in list(books.open.values()):
        if not 0 <= step.now - holding.sent_at < min(RESEND_S * 2 ** max(0, holding.sendings - 1), RESEND_MAX_S):
            send(step, holding)  # it is time, or the clock went back and none can say


def _unwinds(books: Books, holding: Holding) -> bool:
    gang = books.gangs.get(holding.claim.job)
    return gang is not None and gang.unwinding


def send_open(books: Books, step: Step, claims: Iterable[ClaimId]) -> None:
    """Send the decisions again that are open on these claims."""
    for claim in claims:
        if (holding := books.open.get(claim)) is not None:
            send(step, holding)


def _posted(books: Books, step: Step, holding: Holding, *, actor: str, cause: str) -> None:
    books.post(step, holding, actor=actor, cause=cause)
    gang = books.gangs.get(holding.claim.job)
    if gang is None:
        return
    if gang.unwinding:
        take_back(books, step, holding, f"its gang of {gang.min_member} did not start whole in time")
    elif books.jobs[gang.job].posted + gang.finished >= gang.min_member:
        _end(books, step, gang)


def end(books: Books, step: Step, holding: Holding, *, actor: str, cause: str, finished: bool = False) -> None:
    """Void a claim, on evidence, and its gang's way with it where nothing is left of that. `finished`: its pod succeeded."""
    job = holding.claim.job
    books.void(step, holding, actor=actor, cause=cause)
    gang = books.gangs.get(job)
    if gang is None:
        return
    if finished:
        gang.finished += 1
        step.gangs[job] = gang
    left = books.jobs.get(job)
    if left is None or (not gang.unwinding and left.posted + gang.finished >= gang.min_member):
        _end(books, step, gang)


def _end(books: Books, step: Step, gang: Gang) -> None:
    del books.gangs[gang.job]
    step.gangs[gang.job] = None


def _force(books: Books, step: Step, fact: PodFact, actor: str, *, slices: tuple[CardSlice, ...]) -> None:
    """Account for a pod that runs without a live claim: reality is not refused, even where it over-books."""
    claim = Claim(
        id=found_claim_id(fact.uid, books.epoch, books.index),
        pod_uid=fact.uid,
        namespace=fact.namespace,
        pod=fact.name,
        job=fact.job or JobId(fact.uid),
        plan=PlanId(""),
        queue=fact.queue if fact.ours else QueueName(""),
        priority=fact.priority,
        node=fact.node,
        requests=_held(books, fact),
        slices=slices,
        state=ClaimState.POSTED,
        min_member=fact.min_member,
        preemptable=fact.preemptable and fact.ours,
        created_at=fact.created_at,
        claimed_at=step.now,
        models=cards_by_model(books.nodes.get(fact.node), slices),
    )
    holding = Holding(claim, fact.resource_version, deadline=0.0, changed_at=step.now, forced=True)
    books.look_at.add(fact.node)
    books.enter(step, holding, actor=actor, cause="found bound without a live claim")


def read(books: Books, step: Step, found: PodRead) -> None:
    """Take in what a consistent read of a suspect's pod says, or of one that is `contradicted`. A suspect that is elsewhere than its claim stays one until the
    watch tells of it, with all that it holds."""
    if found.uid in books.contradicted and found.standing is not PodStanding.UNKNOWN:
        fact = books.contradicted.pop(found.uid)
        if found.standing is PodStanding.HOLDS and found.node == fact.node:
            del books.gone[found.uid]
            observed(books, step, fact, actor="binder")
        return
    known = books.by_pod.get(found.uid)
    holding = books.live[known] if known is not None else None
    if holding is None or holding.claim.state is not ClaimState.POSTED:
        return
    if found.standing in (PodStanding.GONE, PodStanding.ENDED):
        books.bury(found.uid)
        end(books, step, holding, actor="binder", cause=f"its pod is {found.standing}, the API server says")
    elif found.standing is PodStanding.HOLDS and found.node == holding.claim.node:
        books.suspects.pop(holding.claim.id, None)


def _held(books: Books, fact: PodFact) -> Resources:
    """What it asks for, of resources that its node has: nobody holds what is not there, and anybody can name any number of such, each with an account."""
    node = books.nodes.get(fact.node)
    there = node.allocatable if node is not None else {}
    return {
        name: amount
        for name, amount in fact.requests.items()
        if amount > 0 and (name in there or name in _EVERYWHERE or is_host_port(name))
    }
