"""An AdmissionReview (admission.k8s.io/v1) and its answers.

`review`: of a pod, always allowed, with a JSON patch if fields are missing. `validation_response`: of a Queue or PodGroup, allowed or refused, with warnings.
A dry run gets the same answer, since the endpoint stores nothing. Requests about anything but the creation of a pod, or about the fields of an existing one,
are allowed without a patch.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from hbox_common.errors import InvalidRequest
from hbox_common.model.bounds import is_name, sanitized

from .mutation import Outcome, Rules, bounded, mutate
from .namespaces import NO_DEFAULTS, NamespaceDefaults
from .validation import Judgement

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

#: Of a request's uid, which is given back: Kubernetes' have 36.
UID_CHARS = 128
#: Of a refusal: API servers pass on more, and people read less.
MOST_REFUSAL = 1024

_encode = msgspec.json.Encoder().encode
_Form = TypeVar("_Form")


class Kind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of a request."""

    uid: str
    kind: Kind
    operation: str = ""
    sub_resource: str = ""
    namespace: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: Request


class _RequestHead(msgspec.Struct, frozen=True, rename="camel"):
    kind: Kind
    operation: str = ""
    sub_resource: str = ""
    namespace: str = ""


class _ReviewHead(msgspec.Struct, frozen=True):
    request: _RequestHead


_POD = Kind("", "v1", "Pod")


class ValidationOutcome(StrEnum):
    ACCEPTED = "accepted"
    WARNED = "warned"
    REFUSED = "refused"
    OTHER = "other"  #: not a new or changed Queue or PodGroup


@dataclass(frozen=True, slots=True)
class Verdict:
    """`answer`: the AdmissionReview of the response."""

    answer: Mapping[str, Any]
    outcome: Outcome | ValidationOutcome
    warnings: int = 0


def parse_review(body: bytes) -> Request:
    """Raises InvalidRequest if the body is no AdmissionReview."""
    asked = _decoded(body, _Review)
    if (asked.api_version, asked.kind) != (API_VERSION, KIND):
        raise InvalidRequest(
            f"this is {sanitized(asked.kind, 64)!r} of {sanitized(asked.api_version, 64)!r}",
            hint=f"{KIND} of {API_VERSION} is answered: admissionReviewVersions of the webhook's configuration is [v1]",
        )
    request = asked.request
    if not 0 < len(request.uid) <= UID_CHARS:
        raise InvalidRequest(f"request.uid has {len(request.uid)} characters", hint=f"1 to {UID_CHARS}")
    return request


def completes(request: Request | _RequestHead) -> bool:
    """Whether the request creates a pod."""
    return request.kind == _POD and not request.sub_resource and request.operation == "CREATE"


def namespace_of_new_pod(body: bytes) -> str:
    """The namespace of the pod that the review creates; empty for other reviews. The pod is not decoded: the caller may wait for the namespace, and a decoded
    pod takes many times the memory of its text. Raises InvalidRequest."""
    head = _decoded(body, _ReviewHead).request
    return head.namespace if completes(head) and is_name(head.namespace) else ""


def _decoded(body: bytes, form: type[_Form]) -> _Form:
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise InvalidRequest(
            f"this is no {KIND} of {API_VERSION}: {sanitized(str(e), 200)}",
            hint="only API servers send these requests",
        ) from e


def review(request: Request, rules: Rules, namespace: NamespaceDefaults = NO_DEFAULTS) -> Verdict:
    """`namespace`: what the labels of the pod's namespace say. Raises InvalidRequest if the request lacks the pod that it declares."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if not completes(request):
        return Verdict(_answer(response), Outcome.NOT_A_POD)
    if request.object is None:
        raise InvalidRequest("request.object is not there", hint="it has to contain the pod to create")
    found = mutate(request.object, rules, namespace)
    if found.patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(_encode(found.patch)).decode()}
    if found.warnings:
        response["warnings"] = list(found.warnings)
    return Verdict(_answer(response), found.outcome, len(found.warnings))


def allowed(request: Request) -> Verdict:
    """The answer to a request that `/validate` does not check."""
    return Verdict(_answer({"uid": request.uid, "allowed": True}), ValidationOutcome.OTHER)


def validation_response(request: Request, judgement: Judgement) -> Verdict:
    """The answer of `/validate`."""
    warnings = bounded(judgement.warnings)
    response: dict[str, Any] = {"uid": request.uid, "allowed": not judgement.refusals}
    if warnings:
        response["warnings"] = list(warnings)
    if judgement.refusals:
        message = sanitized("; ".join(judgement.refusals), MOST_REFUSAL)
        response["status"] = {"code": 422, "reason": "Invalid", "message": message}
        return Verdict(_answer(response), ValidationOutcome.REFUSED, len(warnings))
    return Verdict(_answer(response), ValidationOutcome.WARNED if warnings else ValidationOutcome.ACCEPTED, len(warnings))


def _answer(response: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}
