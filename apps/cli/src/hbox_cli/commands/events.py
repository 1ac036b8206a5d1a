"""`hbox events`."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import click

from hbox_common.bus import Delivery, Start
from hbox_common.events import Event
from hbox_common.views.events import TYPES, item_of

from ..aio import run
from ..context import Context, command_options
from ..output import Column, Form, Output, notify, put, yaml_text
from ..platform.layout import Layout
from ..session import ASK_S, bus_of


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Print new events until Ctrl-C.")
@command_options
def command(ctx: Context, follow: bool) -> None:
    """Print events: phases of jobs, health of nodes, refusals and evictions of the ledger. -o json prints one object per line, -o yaml one document per event.

    \b
    hbox events -f
    hbox events -o json | jq 'select(.phase == "waiting")'
    """
    run(lambda: _read(ctx, follow))


async def _read(ctx: Context, follow: bool) -> None:
    past = asyncio.Event()
    if ctx.output.form is Form.CSV:
        ctx.output.rows("Event", [], COLUMNS)

    async def show(deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            put_event(ctx.output, delivery.event)
        if follow:
            sys.stdout.flush()

    async def gap() -> None:
        notify("some events were lost: the broker's stream began anew")

    start = Start.NEW if follow else Start.ALL
    async with bus_of(Layout(ctx.state).running()) as bus, asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(bus.follow(TYPES, show, start=start, on_ready=past.set, on_gap=gap))
        if not follow:
            await asyncio.wait_for(past.wait(), ASK_S)
            reading.cancel()


def put_event(output: Output, event: Event) -> None:
    """One event in the form that was asked for; of a table its line, without a header."""
    if not output.machine:
        item = item_of(event)
        if output.people:
            put(f"{_time(item['at'])}  {item['about']:5}  {item['text']}")
        else:
            replace(output, headers=False).rows(item["about"], [item], COLUMNS)
        return
    content = {"type": event.ce_type(), **event.model_dump(mode="json", by_alias=True)}
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
