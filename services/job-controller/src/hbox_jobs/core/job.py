"""One job: a PodGroup with its pods, or a bare pod; and its value as published.

Rules that are documented only here:

- **Succeeded pods count for their gang, failed ones do not** (Volcano: ready = allocated + succeeded). They no longer hold a claim, so the published
  `min_member` is what is still missing: `max(1, minMember - succeeded)`. A failed or deleted member is replaced by its controller, and the
  replacement has to be placed with enough others to keep the gang at its minimum.
- Pods that are being deleted or have scheduling gates are no members: a gang below its minimum without them waits for more.
- Priority is that of the PodGroup's priority class if it names one, else the highest of its pods. Outside the system namespaces, Kubernetes' system classes
  count at most as the highest class of users (`counted`): any user who may create pods may name them.
- Pods of equal shape are two tasks if their volumes can be reached from different nodes, or their annotations for policies differ; in a gang with
  minima by task or sub-groups also if their roles, or the labels that form sub-groups, differ.
- Until the PodGroup that pods name exists, they form one job with a problem, so that the user gets a message.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from hbox_common.events import JobPhase, JobVerdict
from hbox_common.model import (
    DEFAULT_QUEUE,
    VENDORS,
    CardSlice,
    GangPart,
    Job,
    JobId,
    NodeName,
    PodGroupTask,
    PodRef,
    PodUid,
    QueueName,
    Resources,
)
from hbox_common.model.annotations import PREEMPTABLE
from hbox_common.model.bounds import INT32_MAX, sanitized
from hbox_common.model.devices import volcano
from hbox_common.model.explanation import Outcome
from hbox_common.model.ids import missing_group_job
from hbox_common.model.job import EXTRA_POD, GROUP_NOT_READ, OWNER_NOT_READ, VOLUMES_NOT_READY
from hbox_common.model.ranks import ranks
from hbox_common.model.resources import PODS, add
from hbox_common.model.shards import ONE_SHARD
from hbox_common.model.sickhardware import sick_policy
from hbox_common.reasons import verdict_line
from hbox_common.reasons.codes import code_of_label
from hbox_common.workloads.owner import NO_DEFAULTS, Defaults

from .staticvolumes import Reach
from .views import QUEUE_GATE, GroupPhase, GroupView, PodStatus, PodView
from .volumes import Volumes

#: Kubernetes' HighestUserDefinablePriority: only system-cluster-critical and system-node-critical have higher values.
HIGHEST_USER_PRIORITY = 1_000_000_000
#: Condition reasons of jobs with a `problem`.
PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
INVALID_SPEC = "InvalidSpec"
NAMESPACE_TERMINATING = "NamespaceTerminating"
POD_GROUP_NOT_FOUND = "PodGroupNotFound"
JOB_TOO_LARGE = "JobTooLarge"
#: Codes of other reasons of this service (`hbox_common.reasons`).
NAMESPACE_FULL = "NamespaceFull"
EVICTION_BLOCKED = "EvictionBlocked"
SCHEDULING_GATED = "SchedulingGated"
QUEUE_GATE_NOT_REMOVED = "QueueGateNotRemoved"
VOLUMES_PROVISIONING = "VolumesProvisioning"
SCHEDULER_ABSENT = "SchedulerAbsent"
EVICTED = "Evicted"  #: its pods were evicted, and the scheduler has not examined the new ones
GANG_INCOMPLETE = "GangIncomplete"
NOT_TRIED_YET = "NotTriedYet"
OWNER_NOT_READABLE = "OwnerNotReadable"  #: an owner of the pod cannot be read, and the pod is placed alone
GANG_NOT_READ = "GangNotRead"  #: the pod names a gang by another scheduler's label, and is placed alone

#: Of creation times, in seconds.
CREATION_STEP_S = 1.0

#: What of a pod its gang and policies go by: its role, labels, and notes.
_Part: TypeAlias = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class Tally:
    """A job's pods by state. `live` = `bound` + placeable ones; `running`: part of the bound ones."""

    live: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    gated: Resources = field(default_factory=dict)  #: requests of pods with scheduling gates
    queue_gates: int = 0  #: of these pods, with the gate that Volcano's scheduler opens
    leaving: int = 0  #: have a node, were deleted, and have not ended: they still hold their places


