"""A turn whose commit fails because the database is unavailable for a moment: the ledger continues from it, without a reload of its claims."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, NullPool, create_engine, select, text

from hbox_common.errors import Bug, Conflict, Unavailable
from hbox_common.events import PlansAnswered
from hbox_common.model import PodPhase, Queue, QueueName
from hbox_common.store import engine as store_engine
from hbox_ledger import ledger as shell
from hbox_ledger.adapters import audit
from hbox_ledger.adapters import tables as t
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.relay import Outgoing

from ...same_books import assert_as_in_the_database
from .conftest import Kit, Running

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_engine, "BUSY_TIMEOUT_MS", 50)


@contextmanager
def unavailable(url: str) -> Iterator[None]:
    """Another process locks SQLite's file; PostgreSQL ends the ledger's session, and its lock is taken."""
    if url.startswith("sqlite"):
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
        other.close()
        return
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args={"application_name": "test"})
    with engine.connect() as connection:
        key = {"key": store_engine._PG_LOCK}
        ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hbox'"
        connection.execute(text(ends))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), key)
        yield
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
    engine.dispose()


@asynccontextmanager
async def started(kit: Kit, url: str, sent: list[Outgoing]) -> AsyncIterator[Running]:
    """Open, with one pod; `sent` gets what is handed to the relay."""
    async with kit.started(url) as running:
        await running.open()
        await running.propose(kit.plan("first", ("first", "n0", (kit.whole(0),))))
        send = running.relay.send
        running.relay.send = lambda message: (sent.append(message), send(message))  # type: ignore[method-assign,func-returns-value,assignment]
        yield running


def answered(sent: list[Outgoing]) -> list[tuple[str, bool]]:
    return [(a.plan, a.committed) for one in sent if isinstance(one.event, PlansAnswered) for a in one.event.answers]


async def test_a_turn_that_the_database_did_not_take_is_committed_later(kit: Kit, database_url: str) -> None:
    sent: list[Outgoing] = []
    async with started(kit, database_url, sent) as running:
        books, plan = running.ledger.state, kit.plan("p", ("pod", "n0", (kit.whole(1),)))
        with unavailable(database_url):
            with pytest.raises(Unavailable):
                await running.propose(plan)
            with pytest.raises(Unavailable):
                await running.ledger.tick()
        assert answered(sent) == []
        await running.ledger.tick()
        assert answered(sent) == [("p", True)]
        await running.propose(plan)
        assert answered(sent) == [("p", True)] * 2, "the message is delivered again"
        assert running.ledger.state is books
        running.ledger.state.validate()
        rows = await running.store.read(lambda c: c.execute(select(t.claims.c.pod)).scalars().all())
        assert sorted(rows) == ["first", "pod"]
    assert audit.prove(database_url).faults == []


def lost_answer(running: Running, monkeypatch: pytest.MonkeyPatch, *, committed: bool = True) -> None:
    """The next commit reaches the database or not, and its answer is lost."""
    write = running.store.write

    async def once(fn: Callable[[Connection], T], *, brief: bool = False) -> T:
        monkeypatch.setattr(running.store, "write", write)
        if committed:
            await write(fn, brief=brief)
        raise Unavailable("the connection broke", outcome_unknown=True)

    monkeypatch.setattr(running.store, "write", once)


async def test_a_turn_whose_answer_was_lost_is_not_committed_twice(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Outgoing] = []
    async with started(kit, database_url, sent) as running:
        books, plan = running.ledger.state, kit.plan("p", ("pod", "n0", (kit.whole(1),)))
        lost_answer(running, monkeypatch)
        with pytest.raises(Unavailable):
            await running.propose(plan)
        await running.propose(plan)
        assert answered(sent) == [("p", True)] * 2
        assert running.ledger.state is books
        count = await running.store.read(
            lambda c: c.execute(text("SELECT count(*) FROM audit WHERE change = 'none->pending'")).scalar()
        )
        assert count == 2
    assert audit.prove(database_url).faults == []


@pytest.mark.parametrize("committed", [True, False])
async def test_turns_without_a_change_of_a_claim_are_completed_as_well(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """Their index does not tell whether they were committed: a queue's rules, a refusal, a note."""
    sent: list[Outgoing] = []
    async with started(kit, database_url, sent) as running:
        books, ledger = running.ledger.state, running.ledger
        turns: list[Callable[[], Any]] = [
            lambda: ledger.set_queues(Queue(QueueName("q"), capability={"cpu": 9000})),
            lambda: running.propose(kit.plan("refused", ("pod", "n0", (kit.whole(0),)))),
            lambda: ledger.drop_queue(QueueName("q")),
        ]
        for turn in turns:
            lost_answer(running, monkeypatch, committed=committed)
            with pytest.raises(Unavailable):
                await turn()
            await ledger.tick()
        assert running.ledger.state is books
        assert ("refused", False) in answered(sent)
        assert QueueName("q") in ledger.gone
        changes = await running.store.read(
            lambda c: (
                c.execute(select(t.audit.c.change).where(t.audit.c.subject == "queue q").order_by(t.audit.c.seq))
                .scalars()
                .all()
            )
        )
        assert changes == ["set", "deleted"]
    assert audit.prove(database_url).faults == []


