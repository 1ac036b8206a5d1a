"""`hbox topo`: the fabric that connects the machines."""

from pathlib import Path

import click

from ..context import Context, command_options
from ..fabrics.files import graph_of
from ..fabrics.views import aligned, gap_items, matrix_rows, tree_item, tree_lines
from ..output import Column, put

FILE = click.argument("path", type=click.Path(path_type=Path, dir_okay=False))

GAPS = (
    Column("KIND", lambda f: f["kind"]),
    Column("UNIT", lambda f: f["unit"]),
    Column("HOST", lambda f: f["host"]),
    Column("SWITCH", lambda f: f["switch"], wide=True),
    Column("CARD", lambda f: f["card"], wide=True),
    Column("WHAT", lambda f: f["message"]),
)


@click.group("topo")
def command() -> None:
    """The fabric: its tree of units, pods and switches, and what is wrong with its cables."""


@command.command("tree")
@FILE
@click.option("--hosts", is_flag=True, help="Name the hosts of each unit.")
@command_options
def tree(ctx: Context, path: Path, hosts: bool) -> None:
    """Roots, pods and units of the fabric in PATH, the text of ibnetdiscover (also .gz).

    \b
    ibnetdiscover > fabric.txt; hbox topo tree fabric.txt
    """
    graph = graph_of(path)
    if ctx.output.machine:
        ctx.output.document("Fabric", tree_item(graph))
    else:
        put(*tree_lines(graph, hosts=hosts))


@command.command("gaps")
@FILE
@command_options
def gaps(ctx: Context, path: Path) -> None:
    """What is not as it should be: links down, swapped rails, cables to other units, slow and narrow links, missing uplinks, cards without a name.

    \b
    hbox topo gaps fabric.txt
    """
    ctx.output.rows("Gap", gap_items(graph_of(path)), GAPS)


@command.command("matrix")
@FILE
@click.option("--unit", help="Hosts of this unit, by rail.")
@command_options
def matrix(ctx: Context, path: Path, unit: str | None) -> None:
    """How far units are from each other: 1 = the same unit, 2 = the same pod, 3 = over the cores. With --unit its hosts and what is on each rail.

    \b
    hbox topo matrix fabric.txt
    hbox topo matrix fabric.txt --unit lg05
    """
    rows = matrix_rows(graph_of(path), unit)
    if ctx.output.machine:
        ctx.output.document("FabricMatrix", {"rows": rows})
    else:
        put(*aligned(rows))
