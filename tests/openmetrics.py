"""Texts in the format of OpenMetrics, read strictly by prometheus_client."""

from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families


def families(text: str) -> list[Any]:
    """Raises ValueError for a malformed text."""
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def exemplars(text: str, family: str = "") -> dict[tuple[str, str], str]:
    """Trace ids by family and bucket."""
    return {
        (one.name, sample.labels["le"]): sample.exemplar.labels["trace_id"]
        for one in families(text)
        for sample in one.samples
        if family in ("", one.name) and sample.exemplar is not None
    }
