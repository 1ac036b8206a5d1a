"""Prepared statements and batches of them on real databases: what they change, what they say, and that nothing of a batch stays where one fails."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    NullPool,
    Table,
    Text,
    bindparam,
    create_engine,
    delete,
    func,
    insert,
    select,
    update,
)

from hbox_common.errors import Bug, Conflict, Unavailable
from hbox_common.store import Batch, Prepared, Store
from hbox_common.store.engine import parse
from hbox_common.store.prepared import Rows

from ...postgres_server import PostgresServer

metadata = MetaData()
numbers = Table("numbers", metadata, Column("n", Integer, primary_key=True), CheckConstraint("n >= 0"))
things = Table(
    "things",
    metadata,
    Column("key", BigInteger, primary_key=True),
    Column("words", Text, nullable=False),
    Column("perhaps", Text, nullable=True),
    Column("size", Double, nullable=False),
    Column("there", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
)


def opened(url: str) -> AbstractAsyncContextManager[Store]:
    return Store.open(url, metadata=metadata, versions=None)


async def count(store: Store) -> int:
    return await store.read(lambda c: c.execute(select(func.count()).select_from(numbers)).scalar_one())


def changed(connection: Connection, statement: Prepared, rows: Rows) -> int | None:
    with Batch(connection) as batch:
        sent = batch.run(statement, rows)
    return sent.changed


def together(connection: Connection, act: Callable[[Batch], object]) -> None:
    with Batch(connection) as batch:
        act(batch)


async def test_a_prepared_statement_runs_over_rows_and_tells_how_many_it_changed(database_url: str) -> None:
    put = Prepared(insert(numbers), columns=["n"], conflict="DO NOTHING")
    raised = Prepared(update(numbers).where(numbers.c.n < bindparam("below")).values(n=numbers.c.n + bindparam("by")))
    async with opened(database_url) as store:
        assert await store.write(lambda c: changed(c, put, [{"n": n} for n in range(5)])) == 5
        assert await store.write(lambda c: changed(c, put, [{"n": 4}, {"n": 5}])) == 1
        assert await store.write(lambda c: changed(c, put, [])) == 0
        assert await store.write(lambda c: changed(c, raised, [{"below": 2, "by": 100}])) == 2
        with pytest.raises(Bug):
            await store.write(lambda c: changed(c, put, [{"n": -1}]))
        assert sorted(await store.read(lambda c: c.execute(select(numbers.c.n)).scalars().all())) == [2, 3, 4, 5, 100, 101]


@pytest.mark.parametrize("words", ["", "NULL", 'a "b" \\ c', "{a,b}", "ä\n\t ", "\\x00"])
async def test_what_goes_to_the_database_comes_back(database_url: str, words: str) -> None:
    put = Prepared(insert(things), columns=things.columns.keys())
    rows = [
        {"key": 2**40, "words": words, "perhaps": None, "size": 1e-7, "there": True, "body": b"\0\xff"},
        {"key": -1, "words": words * 2, "perhaps": words, "size": float("inf"), "there": False, "body": b""},
    ]
    async with opened(database_url) as store:
        for some in (rows[:1], rows[1:]):
            await store.write(lambda c, some=some: changed(c, put, some))  # type: ignore[misc]
        await store.write(lambda c: (c.execute(delete(things)), changed(c, put, rows)))
        found = await store.read(lambda c: c.execute(select(things).order_by(things.c.key.desc())).mappings().all())
        assert [dict(row) for row in found] == rows
        tuples = [tuple(row.values()) for row in rows]
        for parts in ((tuples[:1], tuples[1:]), (tuples,)):
            await store.write(lambda c: c.execute(delete(things)))
            for part in parts:
                await store.write(lambda c, part=part: changed(c, put, part))  # type: ignore[misc]
            assert await store.read(lambda c: c.execute(select(things).order_by(things.c.key.desc())).all()) == tuples


async def test_a_text_that_postgresql_has_no_place_for_is_refused_whole(database_url: str) -> None:
    put = Prepared(insert(things), columns=["key", "words", "size", "there", "body"])
    rows = [{"key": n, "words": words, "size": 0.0, "there": True, "body": b""} for n, words in enumerate(("a", "b\0c", "d"))]
    async with opened(database_url) as store:
        if store.kind == "postgresql":
            with pytest.raises(Bug, match="NUL"):
                await store.write(lambda c: changed(c, put, rows))
        else:
            await store.write(lambda c: changed(c, put, rows))
        found = await store.read(lambda c: c.execute(select(things.c.words)).scalars().all())
        assert found == ([] if store.kind == "postgresql" else ["a", "b\0c", "d"])


async def test_an_update_finds_the_rows_of_each_row(database_url: str) -> None:
    put = Prepared(insert(numbers), columns=["n"])
    moved = Prepared(update(numbers).where(numbers.c.n == bindparam("from")).values(n=numbers.c.n + bindparam("by")))
    gone = Prepared(delete(numbers).where(numbers.c.n == bindparam("which")))
    async with opened(database_url) as store:
        await store.write(lambda c: changed(c, put, [{"n": n} for n in range(5)]))
        ways = [{"from": 1, "by": 10}, {"from": 3, "by": 30}, {"from": 9, "by": 90}]
        assert await store.write(lambda c: changed(c, moved, ways)) == 2
        assert await store.write(lambda c: changed(c, gone, [{"which": 0}, {"which": 33}, {"which": 5}])) == 2
        assert sorted(await store.read(lambda c: c.execute(select(numbers.c.n)).scalars().all())) == [2, 4, 11]


async def test_the_first_expectation_of_a_batch_that_does_not_hold_is_its_error(database_url: str) -> None:
    """Also where a statement behind it fails by itself; and nothing stays of any of them."""
    put, below_zero = Prepared(insert(numbers), columns=["n"], conflict="DO NOTHING"), [{"n": -1}]

    def act(batch: Batch) -> None:
        batch.expect(put, [{"n": 1}], 1, Conflict("not this one"))
        batch.expect(put, [{"n": 1}, {"n": 2}], 2, Conflict("this one"))
        batch.expect(put, [{"n": 1}], 1, Conflict("nor this one"))
        batch.run(put, below_zero)

    def fails_by_itself(batch: Batch) -> None:
        batch.run(put, [{"n": 7}])
        raise ZeroDivisionError

    async with opened(database_url) as store:
        with pytest.raises(Conflict, match="this one"):
            await store.write(lambda c: together(c, act))
        with pytest.raises(Bug, match="constraint"):
            await store.write(lambda c: together(c, lambda batch: batch.run(put, below_zero)))
        with pytest.raises(ZeroDivisionError):
            await store.write(lambda c: together(c, fails_by_itself))
        assert await count(store) == 0
        await store.write(lambda c: together(c, lambda batch: batch.expect(put, [{"n": 1}], 1, Conflict("no"))))
        assert await count(store) == 1


async def test_the_first_error_of_a_batch_is_told_and_what_stood_behind_it_can_be_used_again(database_url: str) -> None:
    """The server passes over the rest, also over what it was to prepare there."""
    put, taken_out = Prepared(insert(numbers), columns=["n"]), Prepared(delete(numbers).where(numbers.c.n == bindparam("old")))

    def act(batch: Batch) -> None:
        batch.run(put, [{"n": -1}])
        batch.run(taken_out, [{"old": 5}])

    async with opened(database_url) as store:
        await store.write(lambda c: changed(c, put, [{"n": 5}]))
        with pytest.raises(Bug, match="constraint"):
            await store.write(lambda c: together(c, act))
        assert await count(store) == 1
        assert await store.write(lambda c: changed(c, taken_out, [{"old": 5}])) == 1


async def test_a_batch_on_postgresql_waits_for_nothing_until_its_end(postgres: PostgresServer) -> None:
    """The first statement waits in the server for another session; the second is sent all the same."""
    put = Prepared(insert(numbers), columns=["n"], conflict="DO NOTHING")
    sent = threading.Event()

    def act(batch: Batch) -> None:
        batch.run(put, [{"n": 1}])
        batch.run(put, [{"n": 2}])
        sent.set()

    url = postgres.empty_database()
    async with opened(url) as store:
        engine = create_engine(parse(url), poolclass=NullPool)
        with engine.begin() as other:
            other.execute(insert(numbers), [{"n": 1}])
            writing = asyncio.create_task(store.write(lambda c: together(c, act)))
            assert await asyncio.to_thread(sent.wait, 10)
            assert not writing.done()
        await writing
        assert await count(store) == 2


async def test_a_session_that_ends_within_a_batch_is_unavailable_and_the_next_one_works(postgres: PostgresServer) -> None:
    put = Prepared(insert(numbers), columns=["n"])

    def act(batch: Batch) -> None:
        batch.run(put, [{"n": 1}])
        with postgres.connect() as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hbox'")
        batch.run(put, [{"n": 2}])

    async with opened(postgres.empty_database()) as store:
        with pytest.raises(Unavailable) as caught:
            await store.write(lambda c: together(c, act))
        assert caught.value.outcome_unknown
        async with asyncio.timeout(30):
            while True:
                with suppress(Unavailable):  # the lock of the session that ended
                    await store.write(lambda c: together(c, lambda batch: batch.run(put, [{"n": 3}])))
                    break
        assert await store.read(lambda c: list(c.execute(select(numbers.c.n)).scalars())) == [3]


async def test_a_batch_may_be_larger_than_all_buffers_between_us_and_the_server(database_url: str) -> None:
    put = Prepared(insert(things), columns=["key", "words", "size", "there", "body"])
    rows = [{"key": n, "words": "x" * 300, "size": 0.5, "there": True, "body": bytes(300)} for n in range(20_000)]
    gone = Prepared(delete(things).where(things.c.key == bindparam("k")))

    def act(batch: Batch) -> None:
        batch.expect(put, rows, len(rows), Conflict("rows are missing"))
        batch.expect(gone, [{"k": row["key"]} for row in rows], len(rows), Conflict("rows are left"))

    async with opened(database_url) as store:
        for _ in range(2):
            await store.write(lambda c: together(c, act))
