"""A row of the database that cannot be read keeps the books of nobody else closed."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from hbox_common.model import CardSlice, JobId, NodeName, PodFact, PodPhase, PodUid, QueueName
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Relay
from hbox_scheduler.core.simulate import node

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


async def opened(url: str) -> dict[str, Any]:
    """Of a ledger that begins and opens: its claims by pod."""
    async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
        ledger = await Ledger.begin(store, Relay(store, Nowhere()), clock=lambda: NOW)
        ledger.node(node("n0", cards=8))
        await ledger.reconcile(FACTS, as_of=ledger.index)
        assert not ledger.state.frozen
        assert await ledger.forget(before=NOW + 1) >= 0
        return {str(holding.claim.pod_uid): holding.claim for holding in ledger.state.live.values()}


@pytest.mark.parametrize(
    ("column", "value", "kept"),
    [
        ("requests", '{"cpu": 99999999999999999999999}', True),
        ("requests", "[1, 2]", True),
        ("requests", "\x00", True),
        ("slices", "0:100:18446744073709551615", True),
        ("models", "{", True),
        ("intent", "nonsense", False),
        ("slots", "a,b", False),
    ],
)
async def test_a_row_that_cannot_be_read_is_mended_from_the_audit_or_set_aside(
    tmp_path: Path, column: str, value: str, kept: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    before = await opened(url)
    assert set(before) == {one.uid for one in FACTS}
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE claims SET {column} = :v WHERE pod_uid = 'pod-1'"), {"v": value})
        connection.execute(text("UPDATE queues SET rules = '{' WHERE name = 'q'"))
    after = await opened(url)
    assert set(after) == set(before)
    assert all(after[uid] == before[uid] for uid in before if uid != "pod-1")
    assert after["pod-1"].requests == before["pod-1"].requests
    assert after["pod-1"].slices == before["pod-1"].slices
    assert (after["pod-1"].id == before["pod-1"].id) is kept
    with engine.connect() as connection:
        aside = connection.execute(text("SELECT pod_uid, reason FROM claims WHERE reason LIKE 'set aside: %'")).all()
        assert [row.pod_uid for row in aside] == ([] if kept else ["pod-1"])
        cards = connection.execute(text("SELECT card, pods, whole FROM card_accounts ORDER BY card")).all()
        assert [tuple(row) for row in cards] == [(n, 1, 1) for n in range(4)]
    engine.dispose()
    assert set(await opened(url)) == set(before)
