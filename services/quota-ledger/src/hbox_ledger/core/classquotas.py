"""Usage of namespaces by PriorityClass, for ResourceQuotas that limit it (`hbox_common.model.classquota`).

A claim's class is its job's and is not stored in the claim: the job's messages provide it when the claim is created, and after a restart the list of pods that
opens the books. Kept only for namespaces with such quotas.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hbox_common.model import Claim, ClassQuota, JobId, Resources, exceeded
from hbox_common.model.resources import add


@dataclass(slots=True)
class ClassQuotas:
    moved: bool = False  #: what is used changed since it was published; the publisher sets it back
    classes: dict[JobId, str] = field(default_factory=dict)  #: of jobs with live claims, but those of none
    _of: dict[str, tuple[ClassQuota, ...]] = field(default_factory=dict)  #: by namespace
    #: what live claims hold in these namespaces, by job and namespace
    _jobs: dict[JobId, dict[str, Resources]] = field(default_factory=dict)
    _sums: dict[str, dict[str, Resources]] = field(default_factory=dict)  #: the same by namespace and class

    def adopt(self, quotas: Iterable[ClassQuota], live: Iterable[Claim]) -> bool:
        """Take these for all that there are. Returns whether they are others than before."""
        fresh: dict[str, list[ClassQuota]] = {}
        for quota in quotas:
            fresh.setdefault(quota.namespace, []).append(quota)
        found = {namespace: tuple(sorted(some, key=lambda one: one.name)) for namespace, some in sorted(fresh.items())}
        if found == self._of:
            return False
        self._of, self._jobs, self._sums = found, {}, {}
        for claim in live if found else ():
            self.enter(claim)
        return True

    def keep(self, other: "ClassQuotas", live: Iterable[Claim]) -> None:
        """What other books, of the same ledger, knew."""
        self.classes = other.classes
        self.adopt((quota for quotas in other._of.values() for quota in quotas), live)

    def name(self, job: JobId, priority_class: str) -> None:
        """The class of a job that has claims, or is about to."""
        known = self.classes.get(job, "")
        if priority_class and known != priority_class:
            self.classes[job] = priority_class
            self.moved |= bool(self._of)
            for namespace, holds in self._jobs.get(job, {}).items():
                self._sum(namespace, known, holds, -1)
                self._sum(namespace, priority_class, holds, 1)

    def enter(self, claim: Claim) -> None:
        """A claim is live."""
        self._book(claim, 1)

    def leave(self, claim: Claim, *, last: bool) -> None:
        """It is void. `last`: its job has no more."""
        self._book(claim, -1)
        if last:
            self.classes.pop(claim.job, None)
            self._jobs.pop(claim.job, None)

    def usage(self) -> list[ClassQuota]:
        """All quotas, with what is used of them."""
        return [self._used(quota) for quotas in self._of.values() for quota in quotas]

    def refusal(self, namespace: str, priority_class: str, asked: Resources) -> str:
        """Why a job of this class may not have so much more; "" where it may."""
        quotas = self._of.get(namespace, ()) if priority_class else ()
        return exceeded((self._used(quota) for quota in quotas), namespace, priority_class, asked)

    def _book(self, claim: Claim, times: int) -> None:
        if claim.namespace in self._of:
            add(self._jobs.setdefault(claim.job, {}).setdefault(claim.namespace, {}), claim.requests, times)
            self._sum(claim.namespace, self.classes.get(claim.job, ""), claim.requests, times)
            self.moved = True

    def _sum(self, namespace: str, priority_class: str, amount: Resources, times: int) -> None:
        add(self._sums.setdefault(namespace, {}).setdefault(priority_class, {}), amount, times)

    def _used(self, quota: ClassQuota) -> ClassQuota:
        used: Resources = {}
        for priority_class, holds in self._sums.get(quota.namespace, {}).items():
            if quota.concerns(priority_class):
                add(used, {name: units for name, units in holds.items() if units and name in quota.hard})
        return replace(quota, used=used)
