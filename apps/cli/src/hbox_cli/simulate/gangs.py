"""PodGroups and bare pods into gangs."""

from collections.abc import Mapping, Sequence

from hbox_common import kube
from hbox_common.errors import InvalidRequest
from hbox_common.kube.fabric import sub_gangs_of, wish_of
from hbox_common.model import DEFAULT_QUEUE, JobId, QueueName
from hbox_scheduler.core.cluster.entities import Gang
from hbox_scheduler.core.framework import GroupPhase

from .amounts import requests
from .documents import Document
from .pods import PodEntry, preemptable
from .times import seconds

#: Volcano's note of the HyperNode in which the running members of a PodGroup are.
ALLOCATED_DOMAIN = "volcano.sh/job-allocated-hypernode"


def gang_of(document: Document) -> tuple[Gang, str]:
    """The gang of a PodGroup, without members and priority, and the priority class that it names. Raises InvalidRequest."""
    group = document.read(kube.PodGroup, namespaced=True)
    meta, spec = group.metadata, group.spec
    for field, value in (
        ("minMember", spec.min_member),
        *((f"minTaskMember.{role}", n) for role, n in spec.min_task_member.items()),
    ):
        if value < 0:
            raise document.wrong(f"spec.{field}", f"is {value}", hint="write 0 or more")
    try:
        topology, policies = wish_of(spec.network_topology), sub_gangs_of(spec.sub_group_policy)
    except InvalidRequest as e:
        raise InvalidRequest(f"{document.where}: {e.message}", hint=e.hint) from e
    return Gang(
        id=JobId(meta.uid),
        namespace=meta.namespace,
        name=meta.name,
        queue=QueueName(spec.queue or DEFAULT_QUEUE),
        priority=0,
        min_member=spec.min_member,
        created_at=seconds(document, meta.creation_timestamp),
        phase=_phase(document, group.status.phase),
        min_task_member=spec.min_task_member,
        min_resources=requests(document, "spec.minResources", spec.min_resources) or None,
        topology=topology,
        sub_gang_policies=policies,
        annotations=meta.annotations,
        labels=meta.labels,
        preemptable=preemptable(meta.labels, meta.annotations),
        allocated_domain=meta.annotations.get(ALLOCATED_DOMAIN, ""),
    ), spec.priority_class_name


def lone_gang_of(entry: PodEntry) -> Gang:
    """The gang of one that a bare pod is. Pods of other schedulers are in no queue: they hold what they hold."""
    view = entry.view
    return Gang(
        id=JobId(view.uid),
        namespace=view.namespace,
        name=view.name,
        queue=QueueName(entry.queue or DEFAULT_QUEUE) if entry.ours else QueueName(""),
        priority=entry.written_priority or 0,
        min_member=1,
        created_at=view.created_at,
        annotations=entry.annotations,
        labels=entry.labels,
        preemptable=entry.preemptable and entry.ours,
        problem=entry.problem,
    )


def priority_of(name: str, classes: Mapping[str, kube.PriorityClass], entries: list[PodEntry]) -> int:
    """Of the PodGroup's class; where it names none, or one that was not saved, the highest that is written on its pods."""
    if name in classes:
        return classes[name].value
    return max((entry.written_priority for entry in entries if entry.written_priority is not None), default=0)


def priority_class_of(gang: Gang, entries: Sequence[PodEntry]) -> str:
    """The PriorityClass of a gang by job-controller's rule: its PodGroup's, else that of its pods' highest priority."""
    return gang.priority_class or max(((entry.priority, entry.view.priority_class) for entry in entries), default=(0, ""))[1]


def _phase(document: Document, phase: str) -> GroupPhase:
    if not phase:
        return GroupPhase.PENDING
    try:
        return GroupPhase(phase)
    except ValueError as e:
        raise document.wrong("status.phase", f"is {phase!r}", hint=f"allowed: {', '.join(GroupPhase)}") from e
