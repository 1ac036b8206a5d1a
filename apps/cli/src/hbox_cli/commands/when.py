"""`hbox when JOB`."""

from collections.abc import Mapping
from typing import Any

import click

from hbox_common.reasons import duration

from ..access import source_of
from ..context import Context, platform_options
from ..output import put
from ..times import utc_minutes

WITHHELD = (
    "no estimate: the ends of running jobs are unknown (hbox.io/walltime sets them), or too few of the recent estimates were right; "
    "`hbox why {name}` shows why it waits"
)
NEVER = "no estimate: waiting does not help ({code}); `hbox why {name}` shows what to change"
_NONE: Mapping[str, Any] = {"p50Seconds": None, "p90Seconds": None, "method": "", "driver": ""}


@click.command("when")
@click.argument("job")
@platform_options
def command(ctx: Context, job: str) -> None:
    """Estimate when a pending JOB starts: an interval from the median to the 90th percentile, its method, and the event that it depends on.

    \b
    hbox when train-7
    hbox when ml/train-7 -o json

    The scheduler compares earlier estimates with the starts that followed, and corrects the interval by them. It gives none while fewer than 80 % of the recent
    starts came before the 90th percentile.
    """
    item = source_of(ctx).why(job)
    explanation = item.get("explanation") or {}
    start = explanation.get("start")
    if not ctx.output.people:
        named = {name: item[name] for name in ("name", "id", "state")}
        ctx.output.document("StartEstimate", {**named, "at": explanation.get("at") if start else None, **(start or _NONE)})
        return
    put(f"{item['name']}  {item['state']}  queue {item['queue']}")
    if not item["waiting"]:
        put("  it waits for nothing: all of its pods have nodes")
    elif not start and explanation.get("verdict") == "change":
        put("  " + NEVER.format(code=explanation["code"], name=item["name"]))
    elif not start:
        put("  " + WITHHELD.format(name=item["name"]))
    else:
        p50, p90 = start["p50Seconds"], start["p90Seconds"]
        put(f"  starts {utc_minutes(explanation['at'] + p50)} to {utc_minutes(explanation['at'] + p90)}")
        put(f"  in {duration(p50)} (median) to {duration(p90)} (90th percentile), by {start['method']}")
        if start["driver"]:
            put(f"  depends on: {start['driver']}")
