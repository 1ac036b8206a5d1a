"""`hbox simulate trace`."""

from pathlib import Path
from typing import Any

import click

from hbox_common.errors import InvalidRequest

from ..context import Context, command_options
from ..output import Column, Form, duration, notify
from .up import POLICIES

#: Orders of the queue; see docs/guides/simulate.md.
ORDERS = ("fifo", "backfill", "fair-share", "least-served")

LOAD = 0.9


@click.command("trace")
@click.argument("trace", metavar="PATH|PROFILE")
@click.option(
    "--policy", type=click.Choice(ORDERS), default="least-served", show_default=True, help="Order of queues and jobs."
)
@click.option("--compare", type=click.Choice(ORDERS), nargs=2, help="Compare two policies, instead of --policy.")
@click.option("--placement", type=click.Choice(POLICIES), default=POLICIES[0], show_default=True, help="Placement policy.")
@click.option("--nodes", type=click.IntRange(1, 100_000), help=f"Nodes [enough for a load of {LOAD:.0%}].")
@click.option("--cards", type=click.IntRange(1, 64), default=8, show_default=True, help="Cards per node.")
@click.option("--leaf", type=click.IntRange(0), default=0, help="Nodes per leaf switch [no topology].")
@click.option(
    "--restart", "restart_s", type=click.FloatRange(0), default=60.0, show_default=True, help="Seconds lost by each restart."
)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs, the first of the trace.")
@click.option("--seed", type=int, default=42, show_default=True, help="Seed of a profile.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Output file of an SVG picture of the run.")
@command_options
def command(
    ctx: Context,
    *,
    trace: str,
    policy: str,
    compare: tuple[str, str] | None,
    placement: str,
    nodes: int | None,
    cards: int,
    leaf: int,
    restart_s: float,
    limit: int | None,
    seed: int,
    plot: Path | None,
) -> None:
    """Run a trace of jobs on a cluster, from submission to end, under a policy.

    \b
    hbox simulate trace training-week
    hbox simulate trace itp_jobs.csv.gz --nodes 160 --compare backfill least-served --plot itp.svg
    hbox simulate trace philly_jobs.csv.gz --nodes 56 -o json

    PATH is a CSV, gzipped or not, with submit_s, duration_s and num_gpus; fair-share uses its column queue, vc or user.
    QUEUED: until the first start. WAITED: all the time without cards.
    """
    from ..simulate.jobtrace import trace_of  # noqa: PLC0415  half a second that --help does not need
    from ..simulate.pool import processors, spread  # noqa: PLC0415
    from ..simulate.runs import Runs  # noqa: PLC0415
    from ..simulate.trace import Setting, figures, run  # noqa: PLC0415

    if plot is not None and plot.suffix != ".svg":
        raise InvalidRequest(f"{plot}: pictures are drawn as SVG", hint="let the name end with .svg")
    found = trace_of(trace, seed=seed, limit=limit)
    count = nodes or found.nodes_for(LOAD, cards)
    if found.left_out:
        notify(f"{found.left_out} jobs without cards or duration are left out")
    orders = list(dict.fromkeys(compare or (policy,)))
    settings = [Setting(found.jobs, order, placement, count, cards, leaf, restart_s) for order in orders]
    outcomes = {}
    if len(settings) == 1:
        with Runs(len(found.jobs), "jobs") as tick:
            outcomes[orders[0]] = run(settings[0], tick)
    else:
        with Runs(len(settings), "runs") as tick:
            for setting, outcome in spread(run, settings, jobs=processors()):
                outcomes[setting.order] = outcome
                tick()
    policies = {order: figures(outcomes[order]) for order in orders}
    content: dict[str, Any] = {
        "trace": found.name,
        "jobs": len(found.jobs),
        "card_hours": round(found.card_hours),
        "nodes": count,
        "cards": count * cards,
        "placement": placement,
        "restart_s": restart_s,
        "policies": policies,
    }
    if plot is not None:
        _draw(
            plot, f"{found.name}: {len(found.jobs)} jobs on {count * cards} cards", {order: outcomes[order] for order in orders}
        )
    _show(ctx, content)


def _draw(target: Path, title: str, outcomes: dict[str, Any]) -> None:
    from ..simulate.picture import picture  # noqa: PLC0415
    from ..simulate.trace import curves  # noqa: PLC0415

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(picture(title, curves(outcomes)))
    except OSError as e:
        raise InvalidRequest(
            f"the picture cannot be written to {target}: {e.strerror}", hint="choose another place with --plot"
        ) from e
    notify(f"picture: {target}")


def _show(ctx: Context, content: dict[str, Any]) -> None:
    if ctx.output.machine:
        ctx.output.document("TraceReport", content)
        return
    wholes = [{"name": name, **figures} for name, figures in content["policies"].items()]
    if ctx.output.form is Form.NAME:
        ctx.output.rows("Policy", wholes, [])
        return
    if ctx.output.people:
        _show_wholes(ctx, content, wholes)
    rows = [
        {"name": name, "class": kind, **row}
        for kind in content["policies"][wholes[0]["name"]]["classes"]
        for name, figures in content["policies"].items()
        for row in [figures["classes"][kind]]
    ]
    ctx.output.rows(
        "Class",
        rows,
        [
            Column("CARDS", lambda row: row["class"]),
            Column("POLICY", lambda row: row["name"]),
            Column("JOBS", lambda row: row["jobs"]),
            *_marks("JCT", "jct_s", ("mean", "p50", "p95", "p99")),
            *_marks("QUEUED", "queueing_s", ("mean", "p50", "p95", "p99")),
            *_marks("WAITED", "waiting_s", ("mean", "p99")),
            Column("PREEMPTIONS", lambda row: row["preemptions"]),
        ],
    )


def _show_wholes(ctx: Context, content: dict[str, Any], wholes: list[dict[str, Any]]) -> None:
    """The trace's size and the figures of each policy."""
    print(
        f"{content['trace']}: {content['jobs']} jobs, {content['card_hours']} card hours, {content['nodes']} nodes, {content['cards']} cards"
    )
    print()
    ctx.output.rows(
        "Policy",
        wholes,
        [
            Column("POLICY", lambda row: row["name"]),
            Column("SOR", lambda row: f"{row['sor']:.1%}"),
            Column("GAR P50", lambda row: f"{row['gar']['p50']:.1%}"),
            Column("GFR", lambda row: f"{row['gfr']:.1%}"),
            Column("STRANDED CARDS", lambda row: row["stranded_cards"]),
            Column("PREEMPTIONS", lambda row: row["preemptions"]),
            Column("LOST CARD HOURS", lambda row: row["lost_card_hours"]),
            Column("LONGEST WAIT", lambda row: duration(row["longest_wait_s"])),
            Column("WORST SLOWDOWN", lambda row: row["slowdown"]["max"]),
            Column("LEAVES/POSSIBLE", lambda row: row.get("topology", {}).get("leaves_over_possible_now")),
        ],
    )
    print()


def _marks(title: str, key: str, marks: tuple[str, ...]) -> list[Column]:
    def column(mark: str) -> Column:
        return Column(f"{title} {mark.upper()}", lambda row: f"{row[key][mark]:.0f}")

    return [column(mark) for mark in marks]
