"""Inspection of a broker for `hbox check --pre` and `hbox diag`: its version, its JetStream limits, and the state of streams and consumers."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hbox_common.errors import HBoxError, Unavailable
from hbox_common.events import Stream

from .access import Access
from .connection import OPEN, Connection
from .errors import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND, NotPermitted, StreamApiError
from .streams import LIMITS
from .users import DURABLES

#: Older ones do not know `allow_msg_ttl`, by which last values of what is gone end.
OLDEST = (2, 11)


@dataclass(frozen=True, slots=True)
class Broker:
    """`account`: JetStream's account information; None if the user may not read it. `streams`, `consumers`: the information of each existing one, or an error
    text if there was no answer. `refused`: by `file` and `memory`, why the broker has no room for the streams, if that was tried."""

    version: str
    max_payload: int
    account: Mapping[str, Any] | None
    streams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    consumers: Mapping[str, Mapping[str, Any] | str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def needed_bytes(*, memory: bool) -> int:
    """What our streams may come to hold together, on disk or in memory."""
    return sum(limits.max_bytes for limits in LIMITS.values() if limits.memory == memory)


async def look(url: str, *, user: str, access: Access = OPEN, timeout_s: float = 5.0, try_room: bool = False) -> Broker:
    """`try_room`: a stream as large as ours together is made, and taken away: limits of accounts, of servers and of their disks are nowhere to be read in
    one place. Raises Unavailable where it does not answer in time or has no JetStream, InvalidRequest for a bad address or a user that it does not let in."""
    try:
        async with asyncio.timeout(timeout_s), Connection.open(url, name=user, instance="look", access=access) as connection:
            await connection.connected.wait()
            try:
                account = await connection.api("INFO", timeout_s=timeout_s)
            except NotPermitted:
                account = None
            except (StreamApiError, Unavailable) as e:
                raise Unavailable(
                    f"its JetStream does not answer: {e.message}", hint="switch it on: `jetstream {}` in nats.conf"
                ) from e
            streams = {stream.value: info for stream in Stream if (info := await _stream(connection, stream)) is not None}
            consumers = {name: await _consumer(connection, stream, name) for name, (_, stream) in DURABLES.items()}
            refused = {}
            if try_room and account is not None:
                for storage in ("file", "memory"):
                    if why := await _room(connection, storage, streams):
                        refused[storage] = why
            return Broker(connection.server_version, connection.max_payload, account, streams, consumers, refused)
    except TimeoutError as e:
        raise Unavailable(
            f"the broker does not answer within {timeout_s:g} s", hint="is it running, and is the address right?"
        ) from e


async def _stream(connection: Connection, stream: Stream) -> Mapping[str, Any] | None:
    try:
        return await connection.api(f"STREAM.INFO.{stream.value}")
    except StreamApiError as e:
        if e.err_code == STREAM_NOT_FOUND:
            return None
        raise


async def _consumer(connection: Connection, stream: Stream, name: str) -> Mapping[str, Any] | str:
    try:
        return await connection.api(f"CONSUMER.INFO.{stream.value}.{name}", timeout_s=2.0)
    except StreamApiError as e:
        return "not there" if e.err_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND) else str(e)
    except HBoxError as e:
        return str(e)


async def _room(connection: Connection, storage: str, streams: Mapping[str, Mapping[str, Any]]) -> str:
    """Why there is no room for the maximum size of the missing streams; empty if there is room."""
    there = [info["config"] for info in streams.values() if info["config"].get("storage") == storage]
    wanted = needed_bytes(memory=storage == "memory") - sum(max(0, int(config.get("max_bytes", 0))) for config in there)
    if wanted <= 0:
        return ""
    name = f"HBOX_CHECK_{secrets.token_hex(4)}"
    config = {"name": name, "subjects": [f"hbox.check.{name}"], "storage": storage, "max_bytes": wanted, "retention": "limits"}
    try:
        await connection.api(f"STREAM.CREATE.{name}", config)
    except StreamApiError as e:
        return f"no room for {wanted / 2**30:.3g} GiB: {e.message}"
    await connection.api(f"STREAM.DELETE.{name}")
    return ""
