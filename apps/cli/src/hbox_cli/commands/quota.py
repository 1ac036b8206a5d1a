"""`hbox quota`: what ResourceQuotas of namespaces allow of cards. What changes them is in `quota_changes`."""

import click

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..output import Column, notify
from ..quotas import Item, quota_bar, quota_items
from ..session import bus_of, claims_of, jobs_of
from .quota_changes import set_

COLUMNS = (
    Column("NAMESPACE", lambda q: q["namespace"]),
    Column("QUOTA", lambda q: q["quota"] + ("!" if q["fault"] else "")),
    Column("RESOURCE", lambda q: q["resource"]),
    Column("USED █ LIMIT ▏", quota_bar, drawn=True),
    Column("USED", lambda q: q["used"]),
    Column("LIMIT", lambda q: q["limit"]),
    Column("WAITING", lambda q: q["waitingJobs"]),
    Column("FAULT", lambda q: q["fault"], wide=True),
)


@click.group("quota")
def command() -> None:
    """Show and change ResourceQuotas of cards: used and allowed per namespace."""


command.add_command(set_)


@command.command("ls")
@click.option("-n", "--namespace", help="Only this namespace.")
@platform_options
def ls(ctx: Context, namespace: str | None) -> None:
    """List ResourceQuotas that limit cards (`limits.nvidia.com/gpu`, `gpumem` in MiB, `gpucores` in percent), with use and the number of jobs that wait for
    them. A `!` after the name: the quota is invalid, and the namespace gets no cards until it is corrected.

    \b
    hbox quota ls
    hbox quota ls -n team-a -o json
    """
    items = run(lambda: _read(ctx, namespace))
    ctx.output.rows("Quota", items, COLUMNS)
    if ctx.output.machine:
        return
    for name, fault in {item["name"]: item["fault"] for item in items if item["fault"]}.items():
        notify(f"wrong: {name}: {fault}")
    if not items:
        notify("no quota limits cards" + (f" in namespace {namespace}" if namespace else ""))


async def _read(ctx: Context, namespace: str | None) -> list[Item]:
    async with bus_of(running_of(ctx)) as bus:
        pages = await claims_of(bus)
        jobs, _, why = await jobs_of(bus)
    claims = [claim for page in pages for claim in page.claims]
    return quota_items([quota for page in pages for quota in page.quotas], claims, jobs, why, namespace=namespace)
