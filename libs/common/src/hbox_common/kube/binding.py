"""Binding a pod, and making sure that a binding under way can no longer happen.

The fence (sources: binding-fence): a Binding names the pod's uid and resourceVersion, and the API server itself refuses it once the
pod has changed. `fence` changes the pod on purpose, by a condition: who may write pods may write their annotations, not their status.
Node and annotations are written by the server in one step.

Outcomes are evidence, not guesses. Whatever leaves room for doubt ends in a consistent read; a claim may be freed on CONFLICT, GONE and
REJECTED, never on UNKNOWN.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from hbox_common.errors import InvalidRequest, NotFound, Unavailable
from hbox_common.model.annotations import CLAIM, EVICTION_DEADLINE

from .objects import Pod
from .resources import PODS
from .status import NotAllowed, read_status, retry_after_s
from .transport import STRATEGIC_MERGE_PATCH, KubeClient


class BindOutcome(StrEnum):
    BOUND = "bound"  #: to our node, under our claim
    CONFLICT = "conflict"  #: not bound by us and it will not be: bound elsewhere, or changed meanwhile
    GONE = "gone"  #: no such pod any more: absent, another uid, or being deleted unbound
    REJECTED = "rejected"  #: refused for good: invalid, or by a webhook or policy that judged it
    UNKNOWN = "unknown"  #: it may have happened or may still happen: keep the claim and call again


@dataclass(frozen=True, slots=True)
class BindResult:
    outcome: BindOutcome
    message: str = ""
    resource_version: str = ""  #: the pod's, if it was read; the answer to a binding has none
    node: str = ""  #: where the pod is, where that is known
    retry_after_s: float | None = None  #: the server's wish, with UNKNOWN
    not_allowed: bool = False  #: with UNKNOWN: HBox lacks the permission; the pod's state was not read


_NO_LABELS: Mapping[str, str] = {}


def _never(_pod: Pod) -> bool:
    return False


async def bind(
    client: KubeClient,
    *,
    namespace: str,
    name: str,
    uid: str,
    resource_version: str,
    node: str,
    annotations: Mapping[str, str],
    labels: Mapping[str, str] = _NO_LABELS,
    may_retry: Callable[[Pod], bool] = _never,
) -> BindResult:
    """Binds the pod to `node`; calling it again with the same arguments is safe.

    `labels`: an API server without PodTopologyLabelsAdmission (alpha up to 1.34) drops them (`label` writes them). `annotations` should contain
    `hbox.io/claim`, which identifies the binding as ours if its outcome is unknown. `may_retry`: called once, with the present pod, if the pod is found
    unbound; if it returns True, the binding is sent again, fenced by the pod's new resourceVersion. Raises nothing but Bug: every failure is an outcome.
    """
    wanted = _Wanted(namespace, name, uid, node, annotations, labels)
    sent = await _post(client, wanted, resource_version)
    if isinstance(sent, BindResult):
        return sent
    pod = await _look(client, wanted)
    if isinstance(pod, BindResult):
        return pod
    now = pod.metadata.resource_version
    # Unbound and changed: no binding for the older version can succeed any more, not even one that is still on its way.
    in_flight = sent.in_flight and now == resource_version
    if may_retry(pod):
        again = await _post(client, wanted, now)
        if isinstance(again, BindResult):
            refused = again.outcome is BindOutcome.REJECTED
            return replace(again, outcome=BindOutcome.UNKNOWN) if refused and in_flight else again
        sent_for, sent = now, again
        pod = await _look(client, wanted)
        if isinstance(pod, BindResult):
            return pod
        now = pod.metadata.resource_version
        in_flight = (in_flight or sent.in_flight) and now == sent_for
    if in_flight:
        return BindResult(BindOutcome.UNKNOWN, f"{sent.message}; the pod is still unbound", now)
    return BindResult(BindOutcome.CONFLICT, sent.message, now)


@dataclass(frozen=True, slots=True)
class _Wanted:
    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A binding whose outcome is unknown until the pod is read. `in_flight`: the server may still be processing it."""

    message: str
    in_flight: bool


