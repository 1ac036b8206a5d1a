"""Backup and restore of health-monitor's database, a SQLite file.

A backup is copied while health-monitor writes, and counts once every row of it was read. A restored database is older than what health-monitor published: at
its start it publishes the differences. Reports that it had acknowledged since the backup are missing until the agents publish their state again. A remedy that
was decided meanwhile has its result in the journal of its node, and is not executed again.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.model import IncidentState
from hbox_common.store import reading
from hbox_common.store.engine import parse
from hbox_common.store.files import (
    check_backup,
    copy_pages,
    new_file,
    refuse_a_database,
    remove,
    replace_database,
    sync,
    writing,
)

from . import tables as t
from .incidentstore import ORDER, load


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
        copy_pages(database, draft)
        contents = _read(draft)
        sync(draft)
        draft.replace(file)
        sync(file.absolute().parent)
    except OSError as e:
        raise InvalidRequest(f"{file} cannot be written: {e.strerror or e}", hint="name another file") from e
    finally:
        remove(draft)
    return contents


def restore(file: Path, url: str) -> tuple[Contents, Path | None]:
    """Put the backup `file` in the place of the database at `url`; returns where the previous one is kept. Raises NotFound, InvalidRequest (no backup, or a
    damaged one), Unavailable (health-monitor runs)."""
    if not file.is_file():
        raise NotFound(f"{file}: there is no such file")
    database = _file(url)
    work = database.with_name(f"{database.name}.restoring")
    try:
        new_file(work)
        shutil.copyfile(file, work)
        check_backup(
            file, work, {"incidents", "memories"}, t.VERSIONS, of="health-monitor's database", command="hbox health backup"
        )
        with writing(work, t.metadata, t.VERSIONS):
            pass  # brings an older schema to this version's
        contents = _read(work)
        kept = replace_database(work, database)
    except OSError as e:
        raise InvalidRequest(f"{e.filename or work}: {e.strerror or e}", hint="is there room, and may you write there?") from e
    finally:
        remove(work)
    return contents, kept


def _file(url: str) -> Path:
    parsed = parse(url)
    if parsed.get_backend_name() != "sqlite":
        raise InvalidRequest("health-monitor's database is on PostgreSQL", hint="back it up there, by pg_dump or archiving")
    return Path(parsed.database or "").absolute()


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
