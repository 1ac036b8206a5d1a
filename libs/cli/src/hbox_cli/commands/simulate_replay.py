"""`hbox simulate replay`."""

from pathlib import Path
from typing import Any

import click

from ..context import Context, command_options
from ..exits import Faulty
from ..output import Form, duration, put, say


@click.command("replay")
@click.argument("record", metavar="RECORD", type=click.Path(path_type=Path, dir_okay=False))
@command_options
def command(ctx: Context, *, record: Path) -> None:
    """What scheduler-core was told, told again: whether it decides the same, plan by plan and verdict by verdict.

    \b
    HBOX_RECORD=records hbox up
    hbox simulate replay records/20260101T120000Z-scheduler-core.hboxrecord

    RECORD is a file that scheduler-core writes where HBOX_RECORD is set. Exit status 1 where a decision differs.
    """
    from ..simulate.replays import replayed  # noqa: PLC0415  half a second that --help does not need

    content = replayed(record)
    for warning in content["warnings"]:
        say(f"{record}: {warning}")
    _show(ctx, content)
    if content["differences"]:
        raise Faulty(
            f"{content['differences']} decisions are not those of the record, the first in cycle {content['first']['cycle']}",
            hint="replay it with the HBox that wrote it; where that is this one, send us the record",
        )


def _show(ctx: Context, content: dict[str, Any]) -> None:
    if ctx.output.machine:
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
