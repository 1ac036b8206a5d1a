"""Gangs of pods without a PodGroup, by the owners that a file holds. job-controller's own rules, so that a simulation sees what the service would."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hbox_common.model import DEFAULT_QUEUE, JobId, PodUid, QueueName
from hbox_common.model.annotations import INDEXED_JOBS
from hbox_common.model.job import OWNER_NOT_READ
from hbox_common.workloads import Kinds, read_owner
from hbox_jobs.core.membership import Membership
from hbox_jobs.core.owners import Owners, derived_group
from hbox_jobs.core.views import PodView
from hbox_scheduler.core.cluster.entities import Gang

from .documents import Document
from .pods import PodEntry

#: Nothing is read later: no owner is waited for.
_NOW = 0.0
#: Pods without their owner that are named, of each kind.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class GangsByOwner:
    """`of`: by uid, the memberships of pods with an owner or a declared group; without a `key` the pod is single, in the queue that its owners name."""

    of: Mapping[PodUid, Membership]
    gangs: Mapping[
        str, tuple[Gang, str]
    ]  #: by `Membership.key`: the gang without members and priority, and the PriorityClass that it names
    warnings: tuple[str, ...] = ()


def is_owner(document: Document, kinds: Kinds) -> bool:
    """Whether the object can own pods or declare their gang."""
    return kinds.of(str(document.content.get("apiVersion", "")), document.kind) is not None


def gangs_by_owner(
    documents: Sequence[Document], entries: Sequence[PodEntry], kinds: Kinds, labels: Mapping[str, Mapping[str, str]]
) -> GangsByOwner:
    """documents: owners. entries: pods that HBox places; of these, the ones that name no PodGroup are considered. labels: of namespaces, by name."""
    views = {entry.view.uid: entry.view for entry in entries}
    owners = Owners(kinds, views.get, indexed_gangs=lambda namespace: labels.get(namespace, {}).get(INDEXED_JOBS) == "gang")
    owners.pods_listed = True
    # The first pass finds the owners that pods name by their place in the API; `put` keeps those only.
    concerned = [view for view in views.values() if view.submitted is not None and not view.group]
    for view in concerned:
        owners.place(view, _NOW)
    for document in documents:
        owners.put(read_owner(kinds, _identified(document)))
    found: dict[PodUid, Membership] = {}
    unread: dict[str, list[PodView]] = {}
    for view in concerned:
        membership = owners.place(view, _NOW)
        if membership is None:
            continue
        if (ref := membership.unread) is not None and ref.uid:
            unread.setdefault(ref.title, []).append(view)  # job-controller would read that it does not exist
        else:
            found[view.uid] = membership
    members: dict[str, list[PodView]] = {}
    for uid, membership in found.items():
        if membership.key:
            members.setdefault(membership.key, []).append(replace(views[uid], member=membership))
    return GangsByOwner(found, {key: _gang(pods) for key, pods in members.items()}, tuple(_missing(unread)))


def by_owner(entry: PodEntry, membership: Membership | None) -> PodEntry:
    """The pod with the role in its gang, or, of a single pod, with what its owners say."""
    if membership is None:
        return entry
    if membership.key:
        return replace(entry, role=membership.role)
    preemptable = entry.preemptable if membership.preemptable is None else membership.preemptable
    return replace(entry, queue=membership.queue or entry.queue, preemptable=preemptable)


def _identified(document: Document) -> Mapping[str, object]:
    """The object; without a namespace, in the namespace `default`; without a uid, with one of its group, kind, namespace and name."""
    content = dict(document.content)
    meta = content.get("metadata")
    meta = {"namespace": "default", **(meta if isinstance(meta, dict) else {})}
    meta["uid"] = meta.get("uid") or f"{meta['namespace']}/{document.kind}.{document.group}/{meta.get('name', '')}"
    content["metadata"] = meta
    return content


def _gang(pods: Sequence[PodView]) -> tuple[Gang, str]:
    first = pods[0].member
    assert first is not None
    if first.gang is None:
        return _undeclared(first, pods[0])
    group = derived_group(first.gang, pods)
    return Gang(
        id=JobId(group.uid),
        namespace=group.namespace,
        name=group.name,
        queue=QueueName(group.queue or next((pod.queue for pod in pods if pod.queue), DEFAULT_QUEUE)),
        priority=0,
        min_member=group.min_member,
        created_at=group.created_at,
        min_task_member=group.min_task_member,
        topology=group.topology,
        sub_gang_policies=group.sub_gangs,
        annotations=group.annotations,
        preemptable=group.preemptable if group.decides_preemptable else True,
        problem=group.problem,
    ), group.priority_class


def _undeclared(membership: Membership, pod: PodView) -> tuple[Gang, str]:
    """Pods that name a group which the file does not declare."""
    assert membership.unread is not None
    problem = f"{OWNER_NOT_READ}: {membership.unread.title} that the pod names does not exist: create it"
    return Gang(
        id=JobId(membership.key),
        namespace=pod.namespace,
        name=membership.name,
        queue=QueueName(pod.queue or DEFAULT_QUEUE),
        priority=0,
        min_member=1,
        created_at=pod.created_at,
        problem=problem,
    ), ""


def _missing(unread: Mapping[str, Sequence[PodView]]) -> Iterable[str]:
    for owner, pods in unread.items():
        names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:_NAMED])
        more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
        yield f"{owner} is not in the file: pods that it owns are single pods: {names}{more}"
