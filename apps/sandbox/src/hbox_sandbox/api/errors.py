"""API errors: every refusal is a Kubernetes `Status` object with a reason, a code and details.

Messages follow k8s.io/apimachinery `api/errors/errors.go`, since clients (kubectl among them) match on some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hbox_common.errors import HBoxError

Json: TypeAlias = dict[str, Any]


class ApiError(HBoxError):
    """A refusal that the client gets as a `Status` with HTTP status `code`; `retry_after_s` also becomes a header."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: Json | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details or {}
        self.retry_after_s = retry_after_s
        if retry_after_s is not None:
            self.details = {**self.details, "retryAfterSeconds": retry_after_s}

    def status(self) -> Json:
        """The `Status` body."""
        body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body


def success(*, code: int = 200, details: Json | None = None) -> Json:
    """The `Status` that answers a delete or a binding."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    body["code"] = code
    return body


def cause(field: str, message: str, reason: str = "FieldValueInvalid") -> Json:
    return {"reason": reason, "message": message, "field": field}


def _details(plural: str, group: str, name: str) -> Json:
    details: Json = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = plural
    return details


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def not_found(plural: str, group: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', details=_details(plural, group, name))


def unknown_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(plural: str, group: str, name: str) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_details(plural, group, name))


def conflict(plural: str, group: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_details(plural, group, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def forbidden(plural: str, group: str, name: str, why: str, *, causes: Sequence[Json] = ()) -> ApiError:
    details = _details(plural, group, name)
    if causes:
        details["causes"] = list(causes)
    return ApiError(403, "Forbidden", f'{qualified(plural, group)} "{name}" is forbidden: {why}', details=details)


def invalid(kind: str, group: str, name: str, causes: Sequence[Json]) -> ApiError:
    """422 with one cause a field; the message lists them all, as the real server does."""
    parts = [f"{each['field']}: {each['message']}" for each in causes]
    text = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    details = _details(kind, group, name) | {"causes": list(causes)}
    qualified_kind = f"{kind}.{group}" if group else kind
    return ApiError(422, "Invalid", f'{qualified_kind} "{name}" is invalid: {text}', details=details)


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unsupported_media_type(given: str, accepted: Sequence[str]) -> ApiError:
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", f"{text} (got {given or 'none'})")


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_old(asked: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def too_large(asked: int, current: int) -> ApiError:
    """Error for a revision that does not exist yet: the real server waits for it for some seconds, then returns this error."""
    details = {"causes": [cause("", "Too large resource version", "ResourceVersionTooLarge")]}
    message = f"Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, details=details, retry_after_s=1)
