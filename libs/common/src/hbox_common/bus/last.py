"""Selected messages of a stream without a consumer: one request, answered from the stream's own index (ADR-31 of nats-architecture-and-design).

A reader of last values would read all subjects of a stream; a history of several days has a million of them, of which few are needed.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from nats.aio.msg import Msg

from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import MESSAGE_ID, TRACEPARENT, Event, decode

from . import metrics
from .connection import NO_RESPONDERS, Connection
from .copies import refuse_copy
from .delivery import Delivery

log = logging.getLogger(__name__)

#: Largest number of messages in one answer; the broker rejects requests for more.
MOST = 1024

_NONE, _END = "404", "204"


async def last_values(
    connection: Connection, type_: type[Event], filters: Sequence[str], *, timeout_s: float
) -> list[Delivery]:
    """The last message of every subject that one of `filters` matches, in the stream's order. Those that cannot be decoded, or were copied by the broker, are
    left out.

    Raises Unavailable: no whole answer in time, or more than MOST messages.
    """
    messages = await _direct_get(connection, type_, {"multi_last": list(filters)}, timeout_s=timeout_s)
    return sorted(_readable(messages), key=lambda one: one.sequence)


async def last_value(connection: Connection, type_: type[Event], subject: str, *, timeout_s: float) -> Delivery | None:
    """The last message of one subject; None if there is none. The request's subject contains the subject, so that a client may have the right to read this
    subject alone. Raises Unavailable, InvalidRequest if the message cannot be decoded, is of another type, or was copied by the broker."""
    stream = type_.about.stream
    assert stream is not None
    message = await connection.request(f"$JS.API.DIRECT.GET.{stream.value}.{subject}", timeout_s=timeout_s)
    return _last(message, type_, subject)


async def last_value_of_stream(
    connection: Connection, type_: type[Event], subject: str, *, timeout_s: float
) -> Delivery | None:
    """As `last_value`, by a request that needs the right to read the whole stream."""
    stream = type_.about.stream
    assert stream is not None
    question = json.dumps({"last_by_subj": subject}).encode()
    message = await connection.request(f"$JS.API.DIRECT.GET.{stream.value}", question, timeout_s=timeout_s)
    return _last(message, type_, subject)


def _last(message: Msg, type_: type[Event], subject: str) -> Delivery | None:
    if _ends(message):
        return None
    found = _delivery(message)
    if not isinstance(found.event, type_):
        raise InvalidRequest(f"{found.event.ce_type()} does not belong on {subject}")
    return found


async def count_by_subject(connection: Connection, type_: type[Event]) -> dict[str, int]:
    """Messages of each subject of `type_` in the stream, which the broker answers from its index. Raises Unavailable."""
    stream = type_.about.stream
    assert stream is not None
    found: dict[str, int] = {}
    while True:
        info = await connection.api(f"STREAM.INFO.{stream.value}", {"subjects_filter": type_.filter(), "offset": len(found)})
        page: dict[str, int] = info["state"].get("subjects") or {}
        found.update(page)
        if not page or len(found) >= info.get("total", 0):
            return found


async def messages_since(
    connection: Connection, type_: type[Event], subject: str, since: datetime, *, timeout_s: float
) -> list[Delivery]:
    """The messages of one subject that were stored from then on, in the stream's order; those that cannot be decoded, or were copied, are left out. Raises
    Unavailable."""
    found: list[Delivery] = []
    where: dict[str, Any] = {"start_time": since.isoformat()}
    while part := await _direct_get(connection, type_, {"next_by_subj": subject, "batch": MOST, **where}, timeout_s=timeout_s):
        found += _readable(part)
        where = {"seq": int((part[-1].headers or {})["Nats-Sequence"]) + 1}
    return found


def _readable(messages: Sequence[Msg]) -> list[Delivery]:
    """Messages without those that cannot be decoded or were copied: one of them must not keep the others from the reader."""
    found: list[Delivery] = []
    for message in messages:
        try:
            found.append(_delivery(message))
        except InvalidRequest as e:
            header = message.headers or {}
            log.error("message %s of %s is left out: %s", header["Nats-Sequence"], header["Nats-Subject"], e)
            metrics.LEFT_OUT.inc()
    return found


async def _direct_get(connection: Connection, type_: type[Event], question: dict[str, Any], *, timeout_s: float) -> list[Msg]:
    stream = type_.about.stream
    assert stream is not None
    came: asyncio.Queue[Msg | None] = asyncio.Queue()

    async def take(message: Msg) -> None:
        came.put_nowait(message)

    found: list[Msg] = []
    started = monotonic_s()
    try:
        async with asyncio.timeout(timeout_s):
            await connection.connected.wait()
            unwatch = connection.watch(lambda: came.put_nowait(None))
            inbox = connection.new_inbox()
            subscription = await connection.subscribe(inbox, take)
            try:
                await connection.send(f"$JS.API.DIRECT.GET.{stream.value}", json.dumps(question).encode(), reply=inbox)
                while True:
                    message = await came.get()
                    if message is None:
                        raise Unavailable("the connection to the broker was lost before the answer was whole")
                    if _ends(message):
                        return found
                    found.append(message)
            finally:
                unwatch()
                await connection.unsubscribe(subscription)
    except TimeoutError as e:
        raise Unavailable(f"no messages of {stream.value} within {monotonic_s() - started:.1f} s") from e


def _ends(message: Msg) -> bool:
    header = message.headers or {}
    if "Nats-Sequence" in header:
        return False
    status = header.get("Status", "")
    if status in (_NONE, _END):
        return True
    text = "no responder" if status == NO_RESPONDERS else f"{status} {header.get('Description', '')}"
    raise Unavailable(f"messages of a stream: {text}")


def _delivery(message: Msg) -> Delivery:
    header = message.headers or {}
    refuse_copy(header["Nats-Subject"], header, direct_get=True)
    return Delivery(
        event=decode(message.data, header),
        message_id=header.get(MESSAGE_ID, ""),
        subject=header["Nats-Subject"],
        sequence=int(header["Nats-Sequence"]),
        deliveries=1,
        traceparent=header.get(TRACEPARENT, ""),
        stored_at=datetime.fromisoformat(header["Nats-Time-Stamp"]).timestamp(),
        source=header.get("ce-source", ""),
    )
