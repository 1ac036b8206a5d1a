"""What schedulers are told of ResourceQuotas for `enqueue`."""

from typing import Any

import msgspec

from hbox_common import kube
from hbox_common.model import ResourceQuota
from hbox_ledger.adapters.quotas import amounts_of


def quota(**fields: Any) -> ResourceQuota | None:
    meta = {"name": "q", "namespace": "team", "uid": "u"}
    return amounts_of(msgspec.convert({"metadata": meta, **fields}, kube.ResourceQuota))


def test_requests_are_told_in_base_units_and_what_is_enforced_counts_before_what_is_written() -> None:
    hard = {
        "cpu": "2",
        "requests.nvidia.com/gpu": "8",
        "limits.cpu": "4",
        "count/jobs.batch": "3",
        "pods": "10",
        "memory": "odd",
    }
    assert quota(spec={"hard": hard}) == ResourceQuota("team", "q", {"cpu": 2000, "nvidia.com/gpu": 8})
    status = {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "250m"}}
    assert quota(spec={"hard": hard}, status=status) == ResourceQuota("team", "q", {"cpu": 1000}, {"cpu": 250})


def test_nothing_is_told_of_quotas_with_scopes_or_without_requests() -> None:
    assert quota(spec={"hard": {"cpu": "2"}, "scopes": ["BestEffort"]}) is None
    expression = {"scopeName": "PriorityClass", "operator": "Exists"}
    assert quota(spec={"hard": {"cpu": "2"}, "scopeSelector": {"matchExpressions": [expression]}}) is None
    assert quota(spec={"hard": {"limits.cpu": "2"}}) is None