@dataclass(slots=True)
class Record:
    """State of one job. `job`: its last computed value (with revision); `announced`: whether the last message reported it pending; `again`: whether to publish
    it
    again without a change.
    """

    key: str
    namespace: str
    name: str
    gang: bool
    group: GroupView | None = None
    owned: bool = False  #: its pods name no PodGroup: `group` is derived from their owners
    owner_uid: str = ""  #: of the object that makes them a gang
    extra: str = ""  #: why its pod, beyond the number that its owner declares, waits
    started: bool = False  #: of a gang by owner: its minimum had places, when it was worked out last
    unread: str = ""  #: an owner of its pods that is not read yet, as users write it
    unread_since: float | None = None  #: monotonic; None: none is unread
    default_queue: QueueName = QueueName("")  #: of its namespace, for pods without PodGroup that name none
    pods: dict[PodUid, PodView] = field(default_factory=dict)
    had_pods: bool = False
    job: Job | None = None
    announced: bool = False
    again: bool = False
    submitted_at: float = 0.0  #: seconds since the epoch; as `seen_or_created` found when it was computed first
    phase: JobPhase | None = None
    verdict: JobVerdict | None = None
    gated: str = ""  #: why it waits for the controllers that set its pods' scheduling gates
    stuck: dict[PodUid, str] = field(default_factory=dict)  #: pods that are to leave with it and may not, with the refusal
    stuck_text: str = ""  #: the message about them for its user
    waiting: bool = False  #: as `wait_code` found last
    evicted: bool = False  #: pods of it were evicted, and since then it neither waited and started, nor got a verdict
    strangers: int = 0  #: pods of other schedulers that name its PodGroup
    published_from: float = 0.0  #: monotonic; from then on Kubernetes gets the reason why the job waits
    held: str = ""  #: why it is held back: its namespace has too many waiting jobs
    admitted: bool = False  #: computed and not held back: other jobs' placement may depend on its pods
    settled_at: float = float("-inf")  #: monotonic; when it was worked out last
    shard: str = ONE_SHARD  #: shard whose schedulers place it, when last computed
    problem_reason: str = ""  #: condition reason of the job's `problem`
    provisioning: str = ""  #: volumes that provisioners create for its pods, or the nodes for which they created none
    unpublishable: str = ""  #: why it exceeds every message; it is published again once its pods or its PodGroup change
    arrived: int = 0  #: resourceVersion at which its newest placeable pod became placeable
    read_up_to: int = 0  #: value of `arrived` at the start of the last read of its PodGroup
    read_version: int = 0  #: resourceVersion of the PodGroup as read; 0 = the watch has delivered it
    read_problem: str = ""  #: why its PodGroup, which has to be read before its pods are placed, could not be read
    placed: tuple[
        tuple[NodeName, Sequence[CardSlice]], ...
    ] = ()  #: node and cards of its pods, when it last entered a phase with pods on nodes
    rejected: tuple[str, ...] = ()  #: codes of the published rejections (`rejection_of`)
    # Counters, so that a pod of a gang does not have to visit all others:
    offered: int = 0  #: number of `pods` that may be preempted whatever their queue allows
    classes: dict[tuple[int, str], int] = field(default_factory=dict)  #: of live pods, by priority and class: how many
    by_owners: bool = False  #: owners, or a declared group, of one of its pods count; if not, they need not be looked for

    def put(self, pod: PodView) -> None:
        """A pod of the job, in its newest version."""
        old = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.had_pods = True
        self.by_owners = self.by_owners or pod.member is not None
        self._count(pod, 1)
        if old is not None:
            self._count(old, -1)

    def drop(self, uid: PodUid) -> bool:
        """Returns whether it was there."""
        pod = self.pods.pop(uid, None)
        self.stuck.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
        return pod is not None

    def _count(self, pod: PodView, by: int) -> None:
        self.offered += by * pod.preemptable
        if pod.live:
            named = pod.priority, pod.priority_class
            self.classes[named] = self.classes.get(named, 0) + by
            if not self.classes[named]:
                del self.classes[named]

    @property
    def highest(self) -> tuple[int, str]:
        """Priority and class of its most important live pod."""
        return max(self.classes, default=(0, ""))

    @property
    def id(self) -> JobId:
        if self.group is not None:
            return JobId(self.group.uid)
        return missing_group_job(self.key) if self.gang else JobId(self.key)

    @property
    def size(self) -> int:
        """Size of the message about the job and its waiting pods, in bytes. Requests and constraints of equal pods are contained once."""
        waiting = [pod for pod in self.pods.values() if pod.placeable]
        shapes = {pod.shape.key: pod.shape.written for pod in waiting}
        own = self.group.written if self.group is not None else 0
        return own + sum(shapes.values()) + sum(pod.written for pod in waiting)

    @property
    def queue(self) -> QueueName:
        if self.group is not None and (self.group.queue or self.group.owner is None):
            return self.group.queue or DEFAULT_QUEUE
        if self.by_owners and not self.gang:
            declared = next((pod.member.queue for pod in self.pods.values() if pod.member is not None), "")
            if declared:
                return QueueName(declared)
        named = next((pod.queue for pod in self.pods.values() if pod.queue), self.default_queue)
        return named or QueueName(self.defaults.queue or DEFAULT_QUEUE)

    @property
    def defaults(self) -> Defaults:
        """Of the kinds of its owners."""
        if self.group is not None:
            return self.group.defaults
        if not self.by_owners:
            return NO_DEFAULTS
        return next((pod.member.defaults for pod in self.pods.values() if pod.member is not None), NO_DEFAULTS)

    @property
    def submitter(self) -> str:
        """The trace context of its submitter; empty if there is none."""
        if self.group is not None:
            return self.group.traceparent
        return next((pod.traceparent for pod in self.pods.values()), "")

    @property
    def min_member(self) -> int:
        return max(1, self.group.min_member) if self.group is not None else 1

    @property
    def foreign(self) -> bool:
        """Whether its PodGroup is another scheduler's business: pods name it, and none of them is ours."""
        return self.strangers > 0 and not self.pods

    @property
    def reason(self) -> str:
        """Why it waits; empty if no reason is known. A bare pod with a gang label that HBox does not read has a remark on that, too."""
        reason = self.plain_reason
        if not reason or self.gang:
            return reason
        if label := next((pod.foreign_gang_label for pod in self.pods.values() if pod.foreign_gang_label), ""):
            return f"{reason}; {GANG_NOT_READ}: {not_read_text(label)}"
        if not self.by_owners:
            return reason
        alone = next((pod.member.alone for pod in self.pods.values() if pod.member is not None), "")
        return f"{reason}; {OWNER_NOT_READABLE}: {alone}" if alone else reason

    @property
    def plain_reason(self) -> str:
        """`reason` without the remark."""
        if self.job is not None and self.job.problem:
            return self.job.problem
        if self.held:
            return self.held
        if self.stuck:
            return "; ".join(filter(None, (self.stuck_text, self.verdict.message if self.verdict is not None else "")))
        outside = self.group is not None and not self.group.status.phase.is_enqueued
        if self.gated and not (self.verdict is not None and outside):
            return self.gated
        return "; ".join(filter(None, (self.provisioning, self.verdict.message if self.verdict is not None else "")))

    @property
    def own_code(self) -> str:
        """Code of a `plain_reason` that this service found; empty if the scheduler found it, or it is not known."""
        if self.job is not None and self.job.problem:
            return self.problem_reason
        if self.held:
            return NAMESPACE_FULL
        if self.stuck:
            return EVICTION_BLOCKED
        outside = self.group is not None and not self.group.status.phase.is_enqueued
        if self.gated and not (self.verdict is not None and outside):
            return QUEUE_GATE_NOT_REMOVED if QUEUE_GATE in self.gated else SCHEDULING_GATED
        return VOLUMES_PROVISIONING if self.provisioning else ""

    @property
    def code(self) -> str:
        """Code of `plain_reason` in the catalogue of reasons; empty if no reason is known. Of a verdict without a code, from an older scheduler: the label of
        most nodes."""
        if code := self.own_code:
            return code
        if self.verdict is None:
            return ""
        return self.verdict.code or max(self.verdict.reasons, key=self.verdict.reasons.__getitem__, default=NOT_TRIED_YET)

    @property
    def line(self) -> str:
        """`reason` after its outcome, code and title, for conditions and Events; empty if no reason is known."""
        reason = self.reason
        return verdict_line(*self._finding, reason) if reason else ""

    @property
    def code_line(self) -> str:
        """Outcome, code and title alone, which `line` starts with; empty if the code is not known."""
        outcome, code = self._finding
        return verdict_line(outcome, code, "") if code else ""

    @property
    def _finding(self) -> tuple[str, str]:
        """Outcome and code; the outcome of a reason of this service is that of its code."""
        if code := self.own_code:
            return "", code
        return ("", "") if self.verdict is None else (self.verdict.outcome, self.verdict.code)

    def tally(self) -> Tally:
        t = Tally()
        for pod in self.pods.values():
            if pod.live:
                t.live += 1
                if pod.node:
                    t.bound += 1
                    t.running += pod.status is PodStatus.RUNNING
            elif pod.status is PodStatus.SUCCEEDED:
                t.succeeded += 1
            elif pod.status is PodStatus.FAILED:
                t.failed += 1
            elif pod.deleting:
                t.leaving += bool(pod.node)
            elif pod.gated:
                add(t.gated, pod.shape.requests)
                t.queue_gates += pod.queue_gate
        return t


