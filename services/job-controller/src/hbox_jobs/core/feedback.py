"""Feedback of jobs to Kubernetes: conditions of waiting pods, statuses of PodGroups, Events.

Feedback is off the hot path. It is queued by object, so that only the newest text is written; computed at its turn, so that obsolete text is never written;
and written only if the object does not contain it already, possibly from before a restart. A job's Event is on its PodGroup, or its bare pod, with the text of
the condition; each waiting pod of a gang gets one Event per change of the code, without the counts, which would be obsolete soon. A condition changes its
pod's resourceVersion, which fences bindings, so a job has to wait a while before its pods are written. No success is written to pods: the Binding itself sets
PodScheduled. Nor is a pod written while its binding is in progress: one of the two writes would conflict.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hbox_common.events import DeviceErrorSeen, EvictionReceipt, EvictionRule, PodScore
from hbox_common.model import JobId, PodUid
from hbox_common.model.sickhardware import unknown_policy
from hbox_common.reasons import code_of

from .job import GANG_NOT_READ, Record, not_read_text
from .jobs import Jobs
from .phases import group_status
from .queues import DueQueue
from .views import GroupStatus, GroupView, PodView

FAILED_SCHEDULING = "FailedScheduling"
SCHEDULED = "Scheduled"
FAILED_ALLOCATION = "FailedAllocation"  #: the kubelet refused to admit the pod after the binding
UNKNOWN_FIELD = "UnknownField"  #: a field of a PodGroup's spec, or the value of an annotation, is unknown and ignored
NODE_REJECTED = "VolumeNodeRejected"  #: the provisioner of a claim made no volume for the node that the pod was given
SICK_HARDWARE = "SickHardware"  #: of pods that leave sick hardware, with the other members of their gang
DEVICE_ERROR = (
    "DeviceError"  #: of pods with a fault of their hardware or, on their cards, of their program; also of pods that stay
)
ROLLOUT_WAITS = "RolloutWaits"  #: a rollout needs a place for a pod beyond the declared number, and there is none
PREEMPTED = "Preempted"  #: kube-scheduler's Event reason for victims

_WARNINGS = frozenset(
    {
        ROLLOUT_WAITS,
        FAILED_SCHEDULING,
        FAILED_ALLOCATION,
        NODE_REJECTED,
        PREEMPTED,
        DEVICE_ERROR,
        SICK_HARDWARE,
        GANG_NOT_READ,
        UNKNOWN_FIELD,
    }
)

#: The API server refuses longer notes.
MAX_NOTE = 1024
MAX_CONDITION_MESSAGE = 32_768

#: A decision to bind without an outcome for so long is forgotten.
DECIDED_S = 30.0

#: Seconds after which a PVC without the selected node of its pod is reported: a provisioner that gave up has removed the annotation, and may fail again at
#: once.
SELECT_AGAIN_S = 5.0

#: Minimum seconds between two rounds of Events of a gang's waiting pods.
POD_EVENTS_S = 60.0

#: Maximum remembered versions of written pods; forgetting one costs a redundant request.
MAX_REMEMBERED = 20_000


class Kind(StrEnum):
    POD = "Pod"
    POD_GROUP = "PodGroup"


#: Seconds after which a group that a pod names by a label is read, or known to be unreadable.
GROUP_SETTLED_S = 3.0


@dataclass(frozen=True, slots=True)
class ConditionWrite:
    """PodScheduled=False with this message, on exactly this version of the pod. `fresh`: it had no such condition before."""

    uid: PodUid
    namespace: str
    name: str
    resource_version: str
    message: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class StatusWrite:
    key: str
    uid: str
    namespace: str
    name: str
    status: GroupStatus


@dataclass(frozen=True, slots=True)
class DeclaredWrite:
    """A condition in the status of the object that declares a gang."""

    key: str
    uid: str
    namespace: str
    name: str
    api_version: str
    plural: str
    type: str
    scheduled: bool
    message: str


@dataclass(frozen=True, slots=True)
class EventWrite:
    """One Event object for each object and reason; writing it again counts it up."""

    kind: str
    uid: str
    namespace: str
    name: str
    reason: str
    message: str
    job: JobId
    api_version: str = ""  #: of an owner; empty: of a pod or a PodGroup

    @property
    def warning(self) -> bool:
        return self.reason in _WARNINGS


@dataclass(frozen=True, slots=True)
class SelectionWrite:
    """A claim that waited for its first consumer: the node that the pod was given."""

    uid: PodUid
    namespace: str
    claim: str
    node: str


class Feedback:
    """Queues over `jobs`, which stays the truth. `now` is monotonic seconds."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._conditions: DueQueue[PodUid, PodUid] = DueQueue()
        self._statuses: DueQueue[str, str] = DueQueue()
        self._failures: DueQueue[str, str] = DueQueue()
        self._successes: DueQueue[str, EventWrite] = DueQueue()
        self._selections: DueQueue[PodUid, PodUid] = DueQueue()
        self._declared: DueQueue[str, str] = DueQueue()
        #: by job key: uid of the object that declares the gang, whether its minimum had places, and the code of the reason, as last written
        self._reported: dict[str, tuple[str, bool, str]] = {}
        self._started: dict[str, bool] = {}
        self._noted: dict[str, str] = {}  #: by job key, the last FailedScheduling text
        self._pod_failures: DueQueue[PodUid, PodUid] = DueQueue()
        #: by key of a gang, the code of its pods' Events, and when these are due
        self._pod_notes: dict[str, tuple[str, float]] = {}
        #: by job key, the PodGroup's uid and the unknown fields that its last Event names
        self._unknown: dict[str, tuple[str, ...]] = {}
        self._decided: dict[PodUid, float] = {}  #: pods with a binding under way, and until when that is believed
        self._scores: dict[PodUid, PodScore] = {}  #: of pods that were given nodes and are not bound yet
        self._written: dict[PodUid, str] = {}  #: the resourceVersion that a condition was last written on

    # --- changes

    def pod(self, old: PodView | None, new: PodView, now: float) -> None:
        """A pod of ours was seen in a new version."""
        if old is None and new.foreign_gang_label and new.placeable:
            note = not_read_text(new.foreign_gang_label)
            write = self._about(new, GANG_NOT_READ, note)
            self._successes.put(f"{new.uid}/{GANG_NOT_READ}", write, now + GROUP_SETTLED_S, new.namespace)
        if old is None and new.ours and new.placeable and not new.group and (note := unknown_policy(new.annotations)):
            self._successes.put(f"{new.uid}/{UNKNOWN_FIELD}", self._about(new, UNKNOWN_FIELD, note), now, new.namespace)
        if new.node:
            self._decided.pop(new.uid, None)
            if new.volumes and self._jobs.volumes.unselected(new.namespace, new.volumes):
                self._selections.put(new.uid, new.uid, now, new.namespace)
        if old is not None and not old.node and new.node:
            note = f"Successfully assigned {new.namespace}/{new.name} to {new.node}"
            if (score := self._scores.pop(new.uid, None)) is not None and score.node == new.node:
                note = f"{note}: {score.note}"[:MAX_NOTE]
            self._successes.put(new.uid, self._about(new, SCHEDULED, note), now, new.namespace)
        if old is not None and new.ours and new.refusal and not old.refusal:
            note = f"the kubelet of node {new.node} refused it: {new.refusal}"[:MAX_NOTE]
            write = self._about(new, FAILED_ALLOCATION, note)
            self._successes.put(f"{new.uid} failed", write, now, new.namespace)
        if (
            new.placeable
            and (record := self._jobs.record(new.key)) is not None
            and (line := record.line)
            and new.condition_message != line
        ):
            self._conditions.put(new.uid, new.uid, max(now, record.published_from), new.namespace)

    def claims_changed(self, claims: Iterable[str], now: float) -> None:
        """Apply a change of these PVCs (namespace/name) or their classes, or their first appearance, after a restart later than that of their pods."""
        for pod in self._jobs.users(claims):
            if pod.node and not pod.status.terminal and self._jobs.volumes.unselected(pod.namespace, pod.volumes):
                self._selections.put(pod.uid, pod.uid, now + SELECT_AGAIN_S, pod.namespace)

    def node_rejected(self, claim: str, node: str, wait_s: float, now: float) -> None:
        """The provisioner of a claim (namespace/name) made no volume for the node, which is tried again after `wait_s`."""
        for pod in self._jobs.users((claim,)):
            if pod.placeable:
                note = (
                    f"no volume was made for persistentvolumeclaim {claim.partition('/')[2]} on node {node}: other nodes are tried, and this one "
                    f"again in {wait_s:.0f} s"
                )
                write = self._about(pod, NODE_REJECTED, note)
                self._successes.put(f"{pod.uid}/{NODE_REJECTED}", write, now, pod.namespace)

    def decided(self, pods: Iterable[PodUid], now: float) -> None:
        """These pods are being bound."""
        if len(self._decided) >= MAX_REMEMBERED:
            self._decided.clear()
        self._decided.update(
            (uid, now + DECIDED_S) for uid in pods if (pod := self._jobs.view(uid)) is not None and not pod.node
        )

    def scored(self, scores: Iterable[PodScore]) -> None:
        """The scheduler gave these pods their nodes by these scores: their Events name them once the pods are bound."""
        if len(self._scores) >= MAX_REMEMBERED:
            self._scores.clear()
        self._scores.update((one.pod_uid, one) for one in scores)

    def not_bound(self, uid: PodUid, now: float) -> None:
        """A binding came to nothing."""
        if self._decided.pop(uid, None) is not None and (pod := self._jobs.view(uid)) is not None:
            self.pod(None, pod, now)

    def evicted(self, receipt: EvictionReceipt, now: float) -> None:
        """Pods of a job are evicted: Events of the pods and their PodGroup state the beneficiary, the rule, what the job keeps and when they may come back."""
        pods, reason = len(receipt.pods), SICK_HARDWARE if receipt.rule is EvictionRule.HEALTH else PREEMPTED
        kept = f"{receipt.pods_kept} pods of its job with {receipt.cards_kept} cards stay"
        message = f"{receipt.message} (rule {receipt.rule}); {kept}; it may come back {receipt.returns}"[:MAX_NOTE]
        for one in receipt.pods:
            write = EventWrite(Kind.POD, one.pod_uid, receipt.namespace, one.pod, reason, message, receipt.job)
            self._successes.put(f"{one.pod_uid}/{reason}", write, now, receipt.namespace)
        record = self._jobs.known(receipt.job)
        if record is not None and (group := record.group) is not None:
            note = f"{pods} of its pods leave: {message}"[:MAX_NOTE]
            write = _about_group(group, reason, note)
            self._successes.put(f"{group.uid}/{reason}", write, now, group.namespace)

    def device_error(self, seen: DeviceErrorSeen, now: float) -> None:
        """An Event of the pod states the fault."""
        record = self._jobs.known(seen.job)
        pods = record.pods.values() if record is not None else ()
        for pod in pods:
            if f"{pod.namespace}/{pod.name}" == seen.pod:
                message = f"{seen.message} (incident {seen.incident})"[:MAX_NOTE]
                write = EventWrite(Kind.POD, pod.uid, pod.namespace, pod.name, DEVICE_ERROR, message, seen.job)
                self._successes.put(f"{pod.uid}/{DEVICE_ERROR}", write, now, pod.namespace)

    def rollouts(self, now: float) -> bool:
        """Queue an Event of each owner whose rollout cannot continue. Returns whether there is one."""
        found = self._jobs.surges.step(now)
        for stuck in found:
            ref, namespace = stuck.rollout.ref, stuck.rollout.namespace
            note = stuck.message[:MAX_NOTE]
            write = EventWrite(ref.kind, ref.uid, namespace, ref.name, ROLLOUT_WAITS, note, JobId(ref.uid), ref.api_version)
            self._successes.put(f"{ref.uid}/{ROLLOUT_WAITS}", write, now, namespace)
        return bool(found)

    def settled(self, record: Record, now: float) -> None:
        """A job was computed again, or its reason to wait changed."""
        key = record.key
        if not record.pods and record.group is None:
            self._started.pop(key, None)
            self._noted.pop(key, None)
            self._pod_notes.pop(key, None)
            self._unknown.pop(key, None)
            self._reported.pop(key, None)
            return
        if self._waits(record) and (line := record.line):
            due = max(now, record.published_from)
            for pod in record.pods.values():
                if pod.placeable and pod.condition_message != line:
                    self._conditions.put(pod.uid, pod.uid, due, pod.namespace)
            if self._noted.get(key) != line:
                self._failures.put(key, key, due, record.namespace)
        if record.group is None or record.foreign:
            return
        if record.group.owner is None:  # HBox writes no status of another controller's objects
            self._unknown_fields(record.group, now)
            # Pods are created and placed only after this write: statuses for other reasons come later.
            self._statuses.put(key, key, float("-inf") if self._jobs.admission.entering(record) else now, record.namespace)
        elif self._jobs.owners.reported(record.group.owner) is not None and self._report(record) != self._reported.get(key):
            self._declared.put(key, key, max(now, record.published_from), record.namespace)
        tally = record.tally()
        started = tally.bound + tally.succeeded >= record.min_member
        if started and self._started.get(key) is False:
            self._noted.pop(key, None)
            note = f"{tally.bound + tally.succeeded} of {tally.live + tally.succeeded} pods have nodes, {record.min_member} were needed"
            group = record.group
            write = _about_group(group, SCHEDULED, note)
            self._successes.put(key, write, now, group.namespace)
        self._started[key] = started

    def _unknown_fields(self, group: GroupView, now: float) -> None:
        """Queue an Event of the PodGroup if what is unknown of it differs from the last Event."""
        unknown = tuple(filter(None, (*group.unknown_fields, unknown_policy(group.annotations))))
        named = (group.uid, *unknown)
        if not unknown:
            self._unknown.pop(group.key, None)
        elif self._unknown.get(group.key) != named:
            self._unknown[group.key] = named
            note = "; ".join(unknown)[:MAX_NOTE]
            write = _about_group(group, UNKNOWN_FIELD, note)
            self._successes.put(f"{group.uid}/{UNKNOWN_FIELD}", write, now, group.namespace)

    # --- writes

    def next_condition(self) -> float | None:
        return self._conditions.next_due()

    def next_status(self) -> float | None:
        return self._statuses.next_due()

    def next_event(self) -> float | None:
        queues = (self._failures, self._successes, self._pod_failures)
        return min((due for due in (one.next_due() for one in queues) if due is not None), default=None)

    def next_selection(self) -> float | None:
        return self._selections.next_due()

    def waiting(self) -> int:
        """Writes that wait for their turn."""
        events = len(self._failures) + len(self._successes) + len(self._pod_failures)
        return len(self._selections) + len(self._conditions) + len(self._statuses) + len(self._declared) + events

    def conditions(self, now: float, limit: int) -> list[ConditionWrite]:
        writes = []
        for uid in self._conditions.take(now, limit):
            pod = self._jobs.view(uid)
            record = self._jobs.record(pod.key) if pod is not None else None
            line = record.line if record is not None else ""
            if pod is None or record is None or not pod.placeable or not line:
                continue
            not_before = max(record.published_from, self._decided.get(uid, 0.0))
            if now < not_before:
                self._conditions.put(uid, uid, not_before, pod.namespace)
                continue
            message = line[:MAX_CONDITION_MESSAGE]
            # A version that was written is obsolete, whether the write succeeded or conflicted: the watch delivers the next.
            if pod.condition_message != message and self._written.get(uid) != pod.resource_version:
                if len(self._written) >= MAX_REMEMBERED:
                    self._written.clear()
                self._written[uid] = pod.resource_version
                self._note_code(record, pod, now)
                writes.append(
                    ConditionWrite(
                        uid, pod.namespace, pod.name, pod.resource_version, message, fresh=pod.condition_message is None
                    )
                )
        return writes

    def statuses(self, now: float, limit: int, wall: str) -> list[StatusWrite]:
        """`wall`: the time as RFC 3339, for conditions that change."""
        writes = []
        for key in self._statuses.take(now, limit):
            record = self._jobs.record(key)
            if record is None or record.group is None or record.group.owner is not None or record.foreign:
                continue
            group, with_reason = record.group, now >= record.published_from
            status = group_status(
                record, record.tally(), now=wall, with_reason=with_reason, passed=self._jobs.admission.may_enqueue(record)
            )
            if not with_reason and record.reason:
                self._statuses.put(key, key, record.published_from, record.namespace)
            if status != group.status:
                writes.append(StatusWrite(key, group.uid, group.namespace, group.name, status))
        return writes

    def _report(self, record: Record) -> tuple[str, bool, str] | None:
        """What to write in the status of the object that declares the gang; what was written last if that cannot change, None if nothing is known yet."""
        assert record.group is not None
        uid, last = record.group.uid, self._reported.get(record.key)
        if last is not None and last[:2] == (uid, True):
            return last
        tally = record.tally()
        if tally.bound + tally.succeeded >= record.min_member:
            return uid, True, ""
        return (uid, False, record.code_line or record.code) if record.reason else last

    def declared(self, now: float, limit: int) -> list[DeclaredWrite]:
        """Conditions of objects that declare gangs."""
        writes = []
        for key in self._declared.take(now, limit):
            record = self._jobs.record(key)
            if record is None or record.group is None or (owner := record.group.owner) is None:
                continue
            found, report = self._jobs.owners.reported(owner), self._report(record)
            if found is None or report is None or report == self._reported.get(key):
                continue
            if not report[1] and now < record.published_from:
                self._declared.put(key, key, record.published_from, record.namespace)
                continue
            self._reported[key] = report
            condition, plural = found
            message = "" if report[1] else record.line[:MAX_CONDITION_MESSAGE]
            writes.append(
                DeclaredWrite(
                    key, owner.uid, record.namespace, owner.name, owner.api_version, plural, condition, report[1], message
                )
            )
        return writes

    def again_declared(self, write: DeclaredWrite, now: float) -> None:
        """The write failed and may succeed later."""
        self._reported.pop(write.key, None)
        self._declared.put(write.key, write.key, now, write.namespace)

    def next_declared(self) -> float | None:
        return self._declared.next_due()

    def events(self, now: float, limit: int) -> list[EventWrite]:
        writes = [one for one in self._successes.take(now, limit) if self._holds(one)]
        for key in self._failures.take(now, limit - len(writes)):
            record = self._jobs.record(key)
            if record is not None and now < record.published_from:
                self._failures.put(key, key, record.published_from, record.namespace)
            elif record is not None and (write := self._failure(record)) is not None:
                self._noted[key] = record.line
                writes.append(write)
        pods = (self._pod_failure(uid) for uid in self._pod_failures.take(now, limit - len(writes)))
        return [*writes, *(write for write in pods if write is not None)]

    def _holds(self, write: EventWrite) -> bool:
        """False for the placement of a pod that is gone, for the label of a pod that is a member of the gang that the label names, and for a rollout that
        continues."""
        if write.reason == ROLLOUT_WAITS:
            return self._jobs.surges.waits(write.uid)
        if write.kind is not Kind.POD or write.reason not in (SCHEDULED, GANG_NOT_READ):
            return True
        pod = self._jobs.view(PodUid(write.uid))
        return pod is not None and (write.reason == SCHEDULED or pod.member is None or not pod.member.key)

    def selections(self, now: float, limit: int) -> list[SelectionWrite]:
        writes = []
        for uid in self._selections.take(now, limit):
            pod = self._jobs.view(uid)
            if pod is not None and pod.node and not pod.status.terminal:
                claims = self._jobs.volumes.unselected(pod.namespace, pod.volumes)
                writes += [SelectionWrite(uid, pod.namespace, claim, pod.node) for claim in claims]
        return writes

    def again_selection(self, write: SelectionWrite, now: float) -> None:
        self._selections.put(write.uid, write.uid, now, write.namespace)

    def again_condition(self, write: ConditionWrite, now: float) -> None:
        """The write failed and may succeed later."""
        self._written.pop(write.uid, None)
        self._conditions.put(write.uid, write.uid, now, write.namespace)

    def again_status(self, write: StatusWrite, now: float) -> None:
        self._statuses.put(write.key, write.key, now, write.namespace)

    def again_event(self, write: EventWrite, now: float) -> None:
        if write.kind is Kind.POD and write.reason == FAILED_SCHEDULING and self._is_of_gang(PodUid(write.uid)):
            self._pod_failures.put(PodUid(write.uid), PodUid(write.uid), now, write.namespace)
            return
        self._successes.put(f"{write.uid}/{write.reason}", write, now, write.namespace)

    def _waits(self, record: Record) -> bool:
        """Whether there is anything that waits: pods to be placed, held back by gates, or kept from leaving, or the PodGroup itself."""
        return record.job is not None and (
            bool(record.job.tasks or record.gated or record.stuck) or self._jobs.admission.waits(record)
        )

    def _failure(self, record: Record) -> EventWrite | None:
        if record.job is None or not record.reason or not self._waits(record):
            return None
        if record.plain_reason == record.provisioning:  # it has a place, or an Event of its own
            return None
        note = record.line[:MAX_NOTE]
        if (group := record.group) is not None:
            return _about_group(group, FAILED_SCHEDULING, note)
        pod = record.pods.get(record.job.tasks[0].pods[0].uid)
        if pod is None:
            return None
        return self._about(pod, FAILED_SCHEDULING, note)

    def _about(self, pod: PodView, reason: str, note: str) -> EventWrite:
        record = self._jobs.record(pod.key)
        job = record.id if record is not None else JobId(pod.uid)
        return EventWrite(Kind.POD, pod.uid, pod.namespace, pod.name, reason, note, job)

    def _note_code(self, record: Record, pod: PodView, now: float) -> None:
        """Queue the Event of a gang's pod if its condition gets another code. Not sooner than POD_EVENTS_S after the gang's last change of code."""
        code = record.code_line
        if record.group is None or not code or (pod.condition_message or "").startswith(code):
            return
        noted = self._pod_notes.get(record.key)
        if noted is None or noted[0] != code:
            due = now if noted is None else noted[1] if noted[1] > now else max(now, noted[1] + POD_EVENTS_S)
            noted = self._pod_notes[record.key] = (code, due)
        self._pod_failures.put(pod.uid, pod.uid, max(now, noted[1]), pod.namespace)

    def _is_of_gang(self, uid: PodUid) -> bool:
        pod = self._jobs.view(uid)
        record = self._jobs.record(pod.key) if pod is not None else None
        return record is not None and record.group is not None

    def _pod_failure(self, uid: PodUid) -> EventWrite | None:
        """Event of a gang's pod that still waits: code, title and remedy, which hold as long as the code does."""
        pod = self._jobs.view(uid)
        record = self._jobs.record(pod.key) if pod is not None else None
        if pod is None or record is None or not pod.placeable or not record.reason or not (line := record.code_line):
            return None
        code = code_of(record.code)
        note = f"{line}. {code.fix.en}" if code is not None else line
        return self._about(pod, FAILED_SCHEDULING, note[:MAX_NOTE])


def _about_group(group: GroupView, reason: str, note: str) -> EventWrite:
    if (owner := group.owner) is not None:
        return EventWrite(owner.kind, owner.uid, group.namespace, owner.name, reason, note, JobId(group.uid), owner.api_version)
    return EventWrite(Kind.POD_GROUP, group.uid, group.namespace, group.name, reason, note, JobId(group.uid))
