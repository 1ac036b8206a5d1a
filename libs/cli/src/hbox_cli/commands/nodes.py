"""`hbox nodes`."""

import click

from hbox_common.events import HealthVerdict, NodeStateChanged

from ..aio import run
from ..context import Context, command_options
from ..output import Column
from ..platform.layout import Layout
from ..session import bus_of, claims_of, last_values
from ..views import Item, node_items, pool_items

COLUMNS = (
    Column("NODE", lambda n: n["name"]),
    Column("STATE", lambda n: n["state"]),
    Column("MODEL", lambda n: n["model"]),
    Column("FREE/CARDS", lambda n: f"{n['cards']['free']}/{n['cards']['total']}"),
    Column("HEALTH", lambda n: "ok" if n["healthy"] else f"bad cards {n['badCards']}" if n["badCards"] else "bad"),
    Column("PODS", lambda n: n["pods"]),
    Column("POOL", lambda n: n["pool"]),
    Column("CPU", lambda n: f"{n['used'].get('cpu', 0) / 1000:g}/{n['allocatable'].get('cpu', 0) / 1000:g}", wide=True),
    Column("MEM-GIB", lambda n: f"{n['used'].get('memory', 0) // 1024}/{n['allocatable'].get('memory', 0) // 1024}", wide=True),
    Column("FREE-PERCENT", lambda n: " ".join(map(str, n["cards"]["freePercent"])), wide=True),
    Column("REASON", lambda n: n["reason"]),
)


POOLS = (
    Column("POOL", lambda p: p["name"]),
    Column("NODES", lambda p: p["nodes"]),
    Column("READY", lambda p: p["ready"]),
    Column("FREE/CARDS", lambda p: f"{p['cards']['free']}/{p['cards']['total']}"),
    Column("CARDS BY QUEUE", lambda p: ", ".join(f"{queue} {cards}" for queue, cards in p["queues"].items()) or None),
)


@click.command("nodes")
@click.option("--pools", is_flag=True, help="A line for each pool: its nodes, its cards, and which queues have them.")
@click.option("--pool", help="Only nodes of this pool.")
@click.option("--bad", is_flag=True, help="Only what is not ready, cordoned or unhealthy.")
@command_options
def command(ctx: Context, bad: bool, pool: str | None, pools: bool) -> None:
    """Nodes: free and all cards, health, pods, and why one is out of use.

    \b
    hbox nodes -o wide
    hbox nodes --bad
    hbox nodes --pools
    """
    items = [n for n in run(lambda: _read(ctx)) if pool is None or n["pool"] == pool]
    if pools:
        ctx.output.rows("Pool", pool_items(items), POOLS)
        return
    ctx.output.rows("Node", [n for n in items if not bad or n["state"] != "READY" or not n["healthy"]], COLUMNS)


async def _read(ctx: Context) -> list[Item]:
    async with bus_of(Layout(ctx.state).running()) as bus:
        values = await last_values(bus, [NodeStateChanged, HealthVerdict])
        claims = [claim for page in await claims_of(bus) for claim in page.claims]
    return node_items(
        [event.node for event in values if isinstance(event, NodeStateChanged)],
        {event.verdict.node: event.verdict for event in values if isinstance(event, HealthVerdict)},
        claims,
    )
