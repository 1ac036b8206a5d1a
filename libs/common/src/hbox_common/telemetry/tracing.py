"""One trace per job, across all services: W3C trace context, carried in messages and recorded by OpenTelemetry if a collector is configured.

The usual OTEL_* variables apply. If none of them names a collector, no SDK is loaded and a step costs a comparison: the context is only passed on, so that a
job's trace id is still in every message and in log lines about it.

Steps are recorded when they end, with their times. Services work in batches, whose members share the work but not the trace: an open span would have to be kept
apart from those of other jobs at every await.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from .recorder import Attribute, Recorder

_current: ContextVar[str] = ContextVar("hbox_traceparent", default="")


@dataclass(slots=True)
class _State:
    recorder: "Recorder | None" = None


_state = _State()


def setup(
    service: str, instance: str, *, exporter: "SpanExporter | None" = None, environ: Mapping[str, str] = os.environ
) -> None:
    """Start recording if the environment names a collector (OTEL_EXPORTER_OTLP_ENDPOINT or ..._TRACES_ENDPOINT), or to `exporter`."""
    wanted = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if exporter is None and (not wanted or environ.get("OTEL_SDK_DISABLED", "").lower() == "true"):
        return
    from .recorder import Recorder  # noqa: PLC0415  see there

    _state.recorder = Recorder(service, instance, exporter=exporter, environ=environ)


def shutdown() -> None:
    """Send what is left and stop recording."""
    if _state.recorder is not None:
        _state.recorder.shutdown()
    _state.recorder = None


def recording() -> bool:
    """Whether spans are collected: check before gathering data that only a span needs."""
    return _state.recorder is not None


def current_traceparent() -> str:
    """The context that this task is in; empty outside of any."""
    return _current.get()


@contextmanager
def within(traceparent: str) -> Iterator[None]:
    """Log lines and messages of the block belong to that trace."""
    token = _current.set(traceparent)
    try:
        yield
    finally:
        _current.reset(token)


def decided(traceparent: str) -> str:
    """The context of a new trace with the sampler's decision in it (OTEL_TRACES_SAMPLER), unchanged where nothing is recorded."""
    return traceparent if _state.recorder is None else _state.recorder.decided(traceparent)


def record(
    name: str,
    /,
    *,
    traceparent: str,
    start: float,
    end: float,
    own: str = "",
    links: Sequence[str] = (),
    **attributes: "Attribute",
) -> str:
    """A step that is over, child of `traceparent`. Times in seconds since the epoch. `own`: the step's context, where its id is not random; `links`: contexts
    of related spans, also of other traces.

    Returns the context that the next hop gets: the step's own, or `traceparent` where nothing is recorded.
    """
    if _state.recorder is None or not traceparent.endswith("1"):
        return traceparent
    return _state.recorder.record(name, traceparent, start, end, attributes, own=own, links=links)


def record_root(
    name: str,
    /,
    *,
    traceparent: str,
    start: float,
    end: float,
    links: Sequence[str] = (),
    **attributes: "Attribute",
) -> None:
    """The span that `traceparent` itself names: the parent of all steps. Recorded once, by the creator of the context. `links`: as for `record`."""
    if _state.recorder is not None and traceparent.endswith("1"):
        _state.recorder.record_root(name, traceparent, start, end, attributes, links=links)


def exemplar(traceparent: str) -> dict[str, str] | None:
    """The exemplar of a histogram's observation that belongs to this trace; None where the trace is not recorded."""
    return {"trace_id": traceparent[3:35]} if _state.recorder is not None and traceparent.endswith("1") else None
