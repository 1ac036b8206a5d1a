"""Errors as RFC 9457 has them: `application/problem+json` with `status`, `title`, `detail`, `code` and `hint`."""

import json
import math
from http import HTTPStatus

from aiohttp import web

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound, Unavailable

from .reviews import Unauthenticated


class NotAllowed(InvalidRequest):
    """The client lacks the right. The answer is the same whether or not the object exists."""


#: The first that fits.
_STATUS: tuple[tuple[type[HBoxError], HTTPStatus, str], ...] = (
    (Unauthenticated, HTTPStatus.UNAUTHORIZED, "unauthenticated"),
    (NotAllowed, HTTPStatus.FORBIDDEN, "not-allowed"),
    (NotFound, HTTPStatus.NOT_FOUND, "not-found"),
    (InvalidRequest, HTTPStatus.BAD_REQUEST, "invalid-request"),
    (Conflict, HTTPStatus.CONFLICT, "conflict"),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
    (HBoxError, HTTPStatus.INTERNAL_SERVER_ERROR, "internal"),
)


def problem(status: HTTPStatus, detail: str, *, code: str, hint: str = "") -> web.Response:
    content = {"status": status.value, "title": status.phrase, "detail": detail, "code": code, "hint": hint}
    return web.Response(
        status=status.value,
        body=json.dumps(content, ensure_ascii=False).encode() + b"\n",
        content_type="application/problem+json",
        headers={"WWW-Authenticate": 'Bearer realm="hbox"'} if status is HTTPStatus.UNAUTHORIZED else None,
    )


def problem_of(error: HBoxError) -> web.Response:
    status, code = next((status, code) for type_, status, code in _STATUS if isinstance(error, type_))
    answer = problem(status, error.message, code=code, hint=error.hint)
    if isinstance(error, Unavailable):
        answer.headers["Retry-After"] = str(math.ceil(error.retry_after_s or 1.0))
    return answer
