"""Calls as steps of traces: the calls of one message for one job are one span, with their number and the slowest, since a thousand spans would not be
readable."""

from dataclasses import dataclass

from hbox_common.telemetry import record, recording

from .core import Call, Verb


@dataclass(slots=True)
class _Step:
    """Times in seconds since the epoch."""

    start: float
    end: float
    calls: int
    slowest_s: float
    slowest_pod: str


class Steps:
    """Calls of one message. Records nothing without a trace collector."""

    def __init__(self) -> None:
        self._steps: dict[tuple[Verb, str], _Step] = {}

    def add(self, call: Call, start: float, took_s: float) -> None:
        """A call is over; `start` in seconds since the epoch."""
        if not recording():
            return
        pod = call.decision.pod
        key = (call.verb, call.decision.traceparent)
        step = self._steps.setdefault(key, _Step(start, start + took_s, 0, took_s, pod))
        step.start, step.end, step.calls = min(step.start, start), max(step.end, start + took_s), step.calls + 1
        if took_s > step.slowest_s:
            step.slowest_s, step.slowest_pod = took_s, pod

    def record(self) -> None:
        for (verb, traceparent), step in self._steps.items():
            record(
                verb,
                traceparent=traceparent,
                start=step.start,
                end=step.end,
                calls=step.calls,
                slowest_ms=round(1000 * step.slowest_s, 3),
                slowest_pod=step.slowest_pod,
            )
        self._steps.clear()
