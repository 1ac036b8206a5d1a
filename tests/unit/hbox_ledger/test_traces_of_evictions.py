"""Spans of the ledger's turns: evictor and victims link to each other's traces."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hbox_common.model import JobId
from hbox_common.model.traceids import parse_traceparent, traceparent_of
from hbox_common.telemetry import tracing
from hbox_ledger import traces
from hbox_ledger.traces import record_turn

from .conftest import World
from .test_preemption_rights import asks, full


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    tracing.setup("quota-ledger", "1", exporter=memory, environ={})
    yield memory
    tracing.shutdown()


def ids_of(job: str) -> tuple[int, int]:
    trace, root, _ = parse_traceparent(traceparent_of(JobId(job))) or ("", "", "")
    return int(trace, 16), int(root, 16)


def test_evictor_and_victims_link_to_each_other_each_in_its_own_trace(world: World, exporter: InMemorySpanExporter) -> None:
    full(world)
    world.commits(asks(world, 0, 1, cards=2))
    record_turn(world.last, world.now + 1.0)
    spans = exporter.get_finished_spans()
    [making] = [span for span in spans if span.name == "make-room"]
    victims = [span for span in spans if span.name == "evicted"]
    assert (making.context.trace_id, making.parent and making.parent.span_id) == ids_of("want")
    assert [(span.context.trace_id, span.parent and span.parent.span_id) for span in victims] == [ids_of("b0"), ids_of("b1")]
    assert [link.context.span_id for link in making.links] == [span.context.span_id for span in victims]
    assert [link.context.trace_id for link in making.links] == [span.context.trace_id for span in victims]
    for span in victims:
        [link] = span.links
        assert (link.context.trace_id, link.context.span_id) == (making.context.trace_id, making.context.span_id)
        assert span.attributes is not None
        assert (span.attributes["for_job"], span.attributes["rule"]) == ("want", "reclaim")


def test_an_evictor_of_many_jobs_links_to_a_bounded_number(
    world: World, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MOST_LINKS", 1)
    full(world)
    world.commits(asks(world, 0, 1, cards=2))
    record_turn(world.last, world.now)
    [making] = [span for span in exporter.get_finished_spans() if span.name == "make-room"]
    assert len(making.links) == 1
    assert making.attributes is not None
    assert making.attributes["victims"] == 2
