"""The read model: jobs, queues and nodes as the bus reports them, with the indexes that lists need.

Jobs come as a snapshot of job-controller and as its messages since; claims likewise, by the ledger's index; nodes, verdicts on nodes and queues as last values.
No list walks all objects: jobs are ordered within their namespace, and sums of waiting jobs are kept by queue.
"""

from bisect import bisect_left, insort
from collections import ChainMap, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import merge
from typing import Any, TypeAlias

from hbox_common.events import JobVerdict
from hbox_common.model import (
    DEFAULT_QUEUE,
    ROOT_QUEUE,
    Claim,
    ClaimId,
    GroupPhase,
    GroupState,
    Job,
    JobId,
    JobWait,
    NodeName,
    NodeRest,
    NodeState,
    PodFact,
    PodUid,
    Queue,
    QueueName,
    QueueTree,
    Resources,
    Verdict,
)
from hbox_common.model.sharing import Shared
from hbox_common.views.jobs import job_items, job_of
from hbox_common.views.nodes import node_items
from hbox_common.views.queues import Waiting, item_of, tree_of, waiting_of

from .names import Names

Item: TypeAlias = dict[str, Any]
#: The order of jobs: oldest first.
JobKey: TypeAlias = tuple[float, str, str]

#: Changes that a stream of changes can resume behind.
MAX_CHANGES = 100_000


class Kind(StrEnum):
    JOB = "Job"
    QUEUE = "Queue"
    NODE = "Node"


@dataclass(frozen=True, slots=True)
class Change:
    """`about`: a job's id, or the name of a queue or node. `namespace`, `name`: of a job."""

    revision: int
    kind: Kind
    about: str
    namespace: str = ""
    name: str = ""


@dataclass(slots=True)
class _Entry:
    """One job with its pods on nodes."""

    job: Job
    withdrawn: bool = False  #: nothing of it is left to place
    group: bool = False  #: a PodGroup that waits to be enqueued, without pods
    pods: dict[PodUid, PodFact] = field(default_factory=dict)
    verdict: JobVerdict | None = None
    shard: str = ""
    counted: Waiting | None = None  #: as it is in the sums of its queue

    @property
    def key(self) -> JobKey:
        return (self.job.created_at, self.job.name, self.job.id)

    @property
    def shown(self) -> bool:
        return not self.withdrawn or any(pod.phase.holds for pod in self.pods.values())


