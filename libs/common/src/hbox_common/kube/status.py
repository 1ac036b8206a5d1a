"""Maps error answers of the API server to HBox's errors."""

import re

import msgspec

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.pacing import WISH_S


class Expired(Conflict):
    """The resourceVersion or continue token is older than what the server remembers (410): list anew."""


class Busy(Unavailable):
    """The server answered, but not now: 401, 408, 429 or 5xx; or it was not the API server that answered (`error_of`)."""

    def __init__(
        self, message: str, *, http_status: int, hint: str = "", retry_after_s: float | None = None, outcome_unknown: bool
    ) -> None:
        super().__init__(message, hint=hint, retry_after_s=retry_after_s, outcome_unknown=outcome_unknown)
        self.http_status = http_status


class NotServed(NotFound):
    """404 for the path, and not for an object: the API server serves no such kind. Proxies written in Go say the same, so it is no evidence of any object."""


class NotAllowed(InvalidRequest):
    """403 by the authorizer: the client lacks the permission. The object's state is unknown, and the permission may be granted again."""


class NamespaceTerminating(InvalidRequest):
    """403 by the API server's admission plugin NamespaceLifecycle: the namespace is being deleted, and the API server creates and binds nothing in it."""


class Cause(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


#: How the authorizer refuses (ForbiddenMessage in k8s.io/apiserver/pkg/endpoints/handlers/responsewriters).
_NOT_ALLOWED = re.compile(r'[^:]*\bforbidden: User "[^"]*" cannot ')


class Status(msgspec.Struct, frozen=True, gc=False):
    """The `Status` object that every error of the API carries."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None

    @property
    def from_api_server(self) -> bool:
        """Whether the answer comes from the API server, not from an intermediary: a load balancer, a firewall, a login page."""
        return self.kind == "Status"

    @property
    def not_allowed(self) -> bool:
        """Whether it is the authorizer that refuses, and not a webhook, a policy or a quota, which judge the object."""
        return self.reason == "Forbidden" and _NOT_ALLOWED.match(self.message) is not None

    @property
    def namespace_terminating(self) -> bool:
        """Whether the API server refused because the namespace is being deleted (NamespaceTerminatingCause in k8s.io/api/core/v1/types.go)."""
        causes = self.details.causes if self.details is not None else ()
        return self.reason == "Forbidden" and any(cause.reason == "NamespaceTerminating" for cause in causes)

    @property
    def expired(self) -> bool:
        return self.code == 410 or self.reason in {"Expired", "Gone"}


_STATUS = msgspec.json.Decoder(Status)


def read_status(body: bytes) -> Status:
    """The Status in an answer's body; where there is none (a proxy's page), the body's beginning is its message."""
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        return Status(message=body[:200].decode("utf-8", "replace").strip())


def retry_after_s(header: str | None, status: Status) -> float | None:
    """Seconds that the server wants us to wait, WISH_S at most: the Retry-After header, else `details.retryAfterSeconds`."""
    if header is not None and header.isdecimal():
        return min(float(header), WISH_S)
    if status.details is not None and status.details.retry_after_seconds > 0:
        return min(float(status.details.retry_after_seconds), WISH_S)
    return None


#: Answer of Go's own multiplexer for a path that is not served, such as a kind whose definition is not installed.
_NOT_SERVED = b"404 page not found"

#: Paths that every API server serves. A 404 for one of them comes from a Go proxy whose routes are being changed.
_ALWAYS_SERVED = ("/api/v1/", "/apis/coordination.k8s.io/v1/")

_HINTS = {
    401: "the credentials are missing or expired: check the kubeconfig or the service account's token",
    404: "check the name; for a custom resource, that its definition is installed",
    415: "this kind does not take this sort of patch",
    422: "change the object",
}
_NOT_ALLOWED_HINT = "grant it to this user or service account (RBAC)"
_ENDING_HINT = "wait until the namespace is gone, or use another one"
_STRANGER = "the response is not from an API server: check the load balancer, proxy or firewall in front of it"


def error_of(code: int, body: bytes, *, what: str, retry_after: str | None = None) -> HBoxError:
    """The error for an unexpected HTTP status; `what` names the request, as "GET /api/v1/pods".

    An answer without a `Status` was not written by the API server, so no object's state follows from it: Unavailable, except for an optional path.
    """
    status = read_status(body)
    text = status.message or status.reason or "no reason given"
    message = f"Kubernetes API, {what}: {text} (HTTP {code}{', ' + status.reason if status.reason else ''})"
    path = what.partition(" ")[2]
    if code == 404 and body.strip() == _NOT_SERVED and not path.startswith(_ALWAYS_SERVED):
        return NotServed(message, hint=_HINTS[404])
    if not status.from_api_server and code not in (401, 408, 429) and code < 500:
        return Busy(message, http_status=code, hint=_STRANGER, outcome_unknown=not what.startswith("GET "))
    if status.not_allowed:
        return NotAllowed(message, hint=_NOT_ALLOWED_HINT)
    if status.namespace_terminating:
        return NamespaceTerminating(message, hint=_ENDING_HINT)
    if code == 404:
        return NotFound(message, hint=_HINTS[404])
    if code == 409:
        return Conflict(message)
    if code == 410:
        return Expired(message)
    if code == 401:
        # Tokens rotate and are read again: worth another try, unlike a refusal of what was asked for.
        return Busy(message, http_status=401, hint=_HINTS[401], outcome_unknown=False)
    if code in (408, 429) or code >= 500:
        return Busy(
            message,
            http_status=code,
            retry_after_s=retry_after_s(retry_after, status),
            outcome_unknown=code != 429 and not what.startswith("GET "),
        )
    return InvalidRequest(message, hint=_HINTS.get(code, ""))
