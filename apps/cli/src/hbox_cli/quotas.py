"""Output about quotas of cards in namespaces: one plain dictionary for each limited amount, and the effects of a change. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardQuota, CardQuotas, Claim, Job, JobId, Resources, charge
from hbox_common.model.resources import add

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
    books.adopt(quotas, ((claim.namespace, claim.requests, claim.slices) for claim in claims))
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


@dataclass(frozen=True, slots=True)
class QuotaEffect:
    """What a change of one quota means for those in its namespace."""

    before: CardQuota | None
    after: CardQuota
    used: Mapping[str, int]
    waiting: int  #: jobs that wait for it

    def document(self) -> Item:
        return {
            "name": f"{self.after.namespace}/{self.after.name}",
            "new": self.before is None,
            "before": dict(self.before.limits) if self.before is not None else {},
            "after": dict(self.after.limits),
            "used": {resource: self.used.get(resource, 0) for resource in self.after.limits},
            "over": {resource: self.used.get(resource, 0) - limit for resource, limit in self._over()},
            "waitingJobs": self.waiting,
            "fault": self.after.fault,
        }

    def effect_lines(self) -> list[str]:
        """Lines for the output."""
        lines = []
        old = self.before.limits if self.before is not None else {}
        for resource in sorted(old | self.after.limits):
            was, now = (str(limits.get(resource, "no limit")) for limits in (old, self.after.limits))
            if was != now:
                lines.append(f"{resource}: {was} -> {now}, {self.used.get(resource, 0)} in use")
        for resource, limit in self._over():
            units = self.used.get(resource, 0) - limit
            lines.append(f"running pods stay; no pod gets more {resource} until {units} are released")
        if self.waiting:
            lines.append(f"{self.waiting} job{'s' * (self.waiting > 1)} wait{'s' * (self.waiting == 1)} for it now")
        return lines

    def _over(self) -> list[tuple[str, int]]:
        return [(name, limit) for name, limit in sorted(self.after.limits.items()) if self.used.get(name, 0) > limit]


def quota_effect(
    quotas: Iterable[CardQuota],
    claims: Iterable[Claim],
    jobs: Iterable[Job],
    why: Mapping[JobId, str],
    *,
    namespace: str,
    name: str,
    given: Mapping[str, int | None],
) -> QuotaEffect:
    """`given`: new limits by resource, None = none any more; others stay."""
    known = list(quotas)
    before = next((one for one in known if (one.namespace, one.name) == (namespace, name)), None)
    limits = {**(before.limits if before is not None else {}), **given}
    after = CardQuota(namespace, name, {resource: limit for resource, limit in limits.items() if limit is not None})
    items = quota_items(known, (), jobs, why, namespace=namespace)
    used: Resources = {}
    for claim in claims:
        if claim.namespace == namespace:
            add(used, charge(claim.requests, claim.slices))
    return QuotaEffect(before, after, used, max((item["waitingJobs"] for item in items if item["quota"] == name), default=0))


def limit_of(option: str, text: str | None) -> int | None:
    """A limit as it is written on the command line; `none` = no limit. Raises InvalidRequest."""
    if text is None or text == "none":
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise InvalidRequest(f"{option} {text}: write a whole number, or none")
    return int(text)
