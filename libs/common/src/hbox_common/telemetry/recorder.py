"""Spans recorded by the OpenTelemetry SDK. Imported only if a collector is configured: the SDK costs 0.2 s at startup."""

import logging
import re
import threading
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags

Attribute = str | int | float | bool

#: Seconds.
DRAIN_S = 2.0
QUIET_S = 60.0

_TRACEPARENT = re.compile("00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


class Recorder:
    """A provider of our own, not the process's global one: nothing else is to be instrumented by it."""

    def __init__(self, service: str, instance: str, *, exporter: SpanExporter | None, environ: Mapping[str, str]) -> None:
        named = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
        resource = Resource.create({**named, "service.namespace": "hbox", "service.instance.id": instance})
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids)
        if exporter is not None:
            self._exporter: SpanExporter = exporter
            self._provider.add_span_processor(SimpleSpanProcessor(exporter))
        else:
            _hush()
            self._exporter = OTLPSpanExporter()
            self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("hbox")

    def decided(self, traceparent: str) -> str:
        """The context with the sampler's decision in its flags (OTEL_TRACES_SAMPLER); all receivers follow it."""
        if (context := _parsed(traceparent)) is None:
            return traceparent
        decision = self._provider.sampler.should_sample(None, context.trace_id, "job").decision
        return f"{traceparent[:-2]}{int(decision is Decision.RECORD_AND_SAMPLE):02d}"

    def record(
        self,
        name: str,
        traceparent: str,
        start: float,
        end: float,
        attributes: Mapping[str, Attribute],
        *,
        own: str = "",
        links: Sequence[str] = (),
    ) -> str:
        """A child of `traceparent`; returns its own context (`own` if given), or `traceparent` where that is malformed. Malformed links are left out."""
        parent = _parsed(traceparent)
        if parent is None:
            return traceparent
        self._ids.next = _parsed(own)
        span = self._tracer.start_span(
            name,
            context=trace.set_span_in_context(NonRecordingSpan(parent)),
            kind=SpanKind.CONSUMER,
            links=_links(links),
            start_time=_ns(start),
            attributes=attributes,
        )
        span.end(end_time=_ns(max(start, end)))
        context = span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def record_root(
        self,
        name: str,
        traceparent: str,
        start: float,
        end: float,
        attributes: Mapping[str, Attribute],
        *,
        links: Sequence[str] = (),
    ) -> None:
        """The span that `traceparent` itself names, the parent of others."""
        own = _parsed(traceparent)
        if own is None:
            return
        self._ids.next = own
        span = self._tracer.start_span(
            name,
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            links=_links(links),
            start_time=_ns(start),
            attributes=attributes,
        )
        span.end(end_time=_ns(max(start, end)))

    def shutdown(self) -> None:
        """Send what is left, within about DRAIN_S: a collector that is away must not hold up the end of a service."""
        give_up = threading.Timer(DRAIN_S, self._exporter.shutdown)
        give_up.start()
        try:
            self._provider.shutdown()
        finally:
            give_up.cancel()


class _Ids(RandomIdGenerator):
    """Random ids, but for the one span whose ids were given before it was recorded. One thread records."""

    def __init__(self) -> None:
        self.next: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return self.next.trace_id if self.next is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        given, self.next = self.next, None
        return given.span_id if given is not None else super().generate_span_id()


def _parsed(traceparent: str) -> SpanContext | None:
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    return SpanContext(int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=TraceFlags(int(found[3], 16) & 1))


def _links(contexts: Sequence[str]) -> list[Link]:
    return [Link(context) for one in contexts if (context := _parsed(one)) is not None]


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


class _Seldom(logging.Filter):
    """The SDK's complaints about the collector, as one line every QUIET_S: each attempt has several, some with tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created < self._quiet_until:
            return False
        self._quiet_until = record.created + QUIET_S
        cause = record.exc_info[1] if record.exc_info else record.getMessage()
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args, record.exc_info = "traces do not reach their collector: %s", (str(cause)[:300],), None
        return True


def _hush() -> None:
    seldom = _Seldom()
    for name in ("opentelemetry.sdk._shared_internal", "opentelemetry.exporter.otlp.proto.http.trace_exporter"):
        logger = logging.getLogger(name)
        for old in [f for f in logger.filters if isinstance(f, _Seldom)]:
            logger.removeFilter(old)
        logger.addFilter(seldom)
