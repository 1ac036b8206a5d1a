"""ResourceQuotas by PriorityClass: how much the pods of some classes may hold together in a namespace.

Kubernetes holds pods to such a quota when they are made, by the class that is written on each. A PodGroup names a class too, which its pods need not carry: by
it a job has the class's priority, and evicts others. So the class of a job counts here as Kubernetes counts that of a pod, whoever names it; a job of a
class of which its namespace may have no more waits, and takes from nobody.

Judged by what the ledger has claims for. Jobs of no class are not concerned: their pods carry none, and Kubernetes let them in. Neither are quotas that have
other scopes besides: which pods of a job these are for, claims do not tell, and the API server looks at each pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .job import Match, MatchOperator
from .resources import PODS, Resources, quantity

#: The scope's name in Kubernetes.
PRIORITY_CLASS_SCOPE = "PriorityClass"


@dataclass(frozen=True, slots=True)
class ClassQuota:
    """The part of one ResourceQuota that a claim can be held to. `classes`: all of them hold for the class of a job; `hard`: pods, and requests by resource, in
    base units; `used`: what the namespace holds of them by jobs of these classes, where it is told."""

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
    """Which quota of the namespace does not allow `asked`, of a job of this class, beside what it has `used`; "" where all do."""
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
