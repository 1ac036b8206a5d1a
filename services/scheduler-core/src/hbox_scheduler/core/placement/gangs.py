"""Jobs with pods that wait, as the gangs of sessions.

A gang is made once for a revision of its job, kept with the entry, and given to every session until its pods have places; a gang of which more is known than
what its pods ask for (places of its other members, constraints, the fabric) is made anew for each.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from weakref import WeakKeyDictionary

from hbox_common.model import Job, JobId, Neighbour, PodGroupTask, PodUid

from ..cluster import Columns
from ..cluster.arrays import Ints
from ..cluster.entities import Gang, Member, Status, form_sub_gangs
from ..cluster.task import Task
from ..queueing.groups import Groups
from ..queueing.jobs import Entry
from .running import vector_of
from .sharedvolumes import keep_in_one_zone

_by_rank = attrgetter("rank", "uid")

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class WaitingGangs:
    """`neighbours`: what is known of pods that have to do with others; `reads_images`: whether the policy asks which images pods run."""

    columns: Columns
    groups: Groups
    neighbours: Mapping[PodUid, Neighbour]
    reads_images: bool = False
    _vectors: WeakKeyDictionary[Task, Ints] = field(default_factory=WeakKeyDictionary)

    def of(self, entry: Entry) -> Gang:
        """The gang of the job's pods without places, as of the entry's last `update_pending`."""
        gang = entry.gang
        if gang is not None and len(gang.members[0].request) != len(self.columns.allocatable):
            gang = None
        if gang is None or (self.neighbours and any(member.uid in self.neighbours for member in gang.members)):
            gang = self._made(entry)
        job, group = entry.job, self.groups.get(entry.job.id)
        gang.min_member = max(entry.need, 1)
        gang.phase = self.groups.phase(job.id)
        gang.min_resources = group.min_resources if group is not None else None
        gang.gated = dict(group.gated) if group is not None else {}
        return gang

    def drop_vectors(self) -> None:
        """Drop amounts by column, after `Columns` assigned resources to other columns."""
        self._vectors.clear()

    def _made(self, entry: Entry) -> Gang:
        job, specs, known = entry.job, _specs(entry.job, images=self.reads_images), self.neighbours
        gang = Gang(
            id=waiting_id(job.id),
            namespace=job.namespace,
            name=job.name,
            queue=job.queue,
            priority=job.priority,
            min_member=1,
            created_at=job.created_at,
            priority_class=job.priority_class,
            min_task_member=job.min_task_member,
            topology=job.topology,
            sub_gang_policies=job.sub_gangs,
            annotations=job.annotations,
            whole=True,
        )
        keeps = not (specs or job.together or job.topology or job.bound or entry.held)
        members = gang.members
        for task, pods in entry.pending:
            vector = self._vector(task)
            for pod in pods:
                member = Member(
                    pod.uid, job.namespace, pod.name, gang, "", task, vector, job.created_at, job.priority, _NOTHING, _NOTHING
                )
                member.resource_version, member.rank, member.volume_claims = pod.resource_version, pod.rank, pod.volume_claims
                member.selectable, member.budgets = False, ()
                if specs and (spec := specs.get(pod.uid)) is not None:
                    member.role, member.labels, member.annotations = spec.name, spec.labels, spec.annotations
                    member.never_preempts, member.images = spec.never_preempts, spec.images
                if known and (neighbour := known.get(pod.uid)) is not None:
                    keeps = False
                    member.selectable = True
                    member.labels = {**neighbour.labels, **member.labels}
                    member.constraints, member.budgets = neighbour.constraints, neighbour.budgets
                members.append(member)
        if entry.need > 1:
            _keep_with_others(gang, entry.need)
        if len(members) > 1 and any(member.volume_claims for member in members) and keep_in_one_zone(members):
            keeps = False
        if keeps:
            members.sort(key=_by_rank)
            form_sub_gangs(gang)
            gang.tally()
            gang.shapes, entry.gang = _shapes(members), gang
        return gang

    def _vector(self, task: Task) -> Ints:
        found = self._vectors.get(task)
        if found is None or len(found) != len(self.columns.allocatable):
            found = self._vectors[task] = vector_of(task, self.columns)
        return found


def _shapes(members: Sequence[Member]) -> list[tuple[Member, int]]:
    if len(members) == 1:
        return [(members[0], 1)]
    first: dict[Task, Member] = {}
    counts: Counter[Task] = Counter()
    for member in members:
        first.setdefault(member.task, member)
        counts[member.task] += 1
    return [(member, counts[task]) for task, member in first.items()]


def join(gang: Gang, placed: Gang, entry: Entry, *, settled: bool) -> None:
    """Add the placed members of a job to its pending ones, because their placements depend on each other. `settled`: protect the placed members from eviction;
    members without a claim of the ledger are always protected."""
    specs = _specs(entry.job)
    for member in placed.members:
        spec = specs.get(member.uid)
        if spec is not None:
            member.role, member.labels = spec.name, {**member.labels, **spec.labels}
        member.gang = gang
        if settled or member.status is Status.ALLOCATED:
            member.preemptable = False
            if member.status is not Status.RELEASING:
                member.status = Status.BOUND
    held = sum(member.status is not Status.RELEASING for member in placed.members)
    unseen = max(entry.job.bound + entry.held - held, 0)  # bound in the cluster, not yet known to the ledger
    gang.min_member = max(entry.job.min_member - unseen, 1)
    gang.members = [*placed.members, *gang.members]


def waiting_id(job: JobId) -> JobId:
    """The gang id of a job's pending members. The job's own id is the gang of its placed members."""
    return JobId(f"{job} ")


def _specs(job: Job, *, images: bool = False) -> dict[PodUid, PodGroupTask]:
    """By pod, where it matters which of the job's pods is which. `images`: for those that they run too."""
    if not (
        (images and any(spec.images for spec in job.tasks))
        or job.sub_gangs
        or job.min_task_member
        or any(spec.annotations or spec.never_preempts for spec in job.tasks)
    ):
        return {}
    return {pod.uid: spec for spec in (*job.tasks, *job.standing) for pod in spec.pods}


def _keep_with_others(gang: Gang, need: int) -> None:
    """If too few pods request anything to start by themselves, the others are placed with them: the ledger accepts no part of a gang."""
    asking = sum(not member.best_effort for member in gang.members)
    if 0 < asking < need:
        for member in gang.members:
            member.with_others = True


def job_of(gang: JobId) -> JobId:
    """The job of a gang of pods that wait, or run."""
    return JobId(gang.removesuffix(" "))