async def _post(client: KubeClient, wanted: _Wanted, resource_version: str) -> BindResult | _Doubt:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "uid": wanted.uid,
            "resourceVersion": resource_version,
            "annotations": wanted.annotations,
            **({"labels": wanted.labels} if wanted.labels else {}),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": wanted.node},
    }
    try:
        # Raw: the answer to a success is a Status, on which the official client's typed call raises.
        answer = await client.request("POST", PODS.path(wanted.namespace, wanted.name, "binding"), body=body)
    except Unavailable as e:
        return _Doubt(str(e), in_flight=True) if e.outcome_unknown else _unknown(e)
    status = read_status(answer.body)
    if answer.status in (200, 201, 202) and status.from_api_server:
        return BindResult(BindOutcome.BOUND, node=wanted.node)
    message = f"{status.message or 'no reason given'} (HTTP {answer.status})"
    if status.namespace_terminating:
        message = f"NamespaceTerminating: {message}"
    if answer.status == 404 and status.reason == "NotFound":
        return BindResult(BindOutcome.GONE, message)
    if answer.status in (401, 429):
        # The server rejected the request before it processed it; a read now would add to its load.
        wait_s = retry_after_s(answer.headers.get("retry-after"), status)
        return BindResult(BindOutcome.UNKNOWN, message, retry_after_s=wait_s)
    if status.not_allowed:
        return BindResult(BindOutcome.UNKNOWN, message, not_allowed=True)
    if answer.status in (404, 408, 409) or answer.status >= 500 or not status.from_api_server:
        return _Doubt(message, in_flight=answer.status != 409 or not status.from_api_server)
    return BindResult(BindOutcome.REJECTED, message)


async def _look(client: KubeClient, wanted: _Wanted) -> BindResult | Pod:
    """Result of a consistent read; the pod itself if it exists, is ours, and is unbound."""
    try:
        pod = await read_pod(client, namespace=wanted.namespace, name=wanted.name)
    except NotFound as e:
        return BindResult(BindOutcome.GONE, str(e))
    except Unavailable as e:
        return _unknown(e)
    except InvalidRequest as e:
        return BindResult(BindOutcome.UNKNOWN, str(e), not_allowed=isinstance(e, NotAllowed))
    meta = pod.metadata
    if meta.uid != wanted.uid:
        return BindResult(BindOutcome.GONE, f"the pod of this name is another one (uid {meta.uid})")
    where = pod.spec.node_name
    if not where:
        if meta.deletion_timestamp is not None:
            return BindResult(BindOutcome.GONE, "the pod is being deleted", meta.resource_version)
        return pod
    if where == wanted.node and _bears(pod, wanted.annotations):
        return BindResult(BindOutcome.BOUND, "", meta.resource_version, where)
    return BindResult(
        BindOutcome.CONFLICT,
        f"the pod is bound to {where} under claim {meta.annotations.get(CLAIM, 'none')}",
        meta.resource_version,
        where,
    )


def _bears(pod: Pod, annotations: Mapping[str, str]) -> bool:
    """Whether it is this binding that the pod shows: by its claim, or without one by all that the binding wrote."""
    names = (CLAIM,) if CLAIM in annotations else tuple(annotations)
    return all(pod.metadata.annotations.get(name) == annotations[name] for name in names)


async def label(
    client: KubeClient, *, namespace: str, name: str, uid: str, labels: Mapping[str, str], resource_version: str = ""
) -> str:
    """Write these labels on the pod, for API servers that drop the labels of a Binding. `resource_version`: only on that version. Returns the pod's new
    resourceVersion; empty if the labels were not written or the outcome is unknown.

    The labels are written with the pod's status: the API server accepts them there, and no permission to patch pods is needed. No caller depends on success.
    Raises nothing but Bug.
    """
    fenced = {"resourceVersion": resource_version} if resource_version else {}
    body = {"metadata": {"uid": uid, "labels": dict(labels), **fenced}}
    with suppress(Unavailable):
        answer = await client.request(
            "PATCH", PODS.path(namespace, name, "status"), body=body, content_type=STRATEGIC_MERGE_PATCH
        )
        if answer.status == 200:
            return answer.decode(Pod).metadata.resource_version
    return ""


