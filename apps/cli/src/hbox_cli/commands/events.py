"""`hbox events`."""

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime

import click

from hbox_common.bus import Delivery, Start
from hbox_common.events import BudgetUsed, Event, EvictionReceipt, HealthChanged, JobPhaseChanged, QueueRefused
from hbox_common.visible import visible

from ..aio import run
from ..context import Context, command_options
from ..output import notify
from ..platform.layout import Layout
from ..session import ASK_S, bus_of

TYPES = (JobPhaseChanged, HealthChanged, QueueRefused, BudgetUsed, EvictionReceipt)


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Print new events until Ctrl-C.")
@command_options
def command(ctx: Context, follow: bool) -> None:
    """Print events: phases of jobs, health of nodes, refusals and evictions of the ledger. -o json prints one object per line.

    \b
    hbox events -f
    hbox events -o json | jq 'select(.phase == "waiting")'
    """
    run(lambda: _read(ctx, follow))


async def _read(ctx: Context, follow: bool) -> None:
    past = asyncio.Event()

    async def show(deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if ctx.output.machine:
                print(
                    json.dumps({"type": delivery.event.ce_type(), **delivery.event.model_dump(mode="json", by_alias=True)}),
                    flush=follow,
                )
            else:
                print(visible(line(delivery.event)), flush=follow)

    async def gap() -> None:
        notify("some events were lost: the broker's stream began anew")

    start = Start.NEW if follow else Start.ALL
    async with bus_of(Layout(ctx.state).running()) as bus, asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(bus.follow(TYPES, show, start=start, on_ready=past.set, on_gap=gap))
        if not follow:
            await asyncio.wait_for(past.wait(), ASK_S)
            reading.cancel()


def line(event: Event) -> str:
    match event:
        case JobPhaseChanged():
            text = (
                f"job    {event.namespace}/{event.name}  {event.phase}  {event.bound}/{event.members} pods  queue {event.queue}"
            )
            return f"{_time(event.at)}  {text}  {event.message}".rstrip()
        case HealthChanged():
            state = "healthy" if event.healthy else "unhealthy"
            cards = f" cards {list(event.bad_cards)}" if event.bad_cards else ""
            return f"{_time(event.at)}  node   {event.node}  {state}{cards}  {event.reason}"
        case QueueRefused():
            return f"{_time(event.at)}  queue  {event.queue}  refused {event.job}  {event.reason}: {event.message}"
        case EvictionReceipt():
            pods = ", ".join(f"{event.namespace}/{one.pod}" for one in event.pods)
            return f"{_time(event.at)}  queue  {event.queue}  evicted {pods}  {event.message}"
        case BudgetUsed():
            return f"{_time(event.at)}  queue  {event.queue}  budget {event.percent} %  {event.message}"
        case _:
            return event.ce_type()


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")
