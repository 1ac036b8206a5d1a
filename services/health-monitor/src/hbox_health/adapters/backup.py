"""Backup and restore of health-monitor's database.

A backup is one SQLite file, whatever the source database, and can be restored into either kind. It is of one moment while health-monitor writes, and counts
once every row of it was read. A restored database is older than what health-monitor published: at its start it publishes the differences. Reports that it had
acknowledged since the backup are missing until the agents publish their state again. A remedy that was decided meanwhile has its result in the journal of its
node, and is not executed again.

The previous SQLite database is kept next to the restored one. PostgreSQL is replaced in one transaction, and where it has incidents, memories or orders, only
if that is confirmed. The restored database continues with the higher epoch, so that an earlier leader cannot write.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Table, delete, insert, inspect, select

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.model import IncidentState
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
from hbox_common.store.rows import copy_rows, located, replacing
from hbox_common.store.schema import migrate

from . import tables as t
from .incidentstore import ORDER, load

#: Tables whose rows are lost if a database is replaced.
_CONTENTS = (t.incidents, t.memories, t.orders, t.notices)


@dataclass(frozen=True, slots=True)
class Contents:
    nodes: int
    incidents: int
    open: int
    orders: int


def backup(url: str, file: Path) -> Contents:
    """Write a backup of the database at `url` to `file`, once it is complete. An earlier `file` is kept if it is not. Raises NotFound, Unavailable,
    InvalidRequest."""
    database, draft = _file(url), file.with_name(f"{file.name}.part")
    refuse_a_database(file, database)
    try:
        new_file(draft)
        if database is not None:
            copy_pages(database, draft)
        else:
            with reading(url, versions=t.VERSIONS) as source, writing(draft, t.metadata, t.VERSIONS) as target:
                copy_rows(source, target, t.metadata)
                target.commit()
        contents = _read(draft)
        sync(draft)
        draft.replace(file)
        sync(file.absolute().parent)
    except OSError as e:
        raise InvalidRequest(f"{file} cannot be written: {e.strerror or e}", hint="name another file") from e
    finally:
        remove(draft)
    return contents


def restore(file: Path, url: str, *, overwrite: bool = False) -> tuple[Contents, Path | None]:
    """Put the backup `file` in the place of the database at `url`; returns where the previous one is kept, None for PostgreSQL. `overwrite`: the contents of
    PostgreSQL are given up. Raises NotFound, InvalidRequest (no backup, or a damaged one; PostgreSQL has contents), Unavailable (health-monitor runs)."""
    if not file.is_file():
        raise NotFound(f"{file}: there is no such file")
    refuse_a_log(file, command="hbox health backup")
    database = _file(url)
    target = file if database is None else database
    work = target.with_name(f"{target.name}.restoring")
    try:
        new_file(work)
        shutil.copyfile(file, work)
        check_backup(
            file, work, {"incidents", "memories"}, t.VERSIONS, of="health-monitor's database", command="hbox health backup"
        )
        with writing(work, t.metadata, t.VERSIONS):
            pass  # brings an older schema to this version's
        contents = _read(work)
        kept = None
        if database is not None:
            kept = replace_database(work, database)
        else:
            _into_postgres(work, url, overwrite=overwrite)
    except OSError as e:
        raise InvalidRequest(f"{e.filename or work}: {e.strerror or e}", hint="is there room, and may you write there?") from e
    finally:
        remove(work)
    return contents, kept


def _into_postgres(work: Path, url: str, *, overwrite: bool) -> None:
    with replacing(url, work, service="health-monitor") as (target, rows):
        there = set(inspect(target).get_table_names())
        if "alembic_version" in there and t.incidents.name not in there:
            raise InvalidRequest(f"{located(url)} is another service's", hint="name health-monitor's own, or an empty one")
        if not overwrite and any(table.name in there and _has_rows(target, table) for table in _CONTENTS):
            hint = "back it up first, then repeat with --overwrite: its contents are given up"
            raise InvalidRequest(f"{located(url)} has contents of health-monitor", hint=hint)
        target.commit()
        migrate(target, t.metadata, t.VERSIONS)
        epochs = [connection.execute(select(t.writer.c.epoch)).scalar() or 0 for connection in (target, rows)]
        for table in t.metadata.sorted_tables:
            target.execute(delete(table))
        copy_rows(rows, target, t.metadata)
        target.execute(delete(t.writer))
        target.execute(insert(t.writer).values(id=1, epoch=max(epochs)))
        target.commit()


def _has_rows(connection: Connection, table: Table) -> bool:
    return connection.execute(select(*table.primary_key.columns).limit(1)).first() is not None


def _file(url: str) -> Path | None:
    """None if the database is on PostgreSQL."""
    parsed = parse(url)
    return Path(parsed.database or "").absolute() if parsed.get_backend_name() == "sqlite" else None


def _read(database: Path) -> Contents:
    """Raises InvalidRequest if a row cannot be read."""
    with reading(f"sqlite:///{database.absolute()}", versions=t.VERSIONS) as connection:
        try:
            memory, incidents = load(connection, 0.0)
            orders = [ORDER.validate_json(body) for body in connection.scalars(select(t.orders.c.body))]
        except ValueError as e:
            raise InvalidRequest(f"health-monitor's database is damaged: {e}", hint="take an earlier backup") from e
    still = sum(incident.state is not IncidentState.CLOSED for incident in incidents)
    return Contents(len(memory.nodes), len(incidents), still, len(orders))