#: Problems that only a change of the job's own objects, or a missing PriorityClass, solves. A missing PodGroup, or missing pods of a gang, are often created
#: a moment later.
_FINAL = frozenset({INVALID_SPEC, PRIORITY_CLASS_NOT_FOUND, JOB_TOO_LARGE})


def rejection_of(record: Record) -> str:
    """The code of the reason why the job cannot start as it is written, whatever becomes free; empty: it may start."""
    if record.job is not None and record.job.problem:
        return record.problem_reason if record.problem_reason in _FINAL else ""
    verdict = record.verdict
    final = verdict is not None and verdict.outcome == Outcome.CHANGE and verdict.code != GANG_INCOMPLETE
    return verdict.code if verdict is not None and final else ""


_NO_CLAIMS: Mapping[PodUid, tuple[str, ...]] = {}


def job_of(
    record: Record,
    tally: Tally,
    classes: Mapping[str, int],
    volumes: Volumes,
    trace: Callable[[JobId], str],
    *,
    never: Collection[str] = (),
    terminating: bool = False,
    revision: int = 0,
    ceiling: int = INT32_MAX,
    succession: str = "",
) -> Job:
    """The current job, with this revision. `classes`: values of the PriorityClasses, by name; `trace`: returns the trace context of a job; `terminating`: its
    namespace is being deleted; `ceiling`: see `counted`; `succession`: of its pods. Sets `record.problem_reason` and `record.provisioning`."""
    group = record.group
    priority, priority_class, problem = _priority(record, tally, classes)
    reason = PRIORITY_CLASS_NOT_FOUND if problem else INVALID_SPEC
    if record.extra and not tally.bound:
        reason, problem = EXTRA_POD, f"{EXTRA_POD}: {record.extra}, and its gang has no places yet"
    if record.unread:
        reason = OWNER_NOT_READ
        problem = f"{OWNER_NOT_READ}: {record.unread}, which owns its pods, is not read yet"
    elif record.gang and group is None:
        reason = POD_GROUP_NOT_FOUND
        problem = f"PodGroup {record.key} not found: create it, or remove the annotation scheduling.k8s.io/group-name"
    if record.read_problem:
        reason = OWNER_NOT_READ if record.owned else GROUP_NOT_READ
        problem = f"{reason}: {record.read_problem}"
    elif group is not None and group.problem:
        reason, problem = INVALID_SPEC, f"{group.title}: {group.problem}"
    never_preempts = record.group is not None and record.group.priority_class in never
    tasks, waits_for_volume, record.provisioning = _tasks(record, volumes, never_preempts=never_preempts)
    if not (problem := problem or _pod_problem(record)) and record.unpublishable:
        reason, problem = JOB_TOO_LARGE, record.unpublishable
    if not problem and waits_for_volume:
        reason, problem = VOLUMES_NOT_READY, f"{VOLUMES_NOT_READY}: {waits_for_volume}"
    if terminating and tasks:
        reason = NAMESPACE_TERMINATING
        problem = f"NamespaceTerminating: namespace {record.namespace} is being deleted, and the API server binds no pod in it"
    record.problem_reason = reason if problem else ""
    created = group.created_at if group else min((pod.created_at for pod in record.pods.values()), default=0.0)
    return Job(
        id=record.id,
        namespace=record.namespace,
        name=record.name,
        queue=record.queue,
        priority=counted(priority, ceiling),
        min_member=max(1, record.min_member - tally.succeeded),
        members=tally.live,
        bound=tally.bound,
        created_at=created,
        revision=revision,
        tasks=tasks,
        gang=record.gang,
        preemptable=preemptable_of(record),
        priority_class=priority_class,
        problem=sanitized(problem),
        traceparent=trace(record.id),
        topology=group.topology if group else None,
        annotations=dict(group.annotations) if group else {},
        sub_gangs=group.sub_gangs if group else (),
        min_task_member=dict(group.min_task_member) if group else {},
        standing=_standing(record),
        succession=succession,
    )


