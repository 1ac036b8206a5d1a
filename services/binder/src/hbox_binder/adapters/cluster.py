"""Calls of the core, made against Kubernetes: each ends in a finding, never in an exception."""

from datetime import UTC, datetime
from math import ceil, inf

from hbox_common.errors import HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.events import Bind, BindOutcome, Evict
from hbox_common.kube import BindOutcome as Bound
from hbox_common.kube import (
    BindResult,
    EvictOutcome,
    FenceOutcome,
    KubeClient,
    NotAllowed,
    Pod,
    announce,
    bind,
    evict,
    fence,
    notice_of,
    read_pod,
)
from hbox_common.model import format_slices
from hbox_common.model.annotations import CARDS, CLAIM, CLAIM_GENERATION, EVICTION_DEADLINE, EVICTION_REASON, RANK
from hbox_common.model.bounds import sanitized

from ..core import Allocation, Answer, Call, Finding, NodeCards, Verb, fence_value, fences_off
from .nodelocks import NodeLocks, Taking
from .podlabels import PodLabels
from .volumes import bind_volumes

_BIND: dict[Bound, Finding] = {
    Bound.BOUND: Finding.BOUND,
    Bound.GONE: Finding.GONE,
    Bound.REJECTED: Finding.REFUSED,
    Bound.UNKNOWN: Finding.UNCLEAR,
}

_EVICT: dict[EvictOutcome, Finding] = {
    EvictOutcome.ACCEPTED: Finding.ACCEPTED,
    EvictOutcome.GONE: Finding.GONE,
    EvictOutcome.BLOCKED: Finding.BLOCKED,
    EvictOutcome.REJECTED: Finding.REFUSED,
    EvictOutcome.UNKNOWN: Finding.UNCLEAR,
}

_FENCE: dict[FenceOutcome, Finding] = {
    FenceOutcome.UNBOUND: Finding.UNBOUND,
    FenceOutcome.GONE: Finding.GONE,
    FenceOutcome.REJECTED: Finding.REFUSED,
    FenceOutcome.UNKNOWN: Finding.UNCLEAR,
}


#: So long before the deadline of a bind its claims are taken back from their provisioners: several pauses between two reads.
_WITHDRAW_S = 3.0

#: The end of the year 9999, in seconds since the epoch.
_LAST_S = 253_402_300_799

#: What a pod is not told any more.
_WITHDRAWN = {EVICTION_DEADLINE: None, EVICTION_REASON: None}


async def carry_out(
    client: KubeClient,
    call: Call,
    *,
    cards: NodeCards,
    locks: NodeLocks,
    labels: PodLabels,
    taken_grace_s: int,
    notice_s: int,
    volume_timeout_s: float,
    now: float,
) -> Answer:
    """Make the call. Raises nothing but Bug; its time is bounded by the client's timeout, a handful of requests at most.

    `taken_grace_s`: for pods that make room for others and say nothing about their end; -1 = their own. `notice_s`: the most that any pod gets which makes
    room; -1 = as long as it likes. `volume_timeout_s`: for a provisioner to make a volume. `now`: in seconds since the epoch.
    """
    decision = call.decision
    if call.verb is Verb.VOLUME:
        assert isinstance(decision, Bind)
        ends = [decision.deadline - _WITHDRAW_S] if decision.deadline else []
        ends += [call.waits_since + volume_timeout_s] if call.waits_since else []
        until = min(ends, default=inf)
        return await bind_volumes(client, decision, expired=now >= until, waiting=call.waits_since > 0)
    if call.verb is Verb.BIND:
        assert isinstance(decision, Bind)
        return await _bind(client, call, decision, cards=cards, locks=locks, labels=labels, now=now)
    if call.verb is Verb.FENCE:
        return await _fence(client, decision, look_first=call.then is not BindOutcome.REVOKED)
    assert isinstance(decision, Evict)
    namespace, name, uid = decision.namespace, decision.pod, decision.pod_uid
    bounds = {"at_most_s": taken_grace_s, "notice_s": notice_s} if decision.beneficiary else {"notice_s": decision.notice_s}
    try:
        notice = await notice_of(client, namespace=namespace, name=name, uid=uid, **bounds)
    except HBoxError as e:
        wait_s = e.retry_after_s if isinstance(e, Unavailable) else None
        return Answer(Finding.UNCLEAR, str(e), retry_after_s=wait_s, not_allowed=isinstance(e, NotAllowed))
    if notice is not None:
        annotations = {EVICTION_DEADLINE: _rfc3339(now + notice.seconds), EVICTION_REASON: sanitized(decision.reason)}
        await announce(client, namespace=namespace, name=name, uid=uid, annotations=annotations)
    result = await evict(
        client, namespace=namespace, name=name, uid=uid, grace_s=notice.grace_s if notice is not None else None
    )
    if notice is not None and result.outcome in (EvictOutcome.BLOCKED, EvictOutcome.REJECTED):
        await announce(client, namespace=namespace, name=name, uid=uid, annotations=_WITHDRAWN)
    return Answer(
        _EVICT[result.outcome],
        result.message,
        retry_after_s=result.retry_after_s,
        not_allowed=result.not_allowed,
        grace_s=notice.seconds if notice is not None and result.outcome is EvictOutcome.ACCEPTED else -1,
    )


