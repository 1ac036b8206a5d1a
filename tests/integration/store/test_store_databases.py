"""The store on real databases: commits together, fails alone, and says in one line what is wrong with an address."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from sqlalchemy import CheckConstraint, Column, Connection, Integer, MetaData, Table, event, func, insert, select, text

from hbox_common.errors import Bug, Conflict, HBoxError, InvalidRequest, Unavailable
from hbox_common.store import Inbox, Letter, Outbox, Store

metadata = MetaData()
numbers = Table("numbers", metadata, Column("n", Integer, primary_key=True), CheckConstraint("n >= 0"))
inbox, outbox = Inbox(metadata), Outbox(metadata)


def opened(url: str) -> AbstractAsyncContextManager[Store]:
    return Store.open(url, metadata=metadata, versions=None)


def adds(n: int) -> Callable[[Connection], object]:
    return lambda connection: connection.execute(insert(numbers), [{"n": n}])


async def count(store: Store) -> int:
    return await store.read(lambda c: c.execute(select(func.count()).select_from(numbers)).scalar_one())


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
    async with opened(database_url) as store:
        await store.write(lambda c: outbox.add(c, letters[::-1]))
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


async def test_a_connection_that_was_cut_is_opened_again_by_the_next_call(postgres: str) -> None:
    async with opened(postgres) as store:
        await store.write(adds(1))
        with pytest.raises(Unavailable) as raised:
            await store.write(lambda c: c.execute(text("SELECT pg_terminate_backend(pg_backend_pid())")))
        assert raised.value.outcome_unknown
        await store.write(adds(2))
        assert await count(store) == 2
