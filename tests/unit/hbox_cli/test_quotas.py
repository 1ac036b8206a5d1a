"""What people see of quotas of namespaces."""

from typing import Any

import pytest

from hbox_cli.quotas import limit_of, quota_bar, quota_effect, quota_items
from hbox_common.errors import InvalidRequest
from hbox_common.model import CardQuota, CardSlice, Claim, ClaimId, JobId, NodeName, PlanId, PodUid, QueueName
from hbox_common.model.devices.nvidia import GPU, GPU_CORES, GPU_MEMORY
from hbox_scheduler.core.simulate import job

QUOTAS = [
    CardQuota("default", "cards", {GPU_MEMORY: 8000, GPU_CORES: 100}),
    CardQuota("other", "gold", {GPU_MEMORY: 1000}, "scopes are not supported"),
    CardQuota("third", "bare", fault="limits.nvidia.com/gpumem: 'much' is not a quantity"),
]


def claim(namespace: str) -> Claim:
    return Claim(
        ClaimId(namespace), PodUid(namespace), namespace, "p", JobId("j"), PlanId(""), QueueName("default"), 0, NodeName("n"), {GPU: 2},
        (CardSlice(0, 30, 2000), CardSlice(1, 30, 2000)),
    )  # fmt: skip


def test_each_amount_is_shown_with_what_is_used_and_who_waits_for_the_quota() -> None:
    said = "0/1 nodes are available: 1 ResourceQuotaNotFit; ResourceQuota cards of namespace default allows 8000 of ..."
    jobs = [job("a"), job("b"), job("c")]
    items = quota_items(
        QUOTAS, [claim("default"), claim("free")], jobs, {JobId("a"): said, JobId("b"): "0/1 nodes are available"}
    )
    assert [(i["name"], i["resource"], i["used"], i["limit"], i["waitingJobs"]) for i in items] == [
        ("default/cards", GPU_CORES, 60, 100, 1),
        ("default/cards", GPU_MEMORY, 4000, 8000, 1),
        ("other/gold", GPU_MEMORY, 0, 1000, 0),
        ("third/bare", "", 0, None, 0),
    ]
    assert [i["name"] for i in quota_items(QUOTAS, (), (), {}, namespace="other")] == ["other/gold"]
    assert [quota_bar(item, 10) for item in items] == ["██████····▏", "█████·····▏", "··········▏", ""]


def test_a_quota_below_what_is_in_use_shows_both() -> None:
    [item] = quota_items([CardQuota("default", "cards", {GPU_MEMORY: 1000})], [claim("default")], (), {})
    assert quota_bar(item, 8) == "██▏██████"


def effect(given: dict[str, int | None], name: str = "cards") -> Any:
    said = {JobId("a"): "1 ResourceQuotaNotFit; ResourceQuota cards of namespace default allows 8000 of ..."}
    return quota_effect(
        QUOTAS, [claim("default"), claim("other")], [job("a")], said, namespace="default", name=name, given=given
    )


def test_a_smaller_limit_says_what_has_to_be_given_back_first() -> None:
    change = effect({GPU_MEMORY: 3000})
    assert change.effect_lines() == [
        "nvidia.com/gpumem: 8000 -> 3000, 4000 in use",
        "running pods stay; no pod gets more nvidia.com/gpumem until 1000 are released",
        "1 job waits for it now",
    ]
    document = change.document()
    assert (document["new"], document["over"]) == (False, {GPU_MEMORY: 1000})
    assert document["after"] == {GPU_MEMORY: 3000, GPU_CORES: 100}


def test_a_limit_comes_and_goes_and_the_others_stay() -> None:
    assert effect({GPU_CORES: None, GPU: 4}).effect_lines()[:2] == [
        "nvidia.com/gpu: no limit -> 4, 2 in use",
        "nvidia.com/gpucores: 100 -> no limit, 60 in use",
    ]
    assert effect({GPU: 4}, name="another").document() == {
        "name": "default/another", "new": True, "before": {}, "after": {GPU: 4}, "used": {GPU: 2}, "over": {}, "waitingJobs": 0, "fault": "",
    }  # fmt: skip


def test_limits_are_whole_numbers_or_none() -> None:
    assert (limit_of("--gpu", "8"), limit_of("--gpu", "none")) == (8, None)
    for wrong in ("4Gi", "-1", "", "1.5", "²"):
        with pytest.raises(InvalidRequest, match="write a whole number, or none"):
            limit_of("--gpumem", wrong)
