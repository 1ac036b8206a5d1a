"""`hbox nodes`."""

from collections.abc import Mapping
from typing import Any

import click

from hbox_common.errors import InvalidRequest
from hbox_common.views.cards import kind_items, owner_text
from hbox_common.views.nodes import pool_items, scopes_text

from ..access import source_of
from ..context import Context, watch_options
from ..output import Column


def _free_of(cards: Mapping[str, float]) -> str:
    """`3/8`; where parts of cards are given away, `1.25/2`."""
    return f"{cards['free']:.2f}".rstrip("0").rstrip(".") + f"/{cards['total']}"


COLUMNS = (
    Column("NODE", lambda n: n["name"]),
    Column("STATE", lambda n: n["state"]),
    Column("MODEL", lambda n: n["model"]),
    Column("FREE/CARDS", lambda n: _free_of(n["cards"])),
    Column("HEALTH", lambda n: scopes_text(n["health"]) if "health" in n else "ok" if n["healthy"] else "bad"),
    Column("PODS", lambda n: n["pods"]),
    Column("POOL", lambda n: n["pool"]),
    Column("CPU", lambda n: f"{n['used'].get('cpu', 0) / 1000:g}/{n['allocatable'].get('cpu', 0) / 1000:g}", wide=True),
    Column(
        "MEM-GIB", lambda n: f"{n['used'].get('memory', 0) // 2**30}/{n['allocatable'].get('memory', 0) // 2**30}", wide=True
    ),
    Column("FREE-PERCENT", lambda n: " ".join(map(str, n["cards"]["freePercent"])), wide=True),
    Column("REASON", lambda n: n["reason"]),
)


POOLS = (
    Column("POOL", lambda p: p["name"]),
    Column("NODES", lambda p: p["nodes"]),
    Column("READY", lambda p: p["ready"]),
    Column("FREE/CARDS", lambda p: _free_of(p["cards"])),
    Column("CARDS BY QUEUE", lambda p: ", ".join(f"{queue} {cards}" for queue, cards in p["queues"].items()) or None),
)


def _part(of: Mapping[str, Any], unit: int = 1) -> str | None:
    return f"{of['used'] / unit:.4g}/{of['total'] / unit:.4g}" if of["total"] else None


OWNERS_SHOWN = 3


def _owners(card: Mapping[str, Any]) -> str:
    owners = [owner_text(owner) for owner in card["owners"]]
    return ", ".join(owners[:OWNERS_SHOWN]) + (f" and {len(owners) - OWNERS_SHOWN} more" if len(owners) > OWNERS_SHOWN else "")


DEVICES = (
    Column("NODE", lambda c: c["node"]),
    Column("CARD", lambda c: c["name"].rpartition("/")[2]),
    Column("KIND", lambda c: c["kind"]),
    Column("MODEL", lambda c: c["model"]),
    Column("MODE", lambda c: c["mode"], wide=True),
    Column("UUID", lambda c: c["uuid"], wide=True),
    Column("NUMA", lambda c: c["numa"], wide=True),
    Column("SLOTS", lambda c: f"{c['slots']['used']}/{c['slots']['total']}"),
    Column("MEM-GIB", lambda c: _part(c["memoryMib"], 1024)),
    Column("CORES%", lambda c: f"{c['cores']['used']}/{c['cores']['total']}"),
    Column("HEALTH", lambda c: f"{c['health']}: {c['reason']}" if c["reason"] else c["health"]),
    Column("OWNERS", _owners),
)

KINDS = (
    Column("KIND", lambda k: k["kind"]),
    Column("MODEL", lambda k: k["model"]),
    Column("NODES", lambda k: k["nodes"]),
    Column("IDLE/CARDS", lambda k: f"{k['cards']['idle']}/{k['cards']['total']}"),
    Column("OUT OF USE", lambda k: k["cards"]["out"]),
    Column("SLOTS", lambda k: f"{k['slots']['used']}/{k['slots']['total']}"),
    Column("MEM-GIB", lambda k: _part(k["memoryMib"], 1024)),
    Column("CORES", lambda k: _part(k["cores"], 100)),
    Column("CARDS BY QUEUE", lambda k: ", ".join(f"{queue} {cards}" for queue, cards in k["queues"].items()) or None),
)


@click.command("nodes")
@click.option("--devices", is_flag=True, help="List each card: its allocated slots, memory and cores, and their holders.")
@click.option("--kinds", is_flag=True, help="List card models with their totals over all nodes.")
@click.option("--pools", is_flag=True, help="List pools: their nodes, cards and owning queues.")
@click.option("--pool", help="Only nodes of this pool.")
@click.option("--bad", is_flag=True, help="Only nodes that are not ready, cordoned or unhealthy.")
@watch_options
def command(ctx: Context, *, bad: bool, devices: bool, kinds: bool, pool: str | None, pools: bool) -> None:
    """List nodes: free and total cards, health, pods, and the reason if a node is not schedulable.

    A card without a pod is free. For cards without ids (the device plugin reports only their number) --devices shows one line
    per node and model.

    \b
    hbox nodes -o wide
    hbox nodes --bad
    hbox nodes --pools
    hbox nodes --devices --bad
    hbox nodes --kinds
    """
    if devices + kinds + pools > 1:
        raise InvalidRequest("--devices, --kinds and --pools are three tables", hint="ask one after the other")
    source = source_of(ctx)
    if devices or kinds:
        cards = [c for c in source.devices() if pool is None or c["pool"] == pool]
        cards = [c for c in cards if not bad or c["health"] != "ok"]
        if kinds:
            ctx.output.rows("DeviceKind", kind_items(cards), KINDS)
        else:
            ctx.output.rows("Device", cards, DEVICES)
        return
    items = [n for n in source.nodes() if pool is None or n["pool"] == pool]
    if pools:
        ctx.output.rows("Pool", pool_items(items), POOLS)
        return
    ctx.output.rows("Node", [n for n in items if not bad or n["state"] != "READY" or not n["healthy"]], COLUMNS)
