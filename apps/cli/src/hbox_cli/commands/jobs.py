"""`hbox jobs`."""

import click

from ..access import jobs_of
from ..access.source import Wanted
from ..context import Context, watch_options
from ..output import Column, duration

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
@watch_options
def command(ctx: Context, namespace: str | None, queue: str | None, states: tuple[str, ...], limit: int | None) -> None:
    """List jobs, oldest first: gangs (PodGroups) and single pods with schedulerName hbox, and PodGroups that wait in `enqueue` without pods.

    \b
    hbox jobs --state-is waiting
    hbox jobs -q research -o json
    """
    wanted = Wanted(namespace, queue, tuple(state.upper() for state in states), limit)
    ctx.output.rows("Job", jobs_of(ctx, wanted), COLUMNS)
