"""A row of the database that cannot be read keeps the books of nobody else closed."""

from typing import Any

import pytest
from sqlalchemy import create_engine, text

from hbox_common.model import CardSlice, JobId, NodeName, PodFact, PodPhase, PodUid, Queue, QueueName
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.adapters.audit import prove
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Relay
from hbox_scheduler.core.simulate import node

from .conftest import Kit

NOW = 1_790_000_000.0


class Nowhere:
    async def publish_raw(self, type_: Any, body: bytes, *keys: str, message_id: str) -> None: ...


def fact(uid: str, card: int) -> PodFact:
    requests = {"cpu": 1000, "pods": 1, "nvidia.com/gpu": 1}
    slices = (CardSlice(card, 100, 81920),)
    return PodFact(
        PodUid(uid),
        "ml",
        uid,
        PodPhase.BOUND,
        NodeName("n0"),
        JobId(uid),
        QueueName("q"),
        0,
        requests,
        cards=1,
        slices=slices,
        ours=True,
    )


FACTS = [fact(f"pod-{n}", n) for n in range(4)]


async def opened(url: str, *, now: float = NOW, queue: Queue | None = None) -> dict[str, Any]:
    """Of a ledger that begins and opens, and accrues usage: its claims by pod."""
    async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
        ledger = await Ledger.begin(store, Relay(store, Nowhere()), clock=lambda: now)
        ledger.node(node("n0", cards=8))
        await ledger.reconcile(FACTS, as_of=ledger.index)
        if queue is not None:
            await ledger.set_queues(queue)
        assert not ledger.state.frozen
        await ledger.meter()
        assert await ledger.forget(before=NOW - 1) >= 0
        return {str(holding.claim.pod_uid): holding.claim for holding in ledger.state.live.values()}


@pytest.mark.parametrize(
    ("column", "value", "kept"),
    [
        ("requests", '{"cpu": 99999999999999999999999}', True),
        ("requests", "[1, 2]", True),
        ("requests", "\x00", True),
        ("slices", "0:100:18446744073709551615", True),
        ("models", "{", True),
        ("cards", "{", True),
        ("intent", "nonsense", False),
        ("slots", "a,b", False),
    ],
)
async def test_a_row_that_cannot_be_read_is_mended_from_the_audit_or_set_aside(
    database_url: str, column: str, value: str, kept: bool
) -> None:
    url = database_url
    if "\x00" in value and not url.startswith("sqlite"):
        pytest.skip("PostgreSQL holds no NUL, whoever writes it")
    before = await opened(url)
    assert set(before) == {one.uid for one in FACTS}
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE claims SET {column} = :v WHERE pod_uid = 'pod-1'"), {"v": value})
    faults = prove(url).faults
    assert all(fault.startswith(f"claim {before['pod-1'].id}: its row cannot be read") for fault in faults)
    assert bool(faults) is (column in ("requests", "slices", "models"))
    after = await opened(url, now=NOW + 60)
    assert set(after) == set(before)
    assert all(after[uid] == before[uid] for uid in before if uid != "pod-1")
    assert after["pod-1"].requests == before["pod-1"].requests
    assert after["pod-1"].slices == before["pod-1"].slices
    assert (after["pod-1"].id == before["pod-1"].id) is kept
    with engine.connect() as connection:
        aside = connection.execute(text("SELECT pod_uid, reason FROM claims WHERE reason LIKE 'set aside: %'")).all()
        assert [row.pod_uid for row in aside] == ([] if kept else ["pod-1"])
        usage = connection.execute(text("SELECT SUM(own + borrowed) FROM usage")).scalar()
        assert usage == (3 if column == "cards" else 4) * 60 * 1000
        cards = connection.execute(text("SELECT card, pods, whole FROM card_accounts ORDER BY card")).all()
        assert [tuple(row) for row in cards] == [(n, 1, 1) for n in range(4)]
    engine.dispose()
    proof = prove(url)
    assert proof.faults == []
    assert [note.split(" was ")[0] for note in proof.notes] == ([] if kept else [f"claim {before['pod-1'].id}"])
    assert set(await opened(url, now=NOW + 120)) == set(before)
    assert prove(url).faults == []


async def test_a_queue_that_cannot_be_read_is_left_out_until_its_object_is_seen(database_url: str) -> None:
    queue = Queue(QueueName("q"), capability={"nvidia.com/gpu.a100": 8}, deserved={"nvidia.com/gpu.a100": 2})
    before = await opened(database_url, queue=queue)
    assert prove(database_url).faults == []
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE queues SET rules = '{' WHERE name = 'q'"))
    engine.dispose()
    assert [fault.split(" (")[0] for fault in prove(database_url).faults] == ["queue q: its rules cannot be read"]
    assert await opened(database_url, now=NOW + 60, queue=queue) == before
    assert prove(database_url).faults == []


@pytest.mark.parametrize("wrong", ["intent = 'nonsense'", "intent = 'nonsense', requests = '{'"])
async def test_a_gang_of_which_no_claim_can_be_read_is_on_its_way_no_more(kit: Kit, database_url: str, wrong: str) -> None:
    """Else its deadline would end each ledger that starts, or have the next job of this name unwound."""
    async with kit.started(database_url) as running:
        await running.open()
        members = [("g-0", "n0", (kit.whole(0),)), ("g-1", "n0", (kit.whole(1),))]
        await running.propose(kit.plan("p", *members, job="g", min_member=2), kit.plan("q", ("other", "n1", ())))
        assert set(running.ledger.state.gangs) == {"g"}
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE claims SET {wrong} WHERE job = 'g'"))
    engine.dispose()
    async with kit.opened(database_url) as running:
        await running.open()
        running.clock[0] += 120.0
        await running.ledger.tick()
        assert running.states() == {"other": "pending"}
        await running.propose(kit.plan("r", ("g-2", "n0", (kit.whole(0),)), job="g"))
    async with kit.opened(database_url) as running:
        assert running.ledger.state.gangs == {}
        assert running.states() == {"other": "pending", "g-2": "pending"}
