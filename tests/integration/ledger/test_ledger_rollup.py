"""Usage that is kept by the day when it is old: the same sums, fewer rows, whatever happens on the way."""

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, func, select

from hbox_common.errors import Unavailable
from hbox_ledger.adapters import tables as t
from hbox_ledger.adapters.rollup import DAY_S, sum_up_a_day

from .conftest import Kit, Running

HOUR_S = 3600
DAYS = 4
NOW = 100.0 * DAY_S
FIRST = int(NOW) - DAYS * DAY_S


def row(hour: int, queue: str = "q", user: str = "u", own: int = 1, idle: int = 0) -> dict[str, object]:
    return {"hour": hour, "queue": queue, "namespace": user, "model": "A100", "own": own, "borrowed": 2 * own, "idle": idle}


async def fill(running: Running) -> None:
    """Every hour of four days: two queues, one of which has two users."""
    rows = [
        row(FIRST + HOUR_S * hour, queue, user, own=hour + 1, idle=3)
        for hour in range(24 * DAYS)
        for queue, user in (("q", "u"), ("q", "v"), ("r", "u"))
    ]
    await running.store.write(lambda c: c.execute(t.usage.insert(), rows))


async def sums(running: Running) -> dict[tuple[object, ...], tuple[int, ...]]:
    """By account and day."""
    u = t.usage.c
    day = u.hour - u.hour % DAY_S
    query = select(u.queue, u.namespace, u.model, day, func.sum(u.own), func.sum(u.borrowed), func.sum(u.idle)).group_by(
        u.queue, u.namespace, u.model, day
    )
    return {tuple(r[:4]): tuple(map(int, r[4:])) for r in await running.store.read(lambda c: c.execute(query).all())}


async def rows(running: Running) -> int:
    return await running.store.read(lambda c: c.execute(select(func.count()).select_from(t.usage)).scalar_one())


async def thin(running: Running, before: int) -> int:
    count = 0
    while done := await running.store.write(lambda c: sum_up_a_day(c, before=before)):
        count += done
    return count


async def test_days_have_the_sums_of_their_hours_and_younger_hours_stay(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url, now=NOW) as running:
        await fill(running)
        before = await sums(running)
        assert await thin(running, FIRST + 2 * DAY_S + 5 * HOUR_S) == 2 * 24 * 3
        assert await sums(running) == before
        assert await rows(running) == 3 * (2 + 2 * 24)
        assert await thin(running, FIRST + 2 * DAY_S + 5 * HOUR_S) == 0, "what is done is done"


async def test_an_accrual_that_comes_late_joins_its_day(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url, now=NOW) as running:
        await fill(running)
        await thin(running, int(NOW))
        await running.store.write(lambda c: c.execute(t.usage.insert(), [row(FIRST + 5 * HOUR_S, own=1000)]))
        before = await sums(running)
        assert await thin(running, int(NOW)) == 4
        assert await sums(running) == before
        assert await rows(running) == 3 * DAYS


async def test_a_process_that_is_killed_between_taking_out_and_putting_back_loses_nothing(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kit.started(database_url, now=NOW) as running:
        await fill(running)
        before = await sums(running)

        def dies(connection: Connection) -> int:
            execute = connection.execute

            def fails(statement: object, *args: object) -> object:
                if args:
                    raise Unavailable("killed")
                return execute(statement)  # type: ignore[call-overload]

            monkeypatch.setattr(connection, "execute", fails)
            try:
                return sum_up_a_day(connection, before=int(NOW))
            finally:
                monkeypatch.undo()

        with pytest.raises(Unavailable):
            await running.store.write(dies)
        assert await rows(running) == 3 * 24 * DAYS
        assert await sums(running) == before


async def test_a_commit_that_only_seemed_to_fail_is_not_done_twice(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kit.started(database_url, now=NOW + 5000 * HOUR_S) as running:
        await fill(running)
        before = await sums(running)
        write = running.store.write

        async def commits_and_fails(fn: Callable[[Connection], object], *, brief: bool = False) -> None:
            await write(fn, brief=brief)
            raise Unavailable("the connection broke", outcome_unknown=True)

        monkeypatch.setattr(running.store, "write", commits_and_fails)
        with pytest.raises(Unavailable):
            await running.ledger.thin(before=NOW)
        monkeypatch.undo()
        await running.ledger.thin(before=NOW)
        assert (await sums(running), await rows(running)) == (before, 3 * DAYS)


async def test_what_weighs_in_the_history_is_kept_by_the_hour(kit: Kit, database_url: str) -> None:
    """Its window is eight weeks: nothing of the last days is touched, however short the setting."""
    async with kit.started(database_url, now=NOW) as running:
        await fill(running)
        assert await running.ledger.thin(before=NOW) == 0
        assert await rows(running) == 3 * 24 * DAYS
