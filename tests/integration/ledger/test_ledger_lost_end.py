"""A database that loses its last commits under a running ledger, as in a failover, is noticed at the first word that is exchanged with it."""

import pytest
from sqlalchemy import create_engine, text

from hbox_common.errors import Unavailable

from .conftest import Kit, Running


def lose(url: str, *statements: str) -> None:
    """Behind the ledger's back."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


async def stops(running: Running, kit: Kit, url: str) -> None:
    """What was lost is named, nothing is decided on the rest, and the ledger ends."""
    ledger = running.ledger
    with pytest.raises(Unavailable, match="it lost its end"):
        await running.propose(kit.plan("next", ("next", "n0", ())))
    assert ledger.taken_over.is_set()
    assert "it lost its end" in ledger.over
    engine = create_engine(url)
    with engine.connect() as connection:
        assert not connection.execute(text("SELECT count(*) FROM claims WHERE pod = 'next'")).scalar()
    engine.dispose()


async def test_by_the_next_commit(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("kept", ("kept", "n0", ())))
        await running.propose(kit.plan("lost", ("lost", "n0", ())))
        lose(database_url, "DELETE FROM claims WHERE pod = 'lost'", "UPDATE ledger SET idx = idx - 1")
        await stops(running, kit, database_url)


async def test_by_the_next_reading_after_a_commit_that_failed(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server went away in between: the books are read anew, and are not what was committed."""
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("kept", ("kept", "n0", ())))
        await running.propose(kit.plan("lost", ("lost", "n0", ())))
        write = running.store.write

        async def gone(_: object, *, brief: bool) -> None:
            raise Unavailable("database: the server is away", outcome_unknown=True)

        monkeypatch.setattr(running.store, "write", gone)
        with pytest.raises(Unavailable, match="the server is away"):
            await running.propose(kit.plan("failed", ("failed", "n0", ())))
        monkeypatch.setattr(running.store, "write", write)
        lose(database_url, "DELETE FROM claims WHERE pod = 'lost'", "UPDATE ledger SET idx = idx - 1")
        await stops(running, kit, database_url)


async def test_with_the_beginning_of_its_epoch(kit: Kit, database_url: str) -> None:
    """What is left is of the epoch before: nobody else has begun one."""
    async with kit.started(database_url) as running:
        await running.open()
    async with kit.started(database_url, now=2000.0) as running:
        await running.open()
        lose(database_url, "UPDATE ledger SET epoch = epoch - 1, idx = 7")
        await stops(running, kit, database_url)


async def test_another_ledger_is_told_apart(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        lose(database_url, "UPDATE ledger SET epoch = epoch + 1, idx = 0")
        with pytest.raises(Unavailable, match="another quota-ledger has taken over"):
            await running.propose(kit.plan("next", ("next", "n0", ())))
        assert running.ledger.taken_over.is_set()
        assert "lost its end" not in running.ledger.over
