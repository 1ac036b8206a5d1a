"""The ledger's own record of the jobs that have pods to place; plans are checked against it.

Only job-controller determines a job's entitlement (queue, namespace, priority, whether it may be preempted, its minimum of members): a plan repeats it, and
one that differs is refused. Otherwise any client that can publish a plan could claim any priority, and evict by it.

Bounded by the cluster's waiting jobs, and by MOST in any case: then the oldest jobs are dropped, and their plans are refused until all jobs are read again.
The highest revision of a job counts, also that of a withdrawal. A list of all jobs drops the jobs that it lacks, except those received after its request.
Records are not kept over a restart: the ledger requests a list of jobs first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hbox_common.events import Plan
from hbox_common.model import JobId, JobTerms, QueueName, Refusal, RefusalReason
from hbox_common.model.shards import ONE_SHARD

from .accounts.demand import Demand

#: Maximum number of recorded jobs, at about 300 bytes each.
MOST = 1_000_000

#: Maximum number of remembered withdrawn jobs, for late messages.
WITHDRAWN = 10_000


@dataclass(slots=True)
class Records:
    demand: Demand | None = None  #: receives every change of jobs; None: demand is not counted
    by_weight: bool = False  #: queues are entitled to shares by weight; never without `demand`
    _known: dict[JobId, JobTerms] = field(default_factory=dict)  #: in order of arrival
    _created: dict[QueueName, dict[JobId, float]] = field(default_factory=dict)  #: of `_known` by queue: times of creation
    _shards: dict[JobId, str] = field(default_factory=dict)  #: of jobs outside the single shard of all jobs
    _withdrawn: dict[JobId, int] = field(default_factory=dict)  #: with the revision
    _received: set[JobId] = field(default_factory=set)  #: received since a list was requested

    def __len__(self) -> int:
        return len(self._known)

    def receive(self, jobs: Iterable[JobTerms], shard: str = ONE_SHARD) -> None:
        """Record jobs of a shard; older revisions than the recorded ones change nothing."""
        for job in jobs:
            known = self._known.get(job.id)
            if (known is not None and job.revision <= known.revision) or job.revision <= self._withdrawn.get(job.id, -1):
                continue
            if known is not None and known.queue != job.queue:
                self._leave_queue(known)
            self._known[job.id] = job
            self._created.setdefault(job.queue, {})[job.id] = job.created_at
            if shard != ONE_SHARD:
                self._shards[job.id] = shard
            elif self._shards:
                self._shards.pop(job.id, None)
            self._received.add(job.id)
            if self.demand is not None:
                self.demand.put(job)
            if len(self._known) > MOST:
                oldest = next(iter(self._known))
                self._forget(oldest)
                self._received.discard(oldest)

    def withdraw(self, jobs: Iterable[JobId], revisions: Iterable[int]) -> None:
        """Record that jobs have nothing left to place, as of these revisions."""
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
        """Note that a list of all jobs is requested: messages from now on are newer."""
        self._received.clear()

    def only(self, jobs: Iterable[JobTerms], shards: Mapping[JobId, str] = {}) -> None:
        """Replace the record by a list of all jobs as of `ask` or later. `shards`: of jobs outside the single shard of all jobs."""
        listed = {job.id: job for job in jobs}
        for id in [id for id in self._known if id not in listed and id not in self._received]:
            self._forget(id)
        for shard in dict.fromkeys(shards.values()):
            self.receive((job for job in listed.values() if shards.get(job.id) == shard), shard)
        self.receive(job for job in listed.values() if job.id not in shards)

    def _leave_queue(self, job: JobTerms) -> None:
        jobs = self._created[job.queue]
        del jobs[job.id]
        if not jobs:
            del self._created[job.queue]

    def _forget(self, job: JobId) -> None:
        self._leave_queue(self._known.pop(job))
        self._shards.pop(job, None)
        if self.demand is not None:
            self.demand.drop(job)

    def class_of(self, job: JobId) -> str:
        """The PriorityClass of a recorded job; empty if it has none."""
        known = self._known.get(job)
        return known.priority_class if known is not None else ""

    def first_start(self, job: JobId) -> JobTerms | None:
        """The record of a job that was never withdrawn, as far as remembered: its pods have not all had nodes before."""
        return self._known.get(job) if job not in self._withdrawn else None

    def created_in(self, queue: QueueName) -> Mapping[JobId, float]:
        """The recorded jobs of a queue, with the times of their creation."""
        return self._created.get(queue, {})

    def queues(self) -> Iterable[QueueName]:
        """The queues that recorded jobs name; these need not exist."""
        return self._created.keys()

    def knows(self, job: JobId) -> bool:
        """Whether the job has something to place."""
        return job in self._known

    def is_withdrawn(self, job: JobId) -> bool:
        """Whether the last message about the job withdrew it."""
        return job in self._withdrawn and job not in self._known

    def shard_of(self, job: JobId) -> str:
        """The shard whose schedulers may plan for the job; for an unknown job, the single shard."""
        return self._shards.get(job, ONE_SHARD)

    def refusal(self, plan: Plan, shard: str = ONE_SHARD) -> Refusal | None:
        """Why this plan, of a scheduler of this shard, does not match the job's record; None if it does. A plan without placements is not checked."""
        if not plan.placements:
            return None
        job = self._known.get(plan.job)
        if job is None:
            return Refusal(
                RefusalReason.JOB_UNKNOWN, f"the ledger does not know job {plan.job} yet, or the job has no pods to place"
            )
        if self._shards.get(plan.job, ONE_SHARD) != shard:
            message = f"the plan is of a scheduler of shard {shard}, the job of shard {self._shards.get(plan.job, ONE_SHARD)}"
            return Refusal(RefusalReason.JOB_DIFFERS, message)
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
