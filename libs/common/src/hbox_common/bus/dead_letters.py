"""Dead letters: messages that a consumer cannot process are stored in HBOX_DLQ for inspection, so that they do not block the ones behind them."""

import logging
from collections.abc import Sequence

from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.events import DeadLetter, Event, Stream
from hbox_common.model.bounds import sanitized

from . import metrics
from .delivery import Raw
from .publisher import Publisher

log = logging.getLogger(__name__)

BODY_BYTES = 64 * 1024
REASON_CHARS = 1000
PUBLISH_S = 5.0


async def set_aside_unsent(
    publisher: Publisher, event: Event, keys: Sequence[str], why: InvalidRequest, *, message_id: str
) -> None:
    """Store the reason why an item was not sent: no reader could accept a message with it. Raises Unavailable."""
    assert event.about.stream is not None
    letter = DeadLetter(
        consumer=publisher.name,
        on=event.subject(*keys),
        stream=event.about.stream.value,
        sequence=0,
        deliveries=0,
        message_id=message_id,
        type=event.ce_type(),
        reason=sanitized(f"it was not sent: {why.message}"),
        at=wall_s(),
        size=0,
        body=b"",
    )
    await publisher.publish(letter, event.about.subject.split(".")[2], message_id=message_id, timeout_s=PUBLISH_S)
    metrics.UNSENDABLE.labels(type(event).__name__).inc()
    log.error("an item cannot be sent, and was set aside in HBOX_DLQ: %s", why)


class DeadLetters:
    """Writes to HBOX_DLQ for one consumer."""

    def __init__(self, publisher: Publisher, *, consumer: str, stream: Stream) -> None:
        self._publisher, self._consumer, self._stream = publisher, consumer, stream

    async def bury(self, raw: Raw, reason: str) -> None:
        """Return when the letter is stored. The same message of the same consumer is stored once (within the duplicate window).

        Raises Unavailable: the caller must not forget the message then.
        """
        letter = DeadLetter(
            consumer=self._consumer,
            on=raw.subject,
            stream=self._stream.value,
            sequence=raw.sequence,
            deliveries=raw.deliveries,
            message_id=raw.message_id[:REASON_CHARS],
            type=raw.headers.get("ce-type", "")[:REASON_CHARS],
            reason=sanitized(reason),
            at=wall_s(),
            size=len(raw.body),
            body=raw.body[:BODY_BYTES],
        )
        domain = raw.subject.split(".")[2]
        # After a stream was recreated, the time distinguishes messages with equal sequence numbers.
        message_id = f"dead-{self._stream.value}-{raw.sequence}-{raw.stored_ns}-{self._consumer}"
        await self._publisher.publish(letter, domain, message_id=message_id, timeout_s=PUBLISH_S)
        metrics.DEAD.labels(self._consumer).inc()
        log.error(
            "message set aside in HBOX_DLQ: %s",
            sanitized(reason),
            extra={"consumer": self._consumer, "subject": raw.subject, "sequence": raw.sequence, "message_id": raw.message_id},
        )
