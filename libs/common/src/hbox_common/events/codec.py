"""Bytes to messages and back: msgpack maps under CloudEvents headers (binary mode), capped in size before anything is decoded.

Traps that this file closes (measured: reference reliability M10, ecosystem §3): headers that lie about lengths, deep nesting, endless
empty maps, NaN, tuples that come back as lists (pydantic's lax mode takes them), map keys that are no strings.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgpack
from pydantic import ValidationError

from hbox_common.errors import InvalidRequest

from .base import REGISTRY, Event

CONTENT_TYPE = "application/msgpack"
MESSAGE_ID = "Nats-Msg-Id"
TRACEPARENT = "traceparent"


def encode(event: Event) -> bytes:
    """The body. Raises InvalidRequest when it is larger than its type may be."""
    body: bytes = msgpack.packb(event.model_dump(), use_bin_type=True)
    if len(body) > event.about.max_bytes:
        raise InvalidRequest(
            f"{event.ce_type()}: {len(body)} bytes, {event.about.max_bytes} are allowed", hint="send it in smaller batches"
        )
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


def decode(body: bytes, header: Mapping[str, str]) -> Event:
    """The message. Raises InvalidRequest that says what is wrong with it, for anything but a well-formed message of a known type."""
    name = header.get("ce-type", "")
    event = REGISTRY.get(name)
    if event is None:
        raise InvalidRequest(f"unknown message type {name!r}")
    if header.get("content-type") != CONTENT_TYPE:
        raise InvalidRequest(f"{name}: content-type is {header.get('content-type')!r}, not {CONTENT_TYPE}")
    if len(body) > event.about.max_bytes:
        raise InvalidRequest(f"{name}: {len(body)} bytes, {event.about.max_bytes} are allowed")
    try:
        raw: Any = msgpack.unpackb(
            body, raw=False, strict_map_key=True, max_array_len=200_000, max_map_len=20_000, object_pairs_hook=_no_duplicates
        )
        return event.model_validate(raw)
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        raise InvalidRequest(f"{name}: {'.'.join(str(p) for p in first['loc'])}: {first['msg']}") from e
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        raise InvalidRequest(f"{name}: not a msgpack map ({type(e).__name__}: {str(e)[:200]})") from e


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key occurs twice")
    return out
