"""`hbox events`."""

import asyncio
import json
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import click

from hbox_common.bus import Delivery, Start
from hbox_common.events import Event
from hbox_common.views.events import OLD_TYPES, PUBLIC_TYPES, at_of, document_of, has_successor, item_of

from ..aio import run
from ..context import Context, command_options
from ..output import Column, Form, Output, notify, put, yaml_text
from ..platform.layout import Layout
from ..session import ASK_S, bus_of

#: Events of one stream that wait to be printed.
MOST = 1024


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Print new events until Ctrl-C.")
@command_options
def command(ctx: Context, follow: bool) -> None:
    """Print events: jobs placed, started, finished, evicted, rejected or waiting; reclaims, quotas, refusals and budgets of queues; health and drains of nodes.
    -o json prints one object per line, -o yaml one document per event; most are CloudEvents (docs/guides/events.md).

    \b
    hbox events -f
    hbox events -o json | jq 'select(.type == "io.hbox.job.placed.v1") | .data'
    """
    run(lambda: _read(ctx, follow))


async def _read(ctx: Context, follow: bool) -> None:
    if ctx.output.form is Form.CSV:
        ctx.output.rows("Event", [], COLUMNS)
    async with bus_of(Layout(ctx.state).running()) as bus, asyncio.TaskGroup() as tasks:
        feeds = [_Feed(follow), _Feed(follow)]
        reading = [
            tasks.create_task(bus.follow(types, feed.take, start=feed.start, on_ready=feed.end, on_gap=_gap))
            for types, feed in zip((PUBLIC_TYPES, OLD_TYPES), feeds, strict=True)
        ]
        if follow:
            await asyncio.gather(*(_print(ctx.output, feed) for feed in feeds))
        else:
            async with asyncio.timeout(ASK_S) as limit:
                heads = [await feed.next() for feed in feeds]
                while left := [(at_of(event), number) for number, event in enumerate(heads) if event is not None]:
                    _, number = min(left)
                    event = heads[number]
                    assert event is not None
                    put_event(ctx.output, event)
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


async def _print(output: Output, feed: _Feed) -> None:
    while (event := await feed.next()) is not None:
        put_event(output, event)
        sys.stdout.flush()


def put_event(output: Output, event: Event) -> None:
    """One event in the form that was asked for; of a table its line, without a header."""
    if not output.machine:
        item = item_of(event)
        if output.people:
            put(f"{_time(item['at'])}  {item['about']:5}  {item['text']}")
        else:
            replace(output, headers=False).rows(item["about"], [item], COLUMNS)
        return
    content = document_of(event)
    if output.form is Form.YAML:
        print(f"---\n{yaml_text(content)}", end="")
    else:
        print(json.dumps(content))


COLUMNS = (
    Column("TIME", lambda e: datetime.fromtimestamp(e["at"], UTC).isoformat(timespec="seconds")),
    Column("KIND", lambda e: e["about"]),
    Column("NAME", lambda e: e["name"]),
    Column("TEXT", lambda e: e["text"]),
)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
