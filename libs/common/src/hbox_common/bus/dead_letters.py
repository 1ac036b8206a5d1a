"""Where messages end that a consumer cannot use: kept with the reason, once, so that they delay nobody."""

import logging

from nats.aio.msg import Msg

from hbox_common.clock import wall_s
from hbox_common.errors import HBoxError
from hbox_common.events import MESSAGE_ID, DeadLetter
from hbox_common.telemetry import counter

from .publisher import Publisher

log = logging.getLogger(__name__)

DEAD = counter("bus_dead_letters", "Messages given up, by the consumer that could not use them", ("consumer",))

_KEPT_BYTES = 64 * 1024


async def bury(publisher: Publisher, consumer: str, message: Msg, reason: str) -> bool:
    """Publish the dead letter; False when that did not work now, so that the message must be kept for another try."""
    metadata, header = message.metadata, message.headers or {}
    letter = DeadLetter(
        consumer=consumer,
        on=message.subject,
        stream=metadata.stream,
        sequence=metadata.sequence.stream,
        deliveries=metadata.num_delivered,
        message_id=header.get(MESSAGE_ID, "")[:256],
        type=header.get("ce-type", "")[:256],
        reason=reason[:2000],
        at=wall_s(),
        size=len(message.data),
        body=message.data[:_KEPT_BYTES],
    )
    tokens = message.subject.split(".")
    domain = tokens[2] if len(tokens) > 2 else "unknown"
    try:
        # A stream that was made anew starts its sequence anew: its time of storage tells the two apart.
        await publisher.publish(
            letter,
            domain,
            message_id=f"dead.{metadata.stream}.{metadata.sequence.stream}.{metadata.timestamp.timestamp()}.{consumer}",
            timeout_s=5.0,
        )
    except HBoxError as e:
        log.warning("a dead letter could not be stored, its message stays: %s", e)
        return False
    DEAD.labels(consumer).inc()
    log.error("gave up a message", extra={"subject": message.subject, "reason": reason, "consumer": consumer})
    return True
