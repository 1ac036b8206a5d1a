"""Backup and restore of the ledger's database.

A backup is one SQLite file of the ledger's schema, whatever the source database, and can be restored into either kind. SQLite is copied by its online backup
(a consistent snapshot while the ledger writes), PostgreSQL row by row in one transaction. A backup only counts once it is verified: the audit's chain is
intact, and the books equal the sum of their history. The file contains the key that proves claims on pods: its mode is 0600, and it has to be kept secret.

Restoring requires only that the ledger is stopped: on its start it recovers newer messages from the streams and pods from Kubernetes (`core.recovery`). The
previous SQLite database is kept next to the restored one; a PostgreSQL database is only overwritten if its name is confirmed.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, insert, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from hbox_common.errors import InvalidRequest, NotFound, Unavailable
from hbox_common.store import reading
from hbox_common.store.engine import FileLock, engine, keep_private, parse, refused, schema_lock, writers
from hbox_common.store.reach import REACH
from hbox_common.store.schema import migrate, newest

from . import tables as t
from .audit import Proof, prove

ROWS = 5_000

_HEADER = b"SQLite format 3\0"

#: Of SQLite's, what only the file can mean that is written.
_UNWRITTEN = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC)


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
    _refuse_a_database(file, Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None)
    try:
        _make(draft)
        if parsed.get_backend_name() == "sqlite":
            _copy_pages(Path(parsed.database or ""), draft)
        else:
            _copy_rows(url, draft)
        proof = prove(f"sqlite:///{draft.absolute()}")
        _sync(draft)
        draft.replace(faulty(file) if proof.faults else file)
        _sync(file.absolute().parent)
    except OSError as e:
        raise InvalidRequest(f"{file} cannot be written: {e.strerror or e}", hint="name another file") from e
    finally:
        for path in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm", "-journal"))):
            path.unlink(missing_ok=True)
    return proof


def restore(file: Path, url: str, *, overwrite: bool = False) -> Restored:
    """Put the backup `file` in the place of the database at `url`. `overwrite`: what PostgreSQL holds of a ledger is given up.

    Raises NotFound, InvalidRequest (no backup, a damaged one, of a newer version; PostgreSQL holds a ledger), Unavailable (a ledger runs).
    """
    parsed = parse(url)
    if not file.is_file():
        raise NotFound(f"{file}: there is no such file")
    if (log := _log_of(file)).exists() and log.stat().st_size:
        raise InvalidRequest(
            f"{file} is a ledger's database, not a backup: its latest writes are in {log.name}",
            hint=f"make one of both: `hbox backup NEW --database sqlite:///{file.absolute()}`",
        )
    database = Path(parsed.database or "").absolute() if parsed.get_backend_name() == "sqlite" else None
    work = (
        database.with_name(f"{database.name}.restoring") if database is not None else file.with_name(f"{file.name}.restoring")
    )
    try:
        _make(work)
        shutil.copyfile(file, work)
        proof = _sound(file, work)
        kept = None
        if database is not None:
            kept = _into_sqlite(work, database)
        else:
            _into_postgres(work, url, overwrite=overwrite)
    except OSError as e:
        raise InvalidRequest(f"{e.filename or work}: {e.strerror or e}", hint="is there room, and may you write there?") from e
    finally:
        for path in (work, *(work.with_name(work.name + end) for end in ("-wal", "-shm", "-journal"))):
            path.unlink(missing_ok=True)
    return Restored(proof, kept)


# --- backup


def _refuse_a_database(file: Path, source: Path | None) -> None:
    """Replacing a database file would let its writer continue in a deleted file; and a log left next to a backup would be applied to the backup."""
    itself = source is not None and source.exists() and file.exists() and file.samefile(source)
    if itself or _log_of(file).exists():
        raise InvalidRequest(f"{file} is a ledger's database, and no place for a backup", hint="name another file")


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def _make(draft: Path) -> None:
    """An empty file, ours alone; whatever an earlier attempt left is gone."""
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _copy_pages(database: Path, draft: Path) -> None:
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
        raise Unavailable(f"database {database}: {e}", hint="is it a ledger's database, and can it be read?") from e


def _copy_rows(url: str, draft: Path) -> None:
    with reading(url, versions=t.VERSIONS) as source, _writing(draft) as target:
        _copy(source, target)


def _copy(source: Connection, target: Connection) -> None:
    """Every row of every table, in the order of its key: the chains refuse what is older than what they have."""
    for table in t.metadata.sorted_tables:
        rows = source.execution_options(yield_per=ROWS).execute(select(table).order_by(*table.primary_key.columns))
        for batch in rows.mappings().partitions(ROWS):
            target.execute(insert(table), [dict(row) for row in batch])
    target.commit()


@contextmanager
def _writing(file: Path) -> Iterator[Connection]:
    """A SQLite file with the newest schema."""
    made = engine(parse(f"sqlite:///{file.absolute()}"))
    try:
        with made.connect() as connection:
            migrate(connection, t.metadata, t.VERSIONS)
            yield connection
        _one_file(file)
    except (SQLAlchemyError, sqlite3.Error) as e:  # errors of concurrent reads are reported elsewhere
        error = getattr(e, "orig", e)
        if isinstance(error, sqlite3.Error):
            raise _unwritten(file, error) from e
        raise
    finally:
        made.dispose()


def _unwritten(file: Path, error: sqlite3.Error) -> InvalidRequest:
    return InvalidRequest(f"{file} cannot be written: {error}", hint="is there room?")


def _one_file(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()


def _sync(path: Path) -> None:
    """On the disk when this returns; `path`: a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- restore


