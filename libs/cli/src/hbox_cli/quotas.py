"""What quotas of namespaces say of cards, as people see it: one plain dictionary for each amount that is limited. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from hbox_common.model import CardQuota, CardQuotas, Claim, Job, JobId

from .queues.bars import bar, scale_of

Item = dict[str, Any]


def quota_items(
    quotas: Iterable[CardQuota],
    claims: Iterable[Claim],
    jobs: Iterable[Job],
    why: Mapping[JobId, str],
    *,
    namespace: str | None = None,
) -> list[Item]:
    """By namespace, quota and resource. `why`: the reason why each job waits; `namespace`: this one alone.

    A quota with a fault has an item for each amount that it names, and one without where it names none.
    """
    books = CardQuotas()
    books.adopt(quotas, ((claim.namespace, claim.slices) for claim in claims))
    known = list(jobs)
    items: list[Item] = []
    for quota in books:
        if namespace not in (None, quota.namespace):
            continue
        which = f"ResourceQuota {quota.name} of namespace {quota.namespace} "
        waiting = sum(job.namespace == quota.namespace and which in why.get(job.id, "") for job in known)
        used = books.used(quota.namespace)
        items += [
            {
                "name": f"{quota.namespace}/{quota.name}",
                "namespace": quota.namespace,
                "quota": quota.name,
                "resource": resource,
                "used": used.get(resource, 0),
                "limit": quota.limits.get(resource),
                "waitingJobs": waiting,
                "fault": quota.fault,
            }
            for resource in sorted(quota.limits) or [""]
        ]
    return items


def quota_bar(item: Mapping[str, Any], width: int = 20) -> str:
    """What is used, and the mark of the limit. Each has its own scale: MiB, percent and cards have none in common."""
    resource = item["resource"]
    amounts = {"used": {resource: item["used"]}, "capability": {}, "deserved": {}, "guarantee": {}}
    if item["limit"] is not None:
        amounts["capability"] = {resource: item["limit"]}
    return bar(amounts, resource, scale=scale_of([amounts], resource), width=width)
