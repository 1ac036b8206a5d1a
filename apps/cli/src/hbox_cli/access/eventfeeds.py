"""Events of the broker's two streams, in the order in which they happened."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.events import Event
from hbox_common.views.events import OLD_TYPES, PUBLIC_TYPES, at_of, has_successor

from ..output import notify
from ..session import ASK_S

#: Events of one stream that wait to be taken.
MOST = 1024


async def read_events(bus: Bus, take: Callable[[Event], None], *, follow: bool) -> None:
    """Calls `take` with all events up to the present one; with `follow`, with new ones without end."""
    async with asyncio.TaskGroup() as tasks:
        feeds = [_Feed(follow), _Feed(follow)]
        reading = [
            tasks.create_task(bus.follow(types, feed.take, start=feed.start, on_ready=feed.end, on_gap=_gap))
            for types, feed in zip((PUBLIC_TYPES, OLD_TYPES), feeds, strict=True)
        ]
        if follow:
            await asyncio.gather(*(_pass(take, feed) for feed in feeds))
        else:
            async with asyncio.timeout(ASK_S) as limit:
                heads = [await feed.next() for feed in feeds]
                while left := [(at_of(event), number) for number, event in enumerate(heads) if event is not None]:
                    _, number = min(left)
                    event = heads[number]
                    assert event is not None
                    take(event)
                    heads[number] = await feeds[number].next()
                    limit.reschedule(asyncio.get_running_loop().time() + ASK_S)
        for task in reading:
            task.cancel()


async def _gap() -> None:
    notify("some events were lost: the broker's stream began anew")


class _Feed:
    """Events of one stream. `follow`: new events without end, otherwise all events up to the present one. At most MOST events and a batch wait in memory."""

    def __init__(self, follow: bool) -> None:
        self.start = Start.NEW if follow else Start.ALL
        self._follow = follow
        self._events: deque[Event] = deque()
        self._changed = asyncio.Condition()
        self._ended = False

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._events) < MOST)
            self._events += [one.event for one in deliveries if not has_successor(one.event)]
            self._changed.notify_all()

    def end(self) -> None:
        """All events that existed at the start were delivered."""
        self._ended = True
        self._waking = asyncio.ensure_future(self._wake())

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def next(self) -> Event | None:
        """None: there are no more."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._events or (self._ended and not self._follow))
            event = self._events.popleft() if self._events else None
            self._changed.notify_all()
            return event


async def _pass(take: Callable[[Event], None], feed: _Feed) -> None:
    while (event := await feed.next()) is not None:
        take(event)
        sys.stdout.flush()
