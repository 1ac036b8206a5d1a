"""The ledger on SQLite and PostgreSQL: what is committed survives, what fails leaves nothing, and the database itself forbids the worst."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine, func, insert, inspect, select, text, update

from hbox_common.errors import Bug, Conflict, InvalidRequest, Unavailable
from hbox_common.events import BindDecided, BindOutcome, ClaimsChanged, PlanAnswer, PlansAnswered
from hbox_common.model import DEFAULT_QUEUE, Epoch, NodeName, PodPhase, PodUid, Queue, QueueName
from hbox_common.pace import LEAST, MOST
from hbox_common.store.reach import REACH
from hbox_common.store.schema import migrate, newest
from hbox_ledger.adapters import load
from hbox_ledger.adapters import tables as t
from hbox_ledger.core.chain import GENESIS, Record, chained
from hbox_ledger.relay import Outgoing

from .conftest import Kit, Running


async def published(running: Running) -> list[Outgoing]:
    """What the relay has to send, in order; empties its lanes."""
    out: list[Outgoing] = []
    for lane in running.relay._lanes.values():
        while not lane.empty():
            out.append(lane.get_nowait())
    return out


async def test_a_restart_finds_claims_gangs_and_balances_and_begins_a_new_epoch(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await first.open()
        gang = kit.plan("p2", ("a", "n0", ()), ("b", "n1", ()), job="gang", min_member=2)
        ranked = tuple(
            replace(placement, rank=rank, volume_claims=("data", "logs")[:rank])
            for rank, placement in enumerate(gang.placements)
        )
        await first.propose(kit.plan("p1", ("one", "n0", (kit.whole(0),))), gang.model_copy(update={"placements": ranked}))
        await first.outcome("m1", "one", BindOutcome.BOUND)
        epoch, before = first.ledger.state.epoch, first.states()
        sums = (first.ledger.state.used, first.ledger.state.by_node[NodeName("n0")], first.ledger.state.gangs)
    async with kit.started(database_url) as second:
        assert second.ledger.state.epoch > epoch
        assert second.ledger.state.frozen
        assert second.states() == before == {"one": "posted", "a": "pending", "b": "pending"}
        assert (second.ledger.state.used, second.ledger.state.by_node[NodeName("n0")], second.ledger.state.gangs) == sums
        second.clock[0] += 10
        await published(second)
        await second.open(kit.fact("one", "n0", claim=second.ledger.state.by_pod[PodUid("one")]))
        sent = [m.event for m in await published(second)]
        [binds] = [e for e in sent if isinstance(e, BindDecided)]
        assert binds.epoch == second.ledger.state.epoch
        assert {(b.pod, b.rank, b.volume_claims) for b in binds.binds} == {("a", 0, ()), ("b", 1, ("data",))}


async def test_an_answer_is_the_same_after_a_restart(kit: Kit, database_url: str) -> None:
    p = kit.plan("p", ("pod", "n0", ()))
    q = kit.plan("q", ("other", "nowhere", ()))
    answers: list[tuple[PlanAnswer, ...]] = []
    for _ in range(2):
        async with kit.started(database_url) as running:
            await running.open(
                *([] if not answers else [kit.fact("pod", "n0", claim=running.ledger.state.by_pod[PodUid("pod")])])
            )
            await published(running)
            await running.propose(p, q)
            answers.append(next(m.event.answers for m in await published(running) if isinstance(m.event, PlansAnswered)))
            assert list(running.states()) == ["pod"]
    assert answers[0] == answers[1]
    assert [a.committed for a in answers[0]] == [True, False]


async def test_a_plan_that_is_proposed_again_after_its_pod_has_ended_gets_its_old_answer(kit: Kit, database_url: str) -> None:
    p = kit.plan("p", ("pod", "n0", ()))
    async with kit.started(database_url) as first:
        await first.open()
        await first.propose(p)
    async with kit.started(database_url) as second:
        await second.open()
        await second.outcome("m", "pod", BindOutcome.GONE)
        await published(second)
        await second.propose(p)
        [said] = [m.event for m in await published(second) if isinstance(m.event, PlansAnswered)]
        assert [a.committed for a in said.answers] == [True]
        assert not second.states()


async def test_messages_that_come_twice_have_one_effect(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", ())))
        await running.outcome("m", "pod", BindOutcome.BOUND)
        index = running.ledger.state.index
        await running.outcome("m", "pod", BindOutcome.BOUND)
        await running.see("x", kit.fact("new", "n1"))
        await running.see("x", kit.fact("new", "n1"))
        assert running.ledger.state.index == index + 1
        inbox = await running.store.read(lambda c: c.execute(select(t.inbox.table.c.message)).scalars().all())
        assert sorted(inbox) == ["m", "x"]


async def test_what_an_earlier_process_handled_is_recognised_by_the_database(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await first.open()
        await first.see("x", kit.fact("old", "n0"))
    async with kit.started(database_url) as second:
        await second.open(kit.fact("old", "n0"))
        index = second.ledger.state.index
        await second.see("x", kit.fact("other", "n1"))  # would have an effect if it were not known
        assert second.ledger.state.index == index
        await second.see("y", kit.fact("other", "n1"))
        assert sorted(second.states()) == ["old", "other"]


async def test_a_plan_that_was_answered_long_ago_is_answered_the_same_again(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        p = kit.plan("p", ("pod", "n0", ()))
        await running.propose(p)
        answer = next(m.event.answers for m in await published(running) if isinstance(m.event, PlansAnswered))
        running.ledger._answered._ids.clear()  # so many came since that this one is not remembered
        await running.propose(p, kit.plan("q", ("second", "n1", ())))
        again = next(m.event.answers for m in await published(running) if isinstance(m.event, PlansAnswered))
        assert (answer[0], True) == (again[0], again[1].committed)
        assert running.states() == {"pod": "pending", "second": "pending"}


async def test_the_outbox_keeps_what_was_not_published_over_a_crash(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await first.open()
        await first.propose(kit.plan("p", ("pod", "n0", ())))
        lost = [m.id for m in await published(first)]
    async with kit.started(database_url) as second:
        found = await published(second)
        assert [m.id for m in found] == lost
        kinds = [type(m.event) for m in found]
        assert kinds == [ClaimsChanged, ClaimsChanged, PlansAnswered, BindDecided]


async def test_a_commit_that_fails_leaves_neither_claim_nor_message_and_the_next_turn_goes_on(
    kit: Kit, database_url: str
) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        await published(running)
        running.ledger.state.slots.clear()  # a bug: two pods on one slot of a card
        running.ledger.state.by_node[NodeName("n0")].cards.clear()
        with pytest.raises(Conflict, match="constraint"):
            await running.propose(kit.plan("q", ("other", "n0", (kit.whole(0),))))
        assert not await published(running)
        await running.propose(kit.plan("r", ("third", "n0", (kit.whole(0),))), kit.plan("s", ("fourth", "n0", (kit.whole(1),))))
        assert running.states() == {"pod": "pending", "fourth": "pending"}


async def test_books_that_are_read_anew_go_by_the_same_clock(kit: Kit, database_url: str) -> None:
    """An emulated cluster's clock goes faster than the machine's; what is kept for so many seconds is kept for so many of the machine's."""
    async with kit.started(database_url) as running:
        running.ledger.state.clock_rate = 60.0
        await running.open()
        before = running.ledger.state
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        before.slots.clear()
        before.by_node[NodeName("n0")].cards.clear()
        with pytest.raises(Conflict, match="constraint"):
            await running.propose(kit.plan("q", ("other", "n0", (kit.whole(0),))))
        await running.propose(kit.plan("r", ("third", "n0", (kit.whole(1),))))
        assert running.ledger.state is not before
        assert running.ledger.state.clock_rate == 60.0