def _sound(file: Path, work: Path) -> Proof:
    """The copy `work`, brought to this version's schema and proven. Raises InvalidRequest where it is no backup, or a damaged one."""
    with file.open("rb") as opened:
        if opened.read(len(_HEADER)) != _HEADER:
            raise InvalidRequest(f"{file} is no backup of a ledger", hint="`hbox backup FILE` makes one")
    try:
        with closing(sqlite3.connect(work)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise InvalidRequest(f"{file} is damaged: {verdict}", hint="take an earlier one")
            found = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {"alembic_version", "ledger", "claims", "audit"} <= found:
                raise InvalidRequest(f"{file} is no backup of a ledger", hint="`hbox backup FILE` makes one")
            (version,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as e:
        raise InvalidRequest(f"{file} is damaged: {e}", hint="take an earlier one") from e
    if version > newest(t.VERSIONS):
        hint = "use the version of HBox that made it, or a newer one"
        raise InvalidRequest(f"{file} has schema {version}, this version knows {newest(t.VERSIONS)}", hint=hint)
    with _writing(work):
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


def _into_sqlite(work: Path, database: Path) -> Path | None:
    """Keep the previous database, even an unreadable one. It stays in place until the restored one replaces it: otherwise a ledger that starts in between, or
    after a crash, would begin with empty books.
    """
    with FileLock(database):
        _check_unused(database)
        _sync(work)
        kept = _kept(database) if database.stat().st_size else None
        for end in ("-wal", "-shm"):
            companion = database.with_name(database.name + end)
            if kept is not None and companion.exists():
                companion.replace(kept.with_name(kept.name + end))
            companion.unlink(missing_ok=True)
        work.replace(database)
        keep_private(database)
        _sync(database.parent)
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
            _make(kept)
            shutil.copyfile(database, kept)
            _sync(kept)
        return kept
    raise AssertionError


def _check_unused(database: Path) -> None:
    """Raises Unavailable while another process has it open: only alone may one leave WAL. A ledger with leader election holds no lock on the file."""
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(database, timeout=2)) as connection:
        try:
            connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        except sqlite3.OperationalError as e:
            if "locked" in str(e) or "busy" in str(e):
                raise Unavailable(f"database: another process has {database} open", hint="stop the quota-ledger first") from e
            raise


def _into_postgres(work: Path, url: str, *, overwrite: bool) -> None:
    """Tables are made anew and filled in one transaction: until that is committed there is an empty ledger, which starts as on a backup of nothing."""
    made = engine(parse(url))
    where = f"database {parse(url).render_as_string(hide_password=True)}"
    source = create_engine(f"sqlite:///{work.absolute()}", poolclass=NullPool)
    try:
        with made.connect() as target, schema_lock(target):
            if writers(target):
                raise Unavailable(f"{where}: a quota-ledger is connected to it", hint="stop the quota-ledger first")
            there = _tables(target)
            if "ledger" in there and target.execute(select(t.ledger.c.epoch)).first() is not None and not overwrite:
                hint = "back it up first, then say --overwrite: what is there is given up"
                raise InvalidRequest(f"{where} holds a ledger", hint=hint)
            target.commit()
            if "alembic_version" in there:
                _drop(target)
            migrate(target, t.metadata, t.VERSIONS)
            with source.connect() as rows:
                _copy(rows, target)
    except SQLAlchemyError as e:
        raise refused(e, where) from e
    finally:
        made.dispose()
        source.dispose()


def _tables(connection: Connection) -> Sequence[str]:
    return inspect(connection).get_table_names()


def _drop(connection: Connection) -> None:
    t.metadata.drop_all(connection)
    REACH.drop(connection, checkfirst=True)
    connection.execute(text("DROP TABLE alembic_version"))
    connection.execute(text("DROP FUNCTION IF EXISTS refuse_rewriting() CASCADE"))
    connection.commit()
