"""What queues used of late, on SQLite and PostgreSQL: the same whether it was kept hour by hour or added up anew from the accounts."""

from random import Random

import pytest
from sqlalchemy import select

from hbox_common.errors import Bug, Conflict
from hbox_common.events import Plan
from hbox_common.model import PodPhase, Queue, QueueName
from hbox_ledger.adapters import load
from hbox_ledger.adapters import tables as t
from hbox_ledger.adapters.journal import Journal
from hbox_ledger.core.accounts.history import Decay

from .conftest import Kit, Running

HOUR = 3600
QUEUES = (QueueName("a"), QueueName("b"), QueueName("below"))
PLACES = [(node, card) for node in ("n0", "n1") for card in range(4)]


def in_queue(plan: Plan, queue: str) -> Plan:
    return plan.model_copy(update={"queue": queue})


async def by_hand(running: Running, decay: Decay) -> dict[QueueName, float]:
    """Average cards by queue, out of every row of the accounts, as the rule has it."""

    def rows(connection: object) -> list[tuple[str, int, int]]:
        u = t.usage.c
        return [tuple(row) for row in connection.execute(select(u.queue, u.hour, u.own + u.borrowed))]  # type: ignore[attr-defined]

    accounts = await running.store.read(rows)
    until = await running.store.read(lambda c: c.execute(select(t.ledger.c.metered_until)).scalar_one())
    present = until - until % HOUR
    begins = max(min((hour for _, hour, _ in accounts), default=present), present - HOUR * decay.window_h)

    def weight(hour: int) -> float:
        return float(0.5 ** ((present - hour) / HOUR / decay.half_life_h))

    observed = sum(HOUR * weight(hour) for hour in range(begins, present, HOUR)) + until - present
    used = {
        queue: sum(amount * weight(hour) for name, hour, amount in accounts if name == queue and hour >= begins) / 1000
        for queue in QUEUES
    }
    return {queue: used[queue] / observed if observed else 0.0 for queue in QUEUES}


@pytest.mark.parametrize("seed", range(4))
async def test_history_is_what_the_accounts_add_up_to_at_any_time_and_after_a_restart(
    kit: Kit, database_url: str, seed: int
) -> None:
    rng = Random(seed)
    decay = Decay(half_life_h=rng.choice((1.0, 5.0, 24.0)), window_h=rng.choice((6, 30, 200)))
    now = 1_000_000.0 + rng.randrange(HOUR)
    for start in range(3):
        async with kit.started(database_url, now=now, decay=decay) as running:
            await running.open(
                *(kit.fact(h.pod, h.node, claim=h.id) for h in (x.claim for x in running.ledger.state.live.values()))
            )
            for name, parent in (("a", ""), ("b", ""), ("below", "b")):
                await running.ledger.set_queues(Queue(QueueName(name), parent=parent))
            for turn in range(12):
                books = running.ledger.state
                taken = {(h.claim.node, h.claim.slices[0].index) for h in books.live.values()}
                free = [place for place in PLACES if place not in taken]
                if free and rng.random() < 0.6:
                    (node, card), name = rng.choice(free), f"p{start}-{turn}"
                    await running.propose(
                        in_queue(kit.plan(name, (name, node, (kit.whole(card),))), rng.choice(("a", "below")))
                    )
                elif books.live and rng.random() < 0.5:
                    gone = rng.choice([h.claim for h in books.live.values()])
                    await running.see(f"{start}-{turn}", kit.fact(gone.pod, gone.node, PodPhase.SUCCEEDED, claim=gone.id))
                running.clock[0] += rng.choice((1, 60, HOUR, 3 * HOUR, 25 * HOUR))
                if rng.random() < 0.7:
                    await running.ledger.meter()
                    history = running.ledger.state.history
                    anew = await running.store.read(lambda c: load.history(c, decay))
                    wanted = await by_hand(running, decay)
                    for queue in QUEUES:
                        assert history.cards([queue]) == pytest.approx(wanted[queue], rel=1e-9, abs=1e-9)
                        assert anew.cards([queue]) == pytest.approx(wanted[queue], rel=1e-9, abs=1e-9)
            now = running.clock[0]


async def test_a_queue_is_told_with_the_history_of_all_below_it(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url, now=HOUR * 1000.0, decay=Decay(half_life_h=2.0)) as running:
        await running.open()
        for name, parent in (("dept", ""), ("a", "dept"), ("b", "")):
            await running.ledger.set_queues(Queue(QueueName(name), parent=parent))
        await running.propose(in_queue(kit.plan("p", ("p", "n0", (kit.whole(0), kit.whole(1)))), "a"))
        running.clock[0] += 2 * HOUR
        await running.see("x", kit.fact("p", "n0", PodPhase.SUCCEEDED))
        running.clock[0] += 2 * HOUR
        await running.ledger.meter()
        running.ledger.touch_all()
        told = {str(view.queue.name): view.recent_cards for view in await running.views.changed_queues()}
        past = HOUR * (0.5**1.5 + 0.5**2)  # two hours of the four, three and four hours ago
        observed = HOUR * (0.5**0.5 + 0.5 + 0.5**1.5 + 0.5**2)
        assert told["dept"] == told["a"] == pytest.approx(2 * past / observed, abs=1e-3)
        assert (told["b"], told["default"]) == (0.0, 0.0)


async def test_a_commit_that_failed_leaves_no_trace_in_history(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kit.started(database_url, now=HOUR * 1000.0, decay=Decay(half_life_h=2.0)) as running:
        await running.open()
        await running.propose(kit.plan("p", ("p", "n0", (kit.whole(0),))))
        running.clock[0] += 600
        with monkeypatch.context() as broken:
            broken.setattr(Journal, "write", _refuse)
            with pytest.raises(Conflict):
                await running.ledger.meter()
        await running.ledger.meter()
        assert running.ledger.state.history.own == {"default": pytest.approx(600_000.0)}


def _refuse(*_: object, **__: object) -> None:
    raise Bug("refused")


async def test_without_a_half_life_nothing_is_kept(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url, decay=Decay(half_life_h=0.0)) as running:
        await running.open()
        await running.propose(kit.plan("p", ("p", "n0", (kit.whole(0),))))
        running.clock[0] += 5 * HOUR
        await running.ledger.meter()
        running.ledger.touch_all()
        assert {(view.recent_cards, view.half_life_h) for view in await running.views.changed_queues()} == {(0.0, 0.0)}
