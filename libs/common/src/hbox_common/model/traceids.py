"""Ids of traces (W3C Trace Context). A job's are derived from the job's id, which the API server assigns: they are the same in every service and after every
restart, and no annotation of a tenant can choose those of another job."""

import re
from hashlib import sha256

from .ids import JobId

_TRACEPARENT = re.compile("00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


def traceparent_of(job: JobId) -> str:
    """The context of the root span of the job's trace."""
    digest = sha256(job.encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"


def step_of(traceparent: str, name: str, key: str) -> str:
    """The context of the span of this name and key in the same trace: the same in every process, so that a repeated span keeps its id, and other traces can
    link to it."""
    parts = parse_traceparent(traceparent)
    if parts is None:
        return traceparent
    trace, _, flags = parts
    return f"00-{trace}-{sha256(f'{trace}/{name}/{key}'.encode()).hexdigest()[:16]}-{flags}"


def trace_id_of(traceparent: str) -> str:
    """Its trace's id; empty if it is malformed."""
    parts = parse_traceparent(traceparent)
    return parts[0] if parts is not None else ""


def parse_traceparent(text: str) -> tuple[str, str, str] | None:
    """Trace id, span id and flags in hexadecimal; None if it is malformed."""
    found = _TRACEPARENT.fullmatch(text)
    return (found[1], found[2], found[3]) if found is not None else None
