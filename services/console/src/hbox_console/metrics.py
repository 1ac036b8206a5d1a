"""What the console counts."""

from hbox_common.telemetry import counter, gauge, histogram

REQUESTS = counter("console_requests", "HTTP requests answered", ["route", "status"])
REQUEST_SECONDS = histogram(
    "console_request_seconds", "Seconds to answer a request", ["route"], buckets=(0.005, 0.025, 0.1, 0.3, 1.0, 3.0, 10.0)
)
REVIEWS = counter("console_reviews", "Reviews by the API server, by kind and result", ["kind", "result"])
REVIEWS_CACHED = gauge("console_reviews_cached", "Answers of reviews kept for reuse", ["kind"])
WATCHES = gauge("console_watches", "Open streams of changes")
WATCHES_CUT = counter("console_watches_cut", "Streams of changes ended by the service", ["why"])
SNAPSHOTS = counter("console_snapshots", "Complete states read from other services", ["of"])
OBJECTS = gauge("console_objects", "Objects of the read model", ["kind"])
STALE_SECONDS = gauge("console_stale_seconds", "Seconds since the read model last had all of the bus; 0 = it has")
