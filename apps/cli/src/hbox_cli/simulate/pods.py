"""Pod objects into members of gangs.

What a pod asks for is read by job-controller's own code, so that a simulation sees what the service would.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from hbox_common import kube
from hbox_common.model import VENDORS, NodeName, PodGroupTask, Vendor
from hbox_common.model.annotations import PREEMPTABLE, QUEUE_NAME
from hbox_jobs.adapters.annotations import TASK_SPEC
from hbox_jobs.adapters.objects import PodReader
from hbox_jobs.core.job import Record, Tally, job_of
from hbox_jobs.core.views import PodStatus, PodView
from hbox_jobs.core.volumes import Volumes
from hbox_scheduler.core.cluster.entities import Status

from .documents import Document
from .times import seconds

NEVER = "Never"

#: Volcano's priority of a pod that names none.
DEFAULT_PRIORITY = 1

#: As Go's strconv.ParseBool.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


@dataclass(frozen=True, slots=True)
class PodEntry:
    """A pod of the file, read, and not yet a member."""

    document: Document
    view: PodView
    spec: PodGroupTask  #: what it asks for, whether or not it has a node
    problem: str
    status: Status
    role: str
    priority: int
    written_priority: int | None  #: None where neither the pod nor its class names one
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    preemptable: bool
    never_preempts: bool
    nominated: NodeName | None
    started_at: float | None
    ours: bool
    group: str
    queue: str  #: as named on the pod; counts for bare pods
    kind: str  #: of the cards that it asks for, where they are of one
    allocated: tuple[tuple[Vendor, str], ...]  #: schedulers' notes of its cards, one of each vendor
    started: bool  #: its init containers have ended

    @property
    def id(self) -> str:
        return f"{self.view.namespace}/{self.view.name}"


class PodEntries:
    """Reads pods; equal ones share what is worked out for them."""

    def __init__(
        self,
        classes: Mapping[str, kube.PriorityClass],
        volumes: Volumes,
        *,
        schedulers: Collection[str],
        ages_s: Mapping[str, float],
        now: float,
    ) -> None:
        """ages_s: seconds since pods (`namespace/name`) started, if a Simulation object has them. now: seconds since the epoch."""
        self._reader = PodReader(completes=True)
        self._classes = classes
        self._volumes = volumes
        self._schedulers = schedulers
        self._ages_s = ages_s
        self._now = now
        self._default = next((c for c in classes.values() if c.global_default), None)

    def entry(self, document: Document) -> PodEntry:
        """Raises InvalidRequest."""
        pod = document.read(kube.Pod, namespaced=True)
        seconds(document, pod.metadata.creation_timestamp)
        view = self._reader.view(pod)
        spec, problem = self._spec(view)
        labels, annotations = pod.metadata.labels, pod.metadata.annotations
        named = self._classes.get(pod.spec.priority_class_name) if pod.spec.priority_class_name else self._default
        written = pod.spec.priority if pod.spec.priority is not None else named.value if named is not None else None
        policy = pod.spec.preemption_policy or (named.preemption_policy if named is not None else "")
        return PodEntry(
            document=document,
            view=view,
            spec=spec,
            problem=problem,
            status=_status(view),
            role=annotations.get(TASK_SPEC) or labels.get(TASK_SPEC, ""),
            priority=DEFAULT_PRIORITY if written is None else written,
            written_priority=written,
            labels=labels,
            annotations=annotations,
            preemptable=preemptable(labels, annotations),
            never_preempts=policy == NEVER,
            nominated=NodeName(pod.status.nominated_node_name) if pod.status.nominated_node_name else None,
            started_at=self._started(document, pod),
            ours=pod.spec.scheduler_name in self._schedulers,
            group=view.group,
            queue=annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME, ""),
            kind=(VENDORS.of(spec.requests) or VENDORS.default).kind,
            allocated=tuple((VENDORS.kind(kind), text) for kind, text in VENDORS.allocated(annotations).items()),
            started=any(one.type == "Initialized" and one.status == "True" for one in pod.status.conditions),
        )

    def _spec(self, view: PodView) -> tuple[PodGroupTask, str]:
        """What the pod would ask for if it were still to be placed, and why that cannot be had as written."""
        waiting = replace(view, node=NodeName(""), status=PodStatus.PENDING, deleting=False, gated=False)
        record = Record(key=view.uid, namespace=view.namespace, name=view.name, gang=False, pods={view.uid: waiting})
        job = job_of(record, Tally(), {}, self._volumes, lambda _: "")
        return job.tasks[0], job.problem

    def _started(self, document: Document, pod: kube.Pod) -> float | None:
        age_s = self._ages_s.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
        if age_s is not None:
            return self._now - age_s
        if pod.status.start_time is None:
            return None
        return seconds(document, pod.status.start_time, "status.startTime")


def preemptable(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """The annotation has precedence over the label. True without either; False for a value that is no boolean."""
    written = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
    return written is None or written in _TRUE


def _status(view: PodView) -> Status:
    match view.status:
        case PodStatus.SUCCEEDED:
            return Status.SUCCEEDED
        case PodStatus.FAILED:
            return Status.FAILED
    if view.deleting:
        return Status.RELEASING
    if view.status is PodStatus.RUNNING:
        return Status.RUNNING
    if view.node:
        return Status.BOUND
    return Status.GATED if view.gated else Status.PENDING