async def test_the_database_forbids_to_over_book_a_card_even_on_other_slots(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        with pytest.raises(Bug, match="card_accounts_not_overbooked"):
            await running.store.write(lambda c: c.execute(update(t.card_accounts).values(cores=101)))


async def test_found_pods_may_over_book_and_leave_again(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open(kit.fact("x", "n0", slices=(kit.whole(0),)), kit.fact("y", "n0", slices=(kit.whole(0),)))
        assert running.states() == {"x": "posted", "y": "posted"}
        await running.see("1", kit.fact("x", "n0", PodPhase.GONE), kit.fact("y", "n0", PodPhase.GONE))
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        assert running.states() == {"pod": "pending"}


@pytest.mark.parametrize("table", ["audit", "transfers"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET at = 0", "DELETE FROM {}"])
async def test_history_cannot_be_rewritten(kit: Kit, database_url: str, table: str, statement: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", ())))
        with pytest.raises(Bug, match="append-only"):
            await running.store.write(lambda c: c.execute(text(statement.format(table))))


async def test_replaying_the_transfers_gives_the_balances_and_the_books(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(*(kit.plan(f"p{i}", (f"pod{i}", "n0", ())) for i in range(6)))
        for i in range(4):
            await running.outcome(f"b{i}", f"pod{i}", BindOutcome.BOUND)
        await running.see("done", kit.fact("pod0", "n0", PodPhase.SUCCEEDED), kit.fact("pod5", "n0", PodPhase.FAILED))
        moves, balances = await running.store.read(
            lambda c: (c.execute(select(t.transfers)).all(), c.execute(select(t.accounts)).all())
        )
        replayed: defaultdict[tuple[str, str], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for move in moves:
            replayed[move.queue, move.resource][move.debit] -= move.amount
            replayed[move.queue, move.resource][move.credit] += move.amount
        assert all(sum(buckets.values()) == 0 for buckets in replayed.values())
        assert {(b.queue, b.resource): (b.pending, b.posted) for b in balances} == {
            key: (buckets["pending"], buckets["posted"]) for key, buckets in replayed.items()
        }
        used = {r: b.pending + b.posted for b in balances for r in [b.resource] if b.queue == "default"}
        assert used == {"cpu": 4000, "pods": 4}
        assert {r: n for r, n in running.ledger.state.used[DEFAULT_QUEUE].items() if n} == used


async def test_every_change_of_a_claim_has_one_record_in_an_unbroken_chain(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", ())))
        await running.outcome("m", "pod", BindOutcome.BOUND)
        await running.see("x", kit.fact("pod", "n0", PodPhase.GONE))
        rows = await running.store.read(lambda c: c.execute(select(t.audit).order_by(t.audit.c.seq)).all())
        head = GENESIS
        for row in rows:
            head = chained(head, row.seq, Record(row.epoch, row.at, row.actor, row.subject, row.change, row.cause, row.entry))
            assert bytes(row.hash) == head
        changes = [(row.change, row.actor) for row in rows if "->" in row.change and row.subject != "ledger"]
        assert changes == [
            ("none->pending", "scheduler-core"),
            ("pending->posted", "binder"),
            ("posted->void", "job-controller"),
        ]


async def test_a_ledger_whose_epoch_is_over_writes_nothing_and_says_so(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.store.write(lambda c: load.begin_epoch(c, now=9e9))
        with pytest.raises(Unavailable, match="taken over"):
            await running.propose(kit.plan("p", ("pod", "n0", ())))
        assert running.ledger.taken_over.is_set()
        assert await running.store.read(lambda c: c.execute(select(func.count()).select_from(t.claims)).scalar()) == 0


async def test_queues_and_their_end_survive(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await first.ledger.set_queues(Queue(QueueName("q"), capability={"cpu": 5}))
        await first.ledger.set_queues(Queue(QueueName("old")))
        await first.ledger.drop_queue(QueueName("old"))
    async with kit.started(database_url) as second:
        views = {v.queue.name: v for v in await second.views.changed_queues()}
        assert {name: v.gone for name, v in views.items()} == {"default": False, "q": False, "old": True}
        assert views[QueueName("q")].queue.capability == {"cpu": 5}


async def test_use_of_queues_is_published_when_the_ledger_opens_and_rules_before(kit: Kit, database_url: str) -> None:
    q = QueueName("q")
    async with kit.started(database_url) as running:
        changed = running.views.changed_queues
        await running.ledger.set_queues(Queue(q))
        assert {view.queue.name for view in await changed()} == {DEFAULT_QUEUE, q}
        await running.see("1", kit.fact("pod", "n0", PodPhase.RUNNING))
        assert await changed() == [], "all queues are published when it opens"
        await running.ledger.set_queues(Queue(q, capability={"cpu": 5}))
        assert [view.queue.capability for view in await changed()] == [{"cpu": 5}]
        await running.open(kit.fact("pod", "n0", PodPhase.RUNNING))
        views = {view.queue.name: view for view in await changed()}
        assert views.keys() == {DEFAULT_QUEUE, q}
        assert views[DEFAULT_QUEUE].used


async def test_old_rows_are_forgotten_and_live_ones_are_not(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("p", ("pod", "n0", (kit.whole(0),))), kit.plan("q", ("stays", "n0", (kit.whole(1),))))
        await running.see("x", kit.fact("pod", "n0", PodPhase.GONE))
        assert await running.ledger.forget(before=running.clock[0] + 1) == 4
        kept = await running.store.read(lambda c: c.execute(select(t.claims.c.pod)).scalars().all())
        assert kept == ["stays"]


async def test_only_one_process_writes_to_a_database(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url):
        with pytest.raises(Unavailable, match="another process"):
            async with kit.started(database_url):
                pass


async def test_a_database_of_an_unknown_schema_is_refused(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.store.write(lambda c: c.execute(text("UPDATE alembic_version SET version_num = '9999'")))
        await running.store.write(lambda c: c.execute(update(REACH).values(oldest="9999")))
    with pytest.raises(InvalidRequest, match="9999 is not known"):
        async with kit.started(database_url):
            pass


async def test_a_database_with_tables_of_somebody_else_is_refused_and_left_as_it_is(
    kit: Kit, empty_database: Callable[[], str]
) -> None:
    database_url = empty_database()
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE claims (amount INTEGER)"))
    with pytest.raises(InvalidRequest, match=r"another application \(claims\)"):
        async with kit.started(database_url):
            pass
    assert inspect(engine).get_table_names() == ["claims"]
    engine.dispose()


async def test_frozen_plans_are_answered_and_not_remembered(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        p = kit.plan("p", ("pod", "n0", ()))
        await running.propose(p)
        [refused] = await published(running)
        assert isinstance(refused.event, PlansAnswered)
        assert refused.event.answers[0].reason == "LedgerReconciling"
        assert refused.letter is None
        await running.open()
        await running.propose(p)
        assert running.states() == {"pod": "pending"}


async def test_a_gang_of_a_thousand_is_told_of_in_several_messages_without_a_gap(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        running.ledger.state.nodes[NodeName("n0")].allocatable.update(cpu=10**9, pods=10**6)
        await running.open()
        await published(running)
        await running.propose(kit.plan("p", *((f"pod{i}", "n0", ()) for i in range(1100)), job="gang", min_member=1100))
        feed = [m.event for m in await published(running) if isinstance(m.event, ClaimsChanged)]
        assert [len(e.claims) for e in feed] == [512, 512, 76]
        assert [e.previous for e in feed[1:]] == [e.index for e in feed[:-1]]
        assert feed[-1].index == running.ledger.state.index


def test_the_migration_makes_the_tables_that_the_code_names(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/x.db")
    with engine.connect() as connection:
        migrate(connection, t.metadata, t.VERSIONS)
        context = MigrationContext.configure(connection, opts={"include_name": lambda name, *_: name != REACH.name})
        assert compare_metadata(context, t.metadata) == []
        assert MigrationContext.configure(connection).get_current_revision() == newest(t.VERSIONS)
        connection.execute(insert(t.ledger), [{"id": 1, "epoch": Epoch(1), "idx": 0}])
    engine.dispose()


async def test_a_commit_that_only_seemed_to_fail_is_found_and_told_once(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        await published(running)
        write = running.store.write

        async def commits_and_fails(fn: Callable[[Connection], object], *, brief: bool = False) -> None:
            await write(fn, brief=brief)
            raise Unavailable("the connection broke", outcome_unknown=True)

        monkeypatch.setattr(running.store, "write", commits_and_fails)
        with pytest.raises(Unavailable):
            await running.propose(kit.plan("p", ("pod", "n0", ())))
        monkeypatch.undo()
        assert not await published(running)
        await running.propose(kit.plan("p", ("pod", "n0", ())))
        sent = [m.event for m in await published(running)]
        assert [type(e) for e in sent] == [ClaimsChanged, PlansAnswered, PlansAnswered, BindDecided]
        first, second = (e.answers for e in sent if isinstance(e, PlansAnswered))
        assert first == second
        assert running.states() == {"pod": "pending"}


async def test_a_comparison_in_which_nothing_differs_lets_others_in_between(kit: Kit, tmp_path: Path) -> None:
    """Its turns write nothing, and so wait for nothing: without a pause all of its slices would be one."""
    facts = [kit.fact(f"pod{n}", "n0") for n in range(3 * MOST)]
    async with kit.started(f"sqlite:///{tmp_path}/ledger.db") as running:
        await running.open(*facts)
        between = 0

        async def others() -> None:
            nonlocal between
            while True:
                between += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(others())
        await running.ledger.reconcile(facts, as_of=running.ledger.index)
        ticking.cancel()
        assert between >= len(facts) // MOST


async def test_a_pod_that_is_told_of_during_a_comparison_is_not_judged_by_what_it_was(kit: Kit, tmp_path: Path) -> None:
    facts = [kit.fact(f"pod{n}", "n0") for n in range(3 * LEAST)]
    resized = replace(facts[-1], requests={"cpu": 3000, "pods": 1})
    async with kit.started(f"sqlite:///{tmp_path}/ledger.db") as running:
        await running.open(*facts)
        started = running.ledger.index
        async with running.ledger.still():  # the comparison waits for the lock, and the news behind it
            comparing = asyncio.create_task(running.ledger.reconcile(facts, as_of=started))
            await asyncio.sleep(0.05)
            telling = asyncio.create_task(running.see("m1", resized))
            await asyncio.sleep(0)
        await asyncio.gather(comparing, telling)
        books = running.ledger.state
        assert books.live[books.by_pod[resized.uid]].claim.requests["cpu"] == 3000
        assert not books.suspects


async def test_an_opening_takes_turns_and_sends_all_open_decisions_again(kit: Kit, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with kit.started(url) as running:
        await running.open()
        await running.propose(*(kit.plan(f"p{n}", (f"pod{n}", f"n{n % 2}", ())) for n in range(2 * LEAST)))
    async with kit.started(url) as running:
        await published(running)
        await running.open()
        binds = [bind.pod for m in await published(running) if isinstance(m.event, BindDecided) for bind in m.event.binds]
        assert sorted(binds) == sorted(f"pod{n}" for n in range(2 * LEAST))
        assert not running.ledger.state.frozen
