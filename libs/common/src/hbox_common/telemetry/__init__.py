"""Metrics, traces and logs. The only importer of the OpenTelemetry SDK."""

from .metrics import LATENCY_BUCKETS, counter, exposition, gauge, histogram
from .tracing import Span, current_traceparent, new_traceparent, record, span

__all__ = [
    "LATENCY_BUCKETS",
    "Span",
    "counter",
    "current_traceparent",
    "exposition",
    "gauge",
    "histogram",
    "new_traceparent",
    "record",
    "span",
]
