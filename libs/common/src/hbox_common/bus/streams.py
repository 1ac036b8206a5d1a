"""The streams and their limits. Missing streams are created; settings that correctness depends on are corrected.

Settings that an operator may tune on an external broker (replicas, placement, age, bytes) are left unchanged once a stream exists. Settings that correctness
depends on (subjects, one value per subject, room for our largest messages) are corrected. HBOX_STATE rejects new values when it is full, with an error: if it
dropped a value, a new reader would believe that the object does not exist. The histories drop their oldest messages: they hold days, so the oldest were read
long ago, and a history that rejected messages would stop the whole platform until its messages expire. No data exists only in a history: a loss shows as a gap,
or as a claim past its deadline, and the data is recovered from Kubernetes and the ledger (sources: jetstream-durability).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import REGISTRY, Event, Stream

from .connection import ASK_S, Connection
from .errors import NO_PEERS, STREAM_NAME_IN_USE, STREAM_NOT_FOUND, NotPermitted, StreamApiError

log = logging.getLogger(__name__)

HOUR_S = 3600
DAY_S = 24 * HOUR_S
MIB = 2**20
GIB = 2**30

#: Room for headers in addition to a body of the largest allowed size.
HEADER_BYTES = 64 * 1024

#: How long the broker remembers message ids: longer than a publisher tries, short enough to be cheap (the docs warn of large ones).
DUPLICATE_WINDOW_S = 120


#: Retention of the last value of a deleted object: connected readers received it, and later readers do not need it.
CLOSED_S = DAY_S


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one stream. `last_value`: one message per subject, and new messages are rejected when the stream is full; otherwise the oldest are dropped.
    `ttl`: single messages may end earlier (`Event.lasts_s`).
    `memory`: a broker that restarts loses its messages; for data that is obsolete after a minute and can be recovered from its source (ADR 9)."""

    stream: Stream
    why: str
    max_age_s: int  #: 0 = for ever
    max_bytes: int
    last_value: bool = False
    ttl: bool = False
    memory: bool = False


