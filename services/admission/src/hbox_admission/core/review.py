"""An AdmissionReview (admission.k8s.io/v1) and its answer: always yes, with a JSON patch where there is something to write.

A dry run is answered alike: nothing is kept here. What is not a pod that is being made is let by: the rules of the webhook's configuration name no more, and
nothing of a pod that is written here may change later.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from hbox_common.errors import InvalidRequest
from hbox_common.model.bounds import sanitized

from .mutation import Outcome, Rules, mutate

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

#: Of a request's uid, which is given back: Kubernetes' have 36.
UID_CHARS = 128

_encode = msgspec.json.Encoder().encode


class _Kind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    kind: _Kind
    operation: str = ""
    sub_resource: str = ""
    object: dict[str, Any] | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


_POD = _Kind("", "v1", "Pod")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`answer`: the AdmissionReview of the response."""

    answer: Mapping[str, Any]
    outcome: Outcome
    warnings: int = 0


def review(body: bytes, rules: Rules) -> Verdict:
    """Raises InvalidRequest if the body is no AdmissionReview, or lacks the pod that it declares."""
    try:
        asked = msgspec.json.decode(body, type=_Review)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise InvalidRequest(
            f"this is no {KIND} of {API_VERSION}: {sanitized(str(e), 200)}",
            hint="only API servers send these requests",
        ) from e
    if (asked.api_version, asked.kind) != (API_VERSION, KIND):
        raise InvalidRequest(
            f"this is {sanitized(asked.kind, 64)!r} of {sanitized(asked.api_version, 64)!r}",
            hint=f"{KIND} of {API_VERSION} is answered: admissionReviewVersions of the webhook's configuration is [v1]",
        )
    request = asked.request
    if not 0 < len(request.uid) <= UID_CHARS:
        raise InvalidRequest(f"request.uid has {len(request.uid)} characters", hint=f"1 to {UID_CHARS}")
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if request.kind != _POD or request.sub_resource or request.operation != "CREATE":
        return Verdict(_answer(response), Outcome.NOT_A_POD)
    if request.object is None:
        raise InvalidRequest("request.object is not there", hint="it has to contain the pod to create")
    found = mutate(request.object, rules)
    if found.patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(_encode(found.patch)).decode()}
    if found.warnings:
        response["warnings"] = list(found.warnings)
    return Verdict(_answer(response), found.outcome, len(found.warnings))


def _answer(response: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}
