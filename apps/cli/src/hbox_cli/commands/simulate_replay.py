"""`hbox simulate replay`."""

from pathlib import Path
from typing import Any

import click

from ..context import Context, command_options
from ..exits import Faulty
from ..output import Column, Form, duration, notify, put
from ..placements import show

#: Jobs named for people; `-o json` names all.
JOBS_SHOWN = 10


@click.command("replay")
@click.argument("record", metavar="RECORD", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--policy",
    metavar="FILE|NAME",
    help="Policy to apply to the record: a volcano-scheduler.conf; binpack, least-waste or fgd; or "
    "`recorded`, the record's own.",
)
@click.option("--placed", metavar="JOB", help="Show the scores of JOB's placement in the record and the runner-up nodes.")
@command_options
def command(ctx: Context, *, record: Path, policy: str | None, placed: str | None) -> None:
    """Replay the recorded inputs of scheduler-core: compare plans and verdicts, or apply another policy.

    \b
    HBOX_RECORD=records hbox up
    hbox simulate replay records/20260101T120000Z-scheduler-core.hboxrecord
    hbox simulate replay RECORD --policy volcano-scheduler.conf
    hbox simulate replay RECORD --policy recorded
    hbox simulate replay RECORD --placed ml/train-7

    RECORD is a file that scheduler-core writes if HBOX_RECORD is set. Without --policy, exit status 1 if a decision differs.

    With --policy the same jobs arrive at the same times on the same nodes, and the consequences of decisions are simulated: a pod runs for as long as on
    record, from its start under this policy. `--policy recorded` shows the error of this method.
    """
    if policy is not None and placed is not None:
        raise click.UsageError("--policy and --placed are two questions: ask one at a time", ctx=click.get_current_context())
    if placed is not None:
        _show_placed(ctx, record, placed)
        return
    if policy is not None:
        from ..simulate.whatif import what_if  # noqa: PLC0415  half a second that --help does not need

        content = what_if(record, policy)
        _warn(record, content)
        _show_other(ctx, content)
        return
    from ..simulate.replays import replayed  # noqa: PLC0415  half a second that --help does not need

    content = replayed(record)
    _warn(record, content)
    _show(ctx, content)
    if content["differences"]:
        raise Faulty(
            f"{content['differences']} decisions are not those of the record, the first in cycle {content['first']['cycle']}",
            hint="replay it with the HBox that wrote it; where that is this one, send us the record",
        )


_PLACED = (
    Column("POD", lambda p: p["name"]),
    Column("NODE", lambda p: p["node"]),
    Column("PLAN", lambda p: p["plan"]),
    Column("TIME", lambda p: p["at"]),
    Column("SCORE", lambda p: p["chosen"]["total"] if p["chosen"] else ""),
    Column("RUNNER-UP", lambda p: p["other"]["node"] if p["other"] else ""),
    Column("RUNNER-UP-SCORE", lambda p: p["other"]["total"] if p["other"] else ""),
)


def _show_placed(ctx: Context, record: Path, job: str) -> None:
    from ..simulate import replays  # noqa: PLC0415

    content = replays.placed(record, job)
    _warn(record, content)
    if ctx.output.form is Form.CSV:
        pods = [
            {
                "name": pod,
                "node": on["node"],
                "plan": one["plan"],
                "at": one["at"],
                "chosen": on["chosen"],
                "other": on["runner_up"],
            }
            for one in content["decisions"]
            for on in one["nodes"]
            for pod in on["pods"]
        ]
        ctx.output.rows("Pod", pods, _PLACED)
        return
    if not ctx.output.people:
        ctx.output.document("PlacementExplanation", content)
        return
    put(content["name"])
    show(content["decisions"])


def _warn(record: Path, content: dict[str, Any]) -> None:
    for warning in content["warnings"]:
        notify(f"{record}: {warning}")


def _show(ctx: Context, content: dict[str, Any]) -> None:
    if ctx.output.machine or ctx.output.form is Form.CSV:
        ctx.output.document("ReplayReport", content)
        return
    if ctx.output.form is Form.NAME:
        put(f"record/{content['record']}")
        return
    put(
        f"record       {content['record']}",
        f"written by   HBox {content['version']}, {content['scheduler']}, over {duration(content['seconds'])}; {content['end'] or 'no end is written'}",
        f"calls        {content['calls']}",
        f"cycles       {content['cycles']}",
        f"plans        {content['plans']}",
        f"placements   {content['placements']}",
        f"victims      {content['victims']}",
        f"verdicts     {content['verdicts']}",
        f"differences  {content['differences']}",
    )
    if (first := content["first"]) is not None:
        put(
            f"the first    cycle {first['cycle']}, {first['call']}, {first['what']}",
            f"  recorded   {first['recorded']}",
            f"  replayed   {first['replayed']}",
        )


_QUEUES = (
    Column("QUEUE", lambda q: q["name"]),
    Column("JOBS", lambda q: q["jobs"]),
    Column("MEAN WAIT", lambda q: _both(q, "meanSeconds")),
    Column("P90 WAIT", lambda q: _both(q, "p90Seconds")),
    Column("LONGEST", lambda q: _both(q, "longestSeconds"), wide=True),
    Column("STILL WAIT", lambda q: f"{q['recorded']['waiting']} -> {q['other']['waiting']}"),
)


def _both(queue: Any, what: str) -> str:
    return f"{_seconds(queue['recorded'][what])} -> {_seconds(queue['other'][what])}"


def _seconds(value: float) -> str:
    """Waits below two minutes have tenths of a second."""
    return f"{value:.1f}s" if value < 120 else duration(value)


def _show_other(ctx: Context, content: dict[str, Any]) -> None:
    if ctx.output.machine:
        ctx.output.document("ReplayComparison", content)
        return
    queues = [{"name": name, **waits} for name, waits in content["queues"].items()]
    if ctx.output.form in (Form.NAME, Form.CSV):
        ctx.output.rows("Queue", queues, _QUEUES)
        return
    pods, jobs, policies = content["pods"], content["jobs"], content["policies"]
    put(
        f"record       {content['record']}, over {duration(content['seconds'])}",
        f"policies     recorded: {policies['recorded']}; other: {policies['other']}. Below: recorded -> other",
        f"pods         {pods['alike']} on the same node, {pods['elsewhere']} elsewhere, {pods['byRecordAlone']} placed on record alone, "
        f"{pods['byOtherAlone']} by the other alone, {pods['neither']} by neither",
    )
    if (first := content["first"]) is not None:
        put(
            f"first apart  {first['job']} pod {first['pod']}: recorded {_place(first['recorded'])}; other {_place(first['other'])}"
        )
    put(
        f"jobs         on record alone: {_names(jobs['byRecordAlone'])}",
        f"             by the other alone: {_names(jobs['byOtherAlone'])}",
        f"allocation   {'; '.join(f'{what} {_parts(sides)}' for what, sides in content['allocation'].items() if sides)}",
        f"evictions    {content['evictions']['recorded']} -> {content['evictions']['other']}",
    )
    if queues:
        put("")
        ctx.output.rows("Queue", queues, _QUEUES)


def _place(place: dict[str, Any] | None) -> str:
    return "no place" if place is None else f"{place['node']} after {_seconds(place['seconds'])}"


def _parts(sides: dict[str, float]) -> str:
    return f"{sides['recorded']:.1%} -> {sides['other']:.1%}"


def _names(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - JOBS_SHOWN} more" if len(names) > JOBS_SHOWN else ""
    return f"{len(names)}: {', '.join(names[:JOBS_SHOWN])}{more}"