def _unknown(e: Unavailable) -> BindResult:
    return BindResult(BindOutcome.UNKNOWN, str(e), retry_after_s=e.retry_after_s)


async def read_pod(client: KubeClient, *, namespace: str, name: str) -> Pod:
    """The pod as it is now, from a consistent read (no resourceVersion). Raises NotFound where the API server itself has no such pod, InvalidRequest,
    Unavailable."""
    return (await client.expected("GET", PODS.path(namespace, name))).decode(Pod)


class FenceOutcome(StrEnum):
    UNBOUND = "unbound"  #: and bindings sent before cannot succeed any more
    BOUND = "bound"  #: too late: it is bound, see `node` and `claim`
    GONE = "gone"
    REJECTED = "rejected"
    UNKNOWN = "unknown"  #: call again with the same value


@dataclass(frozen=True, slots=True)
class FenceResult:
    outcome: FenceOutcome
    message: str = ""
    resource_version: str = ""
    node: str = ""
    claim: str = ""  #: the pod's `hbox.io/claim`
    notified: bool = False  #: the pod has `hbox.io/eviction-deadline`, and does not end
    not_allowed: bool = False  #: with UNKNOWN: we lack the right


async def fence(client: KubeClient, *, namespace: str, name: str, uid: str, condition: str, value: str) -> FenceResult:
    """Increases the pod's resourceVersion, so that every earlier Binding gets 409, and returns the pod's state.

    `condition`, usually `hbox.io/claim-gen`, is a condition type; `value`, its message, must be new for the pod: writing the present value does not change the
    resourceVersion. Raises nothing but Bug.
    """
    # Without a time: the same fence, set again, has to be the same.
    patch = {"metadata": {"uid": uid}, "status": {"conditions": [{"type": condition, "status": "True", "message": value}]}}
    try:
        answer = await client.request(
            "PATCH", PODS.path(namespace, name, "status"), body=patch, content_type=STRATEGIC_MERGE_PATCH
        )
        if answer.status == 200:
            return _standing(answer.decode(Pod), uid)
        status = read_status(answer.body)
        message = f"{status.message or 'no reason given'} (HTTP {answer.status})"
        if answer.status == 404 and status.reason == "NotFound":
            return FenceResult(FenceOutcome.GONE, message)
        if answer.status in (409, 422):
            # The API server answers both for a different uid; only a read of the pod distinguishes it from other causes.
            pod = await read_pod(client, namespace=namespace, name=name)
            if pod.metadata.uid != uid:
                return FenceResult(FenceOutcome.GONE, f"the pod of this name is another one (uid {pod.metadata.uid})")
            refused = answer.status == 422 and status.from_api_server
            return FenceResult(FenceOutcome.REJECTED if refused else FenceOutcome.UNKNOWN, message)
    except NotFound as e:
        return FenceResult(FenceOutcome.GONE, str(e))
    except (Unavailable, InvalidRequest) as e:
        return FenceResult(FenceOutcome.UNKNOWN, str(e), not_allowed=isinstance(e, NotAllowed))
    if answer.status in (400, 403) and status.from_api_server and not status.not_allowed:
        return FenceResult(FenceOutcome.REJECTED, message)
    return FenceResult(FenceOutcome.UNKNOWN, message, not_allowed=status.not_allowed)


def _standing(pod: Pod, uid: str) -> FenceResult:
    meta = pod.metadata
    if meta.uid != uid:
        return FenceResult(FenceOutcome.GONE, f"the pod of this name is another one (uid {meta.uid})")
    node = pod.spec.node_name
    outcome = FenceOutcome.BOUND if node else FenceOutcome.UNBOUND
    notified = EVICTION_DEADLINE in meta.annotations and meta.deletion_timestamp is None
    return FenceResult(outcome, "", meta.resource_version, node, meta.annotations.get(CLAIM, ""), notified)
