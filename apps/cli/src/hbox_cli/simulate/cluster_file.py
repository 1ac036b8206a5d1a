"""One file of Kubernetes documents into a cluster that cycles can run on.

Objects of kinds that scheduling does not look at are passed over, so that `kubectl get all -A -o yaml` can be read as it is.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hbox_common import kube
from hbox_common.errors import InvalidRequest
from hbox_common.kube.definitions import POD_GROUP, QUEUE
from hbox_common.kube.unknownfields import SpecFields
from hbox_common.model import DEFAULT_QUEUE, VENDORS, JobId, NodeName, PodUid, Resources, amounts_in, exceeded, is_offline
from hbox_common.model.annotations import offered
from hbox_common.model.devices import volcano
from hbox_common.model.ranks import RankKey, ranks
from hbox_common.model.resources import PODS, add
from hbox_common.workloads import Kinds
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import HOLDING, Gang, Member, QueueInfo
from hbox_scheduler.core.cluster.fabrics import Fabrics
from hbox_scheduler.core.cluster.facts import ClusterFacts
from hbox_scheduler.core.cluster.images import HeldImages
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.task import Task
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.devices import devices_of
from hbox_scheduler.core.explain.labels import Label
from hbox_scheduler.core.framework.guarantees import lending_of
from hbox_scheduler.core.topology.constraints import concerned

from . import kinds
from .cards import Holder, slices_of
from .documents import Document
from .gangs import gang_of, lone_gang_of, priority_class_of, priority_of
from .hypernodes import degraded, hypernodes_of, old_domains
from .images import images_of_nodes, images_of_pod
from .nodes import node_of
from .owners import by_owner, gangs_by_owner, is_owner
from .pods import PodEntries, PodEntry
from .protected import protect
from .queues import (
    SYSTEM_CLASSES,
    budget_of,
    card_quota_of,
    class_of,
    class_quota_of,
    in_pools,
    namespace_of,
    queue_of,
    quota_of,
    remembered,
    rights_of,
)
from .rests import rests_of
from .usage import usages_of
from .volumes import volumes_of
from .zones import zones_of

POLICY_KEY = "volcano-scheduler.conf"
DEVICES_KEY = "device-config.yaml"

#: More would be a slip: nothing changes any more after a few.
MAX_CYCLES = 10_000

#: Of a fabric: a hundred years.
MAX_AGE_S = 3.2e9

#: Kinds that are read, by API group.
_READ = {
    "": ("Node", "Pod", "Namespace", "ConfigMap", "ResourceQuota", "PersistentVolumeClaim", "PersistentVolume"),
    "scheduling.volcano.sh": ("PodGroup", "Queue"),
    "topology.volcano.sh": ("HyperNode",),
    "scheduling.k8s.io": ("PriorityClass",),
    "policy": ("PodDisruptionBudget",),
    "storage.k8s.io": ("StorageClass",),
    "metrics.k8s.io": ("NodeMetrics",),
    "topology.node.k8s.io": ("NodeResourceTopology",),
    "nodeinfo.volcano.sh": ("Numatopology",),
    "hbox.io": ("Simulation",),
}

#: By kind.
_FIELDS = {"Queue": SpecFields(QUEUE), "PodGroup": SpecFields(POD_GROUP)}


@dataclass(frozen=True, slots=True)
class SavedCluster:
    """Content of a file. `columns` has the nodes without bookings."""

    columns: Columns
    cluster: Cluster
    options: kinds.SimulationSpec
    groups: tuple[JobId, ...] = ()  #: gangs that are PodGroups of the file
    policy: str | None = None  #: the text of volcano-scheduler.conf
    device_config: str | None = None  #: the text of device-config.yaml
    warnings: tuple[str, ...] = ()  #: what could not be read, in words


def cluster_of(
    documents: Sequence[Document], *, schedulers: Collection[str], now: float, as_services: bool = False, bound: bool = False
) -> SavedCluster:
    """The cluster of one file. `schedulers`: schedulerNames whose pods are placed; other pods only hold their resources. now: seconds since the epoch.
    as_services: pods are non-preemptible by their queue and class (`protected`), else by `volcano.sh/preemptable` on pods and PodGroups. bound: a queue without
    a list of namespaces, its own or an ancestor's, admits no namespace.

    Raises InvalidRequest that names document, object and field.
    """
    return _Reading(documents, bound=bound).cluster(schedulers, now, as_services=as_services)


def config_of(documents: Sequence[Document], key: str) -> str | None:
    """The text under this key, if a ConfigMap has one: `device-config.yaml`, `volcano-scheduler.conf`. Raises InvalidRequest for two of them."""
    maps = [document for document in documents if document.kind == "ConfigMap" and "ConfigMap" in _READ.get(document.group, ())]
    return _Reading(maps).config(key) if maps else None


class _Reading:
    def __init__(self, documents: Sequence[Document], *, bound: bool = False) -> None:
        self._bound = bound
        self._of: dict[str, list[Document]] = defaultdict(list)
        self._kinds = Kinds.builtin()
        self._owners: list[Document] = []  #: of other controllers: they make gangs of their pods
        self._owner_warnings: tuple[str, ...] = ()
        seen: dict[tuple[str, str, str, str], Document] = {}
        for document in documents:
            read = document.kind in _READ.get(document.group, ())
            if not read and not is_owner(document, self._kinds):
                continue
            meta = document.content.get("metadata")
            meta = meta if isinstance(meta, dict) else {}
            key = document.group, document.kind, str(meta.get("namespace", "default")), str(meta.get("name"))
            if key in seen:
                raise document.wrong("metadata.name", f"the same object is in document {seen[key].number}")
            seen[key] = document
            if read:
                self._of[document.kind].append(document)
            else:
                self._owners.append(document)
        if not self._of:
            raise InvalidRequest(
                "the file has no object that scheduling looks at",
                hint="save a cluster with: kubectl get nodes,pods,podgroups,queues -A -o yaml > FILE",
            )

    @cached_property
    def _namespaces(self) -> dict[str, Mapping[str, str]]:
        """Labels by name."""
        return dict(namespace_of(document) for document in self._of["Namespace"])

    def cluster(self, schedulers: Collection[str], now: float, *, as_services: bool) -> SavedCluster:
        options = self._options()
        read = [node_of(document) for document in self._of["Node"]]
        columns = Columns()
        named = ((document, state.name) for document, (state, _) in zip(self._of["Node"], read, strict=True))
        self._images = HeldImages(images_of_nodes(named))
        for state, _ in read:
            columns.put_node(state)
        zones = zones_of(self._of["NodeResourceTopology"], self._of["Numatopology"], now=now)
        for zone_report in zones:
            columns.put_zones(zone_report)
        classes = SYSTEM_CLASSES | {one.metadata.name: one for one in map(class_of, self._of["PriorityClass"])}
        volumes = volumes_of(self._of["PersistentVolumeClaim"], self._of["PersistentVolume"], self._of["StorageClass"])
        entries = PodEntries(classes, volumes, schedulers=schedulers, ages_s=options.age_seconds, now=now)
        pods = [entries.entry(document) for document in self._of["Pod"]]
        rights = rights_of(self._of["Queue"], bound=self._bound)
        rests = rests_of(pods)
        for rest in rests:
            if lasting := rest.lasting(now):
                columns.rest(replace(rest, kinds=lasting))
        queues = in_pools(remembered([queue_of(document) for document in self._of["Queue"]]), rights)
        gangs, groups = self._gangs(
            [pod for pod in pods if pod.ours or pod.view.node], classes, columns, as_services=as_services
        )
        unwritten = {gang.queue for gang in gangs} - {queue.name for queue in queues}
        if DEFAULT_QUEUE in unwritten:  # there is always one
            queues.append(QueueInfo(DEFAULT_QUEUE))
        hypernodes = hypernodes_of(self._of["HyperNode"], [state for state, _ in read])
        cluster = Cluster(
            gangs=gangs,
            queues=queues,
            facts=ClusterFacts(
                hypernodes=hypernodes,
                fabrics=Fabrics(
                    old=old_domains(options.fabric, hypernodes),
                    degraded=degraded(options.fabric, columns.row_of, next(iter(self._of["Simulation"]), None)),
                ),
                budgets=[budget_of(document) for document in self._of["PodDisruptionBudget"]],
                quotas=[quota_of(document) for document in self._of["ResourceQuota"]],
                namespace_labels=self._namespaces,
                priority_classes={name: one.value for name, one in classes.items()},
                images=self._images,
                usage=usages_of(self._of["NodeMetrics"], [state for state, _ in read], now=now),
            ),
            card_quotas=[quota for document in self._of["ResourceQuota"] if (quota := card_quota_of(document)) is not None],
            foreign=_foreign(gangs, columns),
            lending=lending_of(gangs, rights, columns),
        )
        return SavedCluster(
            columns=columns,
            cluster=cluster,
            options=options,
            groups=groups,
            policy=self.config(POLICY_KEY),
            device_config=self.config(DEVICES_KEY),
            warnings=(
                *(warning for _, warnings in read for warning in warnings),
                *self._owner_warnings,
                *(
                    f"node {rest.node}: its kubelet refuses pods, such as {one.pod}: {one.message}"
                    for rest in rests
                    for one in rest.refused[:1]
                ),
                *(
                    f"node {zone_report.node}: its NUMA nodes are not known: {zone_report.problem}"
                    for zone_report in zones
                    if zone_report.problem
                ),
                *(
                    f"{document.where}: {reason}"
                    for kind, fields in _FIELDS.items()
                    for document in self._of[kind]
                    for reason in fields.unknown(document.content.get("spec") or {})
                ),
            ),
        )

    def _options(self) -> kinds.SimulationSpec:
        found = self._of["Simulation"]
        if not found:
            return kinds.SimulationSpec()
        if len(found) > 1:
            raise found[1].wrong("kind", "a file has one Simulation")
        options = found[0].read(kinds.Simulation, namespaced=False).spec
        if not 1 <= options.cycles <= MAX_CYCLES:
            raise found[0].wrong("spec.cycles", f"is {options.cycles}", hint=f"write 1 to {MAX_CYCLES}")
        for field in ("age_seconds", "max_age_seconds"):
            if not 0 <= getattr(options.fabric, field) <= MAX_AGE_S:
                place = f"spec.fabric.{'ageSeconds' if field == 'age_seconds' else 'maxAgeSeconds'}"
                raise found[0].wrong(place, f"is {getattr(options.fabric, field)}", hint="write seconds, 0 or more")
        return options

    def config(self, key: str) -> str | None:
        having = [
            one for one in self._of["ConfigMap"] if isinstance(one.content.get("data"), dict) and key in one.content["data"]
        ]
        if not having:
            return None
        if len(having) > 1:
            raise having[1].wrong(f"data.{key}", f"document {having[0].number} has one too", hint="leave one of them out")
        return having[0].read(kube.ConfigMap, namespaced=True).data[key]

    def _gangs(
        self, pods: Sequence[PodEntry], classes: dict[str, kube.PriorityClass], columns: Columns, *, as_services: bool
    ) -> tuple[list[Gang], tuple[JobId, ...]]:
        """All gangs, and which of them are PodGroups."""
        groups = [gang_of(document) for document in self._of["PodGroup"]]
        by_name = {f"{gang.namespace}/{gang.name}": gang for gang, _ in groups}
        gangs = list(by_name.values())
        members: dict[JobId, list[PodEntry]] = defaultdict(list)
        owner: list[Gang] = []
        derived = gangs_by_owner(self._owners, [pod for pod in pods if pod.ours], self._kinds, self._namespaces)
        self._owner_warnings = derived.warnings
        gangs += [gang for gang, _ in derived.gangs.values()]
        pods = [by_owner(pod, derived.of.get(pod.view.uid)) for pod in pods]
        for pod in pods:
            named = f"{pod.view.namespace}/{pod.group}"
            if (membership := derived.of.get(pod.view.uid)) is not None and membership.key:
                gang, _ = derived.gangs[membership.key]
            elif not pod.ours or not pod.group:
                gang = lone_gang_of(pod)
                gangs.append(gang)
            elif named in by_name:
                gang = by_name[named]
            else:
                gang = by_name[named] = _missing(pod)
                gangs.append(gang)
            owner.append(gang)
            members[gang.id].append(pod)
            if pod.problem and not gang.problem and pod.ours and pod.view.placeable:
                gang.problem = pod.problem
        rights = rights_of(self._of["Queue"], bound=self._bound)
        for gang, named_class in (*groups, *derived.gangs.values()):
            gang.priority, gang.priority_class = priority_of(named_class, classes, members[gang.id]), named_class
        class_names = {gang.id: priority_class_of(gang, members[gang.id]) for gang in gangs}
        for gang in gangs:
            named = class_names[gang.id]
            if gang.queue and not gang.problem and (reason := rights.forbids(gang.queue, gang.namespace, named)):
                gang.problem = f"{Label(reason.reason)}: {reason.message}; name another queue in the job"
        self._hold_to_classes(gangs, members)
        pods = _in_groups(pods)
        tasks = Tasks(columns)
        offline = {gang.id for gang in gangs if gang.queue and is_offline(class_names[gang.id])}
        kinds_of_pods = [
            tasks.of(
                pod.spec,
                rights.reach(gang.queue) if gang.queue else None,
                offline=gang.id in offline,
                fabric=gang.min_member > 1 and concerned(gang),
            )
            for pod, gang in zip(pods, owner, strict=True)
        ]
        _join(pods, owner, kinds_of_pods, columns, images=bool(self._images))
        if as_services:
            protect(gangs, class_names, _offered(gangs, members), rights, columns)
        for gang in gangs:
            run_time = rights.run_time(gang.queue)
            for member in gang.members:
                if member.status in HOLDING and member.started_at is not None:
                    member.protected_until = run_time.protected_until(member.started_at, evicted=False)
        return gangs, tuple(gang.id for gang, _ in groups)

    def _hold_to_classes(self, gangs: Sequence[Gang], members: Mapping[JobId, Sequence[PodEntry]]) -> None:
        """Gangs of a PriorityClass of which their namespace may have no more, as its ResourceQuotas say, are not placed."""
        quotas = [quota for document in self._of["ResourceQuota"] if (quota := class_quota_of(document)) is not None]
        if not quotas:
            return
        named = {gang.id: priority_class_of(gang, members[gang.id]) for gang in gangs}
        counted = []
        for quota in quotas:
            used: Resources = {}
            for gang in gangs if quota.hard else ():
                if gang.namespace == quota.namespace and quota.concerns(named[gang.id]):
                    for pod in members[gang.id]:
                        if pod.view.node and pod.view.live:
                            add(used, pod.spec.requests)
            counted.append(replace(quota, used=used))
        for gang in gangs:
            asked: Resources = {}
            for pod in members[gang.id]:
                if pod.ours and pod.view.placeable:
                    add(asked, pod.spec.requests)
            if asked and not gang.problem and (reason := exceeded(counted, gang.namespace, named[gang.id], asked)):
                gang.problem = f"{Label.CARD_QUOTA}: {reason}"


def _offered(gangs: Sequence[Gang], members: Mapping[JobId, Sequence[PodEntry]]) -> set[JobId]:
    """Gangs that are preemptible by their PodGroup or by all of their pods."""

    def all_pods(gang: Gang) -> bool:
        entries = members[gang.id]
        return bool(entries) and all(offered(entry.labels, entry.annotations) for entry in entries)

    return {gang.id for gang in gangs if offered(gang.labels, gang.annotations) or all_pods(gang)}


def _in_groups(pods: Sequence[PodEntry]) -> Sequence[PodEntry]:
    """Card requests as job-controller publishes them for groups in which a pod avoids the cards of other groups."""
    vendor = VENDORS.kind(volcano.KIND)
    groups = {(pod.view.namespace, pod.group) for pod in pods if pod.group and volcano.spreads(pod.spec.cards)}
    if not groups:
        return pods
    adjusted = []
    for pod in pods:
        if (pod.view.namespace, pod.group) in groups and vendor.cards in pod.spec.requests:
            cards = volcano.in_group(pod.spec.cards, f"{pod.view.namespace}/{pod.group}", vendor.models_annotation)
            pod = replace(pod, spec=replace(pod.spec, cards=cards))  # noqa: PLW2901
        adjusted.append(pod)
    return adjusted


def _missing(pod: PodEntry) -> Gang:
    """Pods that name a PodGroup which is not there: one gang that cannot be scheduled."""
    key = f"{pod.view.namespace}/{pod.group}"
    gang = lone_gang_of(pod)
    gang.id, gang.name = JobId(key), pod.group
    gang.problem = f"PodGroup {key} not found: create it, or remove the annotation scheduling.k8s.io/group-name"
    return gang


def _join(pods: Sequence[PodEntry], owner: Sequence[Gang], tasks: Sequence[Task], columns: Columns, *, images: bool) -> None:
    """Make pods members of their gangs. All resources are columns by now. `images`: whether anybody asks which they run."""
    holding = [place for place, pod in enumerate(pods) if pod.view.node and tasks[place].cards is not None]
    nodes = [state for state in columns.states if state is not None]
    holders = []
    for place in holding:
        cards = tasks[place].cards
        assert cards is not None
        pod = pods[place]
        devices = devices_of(cards, pod.kind)
        holders.append(Holder(pod.view.node, devices, cards, pod.view.slices, pod.allocated, pod.started))
    held = dict(zip(holding, slices_of(nodes, holders), strict=True))
    width, pods_column = len(columns.allocatable), columns.resources.get(PODS)
    for place, (pod, gang, task) in enumerate(zip(pods, owner, tasks, strict=True)):
        request = np.zeros(width, dtype=np.int64)
        for column, units in task.amount:
            request[column] = units
        if pods_column is not None:
            request[pods_column] = 0
        row = columns.row_of.get(NodeName(pod.view.node), -1)
        gang.members.append(
            Member(
                uid=pod.view.uid,
                namespace=pod.view.namespace,
                name=pod.view.name,
                gang=gang,
                role=pod.role,
                task=task,
                request=request,
                created_at=pod.view.created_at,
                priority=pod.priority,
                labels=pod.labels,
                annotations=pod.annotations,
                status=pod.status,
                row=row,
                pool=columns.pool_of(row) if row >= 0 else "",
                slices=held.get(place, ()),
                preemptable=pod.preemptable and pod.ours,
                never_preempts=pod.never_preempts,
                nominated=pod.nominated,
                started_at=pod.started_at,
                constraints=pod.view.constraints,
                leaving=pod.view.deleting,
                images=images_of_pod(pod.document) if images else (),
            )
        )
    _rank(pods, owner)


def _rank(pods: Sequence[PodEntry], owner: Sequence[Gang]) -> None:
    """Set the rank of each live member in its gang by job-controller's rule."""
    keys: dict[JobId, dict[PodUid, RankKey]] = {}
    for pod, gang in zip(pods, owner, strict=True):
        if pod.view.rank_key is not None and pod.view.live:
            keys.setdefault(gang.id, {})[pod.view.uid] = pod.view.rank_key
    for gang in owner:
        if len(mine := keys.pop(gang.id, {})) > 1:
            found = ranks(mine)
            for member in gang.members:
                member.rank = found.get(member.uid, -1)


def _foreign(gangs: Iterable[Gang], columns: Columns) -> Resources:
    """Amounts that pods without a queue hold, by pool."""
    held: Resources = {}
    for gang in gangs:
        for member in gang.of(*HOLDING) if not gang.queue else ():
            add(held, amounts_in(columns.pool_of(member.row), member.task.requests))
    return held