LIMITS: dict[Stream, Limits] = {
    limits.stream: limits
    for limits in (
        Limits(Stream.STATE, "last value of every node, verdict, queue and fabric", 0, 2 * GIB, last_value=True),
        Limits(Stream.JOBS, "jobs and pods as they change; the truth is Kubernetes", HOUR_S // 4, 128 * MIB, memory=True),
        Limits(
            Stream.PLANS, "plans, answers and the feed of claims; the truth is the ledger", HOUR_S // 4, 64 * MIB, memory=True
        ),
        Limits(Stream.DECISIONS, "binds, evictions and cordons decided", 3 * DAY_S, 2 * GIB),
        Limits(Stream.OUTCOMES, "what became of decisions", 3 * DAY_S, 2 * GIB),
        Limits(Stream.EVENTS, "what integrators and people read", 7 * DAY_S, 2 * GIB),
        Limits(Stream.CLOUD_EVENTS, "public events as CloudEvents in JSON", 7 * DAY_S, 2 * GIB),
        Limits(Stream.INCIDENTS, "incidents of node health, as they change; the truth is health-monitor", 30 * DAY_S, GIB),
        Limits(
            Stream.REPORTS,
            "facts about nodes' health that their agents read; the truth is the node",
            DAY_S,
            512 * MIB,
            ttl=True,
        ),
        Limits(Stream.DEAD, "messages that a consumer could not process", 28 * DAY_S, GIB),
    )
}


def stream_of(types: Sequence[type[Event]]) -> Stream:
    """The one stream that all of `types` are in. Raises ValueError when there is none, or more than one."""
    streams = {t.about.stream for t in types}
    stream = streams.pop() if len(streams) == 1 else None
    if stream is None:
        raise ValueError(f"not the types of one stream: {', '.join(t.__name__ for t in types)}")
    return stream


def config_of(stream: Stream, replicas: int = 1) -> dict[str, Any]:
    """The stream's configuration as JetStream's API takes it. Durations are in nanoseconds there."""
    limits = LIMITS[stream]
    types = [t for t in REGISTRY.values() if t.about.stream is stream]
    return {
        "name": stream.value,
        "description": limits.why,
        "subjects": sorted({t.filter() for t in types}),
        "retention": "limits",
        "storage": "memory" if limits.memory else "file",
        "num_replicas": replicas,
        "max_msgs_per_subject": 1 if limits.last_value else -1,
        "max_age": limits.max_age_s * 10**9,
        "max_bytes": limits.max_bytes,
        "max_msg_size": max(t.about.max_bytes for t in types) + HEADER_BYTES,
        "discard": "new" if limits.last_value else "old",
        "duplicate_window": DUPLICATE_WINDOW_S * 10**9,
        "deny_delete": True,  # no client deletes single messages of a history
        "allow_direct": True,
        "allow_msg_ttl": limits.last_value or limits.ttl,  # closing messages of last values end after CLOSED_S
    }


async def ensure_streams(connection: Connection, replicas: int = 1, *, change: bool = False) -> None:
    """Create missing streams, and correct settings that correctness depends on. Idempotent, safe from many processes at once.

    `replicas`: of a new stream; with `change` also of existing ones. On a broker with users only the admin may change a stream: services continue with the
    existing one. Raises Unavailable if JetStream does not answer or has too few servers, InvalidRequest if it rejects a stream.
    """
    for stream in Stream:
        try:
            await _ensure(connection, stream, replicas, change=change)
        except NotPermitted as e:
            log.warning(
                "stream %s is not as it should be, and stays so until the admin of the broker mends it: %s", stream.value, e
            )
        except StreamApiError as e:
            if e.err_code == NO_PEERS:  # a cluster that is just starting
                raise Unavailable(f"too few servers for {replicas} replicas of {stream.value}: {e}") from e
            raise InvalidRequest(f"stream {stream.value} cannot be made: {e}", hint="see the broker's JetStream limits") from e


async def _ensure(connection: Connection, stream: Stream, replicas: int, *, change: bool) -> None:
    wanted = config_of(stream, replicas)
    try:
        found: dict[str, Any] = (await connection.api(f"STREAM.INFO.{stream.value}", timeout_s=ASK_S))["config"]
    except StreamApiError as e:
        if e.err_code != STREAM_NOT_FOUND:
            raise
        try:
            await connection.api(f"STREAM.CREATE.{stream.value}", wanted)
        except StreamApiError as again:
            # Another process may have created it first. The broker states that only if it has memory to reserve for the stream once more.
            if again.err_code != STREAM_NAME_IN_USE and not await _exists(connection, stream):
                raise
        else:
            log.info("stream %s was made", stream.value)
        return
    if found.get("storage") == "file" and wanted["storage"] == "memory":  # of an earlier version; JetStream changes no storage
        await connection.api(f"STREAM.DELETE.{stream.value}")
        await connection.api(f"STREAM.CREATE.{stream.value}", wanted)
        log.warning("stream %s was made anew, in memory", stream.value)
        return
    # A newer version may have added subjects already: theirs stay.
    known = sorted(found.get("subjects", ()))
    ours = {"subjects": sorted({*known, *wanted["subjects"]}), "max_msgs_per_subject": wanted["max_msgs_per_subject"]}
    if wanted["allow_msg_ttl"]:
        ours["allow_msg_ttl"] = True
    if 0 < found.get("max_msg_size", -1) < wanted["max_msg_size"]:
        ours["max_msg_size"] = wanted["max_msg_size"]
    if change:
        ours["num_replicas"] = replicas
    different = [key for key, value in ours.items() if ({**found, "subjects": known}).get(key) != value]
    if different:
        await connection.api(f"STREAM.UPDATE.{stream.value}", {**found, **ours})
        log.warning("stream %s was put right: %s", stream.value, ", ".join(different))


async def _exists(connection: Connection, stream: Stream) -> bool:
    try:
        await connection.api(f"STREAM.INFO.{stream.value}", timeout_s=ASK_S)
    except StreamApiError as e:
        if e.err_code == STREAM_NOT_FOUND:
            return False
        raise
    return True
