"""How the audit writes down what a claim holds: one way, for ever, since hashes cover it."""

import json

from hbox_common.model import CardSlice, Claim, ClaimId, JobId, NodeName, PlanId, PodUid, QueueName, Resources
from hbox_ledger.core.chain import entry


def claim(queue: str, requests: Resources) -> Claim:
    slices = (CardSlice(3, 100, 40_960), CardSlice(7, 30, 1))
    return Claim(
        ClaimId("c"), PodUid("u"), "ns", "pod", JobId("j"), PlanId("p"), QueueName(queue), 0, NodeName('n"1'), requests, slices
    )  # fmt: skip


def test_an_entry_is_the_shortest_json_with_sorted_names() -> None:
    for queue in ("team", 'a "b" \\ c', "forschung-äöü"):
        for requests in ({"pods": 1, "cpu": 8000}, {"cpu": 8000, "pods": 1}, {}):
            written = entry(claim(queue, requests))
            assert written == json.dumps([queue, 'n"1', requests, "3:100:40960,7:30:1"], sort_keys=True, separators=(",", ":"))
