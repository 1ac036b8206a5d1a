"""Whose computation is next.

Pages of lists and changes for streams are computed in the event loop, a few milliseconds each, without a pause. If requests computed as they arrive, one client
with hundreds of connections would keep all others waiting for each of its own. Instead computations begin one by one, with pauses in which connections and
reviews go on, and clients take turns, however many requests each has.
"""

import asyncio
from collections import OrderedDict, deque

from hbox_common.errors import Unavailable

#: Computations of one client that wait for their turn.
MOST_PER_CLIENT = 64
#: Between the beginnings of two computations.
PAUSE_S = 0.002


class Gate:
    """One for the process."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._running = False

    async def enter(self, user: str) -> None:
        """Wait for the client's turn. Raises Unavailable if too many of its computations wait."""
        own = self._waiting.setdefault(user, deque())
        if len(own) >= MOST_PER_CLIENT:
            raise Unavailable("too many of your requests are in progress", hint="send fewer at once", retry_after_s=1.0)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        own.append(turn)
        if not self._running:
            self._running = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        while self._waiting:
            user, own = self._waiting.popitem(last=False)
            turn = own.popleft()
            if own:
                self._waiting[user] = own
            if not turn.done():  # else its client left
                turn.set_result(None)
                break
        self._running = bool(self._waiting)
        if self._running:
            asyncio.get_running_loop().call_later(PAUSE_S, self._next)
