"""`hbox simulate fgd`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..context import Context, command_options
from ..output import Column
from .up import POLICIES


@click.command("fgd")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Folder of openb_*.csv[.gz] [$HBOX_TRACES].")
@click.option("--traces", metavar="A,B", help="Names of traces, such as default,gpuspec33 [the published ones].")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=10, show_default=True, help="Number of pod orders, from seed 42."
)
@click.option("--policy", type=click.Choice(POLICIES), default=POLICIES[0], show_default=True, help="Placement policy.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Worker processes [one per CPU].")
@command_options
def command(ctx: Context, *, data: Path | None, traces: str | None, seeds: int, policy: str, jobs: int | None) -> None:
    """Allocate cards by the protocol of FGD's authors (ATC'23), with their results for comparison.

    \b
    hbox simulate fgd --seeds 2
    hbox simulate fgd --traces default,gpuspec33 --policy binpack
    hbox simulate fgd -o json > fgd.json

    Pods of a trace arrive in random order, up to 130 % of the cards; each is placed at once or never. The table shows allocated cards in percent, at
    100 % and 130 % of arrived demand. GAP: closed part of the difference between FGD and an omniscient placement.
    """
    from ..simulate.fgd import FIRST_SEED, Outcome, Work, report, run  # noqa: PLC0415  half a second that --help does not need
    from ..simulate.openb import chosen, folder_of, traces_in  # noqa: PLC0415
    from ..simulate.pool import processors, spread  # noqa: PLC0415
    from ..simulate.published import PUBLISHED  # noqa: PLC0415
    from ..simulate.runs import Runs  # noqa: PLC0415

    folder = folder_of(data)
    wanted = [name for name in (traces or "").split(",") if name]
    names = chosen(folder, wanted or [name for name in PUBLISHED if name in traces_in(folder)] or traces_in(folder))
    numbers = list(range(FIRST_SEED, FIRST_SEED + seeds))
    works = [Work(folder, name, seed, policy) for name in names for seed in numbers]
    outcomes: dict[str, dict[int, Outcome]] = {name: {} for name in names}
    with Runs(len(works), "runs") as tick:
        for work, outcome in spread(run, works, jobs=jobs or processors()):
            outcomes[work.trace][work.seed] = outcome
            tick()
    _show(ctx, report(outcomes, policy=policy, seeds=numbers))


def _show(ctx: Context, content: dict[str, Any]) -> None:
    if ctx.output.machine:
        ctx.output.document("FgdReport", content)
        return
    rows: list[dict[str, Any]] = [{"name": name, **row} for name, row in content["traces"].items()]
    if "mean" in content and len(rows) > 1:
        rows.append({"name": "mean", **content["mean"]})
    ctx.output.rows(
        "Trace",
        rows,
        [
            Column("TRACE", lambda row: row["name"]),
            Column("AT 100 %", lambda row: _percent(row.get("alloc_100"))),
            Column("FGD", lambda row: _of(row, "fgd", "alloc_100")),
            Column("BOUND", lambda row: _of(row, "bound", "alloc_100")),
            Column("OVER FGD", lambda row: _signed(row.get("over_fgd_100"))),
            Column("GAP", lambda row: "-" if row.get("gap_closed") is None else f"{row['gap_closed']:.0%}"),
            Column("AT 130 %", lambda row: _percent(row.get("alloc_130"))),
            Column("FGD", lambda row: _of(row, "fgd", "alloc_130")),
            Column("OVER FGD", lambda row: _signed(row.get("over_fgd_130"))),
            Column("SPREAD", _spread),
            Column("F AT 100 %", lambda row: _percent(row.get("fragments_100"))),
            Column("UNPLACED", lambda row: row.get("unplaced_pods"), wide=True),
        ],
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _of(row: Mapping[str, Any], source: str, what: str) -> str:
    return _percent(row.get("published", {}).get(source, {}).get(what))


def _spread(row: Mapping[str, Any]) -> str:
    """Least and most of the seeds, at 130 %."""
    return "-" if "alloc_130_min" not in row else f"{row['alloc_130_min']:.2f}..{row['alloc_130_max']:.2f}"
