"""`hbox health backup` and `hbox health restore`: incidents, the memory of the judgement, and orders."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..aio import in_order
from ..context import Context, command_options
from ..dated import KEEP, prune, target
from ..options import mounted
from ..output import put
from ..platform.layout import Layout

if TYPE_CHECKING:
    from hbox_health.adapters.backup import Contents

PREFIX = "health"

_FILE = click.argument("file", type=click.Path(path_type=Path))
_DATABASE = click.option(
    "--database",
    metavar="URL",
    envvar="HBOX_HEALTH_DATABASE_URL",
    default=lambda: mounted("health_database_url"),
    help="Database of health-monitor: sqlite:////path/health.db or postgresql+psycopg://user:password@host/database [the state folder's].",
)


@click.command("backup")
@_FILE
@_DATABASE
@KEEP
@command_options
def backup_(ctx: Context, file: Path, database: str | None, keep: int | None) -> None:
    """Write a consistent backup of health-monitor's database to FILE: incidents, what is remembered of each node, orders of operators. health-monitor may run.

    \b
    hbox health backup health-2026-11-23.db
    hbox health backup health-2026-11-23.db --database postgresql+psycopg://hbox:PASSWORD@postgres/health
    hbox health backup /backup --keep 14

    FILE is a SQLite database, also for a health-monitor on PostgreSQL.
    """
    from hbox_health.adapters.backup import backup  # noqa: PLC0415  SQLAlchemy, which other commands do not need

    file = target(file, keep, PREFIX)
    with in_order():
        contents = backup(database or _own(ctx), file)
    removed = [str(one) for one in prune(file, keep, PREFIX)]
    if not ctx.output.people:
        ctx.output.document("HealthBackup", {"file": str(file), **asdict(contents), "removed": removed})
    else:
        put(f"{file}: {_text(contents)}", *(f"removed: {one}" for one in removed))


@click.command("restore")
@_FILE
@_DATABASE
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace the contents of a PostgreSQL database. A SQLite file is always replaced; it is renamed and kept.",
)
@command_options
def restore_(ctx: Context, file: Path, database: str | None, overwrite: bool) -> None:
    """Replace health-monitor's database with the backup FILE. Stop health-monitor first. A backup of either kind of database can be restored into the other.

    \b
    hbox health restore health-2026-11-23.db
    hbox health restore health-2026-11-23.db --database postgresql+psycopg://hbox:PASSWORD@postgres/health
    """
    from hbox_health.adapters.backup import restore  # noqa: PLC0415  as above

    with in_order():
        contents, kept = restore(file, database or _own(ctx), overwrite=overwrite)
    if not ctx.output.people:
        ctx.output.document("HealthRestore", {"kept": kept and str(kept), **asdict(contents)})
        return
    if kept is not None:
        put(f"the previous database is in {kept}")
    put(f"restored: {_text(contents)}")


def _own(ctx: Context) -> str:
    return f"sqlite:///{Layout(ctx.state).health_database.absolute()}"


def _text(contents: "Contents") -> str:
    return f"{contents.incidents} incidents, {contents.open} of them open, {contents.nodes} nodes, {contents.orders} orders"
