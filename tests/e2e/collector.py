"""A collector of traces: OTLP over HTTP in, spans in memory out."""

import gzip
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class Seen:
    """A span as it came; times in seconds since the epoch, ids in hexadecimal, `parent` empty for a root. `links`: trace and span ids."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: float
    end: float
    attributes: dict[str, str | int | float | bool]
    links: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Collector:
    url: str
    spans: list[Seen] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
            for scope in resource.scope_spans:
                for s in scope.spans:
                    found = {a.key: getattr(a.value, a.value.WhichOneof("value") or "string_value") for a in s.attributes}
                    self.spans.append(
                        Seen(
                            service,
                            s.name,
                            s.trace_id.hex(),
                            s.span_id.hex(),
                            s.parent_span_id.hex(),
                            s.start_time_unix_nano / 1e9,
                            s.end_time_unix_nano / 1e9,
                            found,
                            tuple((one.trace_id.hex(), one.span_id.hex()) for one in s.links),
                        )
                    )

    def traces(self) -> dict[str, list[Seen]]:
        """Spans by trace, in order of their starts; the root and wholes before their parts."""
        out: dict[str, list[Seen]] = defaultdict(list)
        for span in sorted(self.spans, key=lambda s: (s.start, bool(s.parent), -s.end)):
            out[span.trace].append(span)
        return dict(out)


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a loopback port of its own; `url` is for OTEL_EXPORTER_OTLP_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        got = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield got
        finally:
            server.shutdown()
            thread.join()
