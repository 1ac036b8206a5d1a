"""A message as it is handed to a service: decoded and validated, with what the broker knows of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from nats.aio.msg import Msg

from hbox_common.errors import InvalidRequest
from hbox_common.events import MESSAGE_ID, TRACEPARENT, Event, decode


@dataclass(frozen=True, slots=True)
class Delivery:
    """`deliveries` counts this one; `stored_at` in seconds since the epoch."""

    event: Event
    message_id: str
    subject: str
    sequence: int
    deliveries: int
    traceparent: str
    stored_at: float


def read(message: Msg, types: Mapping[str, type[Event]]) -> Delivery:
    """Decode one message of a consumer of `types` (by CloudEvents type). Raises InvalidRequest for what it cannot be."""
    header = message.headers or {}
    name = header.get("ce-type", "")
    event = decode(message.data, header)
    if name not in types:
        raise InvalidRequest(f"{name} does not belong on {message.subject}")
    metadata = message.metadata
    return Delivery(
        event=event,
        message_id=header.get(MESSAGE_ID, "") or f"{metadata.stream}.{metadata.sequence.stream}",
        subject=message.subject,
        sequence=metadata.sequence.stream,
        deliveries=metadata.num_delivered,
        traceparent=header.get(TRACEPARENT, ""),
        stored_at=metadata.timestamp.timestamp(),
    )
