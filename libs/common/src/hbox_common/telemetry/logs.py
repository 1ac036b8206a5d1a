"""Logs: one JSON object a line for machines, or a short line for people, with the trace's ids in both."""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from ..redaction import redacted
from ..visible import visible, visible_lines
from .tracing import current_traceparent

_PLAIN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    JSON = "json"
    TEXT = "text"


class JsonFormatter(logging.Formatter):
    """time, level, service, logger, message, trace_id, span_id, and whatever was handed in by `extra=`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if parent := current_traceparent():
            _, line["trace_id"], line["span_id"], _ = parent.split("-", 3)
        line.update((key, value) for key, value in record.__dict__.items() if key not in _PLAIN)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return visible(redacted(json.dumps(line, default=str, ensure_ascii=False)))


class TextFormatter(logging.Formatter):
    """`12:00:01.123 warning binder: message (hint) key=value`; what breaks lines or a terminal would obey is escaped, so that a line is a record."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        given = {key: value for key, value in record.__dict__.items() if key not in _PLAIN}
        hint = f" ({given.pop('hint')})" if given.get("hint") else ""
        extra = hint + "".join(f" {key}={value}" for key, value in given.items())
        text = visible(redacted(f"{time} {record.levelname.lower():7} {self._service}: {record.getMessage()}{extra}"))
        return f"{text}\n{visible_lines(redacted(self.formatException(record.exc_info)))}" if record.exc_info else text


def setup(service: str, *, level: str, style: LogFormat) -> None:
    """Send all logs of the process to standard error in this form. `level`: debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service) if style is LogFormat.JSON else TextFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("asyncio", "aiohttp.access", "alembic", "urllib3"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
    logging.getLogger("aiohttp.server").addFilter(is_own_fault)


def is_own_fault(record: logging.LogRecord) -> bool:
    """Not that a client sent what is no HTTP: any client could fill the log with tracebacks."""
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__module__ != "aiohttp.http_exceptions"
