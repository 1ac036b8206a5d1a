"""Jobs, pods, nodes and claims for tests of the console."""

from collections.abc import Sequence

from hbox_common.model import (
    Card,
    CardRequest,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Generation,
    GroupPhase,
    GroupState,
    Job,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    PodGroupTask,
    PodPhase,
    PodRef,
    PodUid,
    QueueName,
)
from hbox_console.core.model import ReadModel

GPU = "nvidia.com/gpu"


def take_snapshot(model: ReadModel, jobs: Sequence[Job], pods: Sequence[PodFact] = ()) -> None:
    """A snapshot of one part."""
    model.on_listed(jobs, {})
    model.on_listed_pods(pods)
    model.on_all_listed({job.id for job in jobs}, {pod.uid for pod in pods}, {}, [], {})


def a_job(
    namespace: str, name: str, *, queue: str = "default", waiting: int = 1, bound: int = 0, at: float = 100.0, revision: int = 1
) -> Job:
    """A gang of pods with two cards each."""
    pods = tuple(PodRef(PodUid(f"{namespace}-{name}-{i}"), f"{name}-{i}", "1") for i in range(waiting))
    tasks = (PodGroupTask("main", {"pods": 1, GPU: 2}, pods, CardRequest(2)),) if pods else ()
    id_ = JobId(f"id-{namespace}-{name}")
    return Job(id_, namespace, name, QueueName(queue), 0, 1, waiting + bound, bound, at, revision, tasks)


def a_pod(job: Job, number: int = 0, *, phase: PodPhase = PodPhase.RUNNING, node: str = "n1") -> PodFact:
    name = f"{job.name}-{number}"
    uid = PodUid(f"{job.namespace}-{name}")
    return PodFact(uid, job.namespace, name, phase, NodeName(node), job.id, job.queue, 0, {GPU: 2}, cards=2)


def a_group(namespace: str, name: str, *, phase: GroupPhase = GroupPhase.PENDING, gone: bool = False) -> GroupState:
    id_ = JobId(f"id-{namespace}-{name}")
    return GroupState(id_, namespace, name, QueueName("default"), 0, 2, 50.0, {GPU: 4}, 1, phase=phase, gone=gone)


def a_node(name: str, cards: int = 8) -> NodeState:
    every = tuple(Card(i, f"{name}-{i}", "H100", 80_000) for i in range(cards))
    return NodeState(NodeName(name), f"uid-{name}", Generation(1), True, allocatable={GPU: cards, "pods": 100}, cards=every)


def a_claim(job: Job, *, node: str, cards: int = 2, live: bool = True) -> Claim:
    state = ClaimState.POSTED if live else ClaimState.VOID
    slices = tuple(CardSlice(i, 100, 80_000) for i in range(cards))
    pod = f"{job.name}-0"
    return Claim(
        ClaimId(f"claim-{job.namespace}-{pod}"),
        PodUid(f"{job.namespace}-{pod}"),
        job.namespace,
        pod,
        job.id,
        PlanId(""),
        job.queue,
        0,
        NodeName(node),
        {GPU: cards},
        slices,
        state,
    )
