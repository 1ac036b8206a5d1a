"""Trace context travels whether anybody records it or not; logs carry its ids."""

import json
import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hbox_common.telemetry import current_traceparent, logs, new_traceparent, record, span, tracing


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    tracing.setup("test", "1", exporter=memory, environ={})
    yield memory
    tracing.shutdown()


def test_without_a_collector_the_context_is_handed_on_unchanged() -> None:
    parent = new_traceparent()
    with span("bind", traceparent=parent) as step:
        assert step.traceparent == parent == current_traceparent()
    assert current_traceparent() == ""
    assert record("bind", traceparent=parent, start=1.0, end=2.0) == parent


def test_spans_of_one_job_are_one_trace(exporter: InMemorySpanExporter) -> None:
    parent = new_traceparent()
    with span("place", traceparent=parent, queue="a") as first, span("commit") as second:
        pass
    third = record("bind", traceparent=second.traceparent, start=5.0, end=7.5, node="n1")
    names = {s.name: s for s in exporter.get_finished_spans()}
    trace_ids = {format(s.context.trace_id, "032x") for s in names.values()}
    assert trace_ids == {parent.split("-")[1]} == {third.split("-")[1]}
    assert first.traceparent != second.traceparent
    assert names["commit"].parent is not None
    assert names["commit"].parent.span_id == names["place"].context.span_id
    assert names["bind"].end_time == 7_500_000_000
    assert names["place"].attributes == {"queue": "a"}


def test_an_exception_is_recorded_and_goes_on(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="boom"), span("place", traceparent=new_traceparent()):
        raise ValueError("boom")
    assert exporter.get_finished_spans()[0].events[0].name == "exception"


def test_a_json_log_line_carries_trace_and_extra_and_stays_one_line() -> None:
    parent = new_traceparent()
    entry = logging.makeLogRecord({"msg": "two\nlines", "levelname": "WARNING", "pod": "a/b"})
    with span("bind", traceparent=parent):
        text = logs.JsonFormatter("binder").format(entry)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["trace_id"], line["pod"], line["level"], line["service"]) == (parent.split("-")[1], "a/b", "warning", "binder")


def test_a_text_log_line_escapes_line_breaks() -> None:
    entry = logging.makeLogRecord({"msg": "two\nlines", "levelname": "INFO", "pod": "a/b"})
    assert logs.TextFormatter("binder").format(entry).endswith("two\\nlines pod=a/b")
