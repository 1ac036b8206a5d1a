"""Exemplars: the trace of one job in each bucket of a histogram, in the format of OpenMetrics alone."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families as parsed

from hbox_common.runtime.health import Health, HealthServer
from hbox_common.telemetry import counter, exemplar, exposition, histogram, series, tracing
from hbox_common.telemetry.series import Counters, Family, Histogram, head, lines

from ...openmetrics import exemplars, families
from .test_http_bounds import asked

A, B = f"00-{'a' * 32}-{'2' * 16}-01", f"00-{'b' * 32}-{'2' * 16}-01"
SECONDS = Family("hbox_test_seconds", "histogram", "Seconds of tests")
TESTS = Family("hbox_tests_total", "counter", "Tests, by name")

_DONE = histogram("test_exemplars_seconds", "Seconds of tests with exemplars")
_COUNT = counter("test_exemplars", "Tests with exemplars")


@pytest.fixture
def recorded() -> Iterator[None]:
    tracing.setup("test", "1", exporter=InMemorySpanExporter(), environ={})
    yield
    tracing.shutdown()


def page(*found: tuple[float, str]) -> bytes:
    times, counters = Histogram((1.0, 60.0)), Counters()
    for value, traceparent in found:
        times.add(value, exemplar(traceparent), at=5.0)
    labels = (("queue", 'odd\\"\n # {trace_id="x"} 1'),)
    counters.add(labels, 1.0)
    return b"".join((head(SECONDS), times.text(SECONDS, labels).encode(), head(TESTS), lines(TESTS, counters.rows())))


@pytest.mark.usefixtures("recorded")
def test_each_bucket_has_the_trace_of_its_last_job() -> None:
    text = series.openmetrics(page((0.5, A), (0.7, B), (30.0, A))).decode()
    assert exemplars(text) == {(SECONDS.name, "1.0"): "b" * 32, (SECONDS.name, "60.0"): "a" * 32}


@pytest.mark.usefixtures("recorded")
def test_the_older_format_has_the_same_series_without_exemplars() -> None:
    text = page((0.5, A), (30.0, ""))
    found = {one.name for family in parsed(series.plain(text).decode()) for one in family.samples}
    assert found == {one.name for family in families(series.openmetrics(text).decode()) for one in family.samples}
    assert b"a" * 32 not in series.plain(text)
    assert b'# {trace_id=\\"x\\"}' in series.plain(text), "a label's value stays as it is"


@pytest.mark.usefixtures("recorded")
def test_a_job_that_is_not_sampled_is_no_exemplar() -> None:
    assert exemplar(A) == {"trace_id": "a" * 32}
    assert exemplar(f"{A[:-2]}00") is None
    assert exemplar("") is None


def test_without_a_collector_there_are_no_exemplars() -> None:
    assert exemplar(A) is None
    assert exemplars(series.openmetrics(page((0.5, A))).decode()) == {}


@pytest.mark.usefixtures("recorded")
def test_the_registrys_metrics_have_exemplars_too_and_are_well_formed() -> None:
    _DONE.observe(0.02, exemplar(A))
    _COUNT.inc()
    assert exemplars(exposition(openmetrics=True).decode())["hbox_test_exemplars_seconds", "0.025"] == "a" * 32
    assert b"a" * 32 not in exposition()
    assert list(parsed(exposition().decode()))


@pytest.mark.parametrize("path", ["/metrics", "/metrics/queues"])
@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain; charset=utf-8"),
        ("text/plain", "text/plain; charset=utf-8"),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ],
)
@pytest.mark.usefixtures("recorded")
async def test_a_client_gets_the_format_that_it_accepts(path: str, accept: str, kind: str) -> None:
    async def text() -> bytes:
        return page((0.5, A))

    _DONE.observe(0.02, exemplar(A))
    health = Health("test")
    health.texts["queues"] = text
    given = f"Accept: {accept}\r\n" if accept else ""
    async with HealthServer(health, host="127.0.0.1", port=0) as server:
        answer = await asked(server.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n{given}Connection: close\r\n\r\n")
    assert f"Content-Type: {kind}\r\n".encode() in answer
    assert (b"# EOF\n" in answer, b"a" * 32 in answer) == ("openmetrics" in kind, "openmetrics" in kind)
