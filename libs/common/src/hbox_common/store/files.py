"""SQLite files of backups: copied while their service writes, and put in the place of a database whose service is stopped."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Set
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, MetaData
from sqlalchemy.exc import SQLAlchemyError

from hbox_common.errors import InvalidRequest, NotFound, Unavailable

from .engine import FileLock, engine, keep_private, parse
from .schema import migrate, newest

_HEADER = b"SQLite format 3\0"

#: Of SQLite's, what only the file can mean that is written.
_UNWRITTEN = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC)


def refuse_a_database(file: Path, source: Path | None) -> None:
    """Replacing a database file would let its writer continue in a deleted file; and a log left next to a backup would be applied to the backup."""
    itself = source is not None and source.exists() and file.exists() and file.samefile(source)
    if itself or log_of(file).exists():
        raise InvalidRequest(f"{file} is a database, and no place for a backup", hint="name another file")


def refuse_a_log(file: Path, *, command: str) -> None:
    """Refuse a database file whose latest writes are in its log: a copy of the file alone lacks them. `command` makes backups of such a database."""
    if (log := log_of(file)).exists() and log.stat().st_size:
        raise InvalidRequest(
            f"{file} is a database, not a backup: its latest writes are in {log.name}",
            hint=f"make one of both: `{command} NEW --database sqlite:///{file.absolute()}`",
        )


def log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def new_file(draft: Path) -> None:
    """An empty file, ours alone; whatever an earlier attempt left is gone."""
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def remove(draft: Path) -> None:
    """A draft, with SQLite's files of it."""
    for path in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm", "-journal"))):
        path.unlink(missing_ok=True)


def copy_pages(database: Path, draft: Path) -> None:
    """All of one moment. In one step: page by page a busy ledger would make it begin anew for ever."""
    if not database.is_file():
        raise NotFound(f"database {database}: there is no such file")
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(database.absolute()))}?mode=ro", uri=True, timeout=10)) as source,
            closing(sqlite3.connect(draft)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE").fetchall()  # one file, whole in itself
    except sqlite3.DatabaseError as e:
        if getattr(e, "sqlite_errorcode", 0) in _UNWRITTEN:
            raise _unwritten(draft, e) from e
        raise Unavailable(f"database {database}: {e}", hint="is it a database of HBox, and can it be read?") from e


@contextmanager
def writing(file: Path, metadata: MetaData, versions: Path) -> Iterator[Connection]:
    """A SQLite file with the newest schema; one file, whole in itself, at the end."""
    made = engine(parse(f"sqlite:///{file.absolute()}"))
    try:
        with made.connect() as connection:
            migrate(connection, metadata, versions)
            yield connection
        _one_file(file)
    except (SQLAlchemyError, sqlite3.Error) as e:  # errors of concurrent reads are reported elsewhere
        error = getattr(e, "orig", e)
        if isinstance(error, sqlite3.Error):
            raise _unwritten(file, error) from e
        raise
    finally:
        made.dispose()


def _one_file(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()


def _unwritten(file: Path, error: sqlite3.Error) -> InvalidRequest:
    return InvalidRequest(f"{file} cannot be written: {error}", hint="is there room?")


def sync(path: Path) -> None:
    """On the disk when this returns; `path`: a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_backup(file: Path, work: Path, tables: Set[str], versions: Path, *, of: str, command: str) -> None:
    """Check `work`, a copy of `file`: whole, with the `tables` of a service, and not newer than `versions`. `command` makes backups `of` that service. Raises
    InvalidRequest."""
    other = InvalidRequest(f"{file} is no backup of {of}", hint=f"`{command} FILE` makes one")
    with file.open("rb") as opened:
        if opened.read(len(_HEADER)) != _HEADER:
            raise other
    try:
        with closing(sqlite3.connect(work)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise InvalidRequest(f"{file} is damaged: {verdict}", hint="take an earlier one")
            found = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {"alembic_version", *tables} <= found:
                raise other
            (version,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as e:
        raise InvalidRequest(f"{file} is damaged: {e}", hint="take an earlier one") from e
    if version > newest(versions):
        hint = "use the version of HBox that made it, or a newer one"
        raise InvalidRequest(f"{file} has schema {version}, this version knows {newest(versions)}", hint=hint)


def replace_database(work: Path, database: Path) -> Path | None:
    """Keep the previous database, even an unreadable one. It stays in place until the restored one replaces it: otherwise a ledger that starts in between, or
    after a crash, would begin with empty books.
    """
    with FileLock(database):
        _check_unused(database)
        sync(work)
        kept = _kept(database) if database.stat().st_size else None
        for end in ("-wal", "-shm"):
            companion = database.with_name(database.name + end)
            if kept is not None and companion.exists():
                companion.replace(kept.with_name(kept.name + end))
            companion.unlink(missing_ok=True)
        work.replace(database)
        keep_private(database)
        sync(database.parent)
    return kept


def _kept(database: Path) -> Path:
    """One more name for what is there, or where there are no such names, a copy."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in count():
        kept = database.with_name(f"{database.name}.before-restore-{stamp}{f'-{number}' if number else ''}")
        try:
            kept.hardlink_to(database)
        except FileExistsError:
            continue
        except OSError:
            new_file(kept)
            shutil.copyfile(database, kept)
            sync(kept)
        return kept
    raise AssertionError


def _check_unused(database: Path) -> None:
    """Raises Unavailable while another process has it open: only alone may one leave WAL. A ledger with leader election holds no lock on the file."""
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(database, timeout=2)) as connection:
        try:
            connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        except sqlite3.OperationalError as e:
            if "locked" in str(e) or "busy" in str(e):
                raise Unavailable(f"database: another process has {database} open", hint="stop its service first") from e
            raise
