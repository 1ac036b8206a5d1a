"""Limits for every connection to an HTTP port of HBox, applied before HTTP begins.

aiohttp limits lines only: it waits for a request head for ever, accepts any number of headers, and reads the whole rest of a body.
"""

import asyncio
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class Bounds:
    """`connections`: at a time. `lives_s` and `bytes_`: of one, or since it was last of use (`Guarded.renew`). `makes_way`: where there are as many as there
    may be, the one that has been of no use for longest ends for one that comes; else that one ends."""

    connections: int
    bytes_: int
    lives_s: float
    makes_way: bool = False


class Guarded(asyncio.Protocol):
    """One connection, with `inner` behind it. `others`: all that are open."""

    def __init__(self, inner: asyncio.Protocol, others: "set[Guarded]", bounds: Bounds) -> None:
        self._inner, self._others, self._bounds = inner, others, bounds
        self._received_bytes = 0
        self._since = 0.0  #: when it was last of use, by the loop's clock
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        if len(self._others) >= self._bounds.connections:
            if not self._bounds.makes_way:
                transport.abort()
                return
            min(self._others, key=lambda other: other._since)._make_way()
        self._others.add(self)
        self._transport = transport
        self.renew()
        self._inner.connection_made(transport)

    def renew(self) -> None:
        """It was of use: it may live, and say, as much again."""
        if self._transport is None:
            return
        if self._end is not None:
            self._end.cancel()
        loop = asyncio.get_running_loop()
        self._received_bytes, self._since = 0, loop.time()
        self._end = loop.call_later(self._bounds.lives_s, self._transport.abort)

    def _make_way(self) -> None:
        self._others.discard(self)
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._received_bytes += len(data)
        if self._received_bytes > self._bounds.bytes_:
            self._transport.abort()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._others.discard(self)
        if self._end is not None:
            self._end.cancel()
        self._inner.connection_lost(exc)