def outcome_of(record: Record, code: str) -> str:
    """Whether waiting helps the job (`hbox_common.model.explanation`): as its verdict states, else the usual outcome of its code; empty if unknown."""
    if (verdict := record.verdict) is not None and verdict.outcome and verdict.code == code:
        return verdict.outcome
    found = code_of_label(code) if code else None
    return found.outcome.value if found is not None else ""


def wait_code(record: Record, tally: Tally) -> str:
    """Code to which the job's waiting is charged now; empty if the job does not wait: it has its minimum, or has ended, or another scheduler places it.
    Sets `record.waiting` and `record.evicted`."""
    if record.foreign or tally.bound + tally.succeeded >= record.min_member:
        record.evicted = record.evicted and not record.waiting
        record.waiting = False
        return ""
    group, evicted = record.group, record.evicted and record.gang
    if tally.live == 0 and not tally.gated and not evicted:
        ended = (
            tally.succeeded
            or tally.failed
            or tally.leaving
            or (group is not None and group.status.phase is GroupPhase.COMPLETED)
        )
        if group is None or ended:
            return ""
    record.waiting = True
    if record.verdict is not None:
        record.evicted = False
    if code := record.code:
        return code
    if evicted:
        return EVICTED
    return GANG_INCOMPLETE if tally.live + tally.succeeded < record.min_member else NOT_TRIED_YET


