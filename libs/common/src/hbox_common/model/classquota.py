"""ResourceQuotas by PriorityClass: limits on the pods of some classes in a namespace.

Kubernetes checks such a quota when a pod is created, by the pod's class. A PodGroup names a class too, which its pods need not have: the job gets the class's
priority and preempts others. So HBox applies the quota to the job's class in the same way, whether the pods or the PodGroup name it; a job beyond the quota
waits and preempts no other job.

Usage is the sum of the ledger's claims. Jobs without a class are not limited: their pods have none, and Kubernetes admitted them. Quotas with additional scopes
are ignored: claims do not show which pods they select, and the API server checks each pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .job import Match, MatchOperator
from .resources import PODS, Resources, quantity

#: The scope's name in Kubernetes.
PRIORITY_CLASS_SCOPE = "PriorityClass"


@dataclass(frozen=True, slots=True)
class ClassQuota:
    """The part of one ResourceQuota that applies to claims. `classes`: the job classes that it limits; `hard`: pods, and requests by resource, in base units;
    `used`: the namespace's usage by jobs of these classes, if reported."""

    namespace: str
    name: str
    classes: tuple[Match, ...]
    hard: Resources
    used: Resources = field(default_factory=dict)

    def concerns(self, priority_class: str) -> bool:
        """Whether it is for jobs of this class, as Kubernetes matches pods."""
        return bool(priority_class) and all(_holds(one, priority_class) for one in self.classes)


def _holds(match: Match, priority_class: str) -> bool:
    if match.operator is MatchOperator.IN:
        return priority_class in match.values
    if match.operator is MatchOperator.NOT_IN:
        return priority_class not in match.values
    return match.operator is MatchOperator.EXISTS


def exceeded(quotas: Iterable[ClassQuota], namespace: str, priority_class: str, asked: Mapping[str, int]) -> str:
    """The quota of the namespace that `asked`, for a job of this class, would exceed in addition to `used`; "" if there is none."""
    for quota in quotas:
        if quota.namespace != namespace or not quota.concerns(priority_class):
            continue
        for name, hard in quota.hard.items():
            units, used = asked.get(name, 0), quota.used.get(name, 0)
            if units > 0 and used + units > hard:
                most, has, more = (quantity(name, amount) for amount in (hard, used, units))
                what = "pods" if name == PODS else f"requests of {name}"
                return (
                    f"ResourceQuota {quota.name} of namespace {namespace} allows {most} {what} of PriorityClass {priority_class}, {has} are in use "
                    f"and {more} more are asked for"
                )
    return ""
