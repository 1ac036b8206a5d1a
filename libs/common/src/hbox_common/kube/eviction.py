"""Evicting a pod by the Eviction API, which asks its disruption budget, and never its namesake."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

import msgspec

from hbox_common.errors import InvalidRequest, NotFound, Unavailable
from hbox_common.model.annotations import CHECKPOINT_ON_NOTICE
from hbox_common.model.durations import duration_s

from .binding import read_pod
from .objects import Metadata
from .resources import PODS
from .status import read_status, retry_after_s
from .transport import STRATEGIC_MERGE_PATCH, KubeClient


class EvictOutcome(StrEnum):
    ACCEPTED = "accepted"  #: it is being deleted; gone only when its uid is
    GONE = "gone"  #: absent, or the name belongs to another uid
    #: its disruption budget is used up or still being counted, or it has two, with which nothing is ever evicted
    BLOCKED = "blocked"
    REJECTED = "rejected"  #: refused for good
    UNKNOWN = "unknown"  #: call again


#: The cause with which a budget refuses; a 429 without it is a server that has no time.
_BUDGET = "DisruptionBudget"
#: Message of the API server (status 500) for a pod that two budgets select; nothing else identifies the case.
_TWO_BUDGETS = "more than one PodDisruptionBudget"

#: Of what a pod asks for; it is bounded again by the administrators' word.
_LONGEST_S = 86_400.0

#: What the API server writes on pods that name none.
DEFAULT_GRACE_S = 30


class _Lifecycle(msgspec.Struct, frozen=True, rename="camel"):
    pre_stop: msgspec.Raw = msgspec.Raw()


class _Container(msgspec.Struct, frozen=True):
    lifecycle: _Lifecycle | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    termination_grace_period_seconds: int = DEFAULT_GRACE_S
    containers: tuple[_Container, ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _Spec


@dataclass(frozen=True, slots=True)
class Notice:
    """How long a pod has to end, in whole seconds."""

    seconds: int
    grace_s: int | None = None  #: in place of its own grace period; None = its own


async def notice_of(
    client: KubeClient, *, namespace: str, name: str, uid: str, at_most_s: int = -1, notice_s: int = -1
) -> Notice | None:
    """Time from the eviction to the kill of a pod. None if the pod is deleted, replaced or terminating, or cannot be read while no limit is set.

    `at_most_s`: limit for a pod with Kubernetes' default grace period and without preStop hook; -1 = its own grace period. A pod with a preStop hook or another
    grace period keeps it, and a pod that writes a checkpoint on notice gets the time that it declares; `notice_s` limits all of them, since another pod waits
    (-1 = no limit). Raises InvalidRequest or Unavailable if the pod cannot be read while a limit is set: without it the eviction would use the pod's own
    period.
    """
    try:
        pod = (await client.expected("GET", PODS.path(namespace, name))).decode(_Pod)
    except NotFound:
        return None
    except (InvalidRequest, Unavailable):
        if max(at_most_s, notice_s) < 0:
            return None
        raise
    own_s = pod.spec.termination_grace_period_seconds
    prepares = any(c.lifecycle is not None and bytes(c.lifecycle.pre_stop) for c in pod.spec.containers)
    if pod.metadata.uid != uid or pod.metadata.deletion_timestamp is not None:
        return None
    asked_s = duration_s(pod.metadata.annotations.get(CHECKPOINT_ON_NOTICE, "")) if max(at_most_s, notice_s) >= 0 else None
    if asked_s is not None:
        wanted_s = ceil(min(asked_s, _LONGEST_S))
    elif prepares or own_s != DEFAULT_GRACE_S or at_most_s < 0:
        wanted_s = own_s
    else:
        wanted_s = min(at_most_s, own_s)
    if notice_s >= 0:
        wanted_s = min(wanted_s, notice_s)
    return Notice(wanted_s, None if wanted_s == own_s else wanted_s)


async def announce(client: KubeClient, *, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> None:
    """Write these annotations on the pod; None takes one away. With its status, by which the API server takes annotations too: that needs no right to write on
    pods. Where it does not work out nothing waits for it. Raises nothing but Bug."""
    patch = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
    with suppress(Unavailable, InvalidRequest):
        await client.request("PATCH", PODS.path(namespace, name, "status"), body=patch, content_type=STRATEGIC_MERGE_PATCH)


@dataclass(frozen=True, slots=True)
class EvictResult:
    outcome: EvictOutcome
    message: str = ""
    not_allowed: bool = False  #: with REJECTED: it is for lack of a right
    retry_after_s: float | None = None  #: with BLOCKED and UNKNOWN, where the server named it


async def evict(client: KubeClient, *, namespace: str, name: str, uid: str, grace_s: int | None = None) -> EvictResult:
    """Asks for the pod's eviction. `grace_s`: instead of the pod's own grace period, in whole seconds.

    Calling it again is safe: an evicted pod stays evicted. Raises nothing but Bug.
    """
    options: dict[str, object] = {"preconditions": {"uid": uid}}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    wait_s: float | None = None
    try:
        answer = await client.request("POST", PODS.path(namespace, name, "eviction"), body=body)
    except Unavailable as e:
        if not e.outcome_unknown:
            return EvictResult(EvictOutcome.UNKNOWN, str(e), retry_after_s=e.retry_after_s)
        message = str(e)
    else:
        status = read_status(answer.body)
        if answer.status in (200, 201, 202) and status.from_api_server:
            return EvictResult(EvictOutcome.ACCEPTED)
        message = f"{status.message or 'no reason given'} (HTTP {answer.status})"
        wait_s = retry_after_s(answer.headers.get("retry-after"), status)
        if answer.status == 404 and status.reason == "NotFound":
            return EvictResult(EvictOutcome.GONE, message)
        causes = status.details.causes if status.details is not None else ()
        if answer.status == 429 and (why := [cause.message for cause in causes if cause.reason == _BUDGET]):
            return EvictResult(EvictOutcome.BLOCKED, f"{'; '.join(why) or status.message} (HTTP 429)", retry_after_s=wait_s)
        if answer.status == 500 and _TWO_BUDGETS in status.message:
            return EvictResult(EvictOutcome.BLOCKED, message)
        if answer.status == 429:
            return EvictResult(EvictOutcome.UNKNOWN, message, retry_after_s=wait_s)
        if status.from_api_server and answer.status not in (401, 404, 408, 409) and answer.status < 500:
            return EvictResult(EvictOutcome.REJECTED, message, not_allowed=status.not_allowed)
    return await _look(client, namespace=namespace, name=name, uid=uid, message=message, wait_s=wait_s)


async def _look(client: KubeClient, *, namespace: str, name: str, uid: str, message: str, wait_s: float | None) -> EvictResult:
    try:
        pod = await read_pod(client, namespace=namespace, name=name)
    except NotFound as e:
        return EvictResult(EvictOutcome.GONE, str(e))
    except (Unavailable, InvalidRequest):
        return EvictResult(EvictOutcome.UNKNOWN, message, retry_after_s=wait_s)
    if pod.metadata.uid != uid:
        return EvictResult(EvictOutcome.GONE, f"the pod of this name is another one (uid {pod.metadata.uid})")
    if pod.metadata.deletion_timestamp is not None:
        return EvictResult(EvictOutcome.ACCEPTED, message)
    return EvictResult(EvictOutcome.UNKNOWN, message, retry_after_s=wait_s)
