"""Quotas of namespaces by PriorityClass, with their usage, as the ledger publishes them: a check before planning, by the ledger's own rule
(`hbox_common.model.classquota`)."""

from collections.abc import Iterable

from hbox_common.model import ClassQuota, Job, Resources, exceeded
from hbox_common.model.resources import add

from ..explain.labels import Label
from ..explain.outcomes import RESOURCE_QUOTA_TOO_SMALL


class ClassQuotas:
    """All class quotas, by namespace."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[ClassQuota, ...]] = {}

    def put(self, quotas: Iterable[ClassQuota]) -> set[str]:
        """All of them, from now on. Returns the namespaces where they are others than before, or more or less is used."""
        fresh: dict[str, tuple[ClassQuota, ...]] = {}
        for quota in quotas:
            fresh[quota.namespace] = (*fresh.get(quota.namespace, ()), quota)
        changed = {name for name in fresh.keys() | self._of.keys() if fresh.get(name) != self._of.get(name)}
        self._of = fresh
        return changed

    def blocked_reason(self, job: Job) -> str:
        """Why the namespace may have no more pods of the job's class, or not as many as wait; "" if it may. In Kubernetes pods count from their creation."""
        if not job.priority_class or job.namespace not in self._of:
            return ""
        excess = exceeded(self._of[job.namespace], job.namespace, job.priority_class, _asked(job))
        if not excess:
            return ""
        return f"{Label.CARD_QUOTA if self.shortage(job) is None else RESOURCE_QUOTA_TOO_SMALL}: {excess}"

    def shortage(self, job: Job) -> tuple[str, str, int, int] | None:
        """The quota that the job alone exceeds: its name, the resource, what the job requests, and the limit."""
        asked = _asked(job)
        for quota in self._of.get(job.namespace, ()):
            for name, most in quota.hard.items() if quota.concerns(job.priority_class) else ():
                if asked.get(name, 0) > most:
                    return quota.name, name, asked[name], most
        return None


def _asked(job: Job) -> Resources:
    asked: Resources = {}
    for task in job.tasks:
        add(asked, task.requests, len(task.pods))
    return asked
