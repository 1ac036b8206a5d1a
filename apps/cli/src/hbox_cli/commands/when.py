"""`hbox when JOB`."""

from datetime import datetime
from typing import Any

import click

from hbox_common.clock import wall_s
from hbox_common.events.explain import ExplainAnswer, ExplainRequest, explain_endpoint
from hbox_common.model.explanation import Explanation
from hbox_common.views.jobs import items_of

from ..access import running_of
from ..access.jobnames import find
from ..aio import run
from ..context import Context, platform_options
from ..output import put
from ..session import bus_of, job_pages
from ..waits import span

WITHHELD = (
    "no estimate: the ends of running jobs are unknown (hbox.io/walltime sets them), or too few of the recent estimates were right; "
    "`hbox why {name}` shows why it waits"
)


@click.command("when")
@click.argument("job")
@platform_options
def command(ctx: Context, job: str) -> None:
    """Estimate when a pending JOB starts: an interval from the median to the 90th percentile, its method, and the event that it depends on.

    \b
    hbox when train-7
    hbox when ml/train-7 -o json

    Nine of ten jobs start before the 90th percentile, by what the scheduler measured on earlier estimates; it gives none while that does not hold.
    """
    item, explanation = run(lambda: _read(ctx, job))
    start = explanation.start if explanation is not None else None
    if not ctx.output.people:
        ctx.output.document("StartEstimate", _document(item, explanation))
        return
    put(f"{item['name']}  {item['state']}  queue {item['queue']}")
    if not item["waiting"]:
        put("  it waits for nothing: all of its pods have nodes")
    elif explanation is None or start is None:
        put("  " + WITHHELD.format(name=item["name"]))
    else:
        put(f"  starts {_clock(explanation.at + start.p50_s)} to {_clock(explanation.at + start.p90_s)}")
        put(f"  in {span(start.p50_s)} (median) to {span(start.p90_s)} (90th percentile), by {start.method}")
        if start.driver:
            put(f"  depends on: {start.driver}")


async def _read(ctx: Context, job: str) -> tuple[dict[str, Any], Explanation | None]:
    async with bus_of(running_of(ctx)) as bus:
        item = find(items_of(await job_pages(bus), now=wall_s()), job)
        if not item["waiting"]:
            return item, None
        endpoint, request = explain_endpoint(item.get("shard", "")), ExplainRequest(job=item["id"], changes=False)
        return item, (await bus.call("scheduler-core", endpoint, request, ExplainAnswer)).explanation


def _document(item: dict[str, Any], explanation: Explanation | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": item["name"], "id": item["id"], "state": item["state"]}
    if explanation is None or (start := explanation.start) is None:
        return {**found, "at": None, "p50Seconds": None, "p90Seconds": None, "method": "", "driver": ""}
    return {
        **found,
        "at": round(explanation.at, 1),
        "p50Seconds": round(start.p50_s, 1),
        "p90Seconds": round(start.p90_s, 1),
        "method": start.method,
        "driver": start.driver,
    }


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="minutes")
