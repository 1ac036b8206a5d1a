"""Small questions to a local process: does it greet, is it ready. No HTTP library: `hbox up` starts before one is imported."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    waits_for: Mapping[str, str] = field(default_factory=dict)  #: condition -> message, of those that are not good
    remarks: Mapping[str, str] = field(
        default_factory=dict
    )  #: condition -> message, of those that are good and have something to say

    def __str__(self) -> str:
        details = ", ".join(f"{name}: {text}" for name, text in (self.remarks if self.ready else self.waits_for).items())
        return f"ready{'; ' * bool(details)}{details}" if self.ready else details or "no answer"


async def readiness(port: int, *, host: str = "127.0.0.1") -> Readiness:
    """State that /readyz of a service reports; not ready if it does not answer."""
    head, body = await _get("/readyz", port, host)
    try:
        conditions = json.loads(body)["conditions"]
        waits = {name: str(c["message"]) for name, c in conditions.items() if not c["good"]}
        remarks = {name: str(c["message"]) for name, c in conditions.items() if c["good"] and c["message"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        waits, remarks = {}, {}
    return Readiness(b" 200 " in head.split(b"\r\n")[0], waits, remarks)


async def write_error(port: int, *, host: str = "127.0.0.1") -> str:
    """The error of a stream that a nats-server can no longer write to, from its /healthz; empty without such an error."""
    _, body = await _get("/healthz", port, host)
    try:
        error = str(json.loads(body).get("error", ""))
    except (ValueError, AttributeError):
        return ""
    return error if "write error" in error else ""


async def _get(path: str, port: int, host: str) -> tuple[bytes, bytes]:
    """Head and body of the answer; both empty where there is none."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                answer = await reader.read(65_536)
                while more := await reader.read(65_536):
                    answer += more
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b"", b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


async def greets(port: int, *, host: str = "127.0.0.1") -> bool:
    """Whether a nats-server answers there."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return (await reader.readline()).startswith(b"INFO ")
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):  # a line without end
        return False