def waits_since(record: Record, wall: float) -> float:
    """When the job began to wait, for a job whose waiting was not recorded: its oldest pod to place, or else its PodGroup, was created."""
    pods = min((pod.created_at for pod in record.pods.values() if pod.placeable), default=None)
    if pods is None:
        pods = record.group.created_at if record.group is not None and not record.had_pods else wall
    return seen_or_created(wall, pods)


def seen_or_created(seen: float, created: float) -> float:
    """When an object began to exist. Kubernetes' creation times are whole seconds: one seen within that second counts as created when it was seen."""
    return seen if 0.0 <= seen - created < CREATION_STEP_S else created


def not_read_text(label: str) -> str:
    """The message for a pod that names its gang by this label."""
    return (
        f"label {label} names a gang that HBox does not read, so the pod is placed alone; name a PodGroup by the annotation "
        "scheduling.k8s.io/group-name"
    )


def gated_of(record: Record, tally: Tally) -> str:
    """The message for a gang that is below its minimum without its pods with scheduling gates; empty if it is not."""
    count, lacking = tally.gated.get(PODS, 0), record.min_member - tally.live - tally.succeeded
    if record.group is None or not count or lacking <= 0:
        return ""
    has = "pod has" if count == 1 else "pods have"
    waits = "they wait until the gates are removed"
    if tally.queue_gates:
        waits = f"no controller removes {QUEUE_GATE} while HBox schedules: create the pods without that annotation"
    return f"SchedulingGated: {count} {has} scheduling gates, and the gang lacks {lacking} of the {record.min_member} that it needs; {waits}"


