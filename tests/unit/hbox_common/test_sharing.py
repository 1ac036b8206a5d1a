"""Equal parts of kept objects."""

from dataclasses import replace

import pytest

from hbox_common.model import (
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Job,
    JobId,
    NodeName,
    PlanId,
    PodFact,
    PodPhase,
    PodUid,
    QueueName,
    sharing,
)
from hbox_common.model.sharing import Shared


def a_claim(number: int) -> Claim:
    requests, slices = {"cpu": 1000, "nvidia.com/gpu": 1}, (CardSlice(0, 100, 81920),)
    uid, node = PodUid(f"uid-{number}"), NodeName("".join(["node", "-", "1"]))
    return Claim(
        ClaimId(f"c-{number}"), uid, "".join(["te", "am"]), f"pod-{number}", JobId(f"j-{number}"), PlanId(""), QueueName("".join(["re", "search"])),
        0, node, requests, slices, ClaimState.POSTED,
    )  # fmt: skip


def test_a_shared_claim_is_equal_and_has_the_parts_of_others() -> None:
    shared, one, two = Shared(), a_claim(1), a_claim(2)
    first, second = shared.claim(one), shared.claim(two)
    assert (first, second) == (one, two)
    for part in ("namespace", "queue", "node", "requests", "models"):
        assert getattr(first, part) is getattr(second, part)
    assert first.slices[0] is second.slices[0]


def test_amounts_in_another_order_are_not_the_same() -> None:
    shared = Shared()
    first, second = shared.mapping({"cpu": 1, "memory": 2}), shared.mapping({"memory": 2, "cpu": 1})
    assert list(first) == ["cpu", "memory"]
    assert list(second) == ["memory", "cpu"]


def test_mapping_is_a_copy() -> None:
    given = {"cpu": 1}
    kept = Shared().mapping(given)
    given["cpu"] = 2
    assert kept == {"cpu": 1}


def test_pods_and_jobs_are_equal_to_those_given() -> None:
    shared = Shared()
    pod = PodFact(
        PodUid("u"),
        "team",
        "p",
        PodPhase.BOUND,
        NodeName("n"),
        JobId("j"),
        QueueName("q"),
        0,
        {"cpu": 1},
        1,
        (CardSlice(0, 1, 1),),
    )
    job = Job(JobId("j"), "team", "j", QueueName("q"), 0, 1, 1, 1, 0.0, 1, (), annotations={"a": "b"})
    assert shared.pod(pod) == pod
    assert shared.job(job) == job
    assert shared.job(replace(job, name="k")).annotations is shared.job(job).annotations


def test_number_of_known_parts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared()
    monkeypatch.setattr(sharing, "MOST", 100)
    for number in range(1000):
        shared.part(f"name-{number}")
    assert len(shared) <= 100
