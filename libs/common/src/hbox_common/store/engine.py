"""Opening a database with its guarantees, and with protection against a second writer.

SQLite: WAL with synchronous=FULL (NORMAL may lose the last commits at a power failure), BEGIN IMMEDIATE (a deferred transaction that upgrades after another
commit fails at once), foreign keys on, and a lock file next to the database. PostgreSQL: the server's synchronous_commit, timeouts on every statement, and a
session advisory lock. Both locks end with the process that holds them (sources: ledger-transfers, sqlite-writer).

A PostgreSQL session that stops in the middle of a transaction (a leader that hangs) locks rows that its successor needs. The successor ends the session; the
server itself does so after IDLE_TIMEOUT_MS, but not if the session stopped within a pipeline of statements (before PostgreSQL 17). TCP detects a server that
vanished within half a minute.
"""

import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from hbox_common.errors import Bug, HBoxError, InvalidRequest, Unavailable

BUSY_TIMEOUT_MS = 5_000
CACHE_KIB = 32_768  #: at most; SQLite's own 2 MiB are less than a commit of 400 claims touches among 10,000
#: 16 MiB: without a pause in writes, a commit waits for the checkpoint when the log reaches this length. SQLite's default of 1,000 pages is little more than
#: one commit of 400 claims.
CHECKPOINT_PAGES = 4_096
CHECKPOINT_ROWS = 4_000  #: changed rows, about 3 MiB, after which a checkpoint runs while no write waits
CONNECT_TIMEOUT_S = 5
STATEMENT_TIMEOUT_MS = 30_000
#: Between two statements of a transaction; reading 8,000 claims in between takes 0.3 s of a free processor.
IDLE_TIMEOUT_MS = 15_000
ENDING_MS = 2_000  #: for which the lock of a session that was closed may still be held
LOCK_TIMEOUT_MS = 20_000  #: of PostgreSQL: so that a successor waits until it may go on

#: How our sessions are known to the server.
_NAME = "hbox"

#: Keys of advisory locks: one writer in a database; one that changes its schema.
_PG_LOCK, _PG_SCHEMA_LOCK = 0x48426F78, 0x48426F79

#: SQLite's primary codes.
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)

#: libpq hands on no code for a connection that was refused, only these words of the server's: they no retry mends.
_REFUSED = {
    re.compile("authentication failed"): "correct user and password in the address",
    re.compile("no password supplied"): "put the password into the address",
    re.compile("no pg_hba.conf entry"): "let this user and host in, in the server's pg_hba.conf",
    re.compile('database ".*" does not exist'): "create the database, or name another",
    re.compile('role ".*" does not exist'): "create the user, or name another",
}
#: insufficient_privilege; invalid_schema_name: none that this user may use.
_NO_RIGHTS = ("42501", "3F000")
_LOCK_NOT_AVAILABLE = "55P03"

_EXAMPLES = "write it like sqlite:////var/lib/hbox/ledger.db or postgresql+psycopg://user:password@host/database"


def parse(url: str) -> URL:
    """The address of a database that HBox can use. Raises InvalidRequest for any other."""
    try:
        parsed = make_url(url)
    except ArgumentError as e:
        raise InvalidRequest(f"database address {url!r} cannot be read", hint=_EXAMPLES) from e
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if not parsed.database or parsed.database == ":memory:":
            raise InvalidRequest(f"database address {url!r} names no file", hint=_EXAMPLES)
        return parsed
    raise InvalidRequest(f"database address {url!r}: {parsed.drivername} is not supported", hint=_EXAMPLES)


def engine(url: URL) -> Engine:
    """An engine whose connections have the settings above. Connects to nothing yet."""
    if url.get_backend_name() == "sqlite":
        made = create_engine(
            url, poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False}
        )
        event.listen(made, "connect", _sqlite_settings)
        event.listen(made, "begin", _begin_immediate)
        return made
    limits = {
        "statement_timeout": STATEMENT_TIMEOUT_MS,
        "lock_timeout": LOCK_TIMEOUT_MS,
        "idle_in_transaction_session_timeout": IDLE_TIMEOUT_MS,
    }
    ours, given = [f"-c {name}={value}" for name, value in limits.items()], url.query.get("options", "")
    arguments = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "options": " ".join([*ours, given if isinstance(given, str) else " ".join(given)]),  # what comes last counts
        "application_name": _NAME,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": STATEMENT_TIMEOUT_MS,
    }
    return create_engine(url, poolclass=NullPool, connect_args=arguments)


def keep_private(file: Path) -> None:
    """Let no other user read the ledger: SQLite creates its file according to the umask, and its companions with the same mode."""
    with suppress(OSError):  # opening the database reports a faulty file
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
        for one in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
            if one.exists() and one.stat().st_uid == os.geteuid():
                one.chmod(0o600)


