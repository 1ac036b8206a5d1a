"""Trace context travels whether anybody records it or not; logs carry its ids."""

import json
import logging
import socket
import time
from collections.abc import Iterator

import pytest
from aiohttp.http_exceptions import BadHttpMessage
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hbox_common.telemetry import current_traceparent, decided, logs, record, record_root, recording, tracing, within

JOB = f"00-{'1' * 32}-{'2' * 16}-01"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    tracing.setup("test", "1", exporter=memory, environ={})
    yield memory
    tracing.shutdown()


def test_without_a_collector_the_context_is_handed_on_unchanged() -> None:
    assert not recording()
    assert decided(JOB) == JOB
    assert record("bind", traceparent=JOB, start=1.0, end=2.0) == JOB
    record_root("job", traceparent=JOB, start=1.0, end=2.0)


def test_spans_of_one_job_are_one_trace(exporter: InMemorySpanExporter) -> None:
    place = record("place", traceparent=JOB, start=2.0, end=2.5, queue="a")
    record("commit", traceparent=place, start=5.0, end=7.5)
    record_root("job", traceparent=JOB, start=1.0, end=8.0, name="train")
    spans = {s.name: s for s in exporter.get_finished_spans()}
    root = spans["job"]
    assert root.parent is None
    assert f"00-{root.context.trace_id:032x}-{root.context.span_id:016x}-01" == JOB
    parents = {name: s.parent.span_id for name, s in spans.items() if s.parent is not None}
    assert parents == {"place": root.context.span_id, "commit": spans["place"].context.span_id}
    assert {s.context.trace_id for s in spans.values()} == {root.context.trace_id}
    assert (spans["commit"].start_time, spans["commit"].end_time) == (5_000_000_000, 7_500_000_000)
    assert spans["place"].attributes == {"queue": "a"}


def test_ids_are_random_again_after_a_root(exporter: InMemorySpanExporter) -> None:
    record_root("job", traceparent=JOB, start=1.0, end=8.0)
    assert record("late", traceparent=JOB, start=2.0, end=3.0) != JOB
    assert len({s.context.span_id for s in exporter.get_finished_spans()}) == 2


def test_a_step_may_have_a_context_of_its_own_and_links_to_other_traces(exporter: InMemorySpanExporter) -> None:
    own, other = f"00-{'1' * 32}-{'3' * 16}-01", f"00-{'4' * 32}-{'5' * 16}-01"
    assert record("evicted", traceparent=JOB, start=1.0, end=2.0, own=own, links=[other, "malformed"]) == own
    assert record("place", traceparent=JOB, start=1.0, end=2.0) != own
    span = exporter.get_finished_spans()[0]
    assert (f"{span.context.span_id:x}", f"{span.context.trace_id:x}") == ("3" * 16, "1" * 32)
    assert [(f"{one.context.trace_id:x}", f"{one.context.span_id:x}") for one in span.links] == [("4" * 32, "5" * 16)]


def test_a_step_that_ends_before_it_begins_has_no_length(exporter: InMemorySpanExporter) -> None:
    record("bind", traceparent=JOB, start=3.0, end=2.0)
    (span,) = exporter.get_finished_spans()
    assert span.start_time == span.end_time == 3_000_000_000


@pytest.mark.parametrize("wrong", ["", "1", "00-0-0-01", f"00-{'0' * 32}-{'2' * 16}-01", JOB.replace("1", "A"), f"{JOB}1"])
def test_a_malformed_context_records_nothing(exporter: InMemorySpanExporter, wrong: str) -> None:
    assert record("bind", traceparent=wrong, start=1.0, end=2.0) == wrong
    record_root("job", traceparent=wrong, start=1.0, end=2.0)
    assert decided(wrong) == wrong
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize("sampler", ["always_off", "parentbased_always_off"])
def test_a_trace_that_is_not_sampled_is_recorded_by_nobody(monkeypatch: pytest.MonkeyPatch, sampler: str) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    memory = InMemorySpanExporter()
    tracing.setup("test", "1", exporter=memory, environ={})
    try:
        parent = decided(JOB)
        assert parent == f"{JOB[:-2]}00"
        assert record("place", traceparent=parent, start=1.0, end=2.0) == parent
        record_root("job", traceparent=parent, start=1.0, end=2.0)
    finally:
        tracing.shutdown()
    assert not memory.get_finished_spans()


def test_a_share_of_traces_is_chosen_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    tracing.setup("test", "1", exporter=InMemorySpanExporter(), environ={})
    try:
        ids = [f"{i * 2**54:032x}" for i in range(1, 1000)]
        chosen = [decided(f"00-{id_}-{'2' * 16}-01").endswith("01") for id_ in ids]
    finally:
        tracing.shutdown()
    assert sum(chosen) == 255


def test_a_collector_that_is_away_costs_a_line_and_no_long_wait(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        tracing.setup("test", "1")
    record("bind", traceparent=JOB, start=1.0, end=2.0)
    began = time.monotonic()
    tracing.shutdown()
    assert time.monotonic() - began < 5.0
    (line,) = [entry for entry in caplog.records if entry.name.startswith("opentelemetry")]
    assert line.getMessage().startswith("traces do not reach their collector: ")
    assert line.exc_info is None


def test_a_json_log_line_carries_trace_and_extra_and_stays_one_line() -> None:
    entry = logging.makeLogRecord({"msg": "two\nlines", "levelname": "WARNING", "pod": "a/b"})
    with within(JOB):
        assert current_traceparent() == JOB
        text = logs.JsonFormatter("binder").format(entry)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["trace_id"], line["pod"], line["level"], line["service"]) == ("1" * 32, "a/b", "warning", "binder")


def test_a_text_log_line_escapes_line_breaks() -> None:
    entry = logging.makeLogRecord({"msg": "two\nlines", "levelname": "INFO", "pod": "a/b"})
    assert logs.TextFormatter("binder").format(entry).endswith("two\\nlines pod=a/b")


def test_a_request_that_is_no_http_is_not_logged_as_an_error() -> None:
    def logged(error: Exception) -> bool:
        arguments = ("aiohttp.server", logging.ERROR, "", 0, "Error handling request", (), (type(error), error, None))
        return logs.is_own_fault(logging.LogRecord(*arguments))

    assert not logged(BadHttpMessage("wrong header"))
    assert logged(ValueError("a handler failed"))
