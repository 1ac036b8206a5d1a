"""`hbox top`: cluster, queues and jobs on one screen."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.visible import visible

from ..access import jobs_of, source_of
from ..access.source import Wanted
from ..context import Context, platform_options
from ..output import duration
from ..times import DURATION, utc

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..access.source import Item

PARTS = ("cluster", "queues", "jobs")
WAITING = ("PENDING", "WAITING", "INVALID")
#: Lines of the screen that are no jobs: the cluster's and headers.
_FRAME = 12


@click.command("top")
@click.argument("part", required=False, type=click.Choice(PARTS))
@click.option("-q", "--queue", help="Only jobs of this queue.")
@click.option("--every", "every_s", type=DURATION, default="2s", show_default=True, help="Time between two reads.")
@click.option("--once", is_flag=True, help="Print one picture and end, as without a terminal.")
@platform_options
def command(ctx: Context, part: str | None, queue: str | None, every_s: float, *, once: bool) -> None:
    """Show cards, queues and jobs, waiting ones first, until Ctrl-C; or one part of it.

    \b
    hbox top
    hbox top jobs -q research
    hbox top --once
    """
    from rich.console import Console  # noqa: PLC0415  0.1 s, which --help does not need
    from rich.live import Live  # noqa: PLC0415

    if not ctx.output.people:
        raise InvalidRequest(f"a picture has no form {ctx.output.form.value}", hint="hbox nodes, hbox queue ls, hbox jobs")
    parts = PARTS if part is None else (part,)
    console = Console()
    if once or not sys.stdout.isatty():
        console.print(_picture(ctx, parts, queue, lines=10_000))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            lines = max(5, shutil.get_terminal_size().lines - _FRAME)
            try:
                live.update(_picture(ctx, parts, queue, lines=lines), refresh=True)
            except HBoxError as e:
                live.update(f"{utc(time.time())}  {e.message}", refresh=True)
            time.sleep(max(0.5, every_s))


def _picture(ctx: Context, parts: Sequence[str], queue: str | None, *, lines: int) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415

    source = source_of(ctx)
    jobs = jobs_of(ctx, Wanted(queue=queue))
    found: list[RenderableType] = []
    if "cluster" in parts:
        found.append(cluster_line(source.nodes(), jobs))
    if "queues" in parts:
        found.append(
            _table(("QUEUE", "CARDS", "DESERVED", "WAITING JOBS", "WAITING CARDS"), queue_rows(source.queues())[:lines])
        )
    if "jobs" in parts:
        found.append(_table(("JOB", "QUEUE", "ST", "PODS", "CARDS", "AGE", "REASON"), job_rows(jobs)[:lines]))
    return Group(*found)


def cluster_line(nodes: "Sequence[Item]", jobs: "Sequence[Item]") -> str:
    """`2026-11-28 14:40:03Z  nodes 4, 1 out of use  cards 24/32 in use  jobs 3 RUNNING, 1 WAITING`."""
    total = sum(node["cards"]["total"] for node in nodes)
    free = sum(node["cards"]["free"] for node in nodes)
    bad = sum(1 for node in nodes if node["state"] != "READY" or not node["healthy"])
    states = Counter(job["state"] for job in jobs)
    listed = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "none"
    return f"{utc(time.time())}  nodes {len(nodes)}, {bad} out of use  cards {total - free:g}/{total:g} in use  jobs {listed}"


def queue_rows(queues: "Sequence[Item]") -> list[tuple[str, ...]]:
    """By used cards, the most first."""
    from hbox_common.model.devices import VENDORS  # noqa: PLC0415

    rows = [(q, VENDORS.asked(q["used"]), VENDORS.asked(q["deserved"])) for q in queues]
    rows.sort(key=lambda row: (-row[1], -row[0]["pendingCards"], row[0]["name"]))
    return [
        (str(q["name"]), f"{used:g}", f"{deserved:g}" if deserved else "-", str(q["pendingJobs"]), str(q["pendingCards"]))
        for q, used, deserved in rows
    ]


def job_rows(jobs: "Sequence[Item]") -> list[tuple[str, ...]]:
    """Waiting jobs first, the oldest first."""
    ordered = sorted(jobs, key=lambda job: (job["state"] not in WAITING, -job["ageSeconds"], job["name"]))
    return [tuple(map(str, _cells(job))) for job in ordered]


def _cells(job: Mapping[str, Any]) -> tuple[object, ...]:
    pods = f"{job['pods']['bound']}/{job['pods']['members']}"
    return job["name"], job["queue"], job["state"], pods, job["cards"], duration(job["ageSeconds"]), job["reason"]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> "RenderableType":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table
