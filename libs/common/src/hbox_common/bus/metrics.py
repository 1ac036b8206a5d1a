"""What the bus counts."""

from hbox_common.telemetry import counter, histogram

PUBLISHED = counter("bus_published", "Messages that JetStream has stored", ["type"])
PUBLISH_S = histogram("bus_publish_seconds", "From publish() to JetStream's acknowledgement, retries included")
CONSUMED = counter(
    "bus_consumed", "Messages handled: by a durable consumer, or followed (durable is empty)", ["durable", "type"]
)
DEAD = counter("bus_dead_letters", "Messages set aside in HBOX_DLQ", ["consumer"])
RECONNECTS = counter("bus_reconnects", "Connections to the broker made after the first")
