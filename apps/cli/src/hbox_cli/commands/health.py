"""`hbox health`: judgements of node health."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from hbox_common.bus import Bus
from hbox_common.bus.users import OPERATOR, ORDERS
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.model import NodeName
from hbox_common.model.healthorder import OrderVerb

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..health.cases import PLAIN_KINDS, read_case
from ..health.incidents import changes, incident_item, incidents, sick_node, sick_nodes
from ..health.judging import judged, own_rules
from ..health.orders import order, orders, policy
from ..output import Column, notify, put
from ..session import bus_of
from . import health_backup, health_inject, health_nccl

T = TypeVar("T")


@click.group("health")
def command() -> None:
    """Show nodes' health and incidents, and judge what nodes show of their hardware."""


command.add_command(health_inject.command)
command.add_command(health_nccl.command)
command.add_command(health_backup.backup_)
command.add_command(health_backup.restore_)


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


def step_line(step: dict[str, Any]) -> str:
    """A step of a check with its result: `step: job, attempt 2, passed at 2026-12-24T18:00:00+00:00`."""
    attempt = f", attempt {step['attempt']}" if step["attempt"] else ""
    word = "since" if step["result"] in ("running", "waiting") else "at"
    when = f" {word} {_time(step['at'])}" if step["at"] else ""
    return f"step: {step['name']}{attempt}, {step['result']}{when}" + (f" ({step['text']})" if step["text"] else "")


def steps_text(steps: list[dict[str, Any]]) -> str:
    return "; ".join(step_line(step).removeprefix("step: ") for step in steps)


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
    Column("HELD BY", lambda i: "; ".join(i["heldBy"]), wide=True),
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


def _ask(ctx: Context, ask: Callable[[Bus], Awaitable[T]], user: str = OPERATOR) -> T:
    async def connected() -> T:
        async with bus_of(running_of(ctx), user) as bus:
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
        for line in (*(f"check: {check}" for check in one["checks"]), *map(step_line, one["steps"])):
            put(f"    {line}")
        if one["heldBy"]:
            put(f"    held by: {'; '.join(one['heldBy'])}")


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
        "Incident",
        [incident_item(one) for one in found],
        (Column("CHANGED", lambda i: _time(i["changed"])), *INCIDENTS, Column("STEPS", lambda i: steps_text(i["steps"]))),
    )


EXEMPTIONS = (
    Column("ID", lambda e: e["id"]),
    Column("NODE", lambda e: e["node"]),
    Column("LABEL", lambda e: e["label"]),
    Column("CHECK", lambda e: e["check"]),
    Column("CODE", lambda e: e["code"]),
    Column("OWNER", lambda e: e["owner"]),
    Column("UNTIL", lambda e: _time(e["until"])),
    Column("REASON", lambda e: e["reason"]),
)

ORDER_COLUMNS = (
    Column("TIME", lambda o: _time(o["at"])),
    Column("VERB", lambda o: o["verb"]),
    Column("NODE", lambda o: o["node"]),
    Column("OPERATOR", lambda o: o["operator"]),
    Column("EFFECT", lambda o: o["effect"]),
    Column("REASON", lambda o: o["reason"]),
    Column("ID", lambda o: o["id"], wide=True),
)

POLICIES = (
    Column("NAME", lambda v: v["name"]),
    Column("VALUE", lambda v: v["value"]),
    Column("SOURCE", lambda v: v["source"]),
)

reason_option = click.option("--reason", required=True, help="Why; stored with the order.")
operator_option = click.option("--operator", help="Name of the operator in the record of orders.  [USER@HOST]")


def _order(ctx: Context, verb: OrderVerb, reason: str, operator: str | None, **more: str | NodeName) -> None:
    done = _ask(ctx, lambda bus: order(bus, verb, reason, by=operator or "", **more), ORDERS)
    if ctx.output.machine:
        ctx.output.document("HealthOrder", done)
    else:
        put(done["effect"], f"order {done['id']}")


