"""`hbox backup`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..aio import in_order
from ..context import Context, command_options
from ..dated import KEEP, prune, target
from ..exits import Faulty
from ..options import mounted
from ..output import put
from ..platform.layout import Layout

if TYPE_CHECKING:
    from hbox_ledger.adapters.audit import Proof

MIB = 2**20
PREFIX = "ledger"


DATABASE = click.option(
    "--database",
    metavar="URL",
    envvar="HBOX_DATABASE_URL",
    default=lambda: mounted("database_url"),
    help="Database URL: sqlite:////path/ledger.db or postgresql+psycopg://user:password@host/database [the state folder's].",
)


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@DATABASE
@KEEP
@command_options
def command(ctx: Context, file: Path, database: str | None, keep: int | None) -> None:
    """Write a consistent backup of the ledger's database to FILE: claims, accounts, usage, audit, outbox. The ledger may run.

    \b
    hbox backup ledger-2026-11-23.db
    hbox backup /backup/ledger.db --database postgresql+psycopg://hbox:PASSWORD@postgres/hbox
    hbox backup /backup --keep 14

    FILE is a SQLite database, also for a ledger on PostgreSQL, and `hbox restore` restores it into either. The command verifies it: if its history does
    not add up, the exit status is 1, the backup is named FILE.faulty, and an earlier FILE is kept. It contains the key that signs claims: only its owner
    can read it.
    """
    from hbox_ledger.adapters.backup import backup, faulty  # noqa: PLC0415  SQLAlchemy, for those who ask for it

    file = target(file, keep, PREFIX)
    with in_order():
        proof = backup(database or Layout(ctx.state).database_url(), file)
    removed = [] if proof.faults else prune(file, keep, PREFIX)
    file = faulty(file) if proof.faults else file
    item = {"file": str(file), "bytes": file.stat().st_size, **summary(proof), "removed": [str(one) for one in removed]}
    if not ctx.output.people:
        ctx.output.document("Backup", item)
    else:
        for fault in proof.faults:
            put(f"fault: {fault}")
        put(
            f"{file}: {file.stat().st_size / MIB:.1f} MiB, {proof.records} records, {proof.checks} checks, {len(proof.faults)} faults"
        )
        if proof.head is not None and not proof.faults:
            put(f"head: {proof.head}")
        put(*(f"removed: {one}" for one in removed))
    if proof.faults:
        raise Faulty(
            f"the ledger's database has {len(proof.faults)} faults, and so has its backup",
            hint=f"keep {file}, and an earlier one",
        )


def summary(proof: "Proof") -> dict[str, object]:
    head = proof.head and str(proof.head)
    return {"records": proof.records, "head": head, "checks": proof.checks, "faults": proof.faults}
