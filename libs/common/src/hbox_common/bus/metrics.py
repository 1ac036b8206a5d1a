"""What the bus counts."""

from functools import cache

from prometheus_client import Counter

from hbox_common.telemetry import counter, gauge, histogram

PUBLISHED = counter("bus_published", "Messages stored by JetStream", ["type"])
PUBLISH_S = histogram("bus_publish_seconds", "Seconds from publish() to JetStream's acknowledgement, including retries")
CONSUMED = counter("bus_consumed", "Messages handled, by durable consumer (empty for followers) and type", ["durable", "type"])
DEAD = counter("bus_dead_letters", "Messages moved to the dead-letter stream HBOX_DLQ", ["consumer"])
UNREADABLE = counter(
    "bus_answers_unreadable", "Reply pages with at least one item that could not be decoded and was skipped", ["type"]
)
LEFT_OUT = counter(
    "bus_stored_messages_left_out", "Stored messages left out of an answer because they are unreadable, or copied by the broker"
)
UNSENDABLE = counter("bus_unsendable", "Items that exceed the message format and were not published", ["type"])
NOT_ANSWERED = counter("bus_requests_without_inbox", "Requests ignored because their answer would not go to an inbox", ["type"])
GAPS = counter("bus_gaps", "Gaps: the stream dropped messages before this service read them", ["stream"])
RECONNECTS = counter("bus_reconnects", "Connections to the broker after the first")
WAITING = gauge("bus_waiting_messages", "Messages pending for a durable consumer of this service", ["durable"])
BEHIND_S = gauge(
    "bus_behind_seconds", "Age in seconds of the first message of a durable consumer's last batch when it was read", ["durable"]
)
DEVICE_CONFIG_DIFFERS = gauge(
    "device_config_differs",
    "1 if messages of a service carry other device settings (device_config, card_resources) than this process",
    ["service"],
)
STREAM_BYTES = gauge("bus_stream_bytes", "Size of a stream in bytes", ["stream"])
STREAM_LIMIT = gauge("bus_stream_limit_bytes", "Maximum size of a stream in bytes; -1 = no maximum", ["stream"])
REPLICA_BEHIND = gauge(
    "bus_replica_behind", "1 if a broker's replica of a stream is not current or the broker is offline", ["stream", "broker"]
)
CERTIFICATE_ENDS = gauge(
    "certificate_expiration_timestamp_seconds",
    "Expiry time of a certificate: the service's own (client, admission), the latest of its trusted CAs (ca), or the broker's",
    ["certificate", "server"],
)
CERTIFICATE_BEGAN = gauge(
    "certificate_not_before_timestamp_seconds", "Start of a certificate's validity", ["certificate", "server"]
)


@cache
def published(type_: type) -> Counter:
    """PUBLISHED of one type of message: looked up once, not for each message."""
    return PUBLISHED.labels(type_.__name__)


@cache
def consumed(durable: str, type_: type) -> Counter:
    """CONSUMED of one type of message and durable consumer, as `published`."""
    return CONSUMED.labels(durable, type_.__name__)