@command.command("exempt")
@click.argument("node", required=False)
@click.option("--label", default="", metavar="KEY[=VALUE]", help="Nodes with this label.")
@click.option("--check", default="", help="Kind of finding or incident, or KIND-CODE: port, xid-79, ...")
@click.option("--code", default="", help="Code of the finding.")
@click.option("--owner", required=True, help="Who answers for the fault until then.")
@click.option("--until", required=True, help="When it ends: a duration (7d) or a time (2026-12-24T18:00).")
@reason_option
@operator_option
@platform_options
def exempt(
    ctx: Context,
    *,
    node: str | None,
    label: str,
    check: str,
    code: str,
    owner: str,
    until: str,
    reason: str,
    operator: str | None,
) -> None:
    """Exempt faults: they are judged and recorded, and lead to no isolation, cordon, eviction or remedy. What is given has to match together.

    \b
    hbox health exempt node-7 --code 63 --owner ann --reason "row remap, card is ordered" --until 7d
    hbox health exempt --label pool=test --owner ann --reason "burn-in" --until 2026-12-24
    """
    named = {"node": NodeName(node or ""), "label": label, "check": check, "code": code}
    _order(ctx, OrderVerb.EXEMPT, reason, operator, owner=owner, ends=until, **named)


@command.command("end-exemption")
@click.argument("id_", metavar="ID")
@reason_option
@operator_option
@platform_options
def end_exemption(ctx: Context, id_: str, reason: str, operator: str | None) -> None:
    """End exemption ID now. What it held back takes effect."""
    _order(ctx, OrderVerb.END_EXEMPTION, reason, operator, target=id_)


@command.command("exemptions")
@platform_options
def exemptions(ctx: Context) -> None:
    """List exemptions in force."""
    ctx.output.rows("Exemption", _ask(ctx, policy)["exemptions"], EXEMPTIONS)


@command.command("maintenance")
@click.argument("node")
@click.option("--for", "lasts", default="", metavar="TIME", help="How long: 2h; or until when: 2026-12-24T18:00.")
@click.option("--end", "ends", is_flag=True, help="End the maintenance now.")
@reason_option
@operator_option
@platform_options
def maintenance(ctx: Context, *, node: str, lasts: str, ends: bool, reason: str, operator: str | None) -> None:
    """Take NODE out of service: no new work, its jobs leave by their policies, and faults open no incidents. At the end the node is checked before it returns.

    \b
    hbox health maintenance node-7 --for 2h --reason "new power supply"
    hbox health maintenance node-7 --end --reason "done early"
    """
    if ends == bool(lasts):
        raise click.UsageError("give either --for or --end")
    verb = OrderVerb.END_MAINTENANCE if ends else OrderVerb.MAINTENANCE
    _order(ctx, verb, reason, operator, node=NodeName(node), ends=lasts)


@command.command("close")
@click.argument("incident")
@reason_option
@operator_option
@platform_options
def close(ctx: Context, incident: str, reason: str, operator: str | None) -> None:
    """Close INCIDENT without a check, and return its hardware to service. A state that its node still reports is ignored for a day."""
    _order(ctx, OrderVerb.CLOSE, reason, operator, target=incident)


@command.command("accept")
@click.argument("node")
@reason_option
@operator_option
@platform_options
def accept(ctx: Context, node: str, reason: str, operator: str | None) -> None:
    """Accept NODE as it is: with fewer cards, NVLinks or ports than its profile, or without a card that it had.

    \b
    hbox health accept node-7 --reason "four cards by order"
    """
    _order(ctx, OrderVerb.ACCEPT, reason, operator, node=NodeName(node))


@command.command("audit")
@click.argument("node", required=False)
@click.option("--last", default="30d", show_default=True, help="Orders of this time.")
@platform_options
def audit(ctx: Context, node: str | None, last: str) -> None:
    """List orders of operators, newest first, of NODE or of all: who, when, why, and what they changed."""
    ctx.output.rows("HealthOrder", _ask(ctx, lambda bus: orders(bus, node, last=last)), ORDER_COLUMNS)


@command.command("policy")
@platform_options
def policy_(ctx: Context) -> None:
    """Show the rules and policies in force, and where each comes from: default, setting, or a file in `rules_folder`."""
    found = _ask(ctx, policy)
    if ctx.output.machine:
        ctx.output.document("HealthPolicy", found)
        return
    if found["fault"]:
        notify(f"a file in the folder of rules is refused, and the former ones stay in force: {found['fault']}")
    put(f"rules {found['version']}: " + ", ".join(f"{name} {source}" for name, source in sorted(found["tables"].items())))
    ctx.output.rows("HealthPolicyValue", found["values"], POLICIES)