def _sqlite_settings(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves; the driver's own rules open no transaction for a SELECT
    cursor = connection.cursor()
    settings = {
        "journal_mode": "WAL",
        "synchronous": "FULL",
        "foreign_keys": "ON",
        "busy_timeout": BUSY_TIMEOUT_MS,
        "cache_size": -CACHE_KIB,
        "wal_autocheckpoint": CHECKPOINT_PAGES,
        # Debian's SQLite overwrites what is deleted with zeros, and writes these pages: 8 % of all that a busy ledger costs, for messages that were sent.
        "secure_delete": "OFF",
    }
    for pragma in (f"{name}={value}" for name, value in settings.items()):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


class Checkpoints:
    """Writes SQLite's log back into the database while no write waits, so that no commit has to."""

    def __init__(self) -> None:
        self._changes = 0

    def take(self, connection: Connection) -> None:
        """Now, if enough has changed; `connection` is in no transaction. A reader may be in the way, or the disk full: then a later one does it."""
        with suppress(sqlite3.Error, SQLAlchemyError):
            driver: Any = connection.connection.driver_connection
            if not 0 <= driver.total_changes - self._changes < CHECKPOINT_ROWS:
                self._changes = driver.total_changes
                driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


class FileLock:
    """That no other process opens this SQLite file for writing. Raises Unavailable while one does."""

    def __init__(self, database: Path) -> None:
        self._database, self._path, self._fd = database, database.with_name(database.name + ".lock"), -1

    def __enter__(self) -> "FileLock":
        if not self._path.parent.is_dir():
            raise InvalidRequest(f"database: the folder {self._path.parent} does not exist", hint="create it, or name another")
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise InvalidRequest(f"database: cannot write to {self._path.parent}: {e.strerror}") from e
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(self._fd)
            raise Unavailable(f"database: another process writes to {self._path.with_suffix('')}", hint="stop it first") from e
        keep_private(self._database)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._fd)


def take_advisory_lock(connection: Connection) -> None:
    """Become the only writer of this PostgreSQL database until the session ends. Raises Unavailable if another session remains the writer.

    The server releases a lock a moment after its holder closed the connection: a successor waits that long.
    """
    connection.execute(text(f"SET LOCAL lock_timeout = {ENDING_MS}"))
    try:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _PG_LOCK})
    except SQLAlchemyError as e:
        if getattr(getattr(e, "orig", None), "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        connection.rollback()
        raise Unavailable(
            "database: another process is its writer", hint="stop it first; its lock ends with its connection"
        ) from e
    connection.commit()


def end_others(connection: Connection) -> None:
    """End the sessions of previous writers of this PostgreSQL database; their uncommitted changes are rolled back."""
    if connection.dialect.name != "postgresql":
        return
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user "
        "AND application_name = :name AND pid <> pg_backend_pid()"
    )
    connection.execute(text(others), {"name": _NAME})


def writers(connection: Connection) -> int:
    """Number of other sessions of services in this PostgreSQL database."""
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name "
        "AND pid <> pg_backend_pid()"
    )
    return int(connection.execute(text(others), {"name": _NAME}).scalar_one())


@contextmanager
def schema_lock(connection: Connection) -> Iterator[None]:
    """Only one session at a time looks at the schema and changes it; on SQLite the transaction sees to that."""
    if connection.dialect.name != "postgresql":
        yield
        return
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _PG_SCHEMA_LOCK})
    connection.commit()
    yield
    connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _PG_SCHEMA_LOCK})  # after an error the session ends
    connection.commit()


def passing(error: SQLAlchemyError) -> bool:
    """Whether SQLite's error may be temporary: another process uses the file, or the disk is full."""
    return getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF in _PASSING


def refused(error: SQLAlchemyError, where: str, *, accepted_before: bool = False) -> HBoxError:
    """The house's error for a database that could not be opened: InvalidRequest where only the operator can mend it, else Unavailable; always Unavailable from
    a server that accepted this process before, since the operator is about to mend it."""
    message = _text(error)
    kind = Unavailable if accepted_before else InvalidRequest
    for pattern, hint in _REFUSED.items():
        if pattern.search(message):
            return kind(f"{where}: {message}", hint=hint)
    if getattr(getattr(error, "orig", None), "sqlstate", None) in _NO_RIGHTS:
        return kind(f"{where}: {message}", hint="let this user create tables there, or make it the database's owner")
    found = mapped(error, where)
    if isinstance(found, Bug):
        return found
    return Unavailable(found.message, hint="is the address right, and is the server running?")


def _text(error: SQLAlchemyError) -> str:
    return " ".join(str(getattr(error, "orig", None) or error).split())[:300]


def mapped(error: SQLAlchemyError, what: str) -> HBoxError:
    """The house's error for one of SQLAlchemy's. What a constraint forbids is a bug of the caller, never a wish."""
    message = _text(error)
    if isinstance(error, IntegrityError):
        return Bug(f"{what}: a constraint of the database forbids it: {message}")
    if isinstance(error, (OperationalError, InterfaceError)) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    ):
        return Unavailable(f"{what}: {message}", outcome_unknown=True)
    return Bug(f"{what}: {message}")
