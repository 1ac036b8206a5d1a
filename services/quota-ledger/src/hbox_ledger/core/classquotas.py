"""What namespaces hold by PriorityClass, where a ResourceQuota limits that (`hbox_common.model.classquota`).

A claim's class is its job's, which stands on no claim: it is known from the job's news when the claim is made, and over a restart from the list of pods that
opens the books. Kept only for namespaces with such quotas.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hbox_common.model import Claim, ClaimId, ClassQuota, JobId, Resources, exceeded
from hbox_common.model.resources import add


@dataclass(slots=True)
class ClassQuotas:
    moved: bool = False  #: what is used changed since it was told; the teller sets it back
    classes: dict[JobId, str] = field(default_factory=dict)  #: of jobs with live claims, but those of none
    _of: dict[str, tuple[ClassQuota, ...]] = field(default_factory=dict)  #: by namespace
    _claims: dict[str, dict[ClaimId, Claim]] = field(default_factory=dict)  #: live ones, of these namespaces

    def adopt(self, quotas: Iterable[ClassQuota], live: Iterable[Claim]) -> bool:
        """Take these for all that there are. Returns whether they are others than before."""
        fresh: dict[str, list[ClassQuota]] = {}
        for quota in quotas:
            fresh.setdefault(quota.namespace, []).append(quota)
        found = {namespace: tuple(sorted(some, key=lambda one: one.name)) for namespace, some in sorted(fresh.items())}
        if found == self._of:
            return False
        self._of, self._claims = found, {}
        for claim in live if found else ():
            self.enter(claim)
        return True

    def keep(self, other: "ClassQuotas", live: Iterable[Claim]) -> None:
        """What other books, of the same ledger, knew."""
        self.classes = other.classes
        self.adopt((quota for quotas in other._of.values() for quota in quotas), live)

    def name(self, job: JobId, priority_class: str) -> None:
        """The class of a job that has claims, or is about to."""
        if priority_class and self.classes.get(job) != priority_class:
            self.classes[job] = priority_class
            self.moved |= bool(self._of)

    def enter(self, claim: Claim) -> None:
        """A claim is live."""
        if claim.namespace in self._of:
            self._claims.setdefault(claim.namespace, {})[claim.id] = claim
            self.moved = True

    def leave(self, claim: Claim, *, last: bool) -> None:
        """It is void. `last`: its job has no more."""
        if claim.namespace in self._of:
            self._claims[claim.namespace].pop(claim.id, None)
            self.moved = True
        if last:
            self.classes.pop(claim.job, None)

    def told(self) -> list[ClassQuota]:
        """All quotas, with what is used of them."""
        return [self._used(quota) for quotas in self._of.values() for quota in quotas]

    def refusal(self, namespace: str, priority_class: str, asked: Resources) -> str:
        """Why a job of this class may not have so much more; "" where it may."""
        quotas = self._of.get(namespace, ()) if priority_class else ()
        return exceeded((self._used(quota) for quota in quotas), namespace, priority_class, asked)

    def _used(self, quota: ClassQuota) -> ClassQuota:
        used: Resources = {}
        for claim in self._claims.get(quota.namespace, {}).values():
            if quota.concerns(self.classes.get(claim.job, "")):
                add(used, {name: units for name, units in claim.requests.items() if name in quota.hard})
        return replace(quota, used=used)
