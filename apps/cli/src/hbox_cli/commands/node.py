"""`hbox node show NODE`."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import click

from hbox_common.views.cards import Item, link_lines, owner_text

from ..access import source_of
from ..context import Context, platform_options
from ..output import Column, duration, put
from .node_drain import drain, undrain

CARDS = (
    Column("CARD", lambda c: c["index"]),
    Column("UUID", lambda c: f"{c['uuid']} of {c['parent']}" if c["parent"] else c["uuid"]),
    Column("KIND", lambda c: c["kind"], wide=True),
    Column("MODEL", lambda c: c["model"]),
    Column("MODE", lambda c: c["mode"], wide=True),
    Column("NUMA", lambda c: c["numa"]),
    Column("HEALTH", lambda c: "bad" if not c["healthy"] else "cordoned" if c["cordoned"] else "ok"),
    Column("FREE", lambda c: None if c["freePercent"] is None else f"{c['freePercent']}%"),
    Column("LEDGER", lambda c: ", ".join(map(owner_text, c["owners"]))),
    Column("KUBELET", lambda c: ", ".join(c["kubelet"])),
)

CONTAINERS = (
    Column("CONTAINER", lambda c: c["name"]),
    Column("DEVICES", lambda c: "; ".join(f"{d['resource']} {' '.join(d['ids'])}" for d in c["devices"])),
    Column("NUMA", lambda c: ",".join(map(str, sorted({n for d in c["devices"] for n in d["numa"]})))),
    Column("CPUS", lambda c: c["cpus"]),
)


@click.group("node")
def command() -> None:
    """Show, close and open nodes."""


command.add_command(drain)
command.add_command(undrain)


ZONES = (
    Column("NUMA", lambda z: z["name"]),
    Column("CPUS", lambda z: z["cpus"]),
    Column("MEM-GIB", lambda z: z["memoryMib"] // 1024),
    Column("CARDS", lambda z: " ".join(map(str, z["cards"]))),
    Column("ADAPTERS", lambda z: " ".join(z["adapters"])),
    Column("DISTANCES", lambda z: " ".join(map(str, z["distances"]))),
    Column("GIVEN TO", lambda z: ", ".join(z["pods"])),
)


ADAPTERS = (
    Column("CARD", lambda c: c["card"]),
    Column("ADDRESS", lambda c: c["name"]),
    Column("PATH", lambda c: c["path"]),
    Column("NEAREST ADAPTERS", lambda c: " ".join(c["adapters"])),
)


def _nvml_state(card: Mapping[str, Any]) -> str:
    marks = {
        "lost": card["lost"],
        "no spare rows": card["remapFailed"],
        "reset pending": card["remapPending"],
        "ECC off": card["ecc"] == "off",
    }
    return ", ".join(word for word, holds in marks.items() if holds) or "ok"


NVML = (
    Column("CARD", lambda c: c["name"]),
    Column("UUID", lambda c: c["uuid"]),
    Column("ADDRESS", lambda c: c["address"]),
    Column("MODEL", lambda c: c["model"], wide=True),
    Column("MEM-GIB", lambda c: c["memoryMib"] // 1024),
    Column("NUMA", lambda c: c["numa"]),
    Column("MIG", lambda c: " ".join(one["profile"] for one in c["instances"]) or c["mig"]),
    Column(
        "NVLINK",
        lambda c: " ".join([*(f"{n}x{to}" for to, n in c["nvlinks"].items()), *(f"{n}:down" for n in c["nvlinksDown"])]),
    ),
    Column("CLIQUE", lambda c: c["clique"], wide=True),
    Column("STATE", _nvml_state),
)


@command.command("show")
@click.argument("name")
@click.option("--numa", is_flag=True, help="Show the machine: NUMA nodes, their devices and the kubelet's policies.")
@platform_options
def show(ctx: Context, name: str, numa: bool) -> None:
    """Show its cards, their holders in the ledger, their links, and the kubelet's allocations.

    \b
    hbox node show node-0001
    hbox node show node-0001 --numa
    hbox node show node-0001 -o json
    """
    item = source_of(ctx).node(name)
    if not ctx.output.people:
        ctx.output.document("Node", item)
        return
    if numa:
        _put_numa(ctx, item)
        return
    parts = item["parts"]
    put(
        f"{item['name']}: {item['state']}, pool {item['pool']}, {len(item['cards']) if parts is None else parts['total']} cards"
    )
    if parts is not None:
        by_pod = "".join(f", {pod} {cards:g}" for pod, cards in parts["pods"].items())
        put(f"parts of cards in use: {parts['used']:g} of {parts['total']}{by_pod}")
    if item["kubeletReport"]:
        put(f"kubelet's policy: {item['kubeletReport']['text']}")
    if item["identity"]:
        put(f"cards of pods: {item['identity']}")
    if item["cards"]:
        ctx.output.rows("Card", [{"name": str(card["index"]), **card} for card in item["cards"]], CARDS)
    for gone in item["gone"]:
        holders = ", ".join(gone["books"]) or "no pod"
        put(
            f"lost: card {gone['name']}"
            + ("" if gone["index"] is None else f" (index {gone['index']})")
            + f", held by {holders}"
        )
    if item["counts"]:
        put("by the books: " + ", ".join(f"{pod} {count}" for pod, count in item["counts"].items()))
    for links in item["links"]:
        put(f"links of its {links['kind']} cards, a score for each pair; higher is better:", *link_lines(links))
    kubelet = item["kubelet"]
    if kubelet is None:
        put("kubelet: no agent speaks for this node (`docs/guides/numa.md`)")
        return
    age = f"asked {duration(kubelet['ageSeconds'])} ago"
    put(f"kubelet: {age}{', and silent since: ' + kubelet['problem'] if kubelet['problem'] else ''}")
    if item["containers"]:
        ctx.output.rows("Container", item["containers"], CONTAINERS)


def _put_numa(ctx: Context, item: Item) -> None:
    found = item["numa"]
    if found is None:
        put("numa: no agent speaks for this node (`docs/guides/numa.md`)")
        return
    put(
        f"{item['name']}: {found['sockets']} sockets, {len(found['zones'])} NUMA nodes, {found['threadsPerCore']} threads a core"
    )
    rules = found["kubelet"]
    put(
        "kubelet: " + ("its configuration cannot be read" if rules is None else ", ".join(f"{k} {v}" for k, v in rules.items()))
    )
    ctx.output.rows("Zone", found["zones"], ZONES)
    if any(one["path"] for one in found["adapters"]):
        ctx.output.rows("CardAdapters", found["adapters"], ADAPTERS)
    if found["adaptersDown"]:
        put(f"adapters without an active port: {' '.join(found['adaptersDown'])}")
    for state, own in groupby(sorted(found["bridges"], key=lambda one: str(one["acs"])), key=lambda one: one["acs"]):
        put(f"ACS redirect {state} at bridges between cards and adapters: {' '.join(one['name'] for one in own)}")
    nvml = found["nvml"]
    if nvml is not None:
        put(f"NVML: {nvml['problem'] or 'driver ' + nvml['driver']}")
        if nvml["cards"]:
            ctx.output.rows("NvmlCard", nvml["cards"], NVML)
    for problem in found["problems"]:
        put(f"not read: {problem}")