def _rfc3339(at: float) -> str:
    """The whole second after it, so that nobody is told of an earlier end than it has. At most the last that can be written: a grace period is any number that
    the pod's maker likes."""
    return datetime.fromtimestamp(min(ceil(at), _LAST_S), UTC).isoformat().replace("+00:00", "Z")


async def _bind(
    client: KubeClient, call: Call, decision: Bind, *, cards: NodeCards, locks: NodeLocks, labels: PodLabels, now: float
) -> Answer:
    containers: tuple[str, ...] = ()
    if cards.reads_names(decision):
        try:
            pod = await read_pod(client, namespace=decision.namespace, name=decision.pod)
        except NotFound as e:
            return Answer(Finding.GONE, str(e))
        except HBoxError as e:
            return Answer(Finding.UNCLEAR, str(e), not_allowed=isinstance(e, NotAllowed))
        containers = tuple(container.name for container in (*pod.spec.init_containers, *pod.spec.containers))
    # No await between here and the allocation: the node's state may change during one.
    if not cards.knows(decision):
        if why := cards.lacking(decision):
            return Answer(Finding.REFUSED, why)
        return Answer(Finding.NOT_YET, f"of node {decision.node} not all cards of the pod are known yet")
    try:
        allocation = cards.allocation(decision, now, containers)
    except InvalidRequest as e:
        return Answer(Finding.REFUSED, e.message)
    taking = Taking.HELD
    if allocation.locks:
        if not call.locked:
            return Answer(Finding.NOT_YET, f"the device plugin of node {decision.node} has registered meanwhile")
        if call.seen and (found := await _bound(client, decision)) is not None:
            if found.finding is Finding.BOUND and not allocation.by_version:
                labels.owe(decision, allocation.labels, sent=False)
            return found
        namespace, name, uid = decision.namespace, decision.pod, decision.pod_uid
        took = await locks.take(decision.node, allocation.locks, namespace=namespace, pod=name, uid=uid)
        taking = took.taking
        if taking is Taking.LOCKED:
            return Answer(Finding.LOCKED, took.message, holder=took.holder)
        if taking in (Taking.UNCLEAR, Taking.GONE):
            return Answer(Finding.UNCLEAR, took.message)
    version = call.resource_version
    if allocation.by_version:
        version = await labels.first(decision, allocation.labels, version)
    result, fenced = await _post(client, decision, version, allocation)
    if taking is Taking.TAKEN and result.outcome is Bound.BOUND and result.resource_version:
        # A read told it: the pod was bound before this call, and its cards were handed over while it had the lock, if they were.
        await locks.release(decision.node, namespace=decision.namespace, pod=decision.pod)
    if result.outcome is Bound.BOUND and not allocation.by_version:
        labels.owe(decision, allocation.labels, sent=not result.resource_version)
    return Answer(
        _found(result, fenced=fenced),
        result.message,
        node=result.node,
        retry_after_s=result.retry_after_s,
        not_allowed=result.not_allowed,
    )


