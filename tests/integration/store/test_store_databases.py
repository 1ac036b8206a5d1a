"""The store on real databases: commits together, fails alone, and says in one line what is wrong with an address."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import (
    URL,
    CheckConstraint,
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    event,
    func,
    insert,
    select,
    text,
    update,
)

from hbox_common.errors import Bug, Conflict, HBoxError, InvalidRequest, Unavailable
from hbox_common.store import Batch, Inbox, Letter, Outbox, Store, writer
from hbox_common.store.engine import CHECKPOINT_ROWS, IDLE_TIMEOUT_MS, LOCK_TIMEOUT_MS, engine, parse, schema_lock
from hbox_common.store.schema import migrate

from ...postgres_server import PASSWORD, PostgresServer
from ...waiting import until

metadata = MetaData()
numbers = Table("numbers", metadata, Column("n", Integer, primary_key=True), CheckConstraint("n >= 0"))
inbox, outbox = Inbox(metadata), Outbox(metadata)


def opened(url: str) -> AbstractAsyncContextManager[Store]:
    return Store.open(url, metadata=metadata, versions=None)


def shared(url: str) -> AbstractAsyncContextManager[Store]:
    return Store.open(url, metadata=metadata, versions=None, exclusive=False)


def adds(n: int) -> Callable[[Connection], object]:
    return lambda connection: connection.execute(insert(numbers), [{"n": n}])


async def count(store: Store) -> int:
    return await store.read(lambda c: c.execute(select(func.count()).select_from(numbers)).scalar_one())


async def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "50%20 of #1?").mkdir()
    url = URL.create("sqlite", database=f"{tmp_path}/50%20 of #1?/x.db").render_as_string()
    async with opened(url) as store:
        await store.write(adds(1))
        assert await store.look(lambda c: c.execute(select(numbers.c.n)).scalars().all()) == [1]


async def test_a_file_that_somebody_is_at_for_a_moment_is_no_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that was put back is in no WAL until the ledger opens it, which needs it alone: whoever reads it then is in the way."""
    monkeypatch.setattr("hbox_common.store.engine.BUSY_TIMEOUT_MS", 50)
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as reads:
        reads.execute("CREATE TABLE t (a)")
        reads.execute("BEGIN")
        reads.execute("SELECT * FROM t").fetchall()
        with pytest.raises(Unavailable, match="locked") as raised:
            async with opened(url):
                pass
        assert "another process" in raised.value.hint
    async with opened(url) as store:
        await store.write(adds(1))


def threads_of(ran: list[int], n: int, took_s: float = 0.0) -> Callable[[Connection], object]:
    """Adds `n`, and its thread to `ran`."""

    def write(connection: Connection) -> None:
        ran.append(threading.get_ident())
        time.sleep(took_s)
        adds(n)(connection)

    return write


async def test_a_brief_write_runs_at_once_on_the_loop_and_is_on_disk_then(tmp_path: Path) -> None:
    ran: list[int] = []
    async with opened(f"sqlite:///{tmp_path}/x.db") as store:
        await store.write(threads_of(ran, 1), brief=True)
        with closing(sqlite3.connect(tmp_path / "x.db")) as other:
            assert other.execute("SELECT n FROM numbers").fetchall() == [(1,)]
    assert ran == [threading.get_ident()]


async def test_a_brief_write_waits_for_those_before_it_and_the_loop_goes_on(tmp_path: Path) -> None:
    ran: list[int] = []
    began, end = threading.Event(), threading.Event()

    def slowly(connection: Connection) -> None:
        began.set()
        assert end.wait(30)
        adds(1)(connection)

    async with opened(f"sqlite:///{tmp_path}/x.db") as store:
        first = asyncio.create_task(store.write(slowly))
        assert await asyncio.to_thread(began.wait, 30)
        brief = asyncio.create_task(store.write(threads_of(ran, 2), brief=True))
        await asyncio.sleep(0.05)
        assert not ran
        end.set()
        await asyncio.gather(first, brief)
        assert await count(store) == 2
    assert ran != [threading.get_ident()]


