"""Bytes to messages and back: msgpack maps under CloudEvents headers (binary mode), capped in size before anything is decoded.

Traps that this file closes (measured: reference reliability M10, ecosystem §3): headers that lie about lengths, deep nesting, endless
empty maps, NaN, tuples that come back as lists (pydantic's lax mode takes them), map keys that are no strings, numbers that no database holds.

Whatever is encoded decodes. To decode each message once more where it is written would cost as much as to make it; but what a reader refuses of a well-typed
message (a string, list or map that is too long, a number beyond int64, NaN) has a mark of its own in msgpack. Bodies with such a mark are decoded on trial:
the others are what a reader takes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgpack
from pydantic import ValidationError

from hbox_common.errors import InvalidRequest
from hbox_common.model.bounds import INT64_MAX, sanitized

from .base import REGISTRY, Event

CONTENT_TYPE = "application/msgpack"
MESSAGE_ID = "Nats-Msg-Id"
TRACEPARENT = "traceparent"

MAX_ARRAY, MAX_MAP = 200_000, 20_000

#: Marks of msgpack before what may be too much: uint64 beyond int64, floats that are no numbers; str32, array32 and maps with more than a reader takes.
_BEYOND_INT64 = re.compile(rb"\xcf[\x80-\xff]")
_SUSPECT = re.compile(
    rb"\xcf[\x80-\xff]|\xcb[\x7f\xff][\xf0-\xff]|\xdb\x00[\x01-\xff]|\xdd\x00[\x03-\xff]|\xde[\x4e-\xff]|\xdf\x00"
)

#: Reasons that are told of one message, of items that were set aside.
_REASONS = 10


def encode(event: Event) -> bytes:
    """The body. Raises InvalidRequest when it is larger than its type may be, or holds what no reader would take."""
    try:
        body: bytes = msgpack.packb(event.model_dump(by_alias=True), use_bin_type=True)
    except (OverflowError, ValueError, TypeError) as e:
        raise InvalidRequest(f"{event.ce_type()}: cannot be written ({type(e).__name__}: {sanitized(str(e), 200)})") from e
    if len(body) > event.about.max_bytes:
        raise InvalidRequest(
            f"{event.ce_type()}: {len(body)} bytes, {event.about.max_bytes} are allowed", hint="send it in smaller batches"
        )
    if _SUSPECT.search(body) is not None:
        decode(body, {"ce-type": event.ce_type(), "content-type": CONTENT_TYPE})
    return body


def headers(event: Event | type[Event], *, source: str, message_id: str, now: float, traceparent: str = "") -> dict[str, str]:
    """CloudEvents attributes, the de-duplication id and the trace context of one message. `now`: seconds since the epoch."""
    out = {
        "ce-specversion": "1.0",
        "ce-type": event.ce_type(),
        "ce-source": source,
        "ce-id": message_id,
        "ce-time": datetime.fromtimestamp(now, UTC).isoformat(),
        "content-type": CONTENT_TYPE,
        MESSAGE_ID: message_id,
    }
    if traceparent:
        out[TRACEPARENT] = traceparent
    return out


def decode(
    body: bytes,
    header: Mapping[str, str],
    types: Sequence[type[Event]] = (),
    *,
    set_aside: Callable[[str], None] | None = None,
) -> Event:
    """The message, as one of `types` where its type is among them: a reader's own, narrower view of it; else as what is registered.

    Raises InvalidRequest that says what is wrong with it, for anything but a well-formed message of a known type.
    With `set_aside`, items that cannot be read (`About.items`) are left out, and it is told of them once, in words; what is wrong elsewhere still raises.
    """
    name = header.get("ce-type", "")
    event = next((t for t in types if t.ce_type() == name), None) or REGISTRY.get(name)
    if event is None:
        raise InvalidRequest(f"unknown message type {sanitized(name, 100)!r}")
    if header.get("content-type") != CONTENT_TYPE:
        raise InvalidRequest(f"{name}: content-type is {sanitized(str(header.get('content-type')), 100)!r}, not {CONTENT_TYPE}")
    if len(body) > event.about.max_bytes:
        raise InvalidRequest(f"{name}: {len(body)} bytes, {event.about.max_bytes} are allowed")
    try:
        raw: Any = msgpack.unpackb(
            body, raw=False, strict_map_key=True, max_array_len=MAX_ARRAY, max_map_len=MAX_MAP, object_pairs_hook=_no_duplicates
        )
        wrong = list(_beyond_int64(raw)) if _BEYOND_INT64.search(body) is not None else []
        return event.model_validate(raw) if not wrong else _rest(event, raw, wrong, set_aside)
    except ValidationError as e:
        return _rest(event, raw, _wrong(e), set_aside)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        raise InvalidRequest(f"{name}: not a msgpack map ({type(e).__name__}: {sanitized(str(e), 200)})") from e


_Wrong = tuple[tuple[int | str, ...], str]  #: where, and why


def _rest(event: type[Event], raw: Any, wrong: list[_Wrong], set_aside: Callable[[str], None] | None) -> Event:
    """The message without its wrong items. Raises InvalidRequest for the first thing that is wrong and no item."""
    name = event.ce_type()
    reasons: list[str] = []
    count = 0
    while wrong:
        bad: dict[str, dict[int | str, str]] = {}
        for where, why in wrong:
            text = f"{'.'.join(map(str, where))}: {why}"
            if set_aside is None or len(where) < 2 or where[0] not in event.about.items:
                raise InvalidRequest(f"{name}: {sanitized(text)}")
            bad.setdefault(str(where[0]), {}).setdefault(where[1], text)
        raw = dict(raw)
        for field, which in bad.items():
            count += len(which)
            reasons += list(which.values())[: max(0, _REASONS - len(reasons))]
            raw[field] = _without(raw[field], which)
        try:
            found = event.model_validate(raw)
        except ValidationError as e:
            wrong = _wrong(e)  # what pydantic looks at only when all else is right
        else:
            wrong = []
    assert set_aside is not None
    set_aside(sanitized(f"{name}: {count} of its items cannot be read, and the rest was taken: {'; '.join(reasons)}"))
    return found


def _without(items: Any, which: Mapping[int | str, str]) -> Any:
    if isinstance(items, dict):
        return {key: value for key, value in items.items() if key not in which}
    return [item for place, item in enumerate(items) if place not in which]


def _wrong(error: ValidationError) -> list[_Wrong]:
    return [(one["loc"], one["msg"]) for one in error.errors(include_url=False, include_input=False, include_context=False)]


def _beyond_int64(value: Any, where: tuple[int | str, ...] = ()) -> Iterable[_Wrong]:
    if isinstance(value, int) and value > INT64_MAX:
        yield where, f"{value} is beyond 64 bits"
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _beyond_int64(one, (*where, key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _beyond_int64(one, (*where, place))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key occurs twice")
    return out


def halves(event: Event) -> tuple[Event, Event] | None:
    """The message as two, each with half of its items; what stands beside them, and is no more than an option, is said by the first. None: it cannot be
    divided, since it has one item, or is taken as a whole."""
    about = event.about
    lists = {name: getattr(event, name) for name in about.items}
    total = sum(map(len, lists.values()))
    if about.whole or total < 2:
        return None
    left = total // 2
    first: dict[str, Any] = {}
    second: dict[str, Any] = {
        name: field.get_default(call_default_factory=True)
        for name, field in type(event).model_fields.items()
        if name not in lists and not field.is_required()
    }
    for name, items in lists.items():
        if isinstance(items, dict):
            entries = list(items.items())
            first[name], second[name] = dict(entries[:left]), dict(entries[left:])
        else:
            first[name], second[name] = items[:left], items[left:]
        left = max(0, left - len(items))
    return event.model_copy(update=first), event.model_copy(update=second)
