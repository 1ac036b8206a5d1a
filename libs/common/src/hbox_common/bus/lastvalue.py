"""The last message of one subject, followed without a consumer.

A consumer's permissions cover its whole stream. A program on a node may read one subject only, so it subscribes to the subject itself and reads the message
that the stream has with a request whose subject contains it (ADR-31 of nats-architecture-and-design). A publication is a notice: the message that counts is
the stream's, which it may store a moment later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from nats.aio.msg import Msg

from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.events import Event

from .connection import Connection
from .delivery import Delivery
from .last import last_value

log = logging.getLogger(__name__)

#: Seconds from a notice to the first and the second reading.
SOON_S = (0.2, 2.0)
ASK_S = 5.0


async def follow_last(
    connection: Connection,
    type_: type[Event],
    subject: str,
    handle: Callable[[Delivery | None], Awaitable[None]],
    *,
    every_s: float,
) -> NoReturn:
    """Call `handle` with the subject's last message when it changes; None: there is none. Reads it after each publication, at each new connection, and every
    `every_s` seconds. A message that cannot be decoded is logged and skipped. Runs until cancelled. Raises what `handle` raises."""
    noticed = asyncio.Event()
    known: int | None = None  #: sequence of the last message; 0: none

    async def notice(_: Msg) -> None:
        noticed.set()

    unwatch = connection.watch(noticed.set)
    subscription = await connection.subscribe(subject, notice)
    waits: list[float] = []
    try:
        while True:
            try:
                found = await last_value(connection, type_, subject, timeout_s=ASK_S)
            except InvalidRequest as e:
                log.error("the last message of %s is not readable: %s", subject, e)
            except HBoxError as e:
                log.info("the last message of %s could not be read: %s", subject, e)
            else:
                sequence = 0 if found is None else found.sequence
                if sequence != known:
                    known = sequence
                    await handle(found)
            try:
                async with asyncio.timeout(waits.pop(0) if waits else every_s):
                    await noticed.wait()
                noticed.clear()
                waits = list(SOON_S[1:])
                await asyncio.sleep(SOON_S[0])
            except TimeoutError:
                pass
    finally:
        unwatch()
        await connection.unsubscribe(subscription)