def preemptable_of(record: Record) -> bool:
    """Whether it may be preempted whatever its queue says of its class: by its PodGroup, or by each of its pods."""
    if record.group is not None and record.group.decides_preemptable:
        return record.group.preemptable
    if record.by_owners and not record.gang:
        by_owner = next((pod.member.preemptable for pod in record.pods.values() if pod.member is not None), None)
        if by_owner is not None:
            return by_owner
    if record.defaults.preemptable and not any(
        PREEMPTABLE in pod.annotations or PREEMPTABLE in pod.labels for pod in record.pods.values()
    ):
        return True
    return (record.group is not None and record.group.preemptable) or 0 < len(record.pods) == record.offered


def on_sick_of(record: Record | None, pod: PodView) -> str:
    """The policy for sick hardware that its PodGroup states, else the pod; empty if neither states a known one."""
    group = record.group if record is not None else None
    return (group is not None and sick_policy(group.annotations)) or sick_policy(pod.annotations) or ""


def counted(priority: int, ceiling: int) -> int:
    """The priority that scheduling uses: of a system class no more than `ceiling`."""
    return priority if priority <= HIGHEST_USER_PRIORITY else min(priority, ceiling)


def class_of(record: Record) -> str:
    """Its PriorityClass: that of its PodGroup, or of its pod with the highest priority."""
    if record.group is not None and record.group.priority_class:
        return record.group.priority_class
    return record.highest[1] or (record.job.priority_class if record.job is not None else "")


def _priority(record: Record, tally: Tally, classes: Mapping[str, int]) -> tuple[int, str, str]:
    """Priority, PriorityClass and problem of the job. As in Kubernetes, the deletion of a class does not affect existing pods: a gang that has started, or
    whose pods were admitted with the class, keeps the priorities of its pods."""
    named = record.group.priority_class if record.group else ""
    if named in classes:
        return classes[named], named, ""
    highest, of_pods = record.highest
    if not named:
        default = record.defaults.priority_class or ""
        return (classes[default], default, "") if not of_pods and default in classes else (highest, of_pods, "")
    if tally.bound or tally.succeeded or any(name == named for _, name in record.classes):
        return highest, named, ""
    title = record.group.title if record.group is not None else record.key
    return highest, of_pods, f"{title}: PriorityClass {named} not found: create it, or name another one"


def _pod_problem(record: Record) -> str:
    return next(
        (f"pod {pod.name}: {pod.shape.problem}" for pod in record.pods.values() if pod.placeable and pod.shape.problem), ""
    )


def _tasks(record: Record, volumes: Volumes, *, never_preempts: bool) -> tuple[tuple[PodGroupTask, ...], str, str]:
    """The pods to place, grouped if equal, in order of creation and name; the reason of the first pod that waits for a volume; and the status of the
    provisioner of
    the first volume that is created for a pod.

    `never_preempts`: none of them preempts.
    """
    uniform: dict[tuple[str, Reach, _Part, bool], list[PodView]] = {}
    problem, made, ranked, unbound = "", "", _ranks(record), dict[PodUid, tuple[str, ...]]()
    for pod in _in_order(p for p in record.pods.values() if p.placeable):
        reach: Reach = ()
        if pod.volumes:
            reach, why = volumes.needs(pod.namespace, pod.name, pod.uid, pod.volumes)
            problem = problem or (f"pod {pod.name}: {why}" if why else "")
            if claims := volumes.unbound_claims(pod.namespace, pod.volumes):
                unbound[pod.uid] = claims
                made = made or volumes.provisioning_text(pod.namespace, claims)
        uniform.setdefault((pod.shape.key, reach, _part(record.group, pod), never_preempts or pod.never_preempts), []).append(
            pod
        )
    specs = tuple(_spec(pods, reach, part, ranked, unbound, never=never) for (_, reach, part, never), pods in uniform.items())
    return _in_group(record, specs), problem, made


