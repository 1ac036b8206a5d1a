"""The ledger's own record of the jobs that have something to place, and plans held against it.

What a job is entitled to (queue, namespace, priority, whether it may be preempted, how many of it start together) is job-controller's word and nobody
else's: a plan repeats it, and one that says otherwise is refused. Without that, whoever can send a plan gives itself any priority, and evicts by it.

Bounded by the jobs that wait in the cluster, and by MOST whatever is said: the oldest are forgotten then, whose plans are refused until all jobs were
read anew. Of one job the highest revision counts, a withdrawal included; a list of all jobs drops what it does not name, but for what was heard after it
was asked for. Nothing of this is kept over a restart: a list is the first thing that a ledger asks for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hbox_common.events import Plan
from hbox_common.model import JobId, JobTerms, Refusal, RefusalReason
from hbox_common.model.shards import ONE_SHARD

from .demand import Demand

#: Jobs that are known at once: about 300 bytes each.
MOST = 1_000_000

#: Withdrawn jobs of which older news may still come.
WITHDRAWN = 10_000


@dataclass(slots=True)
class Records:
    demand: Demand | None = None  #: told of all of them; None: nobody needs to know what they wait for
    by_weight: bool = False  #: whether it divides: queues are entitled to their shares by weight; never without `demand`
    _known: dict[JobId, JobTerms] = field(default_factory=dict)  #: in the order in which they came
    _shards: dict[JobId, str] = field(default_factory=dict)  #: of those that are not of the one shard that has all
    _withdrawn: dict[JobId, int] = field(default_factory=dict)  #: with the revision
    _heard: set[JobId] = field(default_factory=set)  #: since a list was asked for

    def __len__(self) -> int:
        return len(self._known)

    def hear(self, jobs: Iterable[JobTerms], shard: str = ONE_SHARD) -> None:
        """Jobs of a shard as they are now; older revisions than those known change nothing."""
        for job in jobs:
            known = self._known.get(job.id)
            if (known is not None and job.revision <= known.revision) or job.revision <= self._withdrawn.get(job.id, -1):
                continue
            self._known[job.id] = job
            if shard != ONE_SHARD:
                self._shards[job.id] = shard
            elif self._shards:
                self._shards.pop(job.id, None)
            self._heard.add(job.id)
            if self.demand is not None:
                self.demand.put(job)
            if len(self._known) > MOST:
                oldest = next(iter(self._known))
                self._forget(oldest)
                self._heard.discard(oldest)

    def withdraw(self, jobs: Iterable[JobId], revisions: Iterable[int]) -> None:
        """Jobs with nothing left to place, as of these revisions."""
        for job, revision in zip(jobs, revisions, strict=False):
            known = self._known.get(job)
            if known is not None and known.revision > revision:
                continue
            if known is not None:
                self._forget(job)
            self._withdrawn.pop(job, None)
            self._withdrawn[job] = revision
            if len(self._withdrawn) > WITHDRAWN:
                del self._withdrawn[next(iter(self._withdrawn))]

    def ask(self) -> None:
        """A list of all jobs is asked for: what is heard from now on is newer."""
        self._heard.clear()

    def only(self, jobs: Iterable[JobTerms], shards: Mapping[JobId, str] = {}) -> None:
        """All jobs that there are, as of when `ask` was called or later. `shards`: of those that are not of the one shard that has all."""
        listed = {job.id: job for job in jobs}
        for id in [id for id in self._known if id not in listed and id not in self._heard]:
            self._forget(id)
        for shard in dict.fromkeys(shards.values()):
            self.hear((job for job in listed.values() if shards.get(job.id) == shard), shard)
        self.hear(job for job in listed.values() if job.id not in shards)

    def _forget(self, job: JobId) -> None:
        del self._known[job]
        self._shards.pop(job, None)
        if self.demand is not None:
            self.demand.drop(job)

    def class_of(self, job: JobId) -> str:
        """The PriorityClass of a job that is known; empty where it has none."""
        known = self._known.get(job)
        return known.priority_class if known is not None else ""

    def knows(self, job: JobId) -> bool:
        """Whether the job has something to place."""
        return job in self._known

    def is_withdrawn(self, job: JobId) -> bool:
        """Whether the last word on the job is that it waits for nothing."""
        return job in self._withdrawn and job not in self._known

    def shard_of(self, job: JobId) -> str:
        """Whose schedulers may plan for the job; of one that is not known, those of the one shard."""
        return self._shards.get(job, ONE_SHARD)

    def refusal(self, plan: Plan, shard: str = ONE_SHARD) -> Refusal | None:
        """Why the plan, of a scheduler of this shard, is not one for the job as it is known; None where it is. A plan that places nothing asks for nothing in
        a job's name."""
        if not plan.placements:
            return None
        job = self._known.get(plan.job)
        if job is None:
            return Refusal(
                RefusalReason.JOB_UNKNOWN, f"the ledger does not know job {plan.job} yet, or the job has no pods to place"
            )
        if self._shards.get(plan.job, ONE_SHARD) != shard:
            words = f"the plan is of a scheduler of shard {shard}, the job of shard {self._shards.get(plan.job, ONE_SHARD)}"
            return Refusal(RefusalReason.JOB_DIFFERS, words)
        if (
            plan.priority == job.priority
            and plan.queue == job.queue
            and plan.namespace == job.namespace
            and plan.min_member == job.min_member
            and plan.preemptable == job.preemptable
            and plan.created_at == job.created_at
        ):
            return None
        pairs = [
            (name, getattr(plan, name), getattr(job, name))
            for name in ("priority", "queue", "namespace", "min_member", "preemptable", "created_at")
        ]
        message = ", ".join(f"{name} {theirs}, the job has {ours}" for name, theirs, ours in pairs if theirs != ours)
        return Refusal(RefusalReason.JOB_DIFFERS, f"the plan has {message}")
