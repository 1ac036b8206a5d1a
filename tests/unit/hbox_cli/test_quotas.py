"""What people see of quotas of namespaces."""

from hbox_cli.quotas import quota_bar, quota_items
from hbox_common.model import CardQuota, CardSlice, Claim, ClaimId, JobId, NodeName, PlanId, PodUid, QueueName
from hbox_common.model.devices import GPU_CORES, GPU_MEMORY
from hbox_scheduler.core.simulate import job

QUOTAS = [
    CardQuota("default", "cards", {GPU_MEMORY: 8000, GPU_CORES: 100}),
    CardQuota("other", "gold", {GPU_MEMORY: 1000}, "scopes are not supported"),
    CardQuota("third", "bare", fault="limits.nvidia.com/gpumem: 'much' is not a quantity"),
]


def claim(namespace: str) -> Claim:
    return Claim(
        ClaimId(namespace), PodUid(namespace), namespace, "p", JobId("j"), PlanId(""), QueueName("default"), 0, NodeName("n"), {},
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
