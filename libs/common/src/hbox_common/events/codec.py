"""Encoding and decoding of messages: msgpack maps under CloudEvents headers (binary mode), limited in size before decoding.

Traps that this file closes (measured; sources: msgpack-limits): false lengths in headers, deep nesting, endless empty maps, NaN, tuples that
come back as lists (pydantic's lax mode accepts them), map keys that are not strings, numbers that no database holds.

Every encoded message can be decoded. Decoding each message again at the writer would cost as much as creating it; but a reader rejects a well-typed message
only for a string, list or map that is too long, a number beyond int64, or NaN, and each of these has a msgpack marker of its own. Bodies with such a marker are
decoded on trial; readers accept all others.

Messages are decoded by msgspec if that is safe, in a third of msgpack's time. It allocates memory for as many items as a header claims; so bodies with a byte
that may be the marker of a large list or map (each message of a hundred jobs has one, in a number) are decoded by msgpack, which supports limits. Of duplicate
keys both keep the last: a body that would be encoded differently is decoded again pair by pair, which also finds the error in it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgpack
import msgspec
from pydantic import ValidationError

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.bounds import sanitized

from .base import NO_SCHEMA, REGISTRY, Event
from .cloud import CloudEvent

CONTENT_TYPE = "application/msgpack"
#: Of public events: CloudEvents in structured mode, without `ce-*` headers.
CLOUD_EVENT = "application/cloudevents+json"
MESSAGE_ID = "Nats-Msg-Id"
TRACEPARENT = "traceparent"
#: Fingerprint of the writer's device settings (`Vendors.fingerprint`); absent if it has none.
DEVICE_CONFIG = "ce-deviceconfig"

MAX_ARRAY, MAX_MAP = 200_000, 20_000

#: Marks of msgpack before what may be too much: uint64 beyond int64, floats that are no numbers; str32, array32 and maps with more than a reader takes. One
#: expression each: the search for a known first byte is a tenth of that for one of several.
_SUSPECT = tuple(
    re.compile(mark, re.DOTALL)
    for mark in (
        rb"\xcf[\x80-\xff]", rb"\xcb[\x7f\xff][\xf0-\xff]", rb"\xdb\x00[\x01-\xff]", rb"\xdd\x00[\x03-\xff]", rb"\xde[\x4e-\xff]", rb"\xdf\x00",
    )
)  # fmt: skip

#: What begins a list or a map of 65,536 items and more, and a map with more than a reader takes.
_LARGE = tuple(re.compile(mark) for mark in (rb"\xdd", rb"\xdf", rb"\xde[\x4e-\xff]"))

#: Maximum number of reasons reported per message for items that were set aside.
_REASONS = 10


def encode(event: Event) -> bytes:
    """The body. Raises InvalidRequest when it is larger than its type may be, or holds what no reader would take."""
    if isinstance(event, CloudEvent):
        return _structured(event)
    try:
        body = _ENCODER.encode(event.model_dump(by_alias=True) if _renames(type(event)) else event.__dict__)
    except (OverflowError, ValueError, TypeError, RecursionError) as e:
        raise InvalidRequest(f"{event.ce_type()}: cannot be written ({type(e).__name__}: {sanitized(str(e), 200)})") from e
    if len(body) > event.about.max_bytes:
        raise InvalidRequest(
            f"{event.ce_type()}: {len(body)} bytes, {event.about.max_bytes} are allowed", hint="send it in smaller batches"
        )
    if any(mark.search(body) is not None for mark in _SUSPECT):
        decode(body, {"ce-type": event.ce_type(), "content-type": CONTENT_TYPE})
    return body


def _structured(event: CloudEvent) -> bytes:
    try:
        body = msgspec.json.encode(event.attributes())
    except (ValueError, TypeError, RecursionError) as e:
        raise InvalidRequest(f"{event.ce_type()}: cannot be written ({type(e).__name__}: {sanitized(str(e), 200)})") from e
    if len(body) > event.about.max_bytes:
        raise InvalidRequest(f"{event.ce_type()}: {len(body)} bytes, {event.about.max_bytes} are allowed")
    return body


def headers(event: Event | type[Event], *, source: str, message_id: str, now: float, traceparent: str = "") -> dict[str, str]:
    """CloudEvents attributes, the de-duplication id and the trace context of one message. `now`: seconds since the epoch."""
    if issubclass(event if isinstance(event, type) else type(event), CloudEvent):
        out = {"content-type": CLOUD_EVENT, MESSAGE_ID: message_id}
        return out | {TRACEPARENT: traceparent} if traceparent else out
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
    if VENDORS.fingerprint:
        out[DEVICE_CONFIG] = VENDORS.fingerprint
    return out


def content_type(name: str) -> str:
    """The content type of messages of this type."""
    return CLOUD_EVENT if issubclass(REGISTRY.get(name, Event), CloudEvent) else CONTENT_TYPE


def decode(
    body: bytes,
    header: Mapping[str, str],
    types: Sequence[type[Event]] = (),
    *,
    set_aside: Callable[[str], None] | None = None,
) -> Event:
    """The message, decoded as one of `types` if its type is among them (a reader's own, narrower view), else as the registered type.

    Raises InvalidRequest with the fault unless it is a well-formed message of a known type. With `set_aside`, invalid items (`About.items`) are left out, and
    it is called once with the reasons; any other fault still raises.
    """
    if header.get("content-type") == CLOUD_EVENT:
        return _read_structured(body, types)
    name = header.get("ce-type", "")
    event = next((t for t in types if t.ce_type() == name), None) or REGISTRY.get(name)
    if event is None or issubclass(event, CloudEvent):
        raise InvalidRequest(f"unknown message type {sanitized(name, 100)!r}")
    if header.get("content-type") != CONTENT_TYPE:
        raise InvalidRequest(f"{name}: content-type is {sanitized(str(header.get('content-type')), 100)!r}, not {CONTENT_TYPE}")
    if len(body) > event.about.max_bytes:
        raise InvalidRequest(f"{name}: {len(body)} bytes, {event.about.max_bytes} are allowed")
    try:
        raw = _canonical(body)
        if raw is None:
            raw = msgpack.unpackb(
                body,
                raw=False,
                strict_map_key=True,
                max_array_len=MAX_ARRAY,
                max_map_len=MAX_MAP,
                object_pairs_hook=_no_duplicates,
            )
        return event.model_validate(raw)
    except ValidationError as e:
        return _rest(event, raw, _wrong(e), set_aside)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        raise InvalidRequest(f"{name}: not a msgpack map ({type(e).__name__}: {sanitized(str(e), 200)})") from e


def _read_structured(body: bytes, types: Sequence[type[Event]]) -> Event:
    try:
        raw = msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as e:
        raise InvalidRequest(f"not a JSON object ({type(e).__name__}: {sanitized(str(e), 200)})") from e
    name = str(raw.get("type", ""))
    event = next((t for t in types if t.ce_type() == name), None) or REGISTRY.get(name)
    if event is None or not issubclass(event, CloudEvent):
        raise InvalidRequest(f"unknown event type {sanitized(name, 100)!r}")
    if len(body) > event.about.max_bytes:
        raise InvalidRequest(f"{name}: {len(body)} bytes, {event.about.max_bytes} are allowed")
    try:
        return event.model_validate(raw)
    except ValidationError as e:
        where, why = _wrong(e)[0]
        raise InvalidRequest(sanitized(f"{name}: {'.'.join(map(str, where))}: {why}")) from e


def _canonical(body: bytes) -> Any:
    """The map in a body that is written as we write; None for every other, be it well-formed or not."""
    try:
        if any(mark.search(body) is not None for mark in _LARGE):
            raw = msgpack.unpackb(body, raw=False, strict_map_key=True, max_array_len=MAX_ARRAY, max_map_len=MAX_MAP)
        else:
            raw = _DECODER.decode(body)
        return raw if _ENCODER.encode(raw) == body else None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None


def _message(value: Any) -> Any:
    """Hook for values unknown to msgspec: a nested message, or a value outside the model."""
    if isinstance(value, Event):
        return value.__dict__
    raise TypeError(f"{type(value).__name__} is no value of a message")


_DECODER = msgspec.msgpack.Decoder(dict[str, Any])
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_message)


@cache
def _renames(event: type[Event]) -> bool:
    """Whether something in it has another name on the wire (`wire_names`)."""
    return _renamed(event.__pydantic_core_schema__)


def _renamed(schema: Any) -> bool:
    if isinstance(schema, dict):
        if schema.get("serialization_alias", schema.get("name")) != schema.get("name"):
            return True
        return any(_renamed(one) for key, one in schema.items() if key not in NO_SCHEMA)
    return isinstance(schema, list) and any(map(_renamed, schema))


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
            wrong = _wrong(e)  # errors that pydantic reports only after all others are corrected
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


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key occurs twice")
    return out


def halves(event: Event) -> tuple[Event, Event] | None:
    """The message split in two, each with half of its items; fields that are no items and have a default are in the first only. None: the message has one item
    or is never split."""
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
