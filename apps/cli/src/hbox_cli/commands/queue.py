"""`hbox queue`: looking at queues. What changes them is in `queue_changes` and `queue_states`."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from hbox_common.model import POOLED, by_pool, cards_named, is_model, model_of, of_pool, pools_named
from hbox_common.model.devices import VENDORS
from hbox_common.model.resources import quantity

from ..access import source_of
from ..context import Context, platform_options, watch_options
from ..output import Column, duration, put
from ..queues import (
    LEGEND,
    bar,
    elsewhere,
    models_named,
    scale_of,
    tree_rows,
)
from .queue_changes import create, set_
from .queue_states import close, drain, open_
from .share import fair_lines


def _cards(amount: str) -> Column:
    title = {"guarantee": "GUAR", "capability": "LIMIT"}.get(amount, amount.upper())
    return Column(title, lambda q: cards_named(of_pool(q["home"], q[amount])))


def _models(item: Mapping[str, Any]) -> str:
    """`A100 4, H100 12/16`: used, and the limit where there is one."""
    shown = sorted({*models_named(item), *filter(is_model, item["used"])})
    limits = {name: f"/{item['capability'][name]}" for name in shown if name in item["capability"]}
    return ", ".join(f"{model_of(name)} {item['used'].get(name, 0)}{limits.get(name, '')}" for name in shown)


def _elsewhere(item: Mapping[str, Any]) -> str:
    """`lab 4, public 2`: cards that it uses in other pools than the one that its amounts speak of."""
    there = {pool or POOLED: VENDORS.asked(of_pool(pool, item["used"])) for pool in pools_named(item["used"])}
    return ", ".join(f"{pool} {cards}" for pool, cards in sorted(there.items()) if cards and pool != item["home"])


COLUMNS = (
    Column("QUEUE", lambda q: q["name"]),
    Column("STATE", lambda q: q["state"] + ("!" if q["faults"] else "")),
    Column("PARENT", lambda q: q["parent"], wide=True),
    Column("POOLS", lambda q: ",".join(q["pools"]), wide=True),
    Column("WEIGHT", lambda q: q["weight"], wide=True),
    Column("PRI", lambda q: q["priority"], wide=True),
    _cards("guarantee"),
    _cards("deserved"),
    _cards("capability"),
    Column("USED", lambda q: VENDORS.asked(of_pool(q["home"], q["used"]))),
    _cards("borrowed"),
    _cards("idle"),
    Column("ELSEWHERE", _elsewhere, wide=True),
    Column("PENDING", lambda q: f"{q['pendingJobs']}/{q['pendingCards']}"),
    Column("OLDEST", lambda q: duration(q["oldestPendingSeconds"]) if q["pendingJobs"] else None),
    Column("MODELS", _models, wide=True),
    Column("CPU", lambda q: f"{q['used'].get('cpu', 0) / 1000:g}", wide=True),
    Column("MEM-GIB", lambda q: q["used"].get("memory", 0) // 2**30, wide=True),
)


@click.group("queue")
def command() -> None:
    """Show and change queues: limits and use."""


for change in (create, set_, open_, close, drain):
    command.add_command(change)


@command.command("ls")
@watch_options
def ls(ctx: Context) -> None:
    """List queues with their amounts and use, in cards; -o wide adds cores and memory. A `!` after the state: `hbox queue show` lists the faults."""
    ctx.output.rows("Queue", source_of(ctx).queues(), COLUMNS)


@command.command("tree")
@click.option("--resource", default=VENDORS.default.cards, show_default=True, help="Resource that the bars show.")
@watch_options
def tree(ctx: Context, resource: str) -> None:
    """Show queues below their parents, with a bar per queue and per card model that it names."""
    items = source_of(ctx).queues()
    if not ctx.output.people:
        ctx.output.rows("Queue", items, COLUMNS)
        return
    columns = (
        Column("QUEUE", lambda q: q["drawn"]),
        Column("", lambda q: q["bar"] or " "),
        Column(resource, lambda q: q["said"]),
    )
    ctx.output.rows("Queue", bars_of(items, resource), columns)
    if ctx.output.headers:
        print(LEGEND)


def bars_of(items: Sequence[Mapping[str, Any]], resource: str) -> list[dict[str, Any]]:
    """A row a queue, of cards also one for each model that it names, all to one scale."""
    scale = scale_of(items, resource)
    drawn: list[dict[str, Any]] = []
    for name, item in tree_rows(items):
        rows = [(name, resource)]
        if resource in VENDORS.cards:
            indent = " " * (len(name) - len(item["name"]))
            rows += [
                (f"{indent}  {model_of(model)}", model) for model in models_named(item) if model.startswith(f"{resource}.")
            ]
            rows += [(f"{indent}  in {by_pool(one)[1] or POOLED}", one) for one in elsewhere(item, resource)]
        drawn += [
            {"name": item["name"], "drawn": shown, "bar": bar(item, one, scale=scale), "said": figures(item, one)}
            for shown, one in rows
        ]
    return drawn


def figures(item: Mapping[str, Any], resource: str) -> str:
    """`12 used, 6 deserved, 6 borrowed, limit 12`, and the state where it is not open."""
    parts = [f"{quantity(resource, item['used'].get(resource, 0))} used"]
    for amount, template in (
        ("guarantee", "{} guaranteed"),
        ("deserved", "{} deserved"),
        ("borrowed", "{} borrowed"),
        ("capability", "limit {}"),
    ):
        if (units := item[amount].get(resource)) is not None:
            parts.append(template.format(quantity(resource, units)))
    if item["pendingCards"] and resource in VENDORS.cards:
        parts.append(f"{item['pendingCards']} waiting")
    if item["state"] != "Open":
        parts.append(item["state"])
    return ", ".join(parts)


def _shown(row: Mapping[str, Any], amount: str) -> str | None:
    """The amount in Kubernetes notation; None if the queue has no such amount. `-o json` prints base units."""
    units = row[amount]
    return None if units is None else quantity(row["name"], units)


@command.command("show")
@click.argument("name")
@platform_options
def show(ctx: Context, name: str) -> None:
    """Show the queue NAME in full, with the faults of its rules."""
    item = source_of(ctx).queue(name)
    if not ctx.output.people:
        ctx.output.document("Queue", item)
        return
    weights = f"weight {item['weight']}  priority {item['priority']}"
    print(f"{' / '.join(item['path'])}  {item['state']}  {weights}{'' if item['reclaimable'] else '  not reclaimable'}")
    amounts = ("guarantee", "deserved", "used", "borrowed", "idle", "capability")
    named_resources = sorted({resource for amount in amounts for resource in item[amount]})
    rows = [{"name": resource, **{amount: item[amount].get(resource) for amount in amounts}} for resource in named_resources]
    bars = {resource: bar(item, resource, scale=scale_of([item], resource)) for resource in named_resources}
    columns = [Column("RESOURCE", lambda r: r["name"]), Column("", lambda r: bars[r["name"]] or " ")]
    columns += [Column(amount.upper(), lambda r, amount=amount: _shown(r, amount)) for amount in amounts]  # type: ignore[misc]
    ctx.output.rows("Resource", rows, columns)
    namespaces = ", ".join(item["namespaces"]) or ("those of the queues above it" if item["bound"] else "any")
    put(f"pools: {', '.join(item['pools'])}; namespaces: {namespaces}")
    if item["home"] != POOLED:
        put(f"its amounts are of pool {item['home']}")
    if item["lentPools"]:
        put(f"lends {', '.join(item['lentPools'])} while idle to {', '.join(item['lentTo']) or 'all queues'}")
    if item["borrowsFrom"]:
        put(f"may borrow idle nodes of pool {', '.join(item['borrowsFrom'])}, whose owners have them back at once")
    if item["priorityClasses"]:
        put(f"takes jobs of PriorityClass {', '.join(item['priorityClasses'])}")
    if item["nonPreemptibleClasses"]:
        put(f"classes exempt from reclaim within the deserved share: {', '.join(item['nonPreemptibleClasses'])}")
    pods = f"{item['pods']} pods; " if item["pods"] is not None else ""
    print(f"{pods}{item['pendingJobs']} jobs wait for {item['pendingCards']} cards")
    for line in fair_lines(item, item):
        print(line.strip())
    if item["children"]:
        put(f"below it: {', '.join(item['children'])}")
    for fault in item["faults"]:
        put(f"wrong: {fault}")
