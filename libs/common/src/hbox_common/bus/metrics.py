"""What the bus counts."""

from functools import cache

from prometheus_client import Counter

from hbox_common.telemetry import counter, gauge, histogram

PUBLISHED = counter("bus_published", "Messages that JetStream has stored", ["type"])
PUBLISH_S = histogram("bus_publish_seconds", "From publish() to JetStream's acknowledgement, retries included")
CONSUMED = counter(
    "bus_consumed", "Messages handled: by a durable consumer, or followed (durable is empty)", ["durable", "type"]
)
DEAD = counter("bus_dead_letters", "Messages set aside in HBOX_DLQ", ["consumer"])
UNREADABLE = counter(
    "bus_answers_unreadable", "Pages of answers of which something could not be read, and was left out", ["type"]
)
UNSENDABLE = counter("bus_unsendable", "Items that no message can carry, set aside by who would have sent them", ["type"])
GAPS = counter("bus_gaps", "Times that a stream had dropped messages before a reader of ours had them", ["stream"])
RECONNECTS = counter("bus_reconnects", "Connections to the broker made after the first")
WAITING = gauge("bus_waiting_messages", "Messages that a durable consumer of ours has not been handed yet", ["durable"])
BEHIND_S = gauge(
    "bus_behind_seconds", "How long the first message of the last batch of a durable consumer had been stored", ["durable"]
)
DEVICE_CONFIG_DIFFERS = gauge(
    "device_config_differs",
    "1 where a service was told other settings of devices than this process, by its messages",
    ["service"],
)
STREAM_BYTES = gauge("bus_stream_bytes", "What a stream holds", ["stream"])
STREAM_LIMIT = gauge("bus_stream_limit_bytes", "What a stream may hold; -1: as much as there is", ["stream"])
REPLICA_BEHIND = gauge(
    "bus_replica_behind", "1 where a broker's copy of a stream is not up to date, or the broker is away", ["stream", "broker"]
)
CERTIFICATE_ENDS = gauge(
    "certificate_expiration_timestamp_seconds",
    "When a certificate ends: the service's own (client; admission), the last of the authorities' that it trusts (ca), or what a broker shows",
    ["certificate", "server"],
)
CERTIFICATE_BEGAN = gauge(
    "certificate_not_before_timestamp_seconds", "When that certificate became valid", ["certificate", "server"]
)


@cache
def published(type_: type) -> Counter:
    """PUBLISHED of one type of message: looked up once, not for each message."""
    return PUBLISHED.labels(type_.__name__)


@cache
def consumed(durable: str, type_: type) -> Counter:
    """CONSUMED of one type of message and durable consumer, as `published`."""
    return CONSUMED.labels(durable, type_.__name__)
