"""Door of the disk: transactions of `hbox_common.store` on the loop, on SQLite files in memory, with the faults of a disk.

A transaction waits its turn, takes a while, and commits; then its answer takes a moment, in which its process may die. The transaction itself is the
store's own.
"""

import asyncio
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

import hbox_common.store.writer as writer
import hbox_health.adapters.tables
import hbox_ledger.adapters.tables
from hbox_common.errors import Unavailable
from hbox_common.store import Store
from hbox_common.store.engine import engine, parse
from hbox_common.store.schema import migrate

from .broker import Sink
from .loop import PROCESS, Process, VirtualLoop, replaced

COMMIT_S = (0.0005, 0.004)


@dataclass(eq=False, slots=True)
class Wear:
    """What happens to a service's transactions now."""

    slow: float = 1.0  #: factor of the time that a commit takes
    before: float = 0.0  #: probability of a failure before the commit
    after: float = 0.0  #: and after it


class _Thread:
    def __init__(self, **_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self, timeout: float | None = None) -> None:
        pass


class _Threading:
    """In place of the module `threading` of the store."""

    Thread = _Thread
    Lock = staticmethod(threading.Lock)


@cache
def template(name: str) -> bytes:
    """An empty database of a service with the newest schema, made once in a process and its forks: Alembic takes a second."""
    metadata, versions = _SCHEMAS[name]
    with tempfile.TemporaryDirectory(prefix="hbox-sim-") as folder:
        made = engine(parse(f"sqlite:///{folder}/new.db"))
        with made.connect() as connection:
            migrate(connection, metadata, versions)
        with closing(sqlite3.connect(f"{folder}/new.db")) as whole:
            whole.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        made.dispose()
        return Path(folder, "new.db").read_bytes()


_SCHEMAS = {
    "quota-ledger": (hbox_ledger.adapters.tables.metadata, hbox_ledger.adapters.tables.VERSIONS),
    "health-monitor": (hbox_health.adapters.tables.metadata, hbox_health.adapters.tables.VERSIONS),
}


class Disk:
    """Databases of all services."""

    def __init__(self, loop: VirtualLoop, chance: Random, sink: Sink) -> None:
        self._loop, self._chance, self._sink = loop, chance, sink
        self.wear: dict[str, Wear] = {}  #: by service
        self.commits = 0
        self._open: dict[Path, Process | None] = {}
        self._stores: dict[Store, tuple[Process | None, asyncio.Lock]] = {}

    def closed_by_death(self, process: Process) -> None:
        """The operating system closes the files of a process that was killed."""
        for store, (owner, _) in list(self._stores.items()):
            if owner is process:
                self._close(store)
        for database in [database for database, owner in self._open.items() if owner is process]:
            del self._open[database]

    def _close(self, store: Store) -> None:
        self._stores.pop(store, None)
        with suppress(SQLAlchemyError):
            store._drop()
            store._engine.dispose()

    async def submit(self, store: Store, function: Callable[[Connection], Any]) -> Any:
        process = PROCESS.get()
        service = "" if process is None else process.service
        _, lock = self._stores.setdefault(store, (process, asyncio.Lock()))
        async with lock:
            wear = self.wear.get(service)
            await asyncio.sleep(self._chance.uniform(*COMMIT_S) * (1.0 if wear is None else wear.slow))
            if wear is not None and wear.before and self._chance.random() < wear.before:
                raise Unavailable("database: disk I/O error", outcome_unknown=True)
            try:
                result = store._transaction([function])[0]
            finally:
                if store._connection is not None:
                    driver: Any = store._connection.connection.driver_connection
                    self._sink.add("commit", service, driver.total_changes)
                    self.commits += 1
            await asyncio.sleep(0)
            if wear is not None and wear.after and self._chance.random() < wear.after:
                raise Unavailable("database: disk I/O error", outcome_unknown=True)
            return result

    def installed(self) -> AbstractContextManager[None]:
        """The store with this door, while the context is open."""
        disk = self

        async def submit(self: Store, fn: Callable[[Connection], Any], *, alone: bool) -> Any:
            return await disk.submit(self, fn)

        class Lock:
            def __init__(self, database: Path) -> None:
                self._database = database

            def __enter__(self) -> "Lock":
                if self._database in disk._open:
                    raise Unavailable(f"database: another process writes to {self._database}", hint="stop it first")
                disk._open[self._database] = PROCESS.get()
                return self

            def __exit__(
                self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
            ) -> None:
                if disk._open.get(self._database) is PROCESS.get():
                    del disk._open[self._database]

        return replaced(
            (Store, "_submit", submit),
            (Store, "_is_idle", lambda self: False),
            (writer, "threading", _Threading),
            (writer, "FileLock", Lock),
        )
