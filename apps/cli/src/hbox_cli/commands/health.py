"""`hbox health`: judgements of node health."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from hbox_common.bus import Bus
from hbox_common.errors import HBoxError, InvalidRequest

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..health.cases import PLAIN_KINDS, read_case
from ..health.incidents import changes, incident_item, incidents, sick_node, sick_nodes
from ..health.judging import judged, own_rules
from ..output import Column, put
from ..session import bus_of

T = TypeVar("T")


@click.group("health")
def command() -> None:
    """Show nodes' health and incidents, and judge what nodes show of their hardware."""


@command.command("judge")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--kind", type=click.Choice([kind.replace("_", "-") for kind in PLAIN_KINDS]), help="What a plain file holds  [by content]"
)
@click.option("--box", default="", help="Kind of the node that a plain file is of: H100, A800, L20, ...  [by content]")
@click.option("--driver", default="", help="Version of the NVIDIA driver that wrote a plain file.")
@click.option(
    "--rules",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder with own codes.yaml, nvlink5.yaml or profiles.yaml, for this command only.",
)
def judge(files: tuple[Path, ...], kind: str | None, box: str, driver: str, rules: Path | None) -> None:
    """Judge FILEs offline: what would health-monitor decide? Prints one JSON object for each.

    A FILE is a case (YAML with kind, context and input) or plain: a kernel log (dmesg, /dev/kmsg, syslog, journal), the fabric manager's log, the text of
    DCGM's exporter, the output of nccl-tests, a table of pair tests, or the NVML document of a node.

    \b
    dmesg > node.log; hbox health judge node.log --box H100
    """
    tables = own_rules(rules) if rules else None
    context = {key: value for key, value in (("box", box), ("driver", driver)) if value}
    failed: list[HBoxError] = []
    for path in files:
        try:
            answer = judged(read_case(path, kind=kind.replace("-", "_") if kind else None, context=context), tables)
        except HBoxError as e:
            failed.append(e)
            continue
        click.echo(json.dumps(answer, ensure_ascii=False))
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise InvalidRequest("; ".join(e.message for e in failed))


INCIDENTS = (
    Column("ID", lambda i: i["id"]),
    Column("STATE", lambda i: i["state"]),
    Column("ENTITY", lambda i: i["entity"]),
    Column("KIND", lambda i: i["kind"]),
    Column("CODE", lambda i: i["code"]),
    Column("ACTION", lambda i: i["action"]),
    Column("BLAME", lambda i: i["blame"], wide=True),
    Column("AUTHORITY", lambda i: i["authority"], wide=True),
    Column("OPENED", lambda i: _time(i["opened"])),
    Column("WHY", lambda i: i["why"]),
)

NODES = (
    Column("NODE", lambda n: n["node"]),
    Column("HEALTH", lambda n: n["text"]),
    Column("SINCE", lambda n: _time(n["since"])),
    Column("INCIDENTS", lambda n: len(n["health"]["incidents"])),
    Column("REASON", lambda n: n["reason"]),
)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _ask(ctx: Context, ask: Callable[[Bus], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with bus_of(running_of(ctx)) as bus:
            return await ask(bus)

    return run(connected)


@command.command("ls")
@platform_options
def list_(ctx: Context) -> None:
    """List nodes of which something may not be used: cards, rails, multi-card work, gangs, or the node."""
    ctx.output.rows("SickNode", _ask(ctx, sick_nodes), NODES)


@command.command("show")
@click.argument("node")
@platform_options
def show(ctx: Context, node: str) -> None:
    """Show what of NODE may not be used, and its open incidents with their evidence."""
    item = _ask(ctx, lambda bus: sick_node(bus, node))
    if ctx.output.machine:
        ctx.output.document("NodeHealth", item)
        return
    put(f"{node}: {item['text']}" + (f"  ({item['reason']})" if item["reason"] else ""))
    for one in item["incidents"]:
        put(f"  {one['id']}  {one['state']}  {one['entity']}  {one['kind']} {one['code']}  next: {one['action']}")
        for line in (one["why"], *one["evidence"]):
            put(f"    {line}")


@command.command("incidents")
@click.argument("node", required=False)
@click.option("--all", "closed", is_flag=True, help="Also closed incidents of the last 30 days.")
@platform_options
def incidents_(ctx: Context, node: str | None, closed: bool) -> None:
    """List open incidents, of NODE or of all nodes."""
    ctx.output.rows("Incident", _ask(ctx, lambda bus: incidents(bus, node, closed=closed)), INCIDENTS)


@command.command("history")
@click.argument("node", required=False)
@platform_options
def history(ctx: Context, node: str | None) -> None:
    """List every change of incidents in the last 30 days, oldest first."""
    found = _ask(ctx, lambda bus: changes(bus, node))
    ctx.output.rows(
        "Incident", [incident_item(one) for one in found], (Column("CHANGED", lambda i: _time(i["changed"])), *INCIDENTS)
    )
