"""Backup and restore of the ledger's database.

A backup is one SQLite file of the ledger's schema, whatever the source database, and can be restored into either kind. SQLite is copied by its online backup
(a consistent snapshot while the ledger writes), PostgreSQL row by row in one transaction. A backup only counts once it is verified: the audit's chain is
intact, and the books equal the sum of their history. The file contains the key that proves claims on pods: its mode is 0600, and it has to be kept secret.

Restoring requires only that the ledger is stopped: on its start it recovers newer messages from the streams and pods from Kubernetes (`core.recovery`). The
previous SQLite database is kept next to the restored one; a PostgreSQL database is only overwritten if its name is confirmed.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, select, text

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.store import reading
from hbox_common.store.engine import parse
from hbox_common.store.files import (
    check_backup,
    copy_pages,
    new_file,
    refuse_a_database,
    refuse_a_log,
    remove,
    replace_database,
    sync,
    writing,
)
from hbox_common.store.reach import REACH
from hbox_common.store.rows import copy_rows, located, replacing
from hbox_common.store.schema import migrate

from . import tables as t
from .audit import Proof, prove


@dataclass(frozen=True, slots=True)
class Restored:
    """`proof`: of what was put there. `kept`: where what was there before is; None where nothing was."""

    proof: Proof
    kept: Path | None


def faulty(file: Path) -> Path:
    """File for a backup that fails verification: an earlier backup under `file` may be the last valid one."""
    return file.with_name(f"{file.name}.faulty")


def backup(url: str, file: Path) -> Proof:
    """Write a backup of the database at `url` to `file`, once it is complete and verified; else to `faulty(file)`. Faults that the verification finds were in
    the
    database before.

    Raises NotFound, Unavailable, InvalidRequest (not a ledger's database, another schema version, or `file` cannot be written or is a database itself).
    """
    parsed = parse(url)
    draft = file.with_name(f"{file.name}.part")
    refuse_a_database(file, Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None)
    try:
        new_file(draft)
        if parsed.get_backend_name() == "sqlite":
            copy_pages(Path(parsed.database or ""), draft)
        else:
            _copy_rows(url, draft)
        proof = prove(f"sqlite:///{draft.absolute()}")
        sync(draft)
        draft.replace(faulty(file) if proof.faults else file)
        sync(file.absolute().parent)
    except OSError as e:
        raise InvalidRequest(f"{file} cannot be written: {e.strerror or e}", hint="name another file") from e
    finally:
        remove(draft)
    return proof


def restore(file: Path, url: str, *, overwrite: bool = False) -> Restored:
    """Put the backup `file` in the place of the database at `url`. `overwrite`: what PostgreSQL holds of a ledger is given up.

    Raises NotFound, InvalidRequest (no backup, a damaged one, of a newer version; PostgreSQL holds a ledger), Unavailable (a ledger runs).
    """
    parsed = parse(url)
    if not file.is_file():
        raise NotFound(f"{file}: there is no such file")
    refuse_a_log(file, command="hbox backup")
    database = Path(parsed.database or "").absolute() if parsed.get_backend_name() == "sqlite" else None
    work = (
        database.with_name(f"{database.name}.restoring") if database is not None else file.with_name(f"{file.name}.restoring")
    )
    try:
        new_file(work)
        shutil.copyfile(file, work)
        proof = _sound(file, work)
        kept = None
        if database is not None:
            kept = replace_database(work, database)
        else:
            _into_postgres(work, url, overwrite=overwrite)
    except OSError as e:
        raise InvalidRequest(f"{e.filename or work}: {e.strerror or e}", hint="is there room, and may you write there?") from e
    finally:
        remove(work)
    return Restored(proof, kept)


# --- backup


def _copy_rows(url: str, draft: Path) -> None:
    with reading(url, versions=t.VERSIONS) as source, writing(draft, t.metadata, t.VERSIONS) as target:
        copy_rows(source, target, t.metadata)
        target.commit()


# --- restore


def _sound(file: Path, work: Path) -> Proof:
    """The copy `work`, brought to this version's schema and proven. Raises InvalidRequest where it is no backup, or a damaged one."""
    check_backup(file, work, {"ledger", "claims", "audit"}, t.VERSIONS, of="a ledger", command="hbox backup")
    with writing(work, t.metadata, t.VERSIONS):
        pass
    proof = prove(f"sqlite:///{work.absolute()}")
    if proof.faults:
        message = f"{file} does not prove itself: {proof.faults[0]}" + (
            f" and {len(proof.faults) - 1} more" if proof.faults[1:] else ""
        )
        raise InvalidRequest(
            message, hint="take an earlier one; `hbox audit --ledger --database sqlite:///FILE` lists all of it"
        )
    return proof


def _into_postgres(work: Path, url: str, *, overwrite: bool) -> None:
    """Tables are made anew and filled in one transaction: until that is committed there is an empty ledger, which starts as on a backup of nothing."""
    with replacing(url, work, service="quota-ledger") as (target, rows):
        there = _tables(target)
        if "ledger" in there and target.execute(select(t.ledger.c.epoch)).first() is not None and not overwrite:
            hint = "back it up first, then say --overwrite: what is there is given up"
            raise InvalidRequest(f"{located(url)} holds a ledger", hint=hint)
        target.commit()
        if "alembic_version" in there:
            _drop(target)
        migrate(target, t.metadata, t.VERSIONS)
        copy_rows(rows, target, t.metadata)
        target.commit()


def _tables(connection: Connection) -> Sequence[str]:
    return inspect(connection).get_table_names()


def _drop(connection: Connection) -> None:
    t.metadata.drop_all(connection)
    REACH.drop(connection, checkfirst=True)
    connection.execute(text("DROP TABLE alembic_version"))
    for function in ("refuse_rewriting", "refuse_unsealed_audit", "refuse_unsealed_transfers"):
        connection.execute(text(f"DROP FUNCTION IF EXISTS {function}() CASCADE"))
    connection.commit()
