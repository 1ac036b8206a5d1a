"""`hbox jobs`."""

import click

from hbox_common.clock import wall_s
from hbox_common.views.jobs import Item, items_of

from ..aio import run
from ..context import Context, command_options
from ..output import Column, duration
from ..platform.layout import Layout
from ..session import bus_of, job_pages

COLUMNS = (
    Column("NAME", lambda j: j["name"]),
    Column("QUEUE", lambda j: j["queue"]),
    Column("PRI", lambda j: j["priority"]),
    Column("ST", lambda j: j["state"]),
    Column("PODS", lambda j: f"{j['pods']['bound']}/{j['pods']['members']}"),
    Column("CARDS", lambda j: j["cards"]),
    Column("AGE", lambda j: duration(j["ageSeconds"])),
    Column("MIN", lambda j: j["pods"]["min"], wide=True),
    Column("ID", lambda j: j["id"], wide=True),
    Column("VERDICT", lambda j: j.get("verdict", ""), wide=True),
    Column("CODE", lambda j: j.get("code", ""), wide=True),
    Column("REASON", lambda j: j["reason"]),
)

STATES = ("PENDING", "WAITING", "INVALID", "GROWING", "BOUND", "RUNNING")


@click.command("jobs")
@click.option("-n", "--namespace", help="Only this namespace.")
@click.option("-q", "--queue", help="Only this queue.")
@click.option(
    "--state-is", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only jobs in this state."
)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs, oldest first.")
@command_options
def command(ctx: Context, namespace: str | None, queue: str | None, states: tuple[str, ...], limit: int | None) -> None:
    """List jobs, oldest first: gangs (PodGroups) and single pods with schedulerName hbox, and PodGroups that wait in `enqueue` without pods.

    \b
    hbox jobs --state-is waiting
    hbox jobs -q research -o json
    """
    items = [
        item
        for item in run(lambda: read(ctx))
        if (namespace is None or item["name"].startswith(f"{namespace}/"))
        and (queue is None or item["queue"] == queue)
        and (not states or item["state"] in {state.upper() for state in states})
    ]
    ctx.output.rows("Job", items[:limit], COLUMNS)


async def read(ctx: Context) -> list[Item]:
    async with bus_of(Layout(ctx.state).running()) as bus:
        return items_of(await job_pages(bus), now=wall_s())
