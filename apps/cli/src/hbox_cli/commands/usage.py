"""`hbox usage`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hbox_common.clock import wall_s
from hbox_common.events import UsageKey
from hbox_common.views.usage import add_budgets, budget_text, items_of, keys_of, moment, total_of

from ..access import source_of
from ..context import Context, platform_options
from ..output import Column, Form, notify
from ..usage import read_prices


@click.command("usage")
@click.option(
    "--by",
    default="queue",
    show_default=True,
    metavar="KEY,...",
    help="Group by department, queue, user (the pods' namespace), model or hour.",
)
@click.option(
    "--since",
    default="month",
    show_default=True,
    metavar="TIME",
    help="Start of the period: 36h, 7d, today, month, 2026-11-01, ...",
)
@click.option("--until", metavar="TIME", help="End of the period [now].")
@click.option(
    "--price",
    "given",
    metavar="MODEL=PRICE",
    multiple=True,
    help="Price of a card-hour of a model; may be repeated; * = all other models.",
)
@click.option("--prices", type=click.Path(path_type=Path, dir_okay=False), help="YAML or JSON file of MODEL: PRICE.")
@platform_options
def command(ctx: Context, *, by: str, since: str, until: str | None, given: tuple[str, ...], prices: Path | None) -> None:
    """Card-hours: own, borrowed beyond what the queue deserved, and deserved but idle.

    Whole hours (UTC) that begin in the period; the current hour up to now.

    \b
    hbox usage
    hbox usage --by department,user
    hbox usage --by user,model --since 7d -o csv
    hbox usage --price NVIDIA-A100=2.5 --price '*=1'
    """
    now = wall_s()
    keys = _given("--by", keys_of, by)
    first = _given("--since", lambda text: moment(text, now=now), since)
    last = _given("--until", lambda text: moment(text, now=now), until) if until else int(now) + 1
    if first >= last:
        raise click.UsageError(f"--since {since} is not before {f'--until {until}' if until else 'now'}")
    rates = read_prices(given, prices)
    asked = (*keys, UsageKey.MODEL) if rates else keys
    usage, budgets = source_of(ctx).usage(asked, since=first - first % 3600, until=last)
    items = items_of(usage, keys, rates)
    if keys in ((UsageKey.QUEUE,), (UsageKey.DEPARTMENT,)):
        add_budgets(items, budgets)
    if ctx.output.form in (Form.JSON, Form.YAML):
        plain = [{name: value for name, value in item.items() if name != "bar"} for item in items]
        ctx.output.document(
            "UsageList", {"since": first - first % 3600, "until": last, "items": plain, "total": total_of(items)}
        )
        return
    people = ctx.output.form in (Form.TABLE, Form.WIDE)
    shown = [*items, total_of(items)] if items and people else items
    ctx.output.rows("Usage", shown, _columns(keys, items, digits=2 if people else 6))
    if not items:
        notify("nothing was used in that time")


def _columns(keys: Sequence[UsageKey], items: Sequence[dict[str, Any]], *, digits: int) -> list[Column]:
    def name(key: UsageKey) -> Column:
        return Column(key.upper(), lambda item: item.get(key, item["name"] if key is keys[0] else ""))

    def hours(title: str, field: str) -> Column:
        return Column(title, lambda item: round(item[field], digits))

    columns = [*map(name, keys), hours("CARD-HOURS", "cardHours"), hours("OWN", "own"), hours("BORROWED", "borrowed")]
    if any("idle" in item for item in items):
        columns.append(hours("IDLE", "idle"))
    if any("cost" in item for item in items):
        columns.append(Column("COST", lambda item: item["cost"]))
    if any("budget" in item for item in items):
        columns.append(Column("BUDGET", lambda item: budget_text(item.get("budget"))))
    return [*columns, Column("OWN █ BORROWED ▒ IDLE ·", lambda item: item.get("bar"), drawn=True)]


def _given(option: str, read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError as e:
        raise click.UsageError(f"{option}: {e}") from e