async def test_a_slow_disk_gets_no_brief_writes_on_the_loop_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    monkeypatch.setattr(writer, "SPARED_S", 0.5)
    async with opened(f"sqlite:///{tmp_path}/x.db") as store:
        await store.write(threads_of(ran, 1, 2 * writer.SLOW_S), brief=True)
        await store.write(threads_of(ran, 2), brief=True)
        await asyncio.sleep(0.6)
        await store.write(threads_of(ran, 3), brief=True)
    here = threading.get_ident()
    assert [one == here for one in ran] == [True, False, True]


async def test_what_a_constraint_forbids_a_brief_write_leaves_no_trace(database_url: str) -> None:
    def both(connection: Connection) -> None:
        adds(1)(connection)
        adds(-1)(connection)

    async with opened(database_url) as store:
        with pytest.raises(Bug, match="constraint"):
            await store.write(both, brief=True)
        await store.write(adds(2), brief=True)
        assert await store.look(lambda c: c.execute(select(numbers.c.n)).scalars().all()) == [2]


async def test_a_server_is_never_waited_for_on_the_loop(postgres: PostgresServer) -> None:
    ran: list[int] = []
    async with opened(postgres.empty_database()) as store:
        await store.write(threads_of(ran, 1), brief=True)
    assert ran != [threading.get_ident()]


async def test_a_long_look_sees_one_moment_and_keeps_nobody_from_writing(database_url: str) -> None:
    async with opened(database_url) as store:
        await store.write(adds(1))
        began, end = threading.Event(), threading.Event()

        def slowly(connection: Connection) -> list[int]:
            before = connection.execute(select(numbers.c.n)).scalars().all()
            began.set()
            assert end.wait(30)
            return [*before, *connection.execute(select(numbers.c.n)).scalars().all()]

        looking = asyncio.create_task(store.look(slowly))
        assert await asyncio.to_thread(began.wait, 30)
        await store.write(adds(2))
        end.set()
        assert await looking == [1, 1]
        assert await count(store) == 2


async def test_what_waits_is_committed_together_and_survives_reopening(database_url: str) -> None:
    async with opened(database_url) as store:
        commits: list[Connection] = []
        event.listen(store._engine, "commit", commits.append)
        held = threading.Event()
        blocker = asyncio.create_task(store.read(lambda _: held.wait(10)))
        writes = [asyncio.create_task(store.write(adds(n))) for n in range(20)]
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(blocker, *writes)
        assert len(commits) == 2  # the reader's, and one for all twenty
    async with opened(database_url) as store:
        assert await count(store) == 20


async def test_the_log_of_sqlite_is_written_back_while_nobody_waits(tmp_path: Path) -> None:
    """Before it is as long as SQLite itself lets it become, and though nobody closes the database: a copy of the file alone has it."""
    file, copy = tmp_path / "here.db", tmp_path / "copy.db"
    rows = [{"n": n} for n in range(CHECKPOINT_ROWS)]
    async with opened(f"sqlite:///{file}") as store:
        await store.write(lambda c: c.execute(insert(numbers), rows))
        async with asyncio.timeout(10):
            while True:
                copy.write_bytes(file.read_bytes())
                with (
                    closing(sqlite3.connect(copy)) as found,
                    suppress(sqlite3.DatabaseError),
                ):  # it is being written, or has no table yet
                    if found.execute("SELECT count(*) FROM numbers").fetchone() == (CHECKPOINT_ROWS,):
                        break
                await asyncio.sleep(0.05)
        assert await count(store) == CHECKPOINT_ROWS


async def test_one_that_fails_does_not_fail_the_others_of_its_group(database_url: str) -> None:
    async with opened(database_url) as store:

        def refuses(_: Connection) -> None:
            raise Conflict("not now")

        held = threading.Event()
        blocker = asyncio.create_task(store.read(lambda _: held.wait(10)))
        calls = [store.write(fn) for fn in (adds(1), adds(-1), refuses, adds(2))]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        held.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await blocker
        assert [type(r) for r in results if isinstance(r, HBoxError)] == [Bug, Conflict]
        assert await count(store) == 2


async def test_a_read_sees_only_what_is_committed(database_url: str) -> None:
    async with opened(database_url) as store:
        write, read = asyncio.create_task(store.write(adds(1))), asyncio.create_task(count(store))
        await write
        assert await read == 1


