"""One trace a job, over all services: W3C trace context, carried in messages and recorded by OpenTelemetry where somebody collects it.

The usual OTEL_* variables decide. Where none of them names an exporter, no SDK is loaded and a span costs a few microseconds: it only
hands the context on, so that a job's trace id is in every message and every log line all the same.
"""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

Attribute = str | int | float | bool

_current: ContextVar[str] = ContextVar("hbox_traceparent", default="")


@dataclass(slots=True)
class _Sdk:
    tracer: "Tracer | None" = None
    provider: "TracerProvider | None" = None


_sdk = _Sdk()


@dataclass(frozen=True, slots=True)
class Span:
    """A step of a trace. `traceparent` is what the next hop gets."""

    traceparent: str


def new_traceparent() -> str:
    """The context of a new trace: `00-<trace id>-<span id>-01`."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def current_traceparent() -> str:
    """The context of the span that this task is in; empty outside of any."""
    return _current.get()


def setup(
    service: str, instance: str, *, exporter: "SpanExporter | None" = None, environ: Mapping[str, str] = os.environ
) -> None:
    """Start recording spans if the environment names a collector (OTEL_EXPORTER_OTLP_ENDPOINT or ..._TRACES_ENDPOINT), or to `exporter`."""
    wanted = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if exporter is None and (not wanted or environ.get("OTEL_SDK_DISABLED", "").lower() == "true"):
        return
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  an SDK that nobody asked for costs 0.2 s of start
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor  # noqa: PLC0415

    named = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create({**named, "service.namespace": "hbox", "service.instance.id": instance}))
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _sdk.provider, _sdk.tracer = provider, provider.get_tracer("hbox")


def shutdown() -> None:
    """Send what is left and stop recording."""
    if _sdk.provider is not None:
        _sdk.provider.shutdown()
    _sdk.provider = _sdk.tracer = None


@contextmanager
def span(name: str, *, traceparent: str = "", links: tuple[str, ...] = (), **attributes: Attribute) -> Iterator[Span]:
    """A step named `name` (`place`, `commit`, `bind`), child of `traceparent`, else of the current span, else of nothing.

    `links` are the contexts of the other jobs of a batch. An exception that leaves the block is recorded and goes on.
    """
    parent = traceparent or _current.get()
    if _sdk.tracer is None:
        token = _current.set(parent)
        try:
            yield Span(parent)
        finally:
            _current.reset(token)
        return
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    propagator = TraceContextTextMapPropagator()
    spans = [trace.get_current_span(propagator.extract({"traceparent": link})).get_span_context() for link in links if link]
    context = propagator.extract({"traceparent": parent}) if parent else None
    with _sdk.tracer.start_as_current_span(
        name, context=context, kind=trace.SpanKind.CONSUMER, links=[trace.Link(c) for c in spans], attributes=dict(attributes)
    ):
        carrier: dict[str, str] = {}
        propagator.inject(carrier)
        token = _current.set(carrier.get("traceparent", parent))
        try:
            yield Span(_current.get())
        finally:
            _current.reset(token)


def record(name: str, *, traceparent: str, start: float, end: float, **attributes: Attribute) -> str:
    """A step that is over, with its times in seconds since the epoch: for batches, whose members share the work but not the trace.

    Returns the context that the next hop gets: the step's own, or `traceparent` where nothing is recorded.
    """
    if _sdk.tracer is None or not traceparent:
        return traceparent
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    propagator = TraceContextTextMapPropagator()
    step = _sdk.tracer.start_span(
        name,
        context=propagator.extract({"traceparent": traceparent}),
        kind=trace.SpanKind.CONSUMER,
        start_time=int(start * 1e9),
        attributes=dict(attributes),
    )
    step.end(end_time=int(end * 1e9))
    carrier: dict[str, str] = {}
    propagator.inject(carrier, context=trace.set_span_in_context(step))
    return carrier.get("traceparent", traceparent)
