"""What a database refuses of a pod is left out, and the pod is booked; what no node has is held by nobody."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hbox_common.events import PodsObserved
from hbox_common.model import CardSlice, JobId, NodeName, PodFact, PodPhase, PodUid, QueueName
from hbox_common.store import Store
from hbox_ledger.adapters import load, tables
from hbox_ledger.core.fitting import fitting
from hbox_ledger.ledger import Ledger, Numbered
from hbox_ledger.relay import Relay
from hbox_scheduler.core.simulate import node


def fact(uid: str, **fields: Any) -> PodFact:
    requests = {"cpu": 1000, "pods": 1, "example.com/none": 5, "hostport/TCP/80": 65536}
    base = PodFact(PodUid(uid), "ml", uid, PodPhase.BOUND, NodeName("n0"), JobId(uid), QueueName("q"), 0, requests, ours=True)
    return replace(base, **fields)


class Nowhere:
    async def publish_raw(self, type_: Any, body: bytes, *keys: str, message_id: str) -> None: ...


async def test_a_fact_beyond_64_bits_costs_no_other_its_place_in_the_books() -> None:
    unfit = fact("bad", priority=2**70, created_at=1e300)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'ledger.db'}"
        async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
            ledger = await Ledger.begin(store, Relay(store, Nowhere()), clock=lambda: 1_790_000_000.0)
            ledger.node(node("n0", cards=8))
            await ledger.reconcile([fact("a"), unfit], as_of=ledger.index)
            await ledger.observed(
                [Numbered("m1", PodsObserved.model_construct(pods=(fact("b"), replace(unfit, uid=PodUid("c")))))]
            )
            found = (await store.read(load.load)).state
    held = {holding.claim.pod_uid: holding.claim for holding in found.live.values()}
    assert set(held) == {"a", "b", "bad", "c"}
    assert held[PodUid("bad")].priority == 2**31 - 1
    assert set(held[PodUid("a")].requests) == {"cpu", "pods", "hostport/TCP/80"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"queue": QueueName("a\0b")}, {"queue": ""}),
        ({"job": JobId("x" * 9000)}, {"job": "a"}),
        ({"slices": (CardSlice(0, 1, 2**64), CardSlice(1, 1, 5))}, {"slices": (CardSlice(1, 1, 5),)}),
        ({"requests": {"cpu": 2**63, "x" * 400: 1}}, {"requests": {"cpu": 2**47}}),
        ({"name": "a\ud800"}, {"name": "a\ufffd"}),
        ({"min_member": -5}, {"min_member": 1}),
    ],
)
def test_what_is_unfit_is_left_out(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = fitting(fact("a", **fields))
    assert found is not None
    assert {name: getattr(found, name) for name in expected} == expected
    assert fitting(fact("a")) == fact("a")
    assert fitting(fact("a", node=NodeName("\0"))) is None