async def _bound(client: KubeClient, decision: Bind) -> Answer | None:
    """What has become of a pod whose bind may have been made before: its node is not locked for it once more. None: it is unbound."""
    found = await _look(client, decision)
    if found is not None and found.finding is Finding.BOUND and found.node != decision.node:
        return Answer(Finding.ELSEWHERE, f"the pod is bound to {found.node} by an earlier decision", node=found.node)
    return found


async def _post(client: KubeClient, decision: Bind, resource_version: str, allocation: Allocation) -> tuple[BindResult, bool]:
    """What became of the binding, and whether a fence forbids it."""
    fenced = False

    def may_retry(pod: Pod) -> bool:
        nonlocal fenced
        # The annotation is where a binder of an older version set its fence. Its absence proves nothing: the pod's owner can remove it.
        fences = [condition.message for condition in pod.status.conditions if condition.type == CLAIM_GENERATION]
        fences.append(pod.metadata.annotations.get(CLAIM_GENERATION, ""))
        fenced = any(fences_off(value, decision.claim, decision.generation) for value in fences)
        return not fenced

    annotations = {CLAIM: decision.claim, CLAIM_GENERATION: fence_value(decision.claim, decision.generation)}
    if decision.slices:
        annotations[CARDS] = format_slices(decision.slices)
    if decision.rank >= 0:
        annotations[RANK] = str(decision.rank)
    annotations |= allocation.annotations
    result = await bind(
        client,
        namespace=decision.namespace,
        name=decision.pod,
        uid=decision.pod_uid,
        resource_version=resource_version,
        node=decision.node,
        annotations=annotations,
        labels=allocation.labels,
        may_retry=may_retry,
    )
    return result, fenced


def _found(result: BindResult, *, fenced: bool) -> Finding:
    if result.outcome is not Bound.CONFLICT:
        return _BIND[result.outcome]
    if result.node:
        return Finding.ELSEWHERE
    return Finding.FENCED if fenced else Finding.UNBOUND


async def _fence(client: KubeClient, decision: Bind | Evict, *, look_first: bool) -> Answer:
    """`look_first`: a pod that is found bound is not written on."""
    if look_first:
        seen = await _look(client, decision)
        if seen is not None:
            return seen
    result = await fence(
        client,
        namespace=decision.namespace,
        name=decision.pod,
        uid=decision.pod_uid,
        condition=CLAIM_GENERATION,
        value=fence_value(decision.claim, decision.generation),
    )
    if result.outcome is FenceOutcome.BOUND:
        if isinstance(decision, Evict) and result.notified:  # by an eviction that came to nothing
            await announce(
                client, namespace=decision.namespace, name=decision.pod, uid=decision.pod_uid, annotations=_WITHDRAWN
            )
        return _standing(decision, result.node, result.claim)
    return Answer(_FENCE[result.outcome], result.message, not_allowed=result.not_allowed)


async def _look(client: KubeClient, decision: Bind | Evict) -> Answer | None:
    """Where the pod is; None = unbound."""
    try:
        pod = await read_pod(client, namespace=decision.namespace, name=decision.pod)
    except NotFound as e:
        return Answer(Finding.GONE, str(e))
    except (InvalidRequest, Unavailable) as e:
        return Answer(Finding.UNCLEAR, str(e), not_allowed=isinstance(e, NotAllowed))
    if pod.metadata.uid != decision.pod_uid:
        return Answer(Finding.GONE, f"the pod of this name is another one (uid {pod.metadata.uid})")
    if not pod.spec.node_name:
        return None
    return _standing(decision, pod.spec.node_name, pod.metadata.annotations.get(CLAIM, ""))


def _standing(decision: Bind | Evict, node: str, claim: str) -> Answer:
    if claim == decision.claim:
        return Answer(Finding.BOUND, node=node)
    return Answer(Finding.ELSEWHERE, f"the pod is bound to {node} under claim {claim or 'none'}", node=node)
