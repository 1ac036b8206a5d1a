"""Card-seconds of queues, users and models, on SQLite and PostgreSQL: what claims held and for how long, whatever dies in between."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, select

from hbox_common.errors import Unavailable
from hbox_common.events import BudgetUsed, UsageKey
from hbox_common.model import DEFAULT_QUEUE, CardSlice, PodPhase, PodUid, Queue, QueueName
from hbox_ledger.adapters import load
from hbox_ledger.adapters import tables as t

from .conftest import Kit, Running

ALWAYS = {"since": 0, "until": 2**40}


async def accounts(running: Running, *by: str) -> dict[tuple[object, ...], tuple[int, int, int]]:
    """(own, borrowed, idle) in card-seconds."""
    found = await running.views.used(by, **ALWAYS)
    return {
        tuple(getattr(account, name) for name in by): (amounts.own // 1000, amounts.borrowed // 1000, amounts.idle // 1000)
        for account, amounts in found
    }


def deserving(cards: int) -> Queue:
    return Queue(DEFAULT_QUEUE, deserved={"nvidia.com/gpu": cards})


async def test_a_claim_is_accounted_for_from_its_beginning_to_its_end(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.ledger.set_queues(deserving(1))
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0), kit.whole(1)))))
        running.clock[0] += 100
        assert await accounts(running, "queue", "user", "model") == {("default", "ml", "A100"): (100, 100, 0)}
        running.clock[0] += 50.9
        await running.see("x", kit.fact("pod", "n0", PodPhase.SUCCEEDED))
        running.clock[0] += 20
        assert await accounts(running, "queue", "user", "model") == {
            ("default", "ml", "A100"): (150, 150, 0),
            ("default", "", ""): (0, 0, 20),
        }


async def test_departments_are_the_sums_of_the_queues_below_them(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        for name, parent in (("dept", ""), ("team", "dept"), ("a", "team"), ("b", "dept"), ("alone", "")):
            await running.ledger.set_queues(Queue(QueueName(name), parent=parent))
        await running.open()
        for i, queue in enumerate(("a", "b", "alone")):
            plan = kit.plan(f"p{i}", (f"pod{i}", "n0", (kit.whole(i),)))
            await running.propose(plan.model_copy(update={"queue": queue}))
        running.clock[0] += 10
        found = await running.views.summed((UsageKey.DEPARTMENT, UsageKey.USER), **ALWAYS)
        assert sorted((u.department, u.queue, u.user, u.borrowed) for u in found) == [
            ("alone", "", "ml", 10_000),
            ("dept", "", "ml", 20_000),
        ]
        both = await running.views.summed((UsageKey.DEPARTMENT, UsageKey.QUEUE), **ALWAYS)
        assert {(u.department, u.queue): u.borrowed for u in both} == {
            ("dept", "a"): 10_000,
            ("dept", "b"): 10_000,
            ("alone", "alone"): 10_000,
        }


async def test_of_a_slice_counts_the_larger_of_compute_and_memory(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        small, large = CardSlice(0, 30, 4096), CardSlice(0, 10, 20_480)
        await running.propose(kit.plan("p", ("small", "n0", (small,)), ("large", "n0", (large,))))
        running.clock[0] += 1000
        assert await accounts(running, "queue") == {("default",): (0, 800, 0)}


async def test_a_crash_loses_no_second_and_counts_none_twice(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await first.open()
        await first.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))), kit.plan("q", ("gone", "n1", (kit.whole(0),))))
        first.clock[0] += 30
        await first.ledger.meter()
        first.clock[0] += 7
        await first.see("x", kit.fact("gone", "n1", PodPhase.GONE))
        first.clock[0] += 100  # and it dies without having looked again
    async with kit.started(database_url, now=1500.0) as second:
        assert await accounts(second, "queue") == {("default",): (0, 500 + 37, 0)}
        assert await accounts(second, "queue") == {("default",): (0, 500 + 37, 0)}


async def test_a_commit_that_only_seemed_to_fail_is_not_counted_twice(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        running.clock[0] += 10
        write = running.store.write

        async def commits_and_fails(fn: Callable[[Connection], object], *, brief: bool = False) -> None:
            await write(fn, brief=brief)
            raise Unavailable("the connection broke", outcome_unknown=True)

        monkeypatch.setattr(running.store, "write", commits_and_fails)
        with pytest.raises(Unavailable):
            await running.ledger.meter()
        monkeypatch.undo()
        assert await accounts(running, "queue") == {("default",): (0, 10, 0)}


async def test_what_was_deserved_counts_as_it_was_at_that_time(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0), kit.whole(1)))))
        running.clock[0] += 10
        await running.ledger.set_queues(deserving(2))
        running.clock[0] += 10
        await running.ledger.set_queues(deserving(5))
        running.clock[0] += 10
        await running.ledger.drop_queue(DEFAULT_QUEUE)
        running.clock[0] += 10
        assert await accounts(running, "queue") == {("default",): (40, 40, 30)}


async def test_what_happens_while_the_claims_are_gone_through_counts_from_then(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))), kit.plan("q", ("gone", "n1", (kit.whole(0),))))
        look, looks = running.store.look, 0

        async def slowly(fn: Callable[[Connection], Any]) -> Any:
            nonlocal looks
            looks += 1
            if looks == 1:  # ten seconds: the lock is free meanwhile, and everything goes on
                running.clock[0] += 10
                await running.see("x", kit.fact("gone", "n1", PodPhase.GONE))
                await running.propose(kit.plan("r", ("new", "n1", (kit.whole(1), kit.whole(2)))))
            found = await look(fn)
            if looks == 2:  # and here a queue brings the accounts up to date, before its rules change
                running.clock[0] += 10
                await running.ledger.set_queues(deserving(9))
            return found

        running.clock[0] += 10
        monkeypatch.setattr(running.store, "look", slowly)
        await running.ledger.meter()
        assert await running.store.read(load.metered_until) == int(running.clock[0]) - 10
        await running.ledger.meter()
        monkeypatch.undo()
        assert await accounts(running, "queue") == {("default",): (0, 30 + 20 + 20, 0)}


async def test_hours_are_cut_where_they_end(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url, now=7000.0) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        running.clock[0] += 4000
        assert await accounts(running, "hour") == {(3600,): (0, 200, 0), (7200,): (0, 3600, 0), (10800,): (0, 200, 0)}
        assert [a.hour for a, _ in await running.views.used(["hour"], since=3600, until=10800)] == [3600, 7200]


async def test_a_claim_is_not_forgotten_before_it_is_accounted_for(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        running.clock[0] += 10
        await running.see("x", kit.fact("pod", "n0", PodPhase.GONE))
        running.clock[0] += 90_000
        await running.ledger.forget(before=running.clock[0])
        assert await running.store.read(lambda c: c.execute(select(t.claims.c.id)).all()) == []
        assert await accounts(running, "queue") == {("default",): (0, 10, 0)}


async def test_a_clock_that_went_back_takes_nothing_away(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        running.clock[0] += 100
        await running.ledger.meter()
        running.clock[0] -= 60
        assert await accounts(running, "queue") == {("default",): (0, 100, 0)}
        running.clock[0] += 70
        assert await accounts(running, "queue") == {("default",): (0, 110, 0)}


async def test_a_budget_that_was_spent_is_told_with_the_commit_and_known_after_a_restart(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await first.open()
        await first.ledger.set_queues(Queue(DEFAULT_QUEUE, budget_card_hours=4))
        await first.propose(kit.plan("p", ("pod", "n0", (kit.whole(0), kit.whole(1)))))
        first.clock[0] += 2 * 3600
        await first.ledger.meter()
        waiting = [m for lane in first.relay._lanes.values() for m in lane._queue]  # type: ignore[attr-defined]
        [used] = [m.event for m in waiting if isinstance(m.event, BudgetUsed)]
        assert (used.percent, used.budget_card_hours, used.spent) == (100, 4, 4 * 3_600_000)
    async with kit.started(database_url, now=first.clock[0]) as second:
        await second.open(kit.fact("pod", "n0", claim=second.ledger.state.by_pod[PodUid("pod")]))
        await second.propose(kit.plan("q", ("other", "n1", (kit.whole(0),))))
        assert list(second.states()) == ["pod"]
        [view] = [view for view in await second.views.changed_queues() if view.queue.name == DEFAULT_QUEUE]
        assert view.queue.stopped.startswith("queue default has used 4.0 of its 4 card-hours of 1970-01")
        await second.ledger.set_queues(Queue(DEFAULT_QUEUE, budget_card_hours=5))
        await second.propose(kit.plan("r", ("other", "n1", (kit.whole(0),))))
        assert list(second.states()) == ["pod", "other"]