class ReadModel:
    """All that lists and single objects are made of. `revision` increases with every change."""

    def __init__(self) -> None:
        self.revision = 0
        self._shared = Shared()
        self.names = Names()
        self.changes: deque[Change] = deque(maxlen=MAX_CHANGES)
        self.jobs: dict[JobId, _Entry] = {}
        self.nodes: dict[NodeName, NodeState] = {}
        self.queues: dict[QueueName, Queue] = {}
        self.recent: dict[QueueName, float] = {}
        self.half_life_h = 0.0
        self.usage_weight = 0.0
        self._groups: dict[JobId, GroupState] = {}
        self._waits: dict[str, dict[JobId, JobWait]] = {}  #: by the part of the state that has it
        self._wait_of: ChainMap[JobId, JobWait] = ChainMap()
        self._order: dict[str, list[JobKey]] = {}
        self._named: dict[tuple[str, str], set[JobId]] = {}
        self._pods: dict[PodUid, JobId] = {}
        self._loose: dict[JobId, dict[PodUid, PodFact]] = {}  #: pods of jobs that are not known (yet)
        self._verdicts: dict[NodeName, Verdict] = {}
        self._rests: dict[NodeName, NodeRest] = {}
        self._claims: dict[ClaimId, Claim] = {}
        self._claims_on: dict[NodeName, dict[ClaimId, Claim]] = {}
        self._used: dict[QueueName, Resources] = {}
        self._shares: dict[QueueName, Resources] = {}
        self._waiting: dict[QueueName, Waiting] = {}
        self._ages: dict[QueueName, list[float]] = {}
        self._tree: QueueTree | None = None
        self._below: dict[QueueName, Waiting] | None = None
        #: jobs, verdicts and pods that messages changed since a snapshot was requested; None: none is expected
        self._since: set[tuple[str, str]] | None = None
        self.epoch, self.index = 0, 0

    # --- changes

    def _changed(self, kind: Kind, about: str, namespace: str = "", name: str = "") -> None:
        self.revision += 1
        self.changes.append(Change(self.revision, kind, about, namespace, name))

    def changes_since(self, revision: int) -> list[Change] | None:
        """The last change of each object after `revision`, in order; None if older changes were dropped."""
        if revision > self.revision or (self.changes and revision < self.changes[0].revision - 1):
            return None
        found: dict[tuple[Kind, str], Change] = {}
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            found.setdefault((change.kind, change.about), change)
        return list(reversed(found.values()))

    # --- jobs

    def snapshot_requested(self) -> None:
        """What messages change from now on is newer than the snapshot."""
        self._since = set()

    def _mark(self, kind: str, about: str) -> None:
        if self._since is not None:
            self._since.add((kind, about))

    def on_listed(self, jobs: Iterable[Job], shards: Mapping[JobId, str]) -> None:
        """Jobs of a part of a snapshot; `on_all_listed` follows the last part."""
        for job in jobs:
            if self._since is None or ("job", job.id) not in self._since:
                self._put(job, withdrawn=_is_placed(job), shard=shards.get(job.id, ""))

    def on_listed_pods(self, pods: Iterable[PodFact]) -> None:
        """Pods of a part of a snapshot."""
        for pod in pods:
            if self._since is None or ("pod", pod.uid) not in self._since:
                self._put_pod(pod)

    def on_all_listed(
        self,
        jobs: Set[JobId],
        pods: Set[PodUid],
        verdicts: Mapping[JobId, JobVerdict],
        groups: Iterable[GroupState],
        shards: Mapping[JobId, str],
    ) -> None:
        """End a snapshot with these jobs with live pods, pods on nodes, and PodGroups with minimum resources: drop all others."""
        since, self._since = self._since or set(), None
        all_groups = [group for group in groups if ("job", group.id) not in since]
        kept = jobs | {group.id for group in all_groups}
        for uid in [uid for uid in self._pods if uid not in pods and ("pod", uid) not in since]:
            self._drop_pod(uid)
        self.on_groups(all_groups, shards)
        for id_ in [id_ for id_ in self.jobs if id_ not in kept and ("job", id_) not in since]:
            self._drop(id_)
        for id_, entry in self.jobs.items():
            if ("verdict", id_) not in since and entry.verdict != (verdict := verdicts.get(id_)):
                entry.verdict = verdict
                self._job_changed(entry)

    def on_jobs(self, jobs: Iterable[Job], shard: str = "") -> None:
        for job in jobs:
            entry = self.jobs.get(job.id)
            if entry is None or entry.group or job.revision >= entry.job.revision:
                self._mark("job", job.id)
                self._put(job, withdrawn=_is_placed(job), shard=shard)

    def on_withdrawn(self, jobs: Sequence[JobId], revisions: Sequence[int]) -> None:
        for id_, revision in zip(jobs, revisions, strict=True):
            entry = self.jobs.get(id_)
            if entry is None or entry.group or revision < entry.job.revision:
                continue
            entry.job = replace(entry.job, tasks=(), revision=revision)
            entry.withdrawn, entry.verdict = True, None
            self._mark("job", id_)
            self._settle(entry)

    def on_deleted(self, id_: JobId) -> None:
        """A job that job-controller did not announce (its namespace had too many) is not withdrawn either."""
        entry = self.jobs.get(id_)
        if entry is not None and not any(pod.phase.holds for pod in entry.pods.values()):
            self._mark("job", id_)
            self._drop(id_)

    def on_verdicts(self, verdicts: Iterable[JobVerdict]) -> None:
        for verdict in verdicts:
            entry = self.jobs.get(verdict.job)
            self._mark("verdict", verdict.job)
            if entry is not None and entry.verdict != verdict:
                entry.verdict = verdict
                self._job_changed(entry)

    def on_groups(self, groups: Iterable[GroupState], shards: Mapping[JobId, str] = {}) -> None:
        """PodGroups in phase Pending are jobs of their own as long as they have no pods."""
        for group in groups:
            entry = self.jobs.get(group.id)
            self._mark("job", group.id)
            waits = group.phase is GroupPhase.PENDING and not group.gone
            if waits:
                self._groups[group.id] = group
            else:
                self._groups.pop(group.id, None)
            if waits and (entry is None or entry.group):
                self._put(job_of(group), withdrawn=False, shard=shards.get(group.id, ""), group=True)
            elif not waits and entry is not None and entry.group:
                self._drop(group.id)

    def on_pods(self, pods: Iterable[PodFact]) -> None:
        """Changes of pods that have, or had, a node."""
        for pod in pods:
            self._mark("pod", pod.uid)
            self._put_pod(pod)

    def _put_pod(self, pod: PodFact) -> None:
        if not pod.phase.holds:
            self._drop_pod(pod.uid)
            return
        former = self._pods.get(pod.uid)
        if former is not None and former != pod.job:
            self._drop_pod(pod.uid)
        entry = self.jobs.get(pod.job)
        if pod.uid not in self._pods:
            self.names.add(pod.namespace, pod.name)
        self._pods[pod.uid] = pod.job
        if entry is None:
            self._loose.setdefault(pod.job, {})[pod.uid] = self._shared.pod(pod)
        elif entry.pods.get(pod.uid) != pod:
            entry.pods[pod.uid] = self._shared.pod(pod)
            self._job_changed(entry)

    def on_waits(self, part: str, waits: Iterable[JobWait]) -> None:
        """All of one part of the jobs."""
        self._waits[part] = {wait.job: wait for wait in waits}
        self._wait_of = ChainMap(*self._waits.values())

    def knows_job(self, id_: JobId) -> bool:
        return id_ in self.jobs

    def _drop_pod(self, uid: PodUid) -> None:
        id_ = self._pods.pop(uid, None)
        if id_ is None:
            return
        entry = self.jobs.get(id_)
        held = entry.pods if entry is not None else self._loose.get(id_, {})
        pod = held.pop(uid, None)
        if pod is not None:
            self.names.remove(pod.namespace, pod.name)
        if not held:
            self._loose.pop(id_, None)
        if entry is not None:
            self._settle(entry)

    def _settle(self, entry: _Entry) -> None:
        """A job without pods to place and without pods on nodes is not listed; it stays known, since its pods may be reported later."""
        if entry.shown:
            self._job_changed(entry)
        else:
            self._drop(entry.job.id)

    def _put(self, job: Job, *, withdrawn: bool, shard: str, group: bool = False) -> None:
        job = replace(self._shared.job(job), standing=())  # what runs is listed by its pods
        former = self.jobs.get(job.id)
        if former is None:
            entry = _Entry(job, withdrawn, group, self._loose.pop(job.id, {}), shard=shard)
            self.jobs[job.id] = entry
            insort(self._order.setdefault(job.namespace, []), entry.key)
            self._name(job)
        else:
            entry = former
            if (former.job, former.withdrawn, former.group) == (job, withdrawn, group):
                return
            if former.key != (key := (job.created_at, job.name, job.id)) or former.job.namespace != job.namespace:
                self._unorder(former)
                insort(self._order.setdefault(job.namespace, []), key)
            if (former.job.namespace, former.job.name) != (job.namespace, job.name):
                self._unname(former.job)
                self._name(job)
            self._uncount(former)
            entry.job, entry.withdrawn, entry.group = job, withdrawn, group
            entry.shard = shard or entry.shard
        self._job_changed(entry)

    def _drop(self, id_: JobId) -> None:
        entry = self.jobs.pop(id_, None)
        if entry is None:
            return
        self._groups.pop(id_, None)
        self._unorder(entry)
        self._uncount(entry)
        self._unname(entry.job)
        if entry.pods:
            self._loose[id_] = entry.pods
        self._changed(Kind.JOB, id_, entry.job.namespace, entry.job.name)

    def _name(self, job: Job) -> None:
        self._named.setdefault((job.namespace, job.name), set()).add(job.id)
        self.names.add(job.namespace, job.name)

    def _unname(self, job: Job) -> None:
        named = self._named[job.namespace, job.name]
        named.discard(job.id)
        if not named:
            del self._named[job.namespace, job.name]
        self.names.remove(job.namespace, job.name)

    def _unorder(self, entry: _Entry) -> None:
        order = self._order[entry.job.namespace]
        del order[bisect_left(order, entry.key)]
        if not order:
            del self._order[entry.job.namespace]

    def _job_changed(self, entry: _Entry) -> None:
        self._uncount(entry)
        if entry.job.tasks:
            waiting = waiting_of([entry.job])
            if waiting.jobs:
                queue = entry.job.queue
                self._waiting[queue] = self._waiting.get(queue, Waiting()) + waiting
                insort(self._ages.setdefault(queue, []), entry.job.created_at)
                entry.counted = waiting
        self._below = None
        self._changed(Kind.JOB, entry.job.id, entry.job.namespace, entry.job.name)

    def _uncount(self, entry: _Entry) -> None:
        if entry.counted is None:
            return
        queue, ages = entry.job.queue, self._ages[entry.job.queue]
        del ages[bisect_left(ages, entry.job.created_at)]
        former = self._waiting[queue]
        if ages:
            self._waiting[queue] = Waiting(former.jobs - 1, former.cards - entry.counted.cards, ages[0])
        else:
            del self._waiting[queue], self._ages[queue]
        entry.counted = None
        self._below = None

    def namespaces(self) -> Iterable[str]:
        """Those with jobs."""
        return self._order.keys()

    def jobs_in(self, namespaces: Iterable[str], *, after: JobKey | None = None) -> Iterator[JobId]:
        """The jobs of these namespaces, oldest first, behind the key `after`."""
        some = [self._from(self._order[name], after) for name in namespaces if name in self._order]
        return (JobId(id_) for _, _, id_ in (some[0] if len(some) == 1 else merge(*some)))

    @staticmethod
    def _from(order: list[JobKey], after: JobKey | None) -> Iterator[JobKey]:
        start = 0 if after is None else bisect_left(order, (after[0], after[1], after[2] + "\0"))
        return (order[i] for i in range(start, len(order)))

    def key_of(self, id_: JobId) -> JobKey:
        return self.jobs[id_].key

    def shard_of(self, id_: JobId) -> str:
        return self.jobs[id_].shard

    def ids_of(self, namespace: str, name: str) -> list[JobId]:
        """Jobs of that name: usually one, for a while two where one was replaced."""
        return sorted(self._named.get((namespace, name), ()), key=lambda id_: self.jobs[id_].key)

    def job_item(self, id_: JobId, *, now: float) -> Item:
        """As `hbox jobs -o json` prints it."""
        entry = self.jobs[id_]
        job = entry.job
        if entry.withdrawn:
            held = sum(pod.phase.holds for pod in entry.pods.values())
            job = replace(job, members=held, bound=held)
        groups = [self._groups[id_]] if entry.group else []
        verdict = entry.verdict
        shards = {id_: entry.shard} if entry.shard else {}
        wait = self._wait_of.get(id_)
        [item] = job_items(
            [] if entry.group else [job],
            entry.pods.values(),
            {id_: verdict.message} if verdict else {},
            groups=groups,
            shards=shards,
            waits={id_: wait} if wait else {},
            found={id_: verdict} if verdict else {},
            now=now,
        )
        return item

    # --- nodes

    def on_node(self, node: NodeState) -> None:
        if node.gone:
            self.nodes.pop(node.name, None)
        else:
            self.nodes[node.name] = node
        self._changed(Kind.NODE, node.name)

    def on_verdict(self, verdict: Verdict, *, gone: bool) -> None:
        if gone:
            self._verdicts.pop(verdict.node, None)
        else:
            self._verdicts[verdict.node] = verdict
        self._changed(Kind.NODE, verdict.node)

    def on_rest(self, rest: NodeRest) -> None:
        if rest.refused:
            self._rests[rest.node] = rest
        else:
            self._rests.pop(rest.node, None)
        self._changed(Kind.NODE, rest.node)

    def node_item(self, name: NodeName, *, now: float) -> Item | None:
        """As `hbox nodes -o json` prints it; None if there is no such node."""
        node = self.nodes.get(name)
        if node is None:
            return None
        verdict, rest = self.verdict_on(name), self._rests.get(name)
        [item] = node_items(
            [node],
            {name: verdict} if verdict else {},
            self.claims_on(name),
            {name: rest} if rest else {},
            now=now,
        )
        return item

    def verdict_on(self, name: NodeName) -> Verdict | None:
        return self._verdicts.get(name)

    def claims_on(self, name: NodeName) -> Iterable[Claim]:
        """The live ones."""
        return self._claims_on.get(name, {}).values()

    # --- claims

    def shared(self, claims: Iterable[Claim]) -> Iterator[Claim]:
        """Live claims of a part of a snapshot, with the parts that they share: they take a quarter of the memory."""
        return (self._shared.claim(claim) for claim in claims if claim.state.live)

    def on_claims_snapshot(self, *, epoch: int, index: int, claims: Iterable[Claim], shares: Mapping[str, Resources]) -> None:
        if (epoch, index) < (self.epoch, self.index):
            return
        before = self._claims_on
        self._claims, self._claims_on = {}, {}
        for claim in claims:
            if claim.state.live:
                self._keep(claim)
        self.epoch, self.index = epoch, index
        for node in {*before, *self._claims_on}:
            if before.get(node, {}).keys() != self._claims_on.get(node, {}).keys():
                self._changed(Kind.NODE, node)
        self.on_shares(shares)

    def on_claims(self, *, epoch: int, previous: int, index: int, claims: Iterable[Claim]) -> bool:
        """Returns False if changes before `previous` are missing: the caller then reads all claims."""
        if epoch < self.epoch or (epoch == self.epoch and index <= self.index):
            return True
        if epoch != self.epoch or previous > self.index:
            return False
        for claim in claims:
            former = self._claims.pop(claim.id, None)
            if former is not None:
                on = self._claims_on[former.node]
                del on[claim.id]
                if not on:
                    del self._claims_on[former.node]
            if claim.state.live:
                self._keep(claim)
            self._changed(Kind.NODE, claim.node)
        self.index = index
        return True

    def _keep(self, claim: Claim) -> None:
        self._claims[claim.id] = claim = self._shared.claim(claim)
        self._claims_on.setdefault(claim.node, {})[claim.id] = claim

    def on_shares(self, shares: Mapping[str, Resources]) -> None:
        self._shares = {QueueName(name): share for name, share in shares.items()}
        self._tree = None

    # --- queues

    def on_queue(
        self, queue: Queue, used: Resources, *, gone: bool, recent_cards: float = 0.0, half_life_h: float = 0.0
    ) -> None:
        if gone:
            for table in (self.queues, self._used, self.recent):
                table.pop(queue.name, None)
        else:
            self.queues[queue.name], self._used[queue.name] = queue, used
            self.recent[queue.name] = recent_cards
            self.half_life_h = max(self.half_life_h, half_life_h)
        self._tree = None
        self._changed(Kind.QUEUE, queue.name)

    @property
    def tree(self) -> QueueTree:
        """With the use of each queue; computed when it is needed after a change."""
        if self._tree is None:
            self._tree = tree_of(self.queues.values(), {str(name): used for name, used in self._used.items()})
            self._tree.divide(self._shares)
            self._below = None
        return self._tree

    @property
    def known_queues(self) -> Set[str]:
        return self.queues.keys()

    def queue_names(self) -> list[QueueName]:
        """All but the root, in order."""
        return sorted({*self.queues, DEFAULT_QUEUE} - {ROOT_QUEUE})

    def waiting_below(self) -> Mapping[QueueName, Waiting]:
        """Jobs that wait, of each queue and all below it."""
        tree = self.tree
        if self._below is None:
            found: dict[QueueName, Waiting] = {}
            for name, waiting in self._waiting.items():
                for above in tree.path(name):
                    found[above] = found.get(above, Waiting()) + waiting
            self._below = found
        return self._below

    def queue_item(self, name: QueueName, *, now: float) -> Item | None:
        """As `hbox queue ls -o json` prints it; None if there is no such queue."""
        if name not in self.tree:
            return None
        return item_of(self.tree, name, self.waiting_below().get(name, Waiting()), now=now)

    def waiting_jobs(self) -> list[Job]:
        """All jobs with pods to place: for the explanation of shares."""
        return [entry.job for entry in self.jobs.values() if entry.counted is not None]


def _is_placed(job: Job) -> bool:
    """Whether all of its pods have nodes, so that its pods have the rest of its state."""
    return job.members == job.bound and not job.tasks and not job.problem