async def test_a_message_is_handled_once_and_its_result_kept(database_url: str) -> None:
    async with opened(database_url) as store:
        first = await store.write(lambda c: inbox.once(c, "me", "m1", at=1.0, result=b"done"))
        again = await store.write(lambda c: inbox.once(c, "me", "m1", at=2.0, result=b"other"))
        other = await store.write(lambda c: inbox.once(c, "you", "m1", at=2.0))
        assert (first, again, other) == (None, b"done", None)
        assert await store.write(lambda c: inbox.forget(c, before=1.5)) == 1


async def test_letters_leave_in_order_and_once(database_url: str) -> None:
    letters = [Letter(e, n, "io.x", ("a b", "c\nd"), bytes([n])) for e, n in ((1, 9), (1, 10), (2, 1))]

    def add(connection: Connection) -> None:
        with Batch(connection) as batch:
            outbox.add(batch, letters[::-1])

    async with opened(database_url) as store:
        await store.write(add)
        assert await store.read(outbox.unsent) == letters
        await store.write(lambda c: outbox.sent(c, letters[:2]))
        assert await store.read(outbox.unsent) == letters[2:]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("not an address", "cannot be read"),
        ("mysql://host/db", "not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:////nowhere/at/all/x.db", "does not exist"),
    ],
)
async def test_a_wrong_address_is_refused_in_one_line(url: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as raised:
        async with opened(url):
            pass
    assert "\n" not in str(raised.value)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is a letter to my grandmother, not a database " * 100)
    with pytest.raises(InvalidRequest, match="not a database"):
        async with opened(f"sqlite:///{tmp_path}/x.db"):
            pass


async def test_a_server_that_is_not_there_is_unavailable_and_no_password_is_shown() -> None:
    with pytest.raises(Unavailable) as raised:
        async with opened("postgresql+psycopg://me:secret@127.0.0.1:1/x"):
            pass
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_second_writer_is_kept_out_until_the_first_is_gone(database_url: str) -> None:
    async with opened(database_url):
        with pytest.raises(Unavailable, match="another process"):
            async with opened(database_url):
                pass
    async with opened(database_url) as store:
        assert await count(store) == 0


async def test_a_connection_that_was_cut_is_opened_again_by_the_next_call(postgres: PostgresServer) -> None:
    async with opened(postgres.empty_database()) as store:
        await store.write(adds(1))
        with pytest.raises(Unavailable) as raised:
            await store.write(lambda c: c.execute(text("SELECT pg_terminate_backend(pg_backend_pid())")))
        assert raised.value.outcome_unknown
        await store.write(adds(2))
        assert await count(store) == 2


async def test_a_user_whose_password_changes_is_let_in_with_the_one_that_the_address_has_by_then(
    postgres: PostgresServer,
) -> None:
    postgres.empty_database()
    with postgres.connect() as admin:
        admin.execute("CREATE ROLE writer LOGIN PASSWORD 'of-old'")
        admin.execute("GRANT ALL ON SCHEMA public TO writer")
        try:
            url = postgres.url(user="writer", password="of-old")
            async with Store.open(lambda: url, metadata=metadata, versions=None) as store:
                await store.write(adds(1))
                admin.execute("ALTER ROLE writer PASSWORD 'of-now'")
                await store.write(adds(2))  # who is in stays in
                with pytest.raises(Unavailable, match="password authentication failed"):
                    await store.look(lambda c: c.execute(select(numbers.c.n)).all())
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'writer'")
                with pytest.raises(Unavailable):
                    await store.write(adds(3))
                with pytest.raises(Unavailable, match="password authentication failed") as raised:
                    await store.write(adds(3))
                assert "of-old" not in str(raised.value)
                url = "half writ"
                with pytest.raises(Unavailable, match="password authentication failed"):
                    await store.write(adds(3))
                url = postgres.url(user="writer", password="of-now").replace("/postgres?", "/elsewhere?")
                await store.write(adds(4))
                assert await count(store) == 3, "the database is the one that it was"
                assert await store.look(lambda c: c.execute(select(func.count()).select_from(numbers)).scalar_one()) == 3
        finally:
            admin.execute("DROP OWNED BY writer CASCADE")
            admin.execute("DROP ROLE writer")


async def test_what_was_acknowledged_survives_a_kill_of_the_server_and_work_goes_on_after_it(postgres: PostgresServer) -> None:
    async with opened(postgres.empty_database()) as store:
        await store.write(adds(1))
        await asyncio.to_thread(postgres.kill)
        try:
            with pytest.raises(Unavailable):
                await store.write(adds(2))
        finally:
            await asyncio.to_thread(postgres.start)
        await store.write(adds(3))
        assert await store.read(lambda c: c.execute(select(numbers.c.n).order_by(numbers.c.n)).scalars().all()) == [1, 3]


def nobody_idle(connection: Connection) -> bool:
    """Whether no session of this database waits within a transaction."""
    others = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'")
    return bool(connection.execute(others).scalar_one() == 0)


async def test_one_that_hangs_in_a_transaction_loses_its_rows_to_a_successor(postgres: PostgresServer) -> None:
    url = postgres.empty_database()
    awake = threading.Event()
    held = threading.Event()

    def hangs(connection: Connection) -> None:
        connection.execute(update(numbers).values(n=2))
        held.set()
        awake.wait(60)
        connection.execute(update(numbers).values(n=3))

    async with shared(url) as old:
        await old.write(adds(1))
        hanging = asyncio.create_task(old.write(hangs))
        await asyncio.to_thread(held.wait, 60)
        async with shared(url) as new:
            await until(lambda: new.read(nobody_idle), "the end of who hangs", timeout_s=IDLE_TIMEOUT_MS / 2000)
            await new.write(lambda c: c.execute(update(numbers).values(n=9)))
        awake.set()
        with pytest.raises(Unavailable):
            await hanging
        assert await old.read(lambda c: c.execute(select(numbers.c.n)).scalar_one()) == 9


async def test_several_may_make_the_schema_at_once(postgres: PostgresServer) -> None:
    made = engine(parse(postgres.empty_database()))

    def makes() -> None:
        with made.connect() as connection, schema_lock(connection):
            migrate(connection, metadata, None)

    await asyncio.gather(*(asyncio.to_thread(makes) for _ in range(4)))
    with made.connect() as connection:
        assert connection.execute(select(func.count()).select_from(numbers)).scalar() == 0


async def test_the_limits_of_a_session_are_ours_unless_the_address_says_otherwise(postgres: PostgresServer) -> None:
    url = postgres.empty_database()
    assert IDLE_TIMEOUT_MS < LOCK_TIMEOUT_MS, "a successor would give up before it may go on"
    for address, limit in (
        (url, f"{IDLE_TIMEOUT_MS // 1000}s"),
        (f"{url}&options=-c%20idle_in_transaction_session_timeout%3D2s", "2s"),
    ):
        with engine(parse(address)).connect() as connection:
            assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar() == limit


async def test_nobody_waits_for_ever_and_what_nobody_waits_for_is_not_begun(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database_url) as store:
        held = threading.Event()
        blocker = asyncio.create_task(store.read(lambda _: held.wait(60)))
        await asyncio.sleep(0)
        monkeypatch.setattr("hbox_common.store.writer.ANSWER_S", 0.05)
        with pytest.raises(Unavailable, match="no answer within") as raised:
            await store.write(adds(1))
        assert raised.value.outcome_unknown
        monkeypatch.undo()
        held.set()
        await blocker
        assert await count(store) == 0


@pytest.mark.parametrize(
    ("wrong", "said", "hint"),
    [
        ({"password": "guessed"}, "password authentication failed", "correct user and password"),
        ({"user": "nobody-of-mine"}, "authentication failed", "correct user and password"),
        ({"database": "absent"}, 'database "absent" does not exist', "create the database"),
    ],
)
async def test_what_a_server_refuses_has_to_be_corrected(
    postgres: PostgresServer, wrong: dict[str, str], said: str, hint: str
) -> None:
    with pytest.raises(InvalidRequest, match=said) as raised:
        async with opened(postgres.url(**wrong)):
            pass
    assert hint in raised.value.hint
    assert wrong.get("password", PASSWORD) not in str(raised.value)


async def test_one_without_the_right_to_make_tables_is_told_so(postgres: PostgresServer) -> None:
    url = postgres.empty_database()
    with postgres.connect() as connection:
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    with pytest.raises(InvalidRequest, match="permission denied") as raised:
        async with opened(url.replace(f"hbox:{PASSWORD}@", "guest:guest@")):
            pass
    assert "create tables" in raised.value.hint
