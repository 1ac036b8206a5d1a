"""Times of a document, in seconds since the epoch."""

from hbox_common.errors import InvalidRequest
from hbox_common.kube.times import epoch_s

from .documents import Document


def seconds(document: Document, timestamp: str | None, field: str = "metadata.creationTimestamp") -> float:
    """0 where none is written. Raises InvalidRequest."""
    if not timestamp:
        return 0.0
    try:
        return epoch_s(timestamp)
    except InvalidRequest as e:
        raise document.wrong(field, e.message, hint="write it like 2026-11-21T13:00:00Z") from e
