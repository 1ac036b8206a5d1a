"""`hbox topo`: the fabric that connects the machines."""

from pathlib import Path

import click

from hbox_common.clock import wall_s

from ..aio import run
from ..context import Context, platform_options
from ..fabrics.drawing import drawing
from ..fabrics.files import graph_of
from ..fabrics.live import fabrics_of, occupied
from ..fabrics.objects import documents, hypernode_objects
from ..fabrics.views import aligned, change_items, gap_items, graph_boxes, matrix_rows, tree_item, tree_lines
from ..output import Column, duration, put

FILE = click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
OPTIONAL = click.argument("path", type=click.Path(path_type=Path, dir_okay=False), required=False)

SOURCES = (
    Column("FABRIC", lambda f: f["name"]),
    Column("SOURCE", lambda f: f["source"]),
    Column("AGE", lambda f: None if f["ageSeconds"] is None else duration(f["ageSeconds"])),
    Column("DOMAINS", lambda f: f["domains"]),
    Column("NODES", lambda f: f["nodes"]),
    Column("GAPS", lambda f: f["gaps"]),
    Column("HELD", lambda f: f["held"]),
)

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
    """Show the fabric: units, pods, switches and cabling faults."""


@command.command("sources")
@platform_options
def sources(ctx: Context) -> None:
    """List the known fabrics: source, age, and the reason if current data of the source is rejected.

    \b
    hbox topo sources
    """
    ctx.output.rows("Fabric", [one.item(wall_s()) for one in run(lambda: fabrics_of(ctx))], SOURCES)


@command.command("tree")
@OPTIONAL
@click.option("--hosts", is_flag=True, help="Name the hosts of each unit.")
@platform_options
def tree(ctx: Context, path: Path | None, hosts: bool) -> None:
    """Print roots, pods and units of the known fabrics, or of the one in PATH, the output of ibnetdiscover (also .gz).

    \b
    hbox topo tree
    ibnetdiscover > fabric.txt; hbox topo tree fabric.txt
    """
    if path is None:
        known = run(lambda: fabrics_of(ctx))
        if not ctx.output.people:
            ctx.output.document("FabricList", {"items": [one.tree() for one in known]})
        else:
            put(*(line for one in known for line in one.lines(hosts=hosts)))
        return
    graph = graph_of(path)
    if not ctx.output.people:
        ctx.output.document("Fabric", tree_item(graph))
    else:
        put(*tree_lines(graph, hosts=hosts))


@command.command("gaps")
@OPTIONAL
@platform_options
def gaps(ctx: Context, path: Path | None) -> None:
    """List cabling faults: links down, swapped rails, cables to other units, slow and narrow links, missing uplinks, cards without a name; of the
    known fabrics, or of the one in PATH.

    \b
    hbox topo gaps
    hbox topo gaps fabric.txt
    """
    found = (
        gap_items(graph_of(path))
        if path is not None
        else [item for one in run(lambda: fabrics_of(ctx)) for item in one.gap_items()]
    )
    ctx.output.rows("Gap", found, GAPS)


DIFF = (
    Column("", lambda c: c["sign"]),
    Column("KIND", lambda c: c["kind"]),
    Column("WHAT", lambda c: c["message"]),
)


@command.command("diff")
@click.argument("before", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("after", type=click.Path(path_type=Path, dir_okay=False))
@platform_options
def difference(ctx: Context, before: Path, after: Path) -> None:
    """Compare two files: units, hosts, switches, faults. `+` = added, `-` = removed, `~` = moved. Names are those of BEFORE.

    \b
    hbox topo diff monday.txt today.txt
    """
    old = graph_of(before)
    ctx.output.rows("Change", change_items(old, graph_of(after, former=old)), DIFF)


@command.command("matrix")
@FILE
@click.option("--unit", help="Hosts of this unit, by rail.")
@platform_options
def matrix(ctx: Context, path: Path, unit: str | None) -> None:
    """Print distances between units: 1 = the same unit, 2 = the same pod, 3 = through core switches. With --unit: its hosts and their rails.

    \b
    hbox topo matrix fabric.txt
    hbox topo matrix fabric.txt --unit lg05
    """
    rows = matrix_rows(graph_of(path), unit)
    if ctx.output.machine:
        ctx.output.document("FabricMatrix", {"rows": rows})
    elif not ctx.output.people:
        head, *units = rows
        columns = [Column(title, lambda unit, n=n: unit["cells"][n]) for n, title in enumerate(head)]  # type: ignore[misc]
        ctx.output.rows("Unit", [{"name": unit[0], "cells": unit} for unit in units], columns)
    else:
        put(*aligned(rows))


@command.command("hypernodes")
@FILE
@platform_options
def hypernodes(ctx: Context, path: Path) -> None:
    """Print the fabric in PATH as HyperNode objects, for `hbox simulate cycle` or for a cluster without a fabric source.

    \b
    hbox topo hypernodes fabric.txt > hypernodes.yaml
    (cat cluster.yaml; echo ---; cat hypernodes.yaml) > with-fabric.yaml
    hbox simulate cycle with-fabric.yaml
    """
    objects = hypernode_objects(graph_of(path))
    if not ctx.output.people:
        ctx.output.document("HyperNodeList", {"items": objects})
    else:
        put(*documents(objects))


@command.command("draw")
@OPTIONAL
@platform_options
def draw(ctx: Context, path: Path | None) -> None:
    """Draw an SVG of the known fabrics with the jobs on their hosts, or of the fabric in PATH. Red edges: a rail is down, slow or miswired.

    \b
    hbox topo draw > fabric.svg
    hbox topo draw fabric.txt > fabric.svg
    """
    if path is not None:
        graph = graph_of(path)
        text = drawing(path.name, graph_boxes(graph), {}, broken=graph.degraded)
    else:
        known, jobs = run(lambda: occupied(ctx))
        boxes = [box for one in known for box in one.boxes()]
        broken = {node: rails for one in known for node, rails in one.degraded.items()}
        text = drawing("HBox: " + ", ".join(one.name for one in known), boxes, jobs, broken=broken)
    put(*text.splitlines())
