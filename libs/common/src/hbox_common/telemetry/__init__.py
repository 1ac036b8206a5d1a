"""Metrics, traces and logs. The only importer of the OpenTelemetry SDK."""

from .metrics import LATENCY_BUCKETS, counter, escaped, exposition, gauge, histogram
from .tracing import current_traceparent, decided, exemplar, record, record_root, recording, within

__all__ = [
    "LATENCY_BUCKETS",
    "counter",
    "current_traceparent",
    "decided",
    "escaped",
    "exemplar",
    "exposition",
    "gauge",
    "histogram",
    "record",
    "record_root",
    "recording",
    "within",
]
