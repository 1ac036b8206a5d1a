"""Prometheus metrics, always on: pre-bound prometheus_client children cost 0.6 us a call, OpenTelemetry instruments 4.5 us
(sources: telemetry-cost), so the hot path counts with the former."""

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # an additional, unused series for each counter

REGISTRY = CollectorRegistry()

#: `process_*`: memory, processor time, files, start time. Read from /proc at each scrape.
ProcessCollector(registry=REGISTRY)

#: Seconds: from the half millisecond of a commit to the minute of a gang's deadline.
LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def counter(name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
    """A counter `hbox_<name>_total`."""
    return Counter(f"hbox_{name}", help_text, labels, registry=REGISTRY)


def gauge(name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
    """A gauge `hbox_<name>`."""
    return Gauge(f"hbox_{name}", help_text, labels, registry=REGISTRY)


def histogram(name: str, help_text: str, labels: Sequence[str] = (), buckets: Sequence[float] = LATENCY_BUCKETS) -> Histogram:
    """A histogram `hbox_<name>`; the name ends in its unit (`_seconds`, `_items`)."""
    return Histogram(f"hbox_{name}", help_text, labels, registry=REGISTRY, buckets=buckets)


def exposition(*, openmetrics: bool = False) -> bytes:
    """All metrics in Prometheus's text format, or in that of OpenMetrics, which has exemplars."""
    if not openmetrics:
        return generate_latest(REGISTRY)
    text: bytes = generate_openmetrics(REGISTRY)  # type: ignore[no-untyped-call]
    return text


def escaped(value: str) -> str:
    """A label's value in Prometheus' text format."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
