"""The store: one thread that owns the only connection, and commits pending writes together.

Theory of operation. `write(fn)` puts fn into a queue and waits. The thread takes up to GROUP functions, runs them in one transaction and commits once: one
fsync for all. If one of them raises, the transaction is rolled back and each is run again in a transaction of its own, so that one cannot fail the others;
therefore a function must only execute statements on its connection, and may run twice. After a connection failure the next call opens a new connection (and
takes the writer's lock again); calls on the failed one raise Unavailable with `outcome_unknown`, since a commit may have reached the disk. So do calls that
wait for longer than ANSWER_S; a call whose caller is gone is not started.

Each connection uses the user and password that the address has at that time: an operator changes them while a service runs, at the server and in the Secret,
one after the other. Until both agree, a database that accepted the service before is Unavailable instead of InvalidRequest, which would end the service.

A `brief` write to SQLite runs at once, on the caller's loop, if the thread is idle: a few statements and an fsync cost less than waking the thread and being
woken by it, which on a busy machine means waiting twice for a processor. After a slow write the disk gets no brief writes for a while.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import URL, Connection, MetaData
from sqlalchemy.exc import SQLAlchemyError

from hbox_common.clock import monotonic_s
from hbox_common.errors import Bug, HBoxError, InvalidRequest, Unavailable

from .engine import Checkpoints, FileLock, end_others, engine, mapped, parse, passing, refused, schema_lock, take_advisory_lock
from .reader import reading
from .schema import migrate

T = TypeVar("T")

GROUP = 64
WAITING = 1024
ANSWER_S = 60.0  #: above what a statement may take
JOIN_S = 60.0

#: A brief write that took longer than the first sends all to the thread for the second.
SLOW_S, SPARED_S = 0.02, 10.0


@dataclass(slots=True)
class _Call:
    fn: Callable[[Connection], Any]
    done: asyncio.Future[Any]
    alone: bool  #: must not see what others have not committed


class Store:
    """One database, for one process that writes to it."""

    def __init__(self, address: Callable[[], str], metadata: MetaData, versions: Path | None, exclusive: bool) -> None:
        self._address, self._metadata, self._versions, self._exclusive = address, metadata, versions, exclusive
        self._url = parse(address())
        self._engine = engine(self._url)
        self._opened = False  #: the server has accepted a connection before
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._room = asyncio.BoundedSemaphore(WAITING)
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._at_work = threading.Lock()  #: held by the user of the connection
        self._unanswered = 0  #: calls that were put into the queue
        self._spared_until = 0.0

    @property
    def kind(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._url.get_backend_name()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str | Callable[[], str], *, metadata: MetaData, versions: Path | None, exclusive: bool = True
    ) -> AsyncIterator["Store"]:
        """Open the database at `url` (sqlite:///path, postgresql+psycopg://...), migrated to the newest of `versions`. A function is called for the address
        before each connection; later connections use its user and password, but no other host or database.

        `exclusive`: no other process may write meanwhile. Without it the caller's transactions must detect that another process has taken over: a lock would
        block a standby for as long as a leader hangs. The last process that opens the database continues; in PostgreSQL the sessions of earlier ones end at
        once.

        Raises InvalidRequest (address, folder, not a database, unknown schema) or Unavailable (unreachable, another writer).
        """
        store = cls(url if callable(url) else lambda: url, metadata, versions, exclusive)
        with ExitStack() as held:
            if exclusive and store.kind == "sqlite":
                held.enter_context(FileLock(Path(cast(str, store._url.database))))
            store._thread.start()
            try:
                await store._submit(store._prepare, alone=True)
                yield store
            finally:
                store._calls.put(None)
                await asyncio.to_thread(store._thread.join, JOIN_S)

    async def write(self, fn: Callable[[Connection], T], *, brief: bool = False) -> T:
        """Run `fn` in a transaction and return its result once that is on disk. `fn` may run twice, and runs in the writer's thread; one that is `brief`, of
        a few statements, may run on the loop.

        Raises what `fn` raises, Unavailable (database gone; the outcome may be unknown) and Bug (a constraint forbids it).
        """
        if brief and self._is_idle() and self._at_work.acquire(blocking=False):
            return self._write_here(fn)
        return cast(T, await self._submit(fn, alone=False))

    def _is_idle(self) -> bool:
        """Whether no caller uses the database or waits for it, nor any other process, so that a write is not delayed."""
        if self.kind != "sqlite" or not self._exclusive or self._connection is None:
            return False
        return not self._unanswered and monotonic_s() >= self._spared_until

    def _write_here(self, fn: Callable[[Connection], T]) -> T:
        began = monotonic_s()
        try:
            return cast(T, self._transaction([fn])[0])
        finally:
            self._at_work.release()
            if (now := monotonic_s()) - began > SLOW_S:
                self._spared_until = now + SPARED_S

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn`, which only reads, on what is committed."""
        return cast(T, await self._submit(fn, alone=True))

    async def settle(self) -> None:
        """Wait until nothing is before a call that is made now: what was asked for before, and SQLite's log that is written back after it."""
        await self._submit(lambda _: None, alone=True)

    async def look(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn`, which only reads, on committed data, on a connection and in a thread of its own: for long reads concurrent with writes."""
        versions = self._versions

        def work() -> T:
            url = self._current_url().render_as_string(hide_password=False)
            with reading(url, versions=versions, accepted_before=self._opened) as connection:
                return fn(connection)

        return await asyncio.to_thread(work)

    async def _submit(self, fn: Callable[[Connection], Any], *, alone: bool) -> Any:
        async with self._room:
            call = _Call(fn, self._loop.create_future(), alone)
            self._calls.put(call)
            self._unanswered += 1
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await call.done
            except TimeoutError as e:
                raise Unavailable(
                    f"database: no answer within {ANSWER_S:g} s", hint="is its server, or its disk, well?", outcome_unknown=True
                ) from e
            finally:
                self._unanswered -= 1

    def _prepare(self, connection: Connection) -> None:
        if not self._exclusive:
            end_others(connection)

    def _work(self) -> None:
        held: _Call | None = None
        checkpoints = Checkpoints() if self.kind == "sqlite" else None
        while True:
            if checkpoints is not None and self._connection is not None and held is None and self._calls.empty():
                with self._at_work:
                    checkpoints.take(self._connection)
            call = held or self._calls.get()
            held = None
            if call is None:
                break
            group = [call]
            while not call.alone and len(group) < GROUP:
                try:
                    following = self._calls.get_nowait()
                except queue.Empty:
                    break
                if following is None or following.alone:
                    if following is None:
                        self._calls.put(None)
                    held = following
                    break
                group.append(following)
            self._run(group)
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.close()
        self._engine.dispose()

    def _run(self, group: list[_Call]) -> None:
        group = [call for call in group if not call.done.done()]
        if not group:
            return
        try:
            with self._at_work:
                results = self._transaction([call.fn for call in group])
        except Exception as error:  # noqa: BLE001  whatever it is belongs to the callers
            if len(group) == 1 or isinstance(error, Unavailable):
                for call in group:
                    self._answer(call, None, error)
                return
            for call in group:
                self._run([call])
            return
        for call, result in zip(group, results, strict=True):
            self._answer(call, result, None)

    def _transaction(self, functions: list[Callable[[Connection], Any]]) -> list[Any]:
        connection = self._connected()
        try:
            with connection.begin():
                return [fn(connection) for fn in functions]
        except SQLAlchemyError as e:
            found = mapped(e, "database")
            # A rejected transaction was rolled back, on a working connection. A new connection may have to wait until the server has released the old one's
            # lock.
            if connection.invalidated or (self.kind != "sqlite" and not isinstance(found, Bug)):
                self._drop()
            raise found from e

    def _connected(self) -> Connection:
        if self._connection is None:
            connection: Connection | None = None
            if (url := self._current_url()) != self._url:
                self._engine.dispose()
                self._url, self._engine = url, engine(url)
            try:
                connection = self._engine.connect()
                if self._exclusive and self.kind == "postgresql":
                    take_advisory_lock(connection)
                with schema_lock(connection):
                    migrate(connection, self._metadata, self._versions)
            except (SQLAlchemyError, HBoxError) as e:
                if connection is not None:
                    connection.close()
                if isinstance(e, HBoxError):
                    raise
                raise self._unopened(e) from e
            self._connection, self._opened = connection, True
        return self._connection

    def _current_url(self) -> URL:
        """The address with the user and password that it has now; another host or database counts at the next start."""
        try:
            now = parse(self._address())
        except InvalidRequest:  # the file is half written
            return self._url
        return self._url.set(username=now.username, password=now.password)

    def _unopened(self, error: SQLAlchemyError) -> HBoxError:
        where = self._url.render_as_string(hide_password=True)
        if self.kind == "sqlite":
            found = mapped(error, f"database {where}")
            if passing(error):
                return Unavailable(found.message, hint="does another process have it open, and is there room on its disk?")
            return InvalidRequest(found.message, hint="is it a database of this service, and may this user write to it?")
        return refused(error, f"database {where}", accepted_before=self._opened)

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.close()
            self._connection = None

    def _answer(self, call: _Call, result: Any, error: Exception | None) -> None:
        def settle() -> None:
            if call.done.done():
                return
            if error is None:
                call.done.set_result(result)
            else:
                call.done.set_exception(error)

        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(settle)
