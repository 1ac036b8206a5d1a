"""Pods that are members of another job than their claim: their PodGroup was deleted and made again (ADR 84).

Their claims follow as soon as the job that they are of now has something to place. Facts about pods and jobs arrive in any order, so the fact is kept until
then. Bounded by the live claims; nothing of it is kept over a restart, which compares all pods anew.
"""

from dataclasses import dataclass, field

from hbox_common.model import JobId, PodFact, PodUid


@dataclass(slots=True)
class Regrouped:
    _facts: dict[PodUid, PodFact] = field(default_factory=dict)
    _by_job: dict[JobId, dict[PodUid, None]] = field(default_factory=dict)

    def put(self, fact: PodFact) -> None:
        """The pod's claim is of another job than the pod."""
        self.drop(fact.uid)
        self._facts[fact.uid] = fact
        self._by_job.setdefault(fact.job, {})[fact.uid] = None

    def drop(self, pod: PodUid) -> None:
        """The pod has no such claim any more."""
        if (fact := self._facts.pop(pod, None)) is not None:
            pods = self._by_job[fact.job]
            del pods[pod]
            if not pods:
                del self._by_job[fact.job]

    def of(self, job: JobId) -> list[PodFact]:
        """The members of a job whose claims are of another one, as last observed."""
        return [self._facts[pod] for pod in self._by_job.get(job, ())]
