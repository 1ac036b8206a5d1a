"""`hbox sizes`: standard sizes, what they become on this cluster, and manifests that name them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import click

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.events import NodeStateChanged
from hbox_common.model import Card, NodeAllocation, NodeName
from hbox_common.model.devices.sizes import DEFAULT, Choice, Size, as_content, can_take, choose, parse_sizes
from hbox_common.model.devices.sizes import settle as settled_as
from hbox_common.model.devices.sizing import applied
from hbox_common.views.jobs import Item
from hbox_common.yamltext import contents_of, read_file

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..output import Column, put
from ..session import bus_of, claims_of, last_values

COLUMNS = (
    Column("SIZE", lambda s: s["name"]),
    Column("FOR", lambda s: s["use"]),
    Column("BECOMES", lambda s: f"{s['way']} of {s['kind']}" if s["kind"] else "nothing here"),
    Column("RESOURCES", lambda s: ", ".join(f"{name}: {amount}" for name, amount in s["resources"].items()) or None),
    Column("FREE NOW", lambda s: s["free"]),
    Column(
        "ANNOTATIONS", lambda s: ", ".join(f"{name}: {value}" for name, value in s["annotations"].items()) or None, wide=True
    ),
)

#: The cards of each node, and what is given away of them.
Inventory: TypeAlias = list[tuple[tuple[Card, ...], NodeAllocation]]

_CATALOGUE = click.option(
    "--catalogue",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with a list of sizes, or a ConfigMap with the key sizes.yaml, that replaces HBox's own.",
)


@click.group("sizes", invoke_without_command=True)
@_CATALOGUE
@click.option("--default", "default", is_flag=True, help="Print HBox's own catalogue as a starting point.")
@click.option(
    "--settle",
    is_flag=True,
    help="Print the catalogue with each size's values on this cluster, for the admission endpoint.",
)
@platform_options
@click.pass_context
def command(click_context: click.Context, ctx: Context, catalogue: Path | None, default: bool, settle: bool) -> None:
    """List standard sizes, such as 24GB-inference: their values on this cluster, and how many fit now.

    \b
    hbox sizes
    hbox sizes --default > sizes.yaml
    hbox sizes --catalogue sizes.yaml
    hbox sizes --settle > settled.yaml
    hbox sizes apply job.yaml | kubectl apply -f -
    """
    if click_context.invoked_subcommand is not None:
        return
    sizes = _sizes(catalogue)
    if default:
        put(*_yaml(as_content(DEFAULT)).splitlines())
        return
    inventory = run(lambda: _inventory(ctx))
    if settle:
        cards = [card for own, _ in inventory for card in own]
        settled = [settled_as(size, choice) if (choice := choose(size, cards)) else size for size in sizes]
        put(*_yaml(as_content(settled)).splitlines())
        return
    ctx.output.rows("Size", [_item(size, inventory) for size in sizes], COLUMNS)


@command.command("apply")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@_CATALOGUE
@platform_options
def apply(ctx: Context, path: Path, catalogue: Path | None) -> None:
    """Print the manifests in PATH (- = standard input) with every size resolved for this cluster.

    \b
    A container names a size as a resource:
      resources:
        limits:
          sizes.hbox.io/24GB-inference: 1
    """
    sizes = {size.name: size for size in _sizes(catalogue)}
    text = sys.stdin.buffer.read() if str(path) == "-" else read_file(path)
    cards = [card for own, _ in run(lambda: _inventory(ctx)) for card in own]

    def resolve(size: Size) -> Choice:
        choice = choose(size, cards)
        if choice is None:
            raise NotFound(
                f"this cluster has no card for the size {size.name}", hint="`hbox sizes` shows which it has cards for"
            )
        return choice

    changed = []
    try:
        for document in contents_of(text):
            found, notes = applied(document, sizes, resolve)
            changed.append(found)
            for line in notes:
                click.echo(line, err=True)
    except InvalidRequest as e:
        raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e
    click.echo("---\n".join(_yaml(document) for document in changed), nl=False)


def _sizes(catalogue: Path | None) -> Sequence[Size]:
    if catalogue is None:
        return DEFAULT
    try:
        return parse_sizes(read_file(catalogue))
    except InvalidRequest as e:
        raise InvalidRequest(f"{catalogue}: {e.message}", hint=e.hint) from e


def _item(size: Size, inventory: Inventory) -> Item:
    choice = choose(size, [card for own, _ in inventory for card in own])
    if choice is None:
        return {"name": size.name, "use": size.use, "kind": "", "way": "", "resources": {}, "annotations": {}, "free": 0}
    free = sum(_room(choice, own, allocation) // size.cards for own, allocation in inventory)
    return {
        "name": size.name,
        "use": size.use,
        "kind": choice.kind,
        "way": str(choice.way),
        "resources": dict(choice.resources),
        "annotations": dict(choice.annotations),
        "free": free,
    }


def _room(choice: Choice, cards: Sequence[Card], allocation: NodeAllocation) -> int:
    """How many cards' shares of this size a node has left."""
    found = 0
    for card in cards:
        held = allocation.cards.get(card.id)
        if not can_take(choice, card):
            continue
        if choice.way == "whole":
            found += held is None or held.pods == 0
            continue
        size = choice.size
        used, cores, pods = (held.memory_mib, held.cores, held.pods) if held is not None else (0, 0, 0)
        room = min((card.memory_mib - used) // size.memory_mib, card.shares - pods)
        if size.cores:
            room = min(room, (100 - cores) // size.cores)
        found += max(room if cores < 100 else 0, 0)
    return found


async def _inventory(ctx: Context) -> Inventory:
    async with bus_of(running_of(ctx)) as bus:
        values = await last_values(bus, [NodeStateChanged])
        pages = await claims_of(bus)
    nodes = {value.node.name: value.node for value in values if isinstance(value, NodeStateChanged) and not value.node.gone}
    held: dict[NodeName, NodeAllocation] = {}
    for page in pages:
        for claim in page.claims:
            held.setdefault(claim.node, NodeAllocation()).book(claim.requests, claim.slices)
    return [
        (node.cards, held.get(node.name, NodeAllocation())) for node in nodes.values() if node.ready and not node.unschedulable
    ]


def _yaml(content: object) -> str:
    import yaml  # noqa: PLC0415  a third of a cold start, for those who ask for it

    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
