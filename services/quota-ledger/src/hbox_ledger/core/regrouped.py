"""Pods whose claims belong to another job than the pods, because their PodGroup was deleted and created again (ADR 84).

The ledger moves a claim to the pod's current job when that job is planned. Facts about pods and jobs arrive in any order, so the pod's fact is kept until
then. At most one fact for each live claim. Not persisted: after a restart the ledger compares all pods again.
"""

from dataclasses import dataclass, field

from hbox_common.model import JobId, PodFact, PodUid


@dataclass(slots=True)
class Regrouped:
    """Facts of these pods, by pod and by current job."""

    _facts: dict[PodUid, PodFact] = field(default_factory=dict)
    _by_job: dict[JobId, dict[PodUid, None]] = field(default_factory=dict)

    def put(self, fact: PodFact) -> None:
        """Record a pod whose claim belongs to another job."""
        self.drop(fact.uid)
        self._facts[fact.uid] = fact
        self._by_job.setdefault(fact.job, {})[fact.uid] = None

    def drop(self, pod: PodUid) -> None:
        """Remove the pod, if it is recorded."""
        if (fact := self._facts.pop(pod, None)) is not None:
            pods = self._by_job[fact.job]
            del pods[pod]
            if not pods:
                del self._by_job[fact.job]

    def of(self, job: JobId) -> list[PodFact]:
        """Last observed facts of the job's members whose claims belong to another job."""
        return [self._facts[pod] for pod in self._by_job.get(job, ())]