def placed_of(record: Record, volumes: Volumes) -> tuple[PodGroupTask, ...]:
    """What its pods ask for that have a node and do not leave, equal ones together; those left out of which a volume cannot be found now."""
    uniform: dict[tuple[str, Reach, _Part], list[PodView]] = {}
    for pod in _in_order(p for p in record.pods.values() if p.live and p.node):
        reach, why = volumes.needs(pod.namespace, pod.name, pod.uid, pod.volumes) if pod.volumes else ((), "")
        if not why:
            uniform.setdefault((pod.shape.key, reach, _part(record.group, pod)), []).append(pod)
    return _in_group(record, tuple(_spec(pods, reach, part, {}) for (_, reach, part), pods in uniform.items()))


def _in_group(record: Record, specs: tuple[PodGroupTask, ...]) -> tuple[PodGroupTask, ...]:
    """Where one of its pods keeps off the cards of its group (`volcano.sh/vgpu-podgroup-policy`), all say which group they are of."""
    vendor = VENDORS.kind(volcano.KIND)
    if not record.gang or not any(vendor.cards in spec.requests for spec in specs):
        return specs
    if not any(volcano.spreads(pod.shape.cards) for pod in record.pods.values()):
        return specs
    group = f"{record.namespace}/{record.name}"
    return tuple(replace(spec, cards=volcano.in_group(spec.cards, group, vendor.models_annotation)) for spec in specs)


def _ranks(record: Record) -> Mapping[PodUid, int]:
    """Ranks of a gang's pods, without those that have ended or are being deleted: a replacement takes its predecessor's rank."""
    keys = {pod.uid: pod.rank_key for pod in record.pods.values() if pod.rank_key is not None and pod.live}
    return ranks(keys) if len(keys) > 1 else {}


def _standing(record: Record) -> tuple[PodGroupTask, ...]:
    """Pods with a node, where it matters which they are."""
    if record.group is None or not record.group.particular:
        return ()
    uniform: dict[tuple[str, _Part], list[PodView]] = {}
    for pod in _in_order(p for p in record.pods.values() if p.live and p.node):
        uniform.setdefault((pod.shape.key, _part(record.group, pod)), []).append(pod)
    return tuple(_spec(pods, (), part, {}) for (_, part), pods in uniform.items())


def _in_order(pods: Iterable[PodView]) -> list[PodView]:
    return sorted(pods, key=lambda p: (p.created_at, len(p.name), p.name))


def _part(group: GroupView | None, pod: PodView) -> _Part:
    """Its annotations; and if its gang uses them, its role and the labels that form sub-groups."""
    annotations = tuple(sorted(pod.annotations.items())) if pod.annotations else ()
    if group is None or not group.particular:
        return "", (), annotations
    keys = {key for policy in group.sub_gangs for key in (*policy.labels, *policy.selector)}
    return pod.in_role, tuple((key, pod.labels[key]) for key in sorted(keys) if key in pod.labels), annotations


def gang_part(group: GroupView | None, pod: PodView) -> GangPart | None:
    """The pod's part in its gang, if the gang has parts."""
    if group is None or not group.particular:
        return None
    role, labels, _ = _part(group, pod)
    return GangPart(role, dict(labels), dict(group.min_task_member), group.sub_gangs)


def _spec(
    pods: list[PodView],
    reach: Reach,
    part: _Part,
    ranked: Mapping[PodUid, int],
    unbound: Mapping[PodUid, tuple[str, ...]] = _NO_CLAIMS,
    *,
    never: bool = False,
) -> PodGroupTask:
    """`unbound`: claims to be bound before their pod, by pod."""
    shape = pods[0].shape
    return PodGroupTask(
        name=pods[0].in_role or pods[0].name,
        requests=shape.requests,
        pods=tuple(
            PodRef(pod.uid, pod.name, pod.resource_version, ranked.get(pod.uid, -1), unbound.get(pod.uid, ())) for pod in pods
        ),
        cards=shape.cards,
        node_selector=shape.node_selector,
        affinity=shape.affinity,
        preferred=shape.preferred,
        tolerations=shape.tolerations,
        volumes=reach,
        labels=dict(part[1]),
        annotations=dict(part[2]),
        never_preempts=never,
        images=shape.images,
        guaranteed=shape.guaranteed,
        containers=shape.of_containers,
        init_containers=shape.of_init_containers,
    )
