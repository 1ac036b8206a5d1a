"""`hbox events`."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import click

from hbox_common.events import Event
from hbox_common.views.events import document_of, item_of

from ..access import source_of
from ..context import Context, platform_options
from ..output import Column, Form, Output, put, yaml_text
from ..times import utc


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Print new events until Ctrl-C.")
@platform_options
def command(ctx: Context, follow: bool) -> None:
    """Print events: jobs placed, started, finished, evicted, rejected or waiting; reclaims, quotas, refusals and budgets of queues; health and drains of nodes.
    -o json prints one object per line, -o yaml one document per event; most are CloudEvents (docs/guides/events.md). HBox's HTTP API has the CloudEvents only:
    no waiting jobs, budgets and health.

    \b
    hbox events -f
    hbox events -o json | jq 'select(.type == "io.hbox.job.placed.v1") | .data'
    """
    if ctx.output.form is Form.CSV:
        ctx.output.rows("Event", [], COLUMNS)
    source_of(ctx).events(lambda event: put_event(ctx.output, event), follow=follow)


def put_event(output: Output, event: Event) -> None:
    """One event in the form that was asked for; of a table its line, without a header."""
    if not output.machine:
        item = item_of(event)
        if output.people:
            put(f"{utc(item['at'])}  {item['about']:5}  {item['text']}")
        else:
            replace(output, headers=False).rows(item["about"], [item], COLUMNS)
        return
    content = document_of(event)
    if output.form is Form.YAML:
        print(f"---\n{yaml_text(content)}", end="")
    else:
        print(json.dumps(content))


COLUMNS = (
    Column("TIME", lambda e: datetime.fromtimestamp(e["at"], UTC).isoformat(timespec="seconds")),
    Column("KIND", lambda e: e["about"]),
    Column("NAME", lambda e: e["name"]),
    Column("TEXT", lambda e: e["text"]),
)
