"""`hbox restore`."""

from pathlib import Path

import click

from ..aio import in_order
from ..context import Context, command_options
from ..output import put
from ..platform.layout import Layout
from .backup import DATABASE, summary


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@DATABASE
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace the ledger that a PostgreSQL database holds. A SQLite file is always replaced; it is renamed and kept.",
)
@command_options
def command(ctx: Context, file: Path, database: str | None, overwrite: bool) -> None:
    """Replace the ledger's database with the backup FILE. Stop the ledger first; other services may run.

    \b
    hbox restore ledger-2026-11-23.db
    hbox restore /backup/ledger.db --database postgresql+psycopg://hbox:PASSWORD@postgres/hbox --overwrite

    The restarted ledger begins a new epoch, adopts pods bound since the backup, and continues; running pods are not affected.
    The audit trail and the accounts between the backup and now are lost.
    """
    from hbox_ledger.adapters.backup import restore  # noqa: PLC0415  SQLAlchemy, for those who ask for it

    with in_order():
        done = restore(file, database or Layout(ctx.state).database_url(), overwrite=overwrite)
    if not ctx.output.people:
        ctx.output.document("Restore", {"kept": done.kept and str(done.kept), **summary(done.proof)})
        return
    if done.kept is not None:
        put(f"what was there before is in {done.kept}")
    put(
        f"restored: {done.proof.records} records, {done.proof.checks} checks; start the quota-ledger, and look at it with `hbox audit`"
    )