async def test_a_comparison_leaves_pods_of_a_completed_turn_alone(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is older than the message whose commit failed."""
    sent: list[Outgoing] = []
    async with started(kit, database_url, sent) as running:
        claim = next(iter(running.ledger.state.live))
        await running.see("runs", kit.fact("first", "n0", claim=claim))
        as_of = running.ledger.index
        compare = running.ledger._compare

        async def compared(comparison: Any, facts: Any) -> None:
            lost_answer(running, monkeypatch)
            with pytest.raises(Unavailable):
                await running.see("new", kit.fact("late", "n1", PodPhase.RUNNING))
            await compare(comparison, facts)

        monkeypatch.setattr(running.ledger, "_compare", compared)
        await running.ledger.reconcile([kit.fact("first", "n0", claim=claim)], as_of=as_of)
        assert running.ledger.suspects() == []


async def test_a_turn_that_can_never_be_committed_is_given_up(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "MOST_ATTEMPTS", 2)
    sent: list[Outgoing] = []
    gang = kit.plan("gang", *[(f"g{i}", "n1", (kit.whole(i),)) for i in range(2)], min_member=2)
    async with started(kit, database_url, sent) as running:
        books, write, failures = running.ledger.state, running.store.write, 0

        async def fails(fn: Callable[[Connection], T], *, brief: bool = False) -> T:
            nonlocal failures
            failures += 1
            raise Unavailable("statement timeout")

        monkeypatch.setattr(running.store, "write", fails)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await running.propose(gang)
        monkeypatch.setattr(running.store, "write", write)
        await running.ledger.tick()
        await assert_as_in_the_database(books, running.store)
        await running.propose(kit.plan("other", ("other", "n0", (kit.whole(1),))))
        assert failures == 3
        assert running.ledger.state is books
        assert set(running.states()) == {"first", "other"}
    assert audit.prove(database_url).faults == []


@contextmanager
def refusing(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write = running.store.write

    async def refuses(fn: Callable[[Connection], T], *, brief: bool = False) -> T:
        raise Bug("a constraint of the database forbids it")

    monkeypatch.setattr(running.store, "write", refuses)
    yield
    monkeypatch.setattr(running.store, "write", write)


async def test_observed_pods_that_the_database_refuses_are_undone(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Outgoing] = []
    async with started(kit, database_url, sent) as running:
        books, claim = running.ledger.state, next(iter(running.ledger.state.live))
        await running.see("runs", kit.fact("first", "n0", claim=claim))
        turns: list[Callable[[], Any]] = [
            lambda: running.see("ends", kit.fact("first", "n0", PodPhase.SUCCEEDED, claim=claim)),
            lambda: running.see("found", kit.fact("foreign", "n1", PodPhase.RUNNING)),
        ]
        for turn in turns:
            with refusing(running, monkeypatch), suppress(Conflict, Bug):
                await turn()
            assert running.ledger._stale
            await running.ledger.tick()
            assert running.ledger.state is books
            books.validate()
            await assert_as_in_the_database(books, running.store)
        await running.propose(kit.plan("next", ("next", "n0", (kit.whole(1),))))
        assert set(running.states()) == {"first", "next"}
    assert audit.prove(database_url).faults == []


async def test_books_are_reloaded_if_the_database_refuses_plans(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The books allowed them: they differ from the database, whatever the plans were."""
    sent: list[Outgoing] = []
    async with started(kit, database_url, sent) as running:
        books = running.ledger.state
        gang = kit.plan("gang", *[(f"g{i}", "n1", (kit.whole(i),)) for i in range(2)], min_member=2)
        with refusing(running, monkeypatch), pytest.raises(Conflict):
            await running.propose(gang)
        await running.ledger.tick()
        assert running.ledger.state is not books
        await assert_as_in_the_database(running.ledger.state, running.store)
        assert set(running.states()) == {"first"}
    assert audit.prove(database_url).faults == []


async def test_books_are_reloaded_if_names_of_cards_are_refused_again(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name may be what the database refuses."""
    sent: list[Outgoing] = []
    async with started(kit, database_url, sent) as running:
        books, found = running.ledger.state, kit.fact("pod", "n0", slices=(kit.whole(1),))
        with refusing(running, monkeypatch):
            for number in range(2):
                with pytest.raises(Conflict):
                    await running.see(f"found-{number}", found)
        await running.ledger.tick()
        assert running.ledger.state is not books
        await running.see("found", found)
        assert set(running.states()) == {"first", "pod"}
    assert audit.prove(database_url).faults == []


async def test_books_are_reloaded_after_an_error_in_a_decision(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Outgoing] = []
    async with started(kit, database_url, sent) as running:
        books = running.ledger.state
        monkeypatch.setattr(LedgerState, "_on_cards", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(1),))))
        monkeypatch.undo()
        await running.ledger.tick()
        assert running.ledger.state is not books
        assert set(running.states()) == {"first"}
