"""`hbox prio`: the order of waiting jobs in a queue, by its terms."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from hbox_common.errors import InvalidRequest

from ..access import jobs_of, source_of
from ..access.source import Wanted
from ..context import Context, watch_options
from ..names import JOB_NAME, QUEUE_NAME
from ..output import Column, duration, put

WAITING = ("PENDING", "WAITING", "INVALID")

COLUMNS = (
    Column("POS", lambda row: row["position"]),
    Column("NAME", lambda row: row["name"]),
    Column("QUEUE", lambda row: row["queue"]),
    Column("PRIORITY", lambda row: row["priority"]),
    Column("AGE", lambda row: duration(row["ageSeconds"])),
    Column("PODS", lambda row: row["pods"]),
    Column("CARDS", lambda row: row["cards"]),
    Column("BEHIND THE NEXT BY", lambda row: row["decidedBy"]),
    Column("CODE", lambda row: row["code"]),
)


@click.command("prio")
@click.argument("job", required=False, type=JOB_NAME)
@click.option("-q", "--queue", help="Waiting jobs of this queue [that of JOB, else all].", type=QUEUE_NAME)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs, the first in the order.")
@watch_options
def command(ctx: Context, job: str | None, queue: str | None, limit: int | None) -> None:
    """Print the order in which the jobs of a queue are tried, and the term that decides between each and the one before it.

    \b
    hbox prio train-7
    hbox prio -q research

    HBox's own policy takes the queue that is furthest below its share (`hbox share QUEUE`), and in a queue the job with the higher priority, then the older
    one. A job is passed by those behind it if it does not fit (CODE) and they do. Policies with other plugins order by these (`hbox policy check`).
    """
    if job is not None and queue is not None:
        raise InvalidRequest("JOB and --queue are separate questions", hint="leave one out")
    mine: Mapping[str, Any] | None = None
    if job is not None:
        mine = source_of(ctx).why(job)
        if mine["state"] not in WAITING:
            raise InvalidRequest(f"{mine['name']} does not wait: it is {mine['state']}", hint=f"hbox why {mine['name']}")
        queue = str(mine["queue"])
    items = jobs_of(ctx, Wanted(queue=queue, states=WAITING))
    rows = ordered(items)
    if mine is not None and ctx.output.people:
        own = next((row for row in rows if row["id"] == mine["id"]), None)
        position = (mine.get("explanation") or {}).get("position") or (own or {}).get("position", "?")
        put(
            f"{mine['name']}  position {position} of {len(rows)} in queue {queue}  priority {mine['priority']}  {duration(mine['ageSeconds'])} old"
        )
    ctx.output.rows("QueuedJob", rows if limit is None else rows[:limit], COLUMNS)


def ordered(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Waiting jobs by queue, in the order of their queue: the higher priority, then the older."""
    rows: list[dict[str, Any]] = []
    before: Mapping[str, Any] | None = None
    position = 0
    for item in sorted(items, key=lambda one: (one["queue"], -one["priority"], -one["ageSeconds"], one["name"])):
        same = before is not None and before["queue"] == item["queue"]
        position = position + 1 if same else 1
        rows.append(
            {
                "position": position,
                "name": item["name"],
                "id": item["id"],
                "queue": item["queue"],
                "priority": item["priority"],
                "ageSeconds": item["ageSeconds"],
                "pods": f"{item['pods']['bound']}/{item['pods']['members']}",
                "cards": item["cards"],
                "decidedBy": _term(before, item) if same and before is not None else "",
                "code": item.get("code", ""),
            }
        )
        before = item
    return rows


def _term(before: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    if before["priority"] != item["priority"]:
        return f"priority {item['priority']} < {before['priority']}"
    younger = before["ageSeconds"] - item["ageSeconds"]
    return f"age, {duration(younger)} younger" if younger > 0 else "name"
