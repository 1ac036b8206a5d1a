"""HBOX_JOBS: pending jobs, pods running according to Kubernetes, and reasons of pending jobs. In batches; Kubernetes is the source of truth."""

from typing import ClassVar

from hbox_common.model import (
    GroupState,
    Job,
    JobDemand,
    JobId,
    JobTerms,
    MissingPods,
    Neighbour,
    NodeName,
    PodFact,
    PodUid,
    SchedulerId,
)

from .base import About, Event, Stream, register


@register
class JobsPending(Event):
    """Jobs with pods to place, complete and in their present state. For each job the highest `revision` counts. `neighbours`: changed pods, placed or not, that
    constraints of pods refer to or policies read. `priority_classes`: all values by name, and `namespaces`: all labels of namespaces that constraints refer to,
    if one of them changed. `groups`: changed PodGroups with minimum resources, with or without pods: published before their jobs. `anew`: the writer has just
    started and does not know earlier messages: jobs that it does not name may be gone. `revision`: the highest assigned so far, for the writer's successor.
    `missing`: workloads whose number of missing pods changed."""

    about: ClassVar = About(
        "hbox.v1.job.pending.{shard}",
        Stream.JOBS,
        ("job-controller",),
        ("scheduler-core", "quota-ledger", "console"),
        8 * 2**20,
        items=("neighbours", "groups", "missing", "jobs"),
    )
    jobs: tuple[Job, ...]
    neighbours: tuple[Neighbour, ...] = ()
    priority_classes: dict[str, int] | None = None
    namespaces: dict[str, dict[str, str]] | None = None
    groups: tuple[GroupState, ...] = ()
    anew: bool = False
    revision: int = 0
    missing: tuple[MissingPods, ...] = ()


class JobTermsPending(Event):
    """`JobsPending` as the ledger reads it: the same message without what it does not need of it, for a fifth of the work."""

    about: ClassVar = JobsPending.about
    jobs: tuple[JobTerms, ...]
    anew: bool = False


class JobDemandPending(JobTermsPending):
    """Also the pending demand, which the ledger reads if queues have shares by weight."""

    jobs: tuple[JobDemand, ...]


@register
class JobsWithdrawn(Event):
    """Jobs with nothing left to place: deleted, finished, or all of their pods have nodes. `revisions` pairs up with `jobs`."""

    about: ClassVar = About(
        "hbox.v1.job.withdrawn.{shard}", Stream.JOBS, ("job-controller",), ("scheduler-core", "quota-ledger", "console"), 2**20
    )
    jobs: tuple[JobId, ...]
    revisions: tuple[int, ...]


@register
class PodsObserved(Event):
    """Changes of pods that have, or had, a node: the ledger's evidence for posting and voiding claims."""

    about: ClassVar = About(
        "hbox.v1.pod.observed.{shard}",
        Stream.JOBS,
        ("job-controller",),
        ("quota-ledger", "console"),
        4 * 2**20,
        items=("pods",),
    )
    pods: tuple[PodFact, ...]


class Verdict(Event):
    """Why one job waits: `reasons` counts nodes by label and sums to `nodes` (0 nodes: the reason is not about nodes). `sole`: of these, nodes that fail
    nothing but this. `code`, `outcome`, `owner`: of its explanation (`hbox_common.model.explanation`); empty if it has none yet, or from an older scheduler."""

    job: JobId
    message: str
    nodes: int = 0
    reasons: dict[str, int] = {}
    sole: dict[str, int] = {}
    code: str = ""
    outcome: str = ""
    owner: str = ""


class PodScore(Event):
    """Why a pod was given its node, for the pod's Event."""

    pod_uid: PodUid
    node: NodeName
    note: str  #: score of the node, and the runner-up with its score


@register
class JobsWaiting(Event):
    """The scheduler's verdicts on jobs that it could not place, sent when they change; and scores of pods that it placed, sent once."""

    about: ClassVar = About(
        "hbox.v1.job.waiting.{shard}",
        Stream.JOBS,
        ("scheduler-core",),
        ("job-controller", "console"),
        2**20,
        items=("verdicts", "scores"),
    )
    verdicts: tuple[Verdict, ...]
    scores: tuple[PodScore, ...] = ()


@register
class JobsAdmitted(Event):
    """PodGroups that the policy's `enqueue` action admits: their phase is to become Inqueue. Repeated until the phase is observed; valid only from the
    scheduler that requested all jobs last (`JobsAsked.gatekeeper`)."""

    about: ClassVar = About(
        "hbox.v1.job.admitted.{shard}", Stream.JOBS, ("scheduler-core",), ("job-controller",), 2**20, items=("jobs",)
    )
    scheduler: SchedulerId
    jobs: tuple[JobId, ...]
