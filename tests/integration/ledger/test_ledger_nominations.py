"""Nominations in a ledger's database, SQLite and PostgreSQL: they are there after a restart, are told, and are proven with the rest."""

import pytest
from sqlalchemy import create_engine, text

from hbox_common.events import BindOutcome, ClaimsChanged, EvictDecided, Plan, Victim
from hbox_common.model import DEFAULT_QUEUE, NodeName, PlanId, PodPhase, PodUid, Queue, QueueName
from hbox_ledger.adapters.audit import prove

from .conftest import Kit, Running
from .test_ledger_database import published


async def nominate(kit: Kit, running: Running) -> Plan:
    """`new` wants card 0 of n0: `mover` goes from there to n1."""
    await running.ledger.set_queues(Queue(QueueName(DEFAULT_QUEUE)))
    await running.open()
    await running.propose(kit.plan("p1", ("mover", "n0", (kit.whole(0),))))
    await running.outcome("m1", "mover", BindOutcome.BOUND)
    state = running.ledger.state
    claim = state.by_pod[PodUid("mover")]
    victim = Victim(claim=claim, pod_uid=PodUid("mover"), to=NodeName("n1"), slices=(kit.whole(3),))
    plan = kit.plan("want", ("new", "n0", (kit.whole(0),))).model_copy(update={"victims": (victim,), "priority": 5})
    await running.propose(plan)
    return plan


async def test_they_are_there_after_a_restart_and_told_with_the_claims(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        plan = await nominate(kit, first)
        told = [one for m in await published(first) if isinstance(m.event, ClaimsChanged) for one in m.event.nominations]
        assert [(one.scheduler, one.plan) for one in told] == [("s", plan)]
    async with kit.started(database_url) as second:
        snapshot = await second.views.snapshot()
        assert list(snapshot.nominations) == told
        await published(second)
        await second.open(kit.fact("mover", "n0", claim=second.ledger.state.by_pod[PodUid("mover")]))
        [evictions] = [m.event for m in await published(second) if isinstance(m.event, EvictDecided)]
        assert [one.beneficiary for one in evictions.evictions] == ["want"]
        assert prove(database_url).faults == []


async def test_committed_evictions_are_counted_by_queue(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await nominate(kit, first)
        metrics = first.ledger.queue_metrics
        await metrics.text(lambda: first.ledger.state)  # the first scrape shows 0
        metrics._rendered_at = float("-inf")
        text = (await metrics.text(lambda: first.ledger.state)).decode()
    labels = '{queue="default",rule="consolidate"}'
    assert [line for line in text.splitlines() if labels in line] == [
        f"hbox_queue_evictions_total{labels} 1",
        f"hbox_queue_evictions_caused_total{labels} 1",
    ]


async def test_pods_that_moved_within_the_hour_are_counted_by_the_next_process_too(kit: Kit, database_url: str) -> None:
    """Whether they still leave, or have left: else each restart would let as many move again."""
    async with kit.started(database_url) as first:
        await nominate(kit, first)
        assert first.ledger.state.moves.within_hour(first.clock[0]) == 1
    async with kit.started(database_url) as second:
        assert second.ledger.state.moves.within_hour(second.clock[0]) == 1
        await second.open(kit.fact("mover", "n0", claim=second.ledger.state.by_pod[PodUid("mover")]))
        await second.see("gone", kit.fact("mover", "n0", PodPhase.GONE))
    change(database_url, "UPDATE claims SET intent_reason = 'preempted for ml/x' WHERE state <> 'void'")
    async with kit.started(database_url) as third:
        assert third.ledger.state.moves.within_hour(third.clock[0]) == 1
    change(database_url, "UPDATE claims SET changed_at = changed_at - 3700")
    async with kit.started(database_url) as fourth:
        assert fourth.ledger.state.moves.within_hour(fourth.clock[0]) == 0


async def test_who_lost_its_place_to_others_cools_down_after_a_restart_too(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await nominate(kit, first)
        await first.see("gone", kit.fact("mover", "n0", PodPhase.GONE))
        assert first.ledger.state.evicted
        remembered = first.ledger.state.evicted
    async with kit.started(database_url) as second:
        assert second.ledger.state.evicted == remembered
    change(database_url, "UPDATE claims SET intent_reason = 'its gang of 2 did not start whole in time'")
    async with kit.started(database_url) as third:
        assert not third.ledger.state.evicted, "for nobody else"
    change(database_url, "UPDATE claims SET intent_reason = 'reclaimed for ml/x of queue y', changed_at = changed_at - 3700")
    async with kit.started(database_url) as fourth:
        assert not fourth.ledger.state.evicted, "too long ago"


async def test_what_is_left_of_them_is_told_and_kept_and_then_that_they_have_ended(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await nominate(kit, first)
        await first.see("gone", kit.fact("mover", "n0", PodPhase.GONE))
        await published(first)
        await first.propose(kit.plan("placed", ("new", "n0", (kit.whole(0),)), job="want"))
        [left] = [one for m in await published(first) if isinstance(m.event, ClaimsChanged) for one in m.event.nominations]
        assert left.plan.placements == ()
        assert [claim.pod_uid for claim in left.moved] == ["mover"]
    async with kit.started(database_url) as second:
        assert second.ledger.state.nominations.all() == [left]
        await second.open(kit.fact("new", "n0", claim=second.ledger.state.by_pod[PodUid("new")]))
        await published(second)
        heir = kit.plan("heir", ("heir", "n1", (kit.whole(3),))).model_copy(update={"succeeds": (PodUid("mover"),)})
        await second.propose(heir)
        ended = [plan for m in await published(second) if isinstance(m.event, ClaimsChanged) for plan in m.event.ended]
        assert ended == ["want"]
    async with kit.started(database_url) as third:
        assert not len(third.ledger.state.nominations)
    assert prove(database_url).faults == []


async def test_one_whose_row_cannot_be_read_is_ended_and_the_books_open(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as first:
        await nominate(kit, first)
    change(database_url, "UPDATE nominations SET body = '{}'")
    async with kit.started(database_url) as second:
        await second.open(kit.fact("mover", "n0", claim=second.ledger.state.by_pod[PodUid("mover")]))
        assert not len(second.ledger.state.nominations)
    assert prove(database_url).faults == []


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM nominations", "nomination want is open by the audit, and not in its table"),
        ("UPDATE nominations SET plan = 'other'", "nomination other is in its table, and not in the audit"),
    ],
)
async def test_what_was_changed_behind_the_ledgers_back_is_found(
    kit: Kit, database_url: str, statement: str, fault: str
) -> None:
    async with kit.started(database_url) as running:
        await nominate(kit, running)
    assert prove(database_url).faults == []
    change(database_url, statement)
    assert fault in prove(database_url).faults


async def test_a_commit_that_fails_leaves_no_nomination(kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kit.started(database_url) as running:
        await nominate(kit, running)
        before = running.ledger.state.nominations.all()

        async def fails(*_: object, brief: bool) -> None:
            raise OSError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(running.store, "write", fails)
            with pytest.raises(OSError, match="full"):
                await running.see("gone", kit.fact("new", "n0", PodPhase.GONE))
        await running.ledger.tick()
        assert running.ledger.state.nominations.all() == before
        assert running.ledger.state.nominations.places(PlanId("want"))


def change(url: str, statement: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()
