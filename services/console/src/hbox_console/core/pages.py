"""Pages of lists: cursors, and tags by which a client asks whether a page changed."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from hbox_common.errors import InvalidRequest

#: Items of one page.
DEFAULT_LIMIT, MAX_LIMIT = 100, 500
#: Of a cursor's text: a name of 253 characters and its escapes.
_MAX_CURSOR = 2048


def cursor_of(key: Sequence[Any]) -> str:
    """A cursor behind the item with this key of the order. It contains the key of an item that the client saw, and nothing else."""
    return base64.urlsafe_b64encode(json.dumps(list(key), separators=(",", ":")).encode()).decode().rstrip("=")


def key_of(cursor: str, types: Sequence[type]) -> tuple[Any, ...]:
    """The key of a cursor. Raises InvalidRequest for one that this service did not make."""
    try:
        if len(cursor) > _MAX_CURSOR:
            raise ValueError("too long")
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        if not isinstance(found, list) or len(found) != len(types):
            raise ValueError("another shape")
        if not all(isinstance(part, type_) and not isinstance(part, bool) for part, type_ in zip(found, types, strict=True)):
            raise ValueError("another type")
        return tuple(found)
    except (ValueError, RecursionError, binascii.Error) as e:
        raise InvalidRequest(
            "continue: this is no cursor of this list", hint="take metadata.continue of the page before, unchanged"
        ) from e


def limit_of(text: str | None) -> int:
    """Raises InvalidRequest."""
    if text is None:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= MAX_LIMIT or len(text) > 6:
        raise InvalidRequest(f"limit: not a number from 1 to {MAX_LIMIT}")
    return int(text)


def tag_of(content: Any) -> str:
    """An entity tag: the same for the same content. Ages are left out, since they change with each second; names that the client may not see are not in the
    content and do not affect the tag."""
    plain = json.dumps(_ageless(content), separators=(",", ":"), sort_keys=True)
    return f'W/"{sha256(plain.encode()).hexdigest()[:32]}"'


def _ageless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _ageless(one) for key, one in value.items() if not _is_age(key)}
    if isinstance(value, list | tuple):
        return [_ageless(one) for one in value]
    return value


def _is_age(key: str) -> bool:
    return key.endswith("Seconds") or key == "revision"


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether the client has this version already (RFC 9110 §13.1.2, weak comparison)."""
    if if_none_match is None:
        return False
    given = [part.strip() for part in if_none_match.split(",")]
    return "*" in given or tag.removeprefix("W/") in [part.removeprefix("W/") for part in given]
