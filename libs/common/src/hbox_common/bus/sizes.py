"""How full streams are, as metrics: by what readers of a history see every second anyway, and seldom of streams of last values, which refuse what is new
when they are full."""

import asyncio
from collections.abc import Mapping
from typing import Any, NoReturn

from hbox_common.errors import Unavailable
from hbox_common.events import Stream

from . import metrics
from .connection import Connection
from .errors import StreamApiError

LOOK_S = 15.0


def note(stream: Stream, info: Mapping[str, Any]) -> None:
    """`info`: what STREAM.INFO answered."""
    metrics.STREAM_BYTES.labels(stream.value).set(int(info["state"]["bytes"]))
    metrics.STREAM_LIMIT.labels(stream.value).set(int(info["config"].get("max_bytes", -1)))


async def watch(connection: Connection, stream: Stream) -> NoReturn:
    """Until cancelled."""
    while True:
        if connection.connected.is_set():
            try:
                note(stream, await connection.api(f"STREAM.INFO.{stream.value}"))
            except (Unavailable, StreamApiError):
                pass  # whoever reads finds out, and says so
        await asyncio.sleep(LOOK_S)
