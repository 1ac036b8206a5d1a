"""Metrics of stream fill levels and replicas: taken from the checks that readers of a history do every second, and requested seldom for streams of last values,
which reject new values when they are full."""

import asyncio
from collections.abc import Mapping
from typing import Any, NoReturn

from hbox_common.errors import Unavailable
from hbox_common.events import Stream

from . import metrics
from .connection import Connection
from .errors import StreamApiError

LOOK_S = 15.0

#: Brokers of each stream that a metric names.
_named: dict[Stream, set[str]] = {}


def note(stream: Stream, info: Mapping[str, Any]) -> None:
    """`info`: what STREAM.INFO answered."""
    metrics.STREAM_BYTES.labels(stream.value).set(int(info["state"]["bytes"]))
    metrics.STREAM_LIMIT.labels(stream.value).set(int(info["config"].get("max_bytes", -1)))
    _note_replicas(stream, info.get("cluster") or {})


def _note_replicas(stream: Stream, cluster: Mapping[str, Any]) -> None:
    """`cluster`: the stream's leader, and for each other replica whether it is `offline` and whether it is `current`. A single broker has no others."""
    behind = {one["name"]: bool(one.get("offline")) or not one.get("current") for one in cluster.get("replicas") or ()}
    if behind and (leader := cluster.get("leader")):
        behind[leader] = False
    for broker in _named.get(stream, set()) - behind.keys():
        metrics.REPLICA_BEHIND.remove(stream.value, broker)
    for broker, missing in behind.items():
        metrics.REPLICA_BEHIND.labels(stream.value, broker).set(missing)
    _named[stream] = set(behind)


async def watch(connection: Connection, stream: Stream) -> NoReturn:
    """Until cancelled."""
    while True:
        if connection.connected.is_set():
            try:
                note(stream, await connection.api(f"STREAM.INFO.{stream.value}"))
            except (Unavailable, StreamApiError):
                pass  # the readers detect the same error and report it
        await asyncio.sleep(LOOK_S)
