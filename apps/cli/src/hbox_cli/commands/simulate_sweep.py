"""`hbox simulate sweep`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..context import Context, command_options
from ..output import Column, notify
from .up import POLICIES

if TYPE_CHECKING:
    from ..simulate.fgd import Outcome, Work


def _names(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in (value or "").split(",") if word))


def _policies(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    given = _names(ctx, parameter, value)
    for word in given:
        if word not in POLICIES:
            raise click.BadParameter(f"{word!r} is not one of {', '.join(POLICIES)}", ctx, parameter)
    return given or POLICIES


@click.command("sweep")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Folder of openb_*.csv[.gz] [$HBOX_TRACES].")
@click.option("--policies", callback=_policies, metavar="A,B", help=f"[{','.join(POLICIES)}]")
@click.option("--traces", callback=_names, metavar="A,B", help="Names of traces [the published ones].")
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Number of pod orders, from seed 42.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Worker processes [one per CPU].")
@click.option("--dask", metavar="ADDRESS", help="Run on the workers of this Dask cluster, such as tcp://host:8786.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of finished runs [sweep in the state folder]."
)
@command_options
def command(
    ctx: Context,
    *,
    data: Path | None,
    policies: tuple[str, ...],
    traces: tuple[str, ...],
    seeds: int,
    jobs: int | None,
    dask: str | None,
    out: Path | None,
) -> None:
    """Allocate cards under many policies: policies x traces x seeds by the protocol of `hbox simulate fgd`, one table at the end.

    \b
    hbox simulate sweep --policies binpack,least-waste --seeds 2
    hbox simulate sweep --seeds 10 --out results -o json
    hbox simulate sweep --dask tcp://head:8786

    The command can be stopped at any time: finished runs are kept, and the same command continues with the others.
    """
    if dask is not None and jobs is not None:
        raise click.UsageError(
            "--jobs is about this machine: with --dask the cluster has as many runs at once as its workers have threads"
        )
    from ..simulate.fgd import FIRST_SEED, Work, run  # noqa: PLC0415  half a second that --help does not need
    from ..simulate.openb import chosen, folder_of, traces_in  # noqa: PLC0415
    from ..simulate.pool import processors, spread  # noqa: PLC0415
    from ..simulate.published import PUBLISHED  # noqa: PLC0415
    from ..simulate.runs import Runs  # noqa: PLC0415
    from ..simulate.sweep import Journal, report  # noqa: PLC0415

    folder = folder_of(data)
    names = chosen(folder, traces or [name for name in PUBLISHED if name in traces_in(folder)] or traces_in(folder))
    journal = Journal.open(out or ctx.state / "sweep")
    known = journal.read()
    wanted = [(policy, trace, seed) for trace in names for seed in range(FIRST_SEED, FIRST_SEED + seeds) for policy in policies]
    works = [Work(folder, trace, seed, policy) for policy, trace, seed in wanted if (policy, trace, seed) not in known]
    if len(works) < len(wanted):
        notify(f"{len(wanted) - len(works)} of {len(wanted)} runs are in {journal.path} already")
    if works:
        with Runs(len(works), "runs") as tick:
            answers = spread(run, works, jobs=jobs or processors()) if dask is None else _on_cluster(dask, works)
            for work, outcome in answers:
                known[work.policy, work.trace, work.seed] = journal.add(work, outcome)
                tick()
    runs = {key: known[key] for key in wanted}
    _show(ctx, report(runs, policies=policies, traces=names), policies)


def _on_cluster(address: str, works: "list[Work]") -> "Iterator[tuple[Work, Outcome]]":
    from ..simulate.dask_cluster import spread  # noqa: PLC0415  an extra

    return spread(address, works)


def _show(ctx: Context, content: dict[str, Any], policies: tuple[str, ...]) -> None:
    if ctx.output.machine:
        ctx.output.document("SweepReport", content)
        return

    def column(policy: str, mark: str) -> Column:
        def cell(row: Any) -> str:
            return f"{row[policy][mark]:.2f}" if policy in row else "-"

        return Column(f"{policy.upper()} {mark.removeprefix('alloc_')} %", cell)

    shown = [*policies, "published fgd"]
    ctx.output.rows(
        "Trace",
        [{"name": name, **row} for name, row in content["traces"].items()],
        [Column("TRACE", lambda row: row["name"]), *(column(p, mark) for mark in ("alloc_100", "alloc_130") for p in shown)],
    )
