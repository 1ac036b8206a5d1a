"""`hbox history`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from hbox_common.errors import InvalidRequest

from ..access import source_of
from ..context import Context, watch_options
from ..output import Column, duration
from ..times import DURATION, utc

#: What the broker keeps of events.
KEPT_S = 7 * 86_400.0

COLUMNS = (
    Column("NAME", lambda row: row["name"]),
    Column("QUEUE", lambda row: row["queue"]),
    Column("STATE", lambda row: row["state"]),
    Column("PODS", lambda row: row["pods"]),
    Column("CARDS", lambda row: row["cards"]),
    Column("PLACED", lambda row: _moment(row["placedAt"])),
    Column("ENDED", lambda row: _moment(row["endedAt"])),
    Column("RAN", lambda row: "" if row["ranSeconds"] is None else duration(row["ranSeconds"])),
    Column("CARD-H", lambda row: None if row["cardHours"] is None else f"{row['cardHours']:.2f}"),
    Column("ATTEMPTS", lambda row: row["attempts"]),
    Column("EVICTIONS", lambda row: row["evictions"]),
    Column("ID", lambda row: row["id"], wide=True),
    Column("NODES", lambda row: ",".join(row["nodes"]), wide=True),
    Column("CODE", lambda row: row["code"]),
)


@click.command("history")
@click.argument("job", required=False)
@click.option(
    "--since",
    "since_s",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Jobs with an event in this time; at most 7d are kept.",
)
@click.option("-n", "--namespace", help="Only this namespace.")
@click.option("-q", "--queue", help="Only this queue.")
@click.option(
    "--state-is",
    "states",
    multiple=True,
    type=click.Choice(("running", "rejected", "succeeded", "failed", "deleted")),
    help="Only jobs in this state.",
)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs, the newest.")
@watch_options
def command(
    ctx: Context,
    *,
    job: str | None,
    since_s: float,
    namespace: str | None,
    queue: str | None,
    states: tuple[str, ...],
    limit: int | None,
) -> None:
    """List the jobs of the last 7 days, also those that have ended: state, places, run time of the last attempt, attempts and evictions. Times are UTC.

    \b
    hbox history
    hbox history train-7
    hbox history --since 1d --state-is failed -o csv
    """
    from hbox_common.clock import wall_s  # noqa: PLC0415

    if since_s > KEPT_S:
        raise InvalidRequest("events are kept for 7 days", hint="--since 7d")
    found = _History()
    source_of(ctx).events(found.take, follow=False)
    since = wall_s() - since_s
    rows = [
        row
        for row in found.rows.values()
        if row["at"] >= since
        and (job is None or job in _names(row))
        and (namespace is None or row["name"].startswith(f"{namespace}/"))
        and (queue is None or row["queue"] == queue)
        and (not states or row["state"] in states)
    ]
    rows.sort(key=lambda row: (row["at"], row["name"]))
    ctx.output.rows("HistoricJob", rows if limit is None else rows[-limit:], COLUMNS)


def _names(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Names by which a user means the job."""
    namespace, _, rest = row["name"].partition("/")
    short = rest.partition("/")[2]
    return (row["id"], row["name"], rest, *((short, f"{namespace}/{short}") if short else ()))


class _History:
    """Rows by job, of its public events in their order."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def take(self, event: Any) -> None:
        from hbox_common.views.events import document_of  # noqa: PLC0415  it is imported with the events

        document = document_of(event)
        if "specversion" not in document:
            return
        kind, data = str(document["type"]).removeprefix("io.hbox.").removesuffix(".v1"), document["data"]
        if not kind.startswith("job.") or ("name" not in data and data.get("job") not in self.rows):
            return
        at = datetime.fromisoformat(str(document["time"])).timestamp()
        row = self.rows.setdefault(data["job"], _row(data))
        row["at"] = at
        if "name" in data:
            row["name"], row["queue"] = f"{data['namespace']}/{data['name']}", data["queue"]
        match kind:
            case "job.placed":
                row |= {"state": "running", "placedAt": at, "endedAt": None, "ranSeconds": None, "cardHours": None, "code": ""}
                row |= {"pods": data["pod_count"], "cards": data["card_count"], "attempts": data["attempt"]}
                row["nodes"] = [one["node"] for one in data["nodes"]]
            case "job.finished":
                row |= {"state": data["code"], "endedAt": at}
                if row["placedAt"] is not None:
                    row["ranSeconds"] = round(at - row["placedAt"], 1)
                    row["cardHours"] = round((at - row["placedAt"]) * row["cards"] / 3600, 4)
            case "job.rejected":
                row |= {"state": "rejected", "code": data["code"]}
            case "job.evicted":
                row["evictions"] += 1


def _row(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": "",
        "id": data["job"],
        "queue": data.get("queue", ""),
        "state": "",
        "code": "",
        "pods": 0,
        "cards": 0,
        "nodes": [],
        "placedAt": None,
        "endedAt": None,
        "ranSeconds": None,
        "cardHours": None,
        "attempts": 0,
        "evictions": 0,
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else utc(seconds)
