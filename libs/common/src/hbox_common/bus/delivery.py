"""Messages as they are delivered to handlers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nats.aio.msg import Msg

from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest
from hbox_common.events import MESSAGE_ID, TRACEPARENT, Event, decode

from .agreement import AGREEMENT
from .copies import refuse_copy


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that was decoded and checked."""

    event: Event
    message_id: str
    subject: str
    sequence: int  #: in its stream
    deliveries: int  #: 1 = the first time
    traceparent: str
    stored_at: float  #: seconds since the epoch, by the broker's clock
    source: str = ""  #: its publisher: /hbox/<service>/<instance>

    @property
    def key(self) -> str:
        """The last token of its subject, undecoded."""
        return self.subject.rpartition(".")[2]


@dataclass(slots=True, eq=False)
class Raw:
    """A message as JetStream delivered it; the facts are in its reply subject (ADR-15 of nats-architecture-and-design)."""

    subject: str
    reply: str
    body: bytes
    headers: dict[str, str]
    sequence: int
    consumer_sequence: int  #: counts this consumer's deliveries; a hole is a message that was lost on the way
    deliveries: int
    stored_ns: int
    pending: int  #: messages of this consumer that wait in the stream
    came: float = field(default_factory=monotonic_s)  #: here, in monotonic seconds

    @classmethod
    def of(cls, message: Msg) -> "Raw | None":
        """None for anything but a delivery of JetStream."""
        tokens = message.reply.split(".")
        if len(tokens) < 9 or tokens[0] != "$JS" or tokens[1] != "ACK":
            return None
        # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>; the longer form has <domain>.<account> before.
        first = 4 if len(tokens) == 9 else 6
        deliveries, sequence, consumer_sequence, stored_ns, pending = (int(token) for token in tokens[first : first + 5])
        return cls(
            subject=message.subject,
            reply=message.reply,
            body=message.data,
            headers=message.headers or {},
            sequence=sequence,
            consumer_sequence=consumer_sequence,
            deliveries=deliveries,
            stored_ns=stored_ns,
            pending=pending,
        )

    @property
    def key(self) -> tuple[int, int]:
        """What it is known by: a stream that lost its end in a crash gives the same sequences to other messages, at other times."""
        return self.sequence, self.stored_ns

    @property
    def message_id(self) -> str:
        return self.headers.get(MESSAGE_ID, "")


def deliver(
    raw: Raw, types: Sequence[type[Event]], set_aside: Callable[[str], None] | None = None, *, writers_only: bool = False
) -> Delivery:
    """Decode a message; `set_aside` as in `decode`. Raises InvalidRequest if it cannot be decoded, its type does not belong on the subject, or the broker
    copied it from another subject; with `writers_only` also if its source is not a writer of the type."""
    refuse_copy(raw.subject, raw.headers)
    event = decode(raw.body, raw.headers, types, set_aside=set_aside)
    if not isinstance(event, tuple(types)):
        raise InvalidRequest(f"{event.ce_type()} does not belong on {raw.subject}")
    AGREEMENT.observe(raw.headers, raw.stored_ns / 1e9)
    source = raw.headers.get("ce-source", "")
    if writers_only and not source.startswith(tuple(f"/hbox/{writer}/" for writer in event.about.writers)):
        raise InvalidRequest(f"{event.ce_type()} is for {' and '.join(event.about.writers)} to say, not for {source[:200]!r}")
    return Delivery(
        event=event,
        message_id=raw.message_id,
        subject=raw.subject,
        sequence=raw.sequence,
        deliveries=raw.deliveries,
        traceparent=raw.headers.get(TRACEPARENT, ""),
        stored_at=raw.stored_ns / 1e9,
        source=source,
    )
