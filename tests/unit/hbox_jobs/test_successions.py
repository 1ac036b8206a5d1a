"""How many pods of a workload are missing, as job-controller publishes it for the scheduler."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hbox_common.model import MissingPods, PodUid
from hbox_common.workloads import Kinds, Owner, OwnerRef, Submitted
from hbox_jobs.core.owners import Owners
from hbox_jobs.core.successions import Successions, declared_pods
from hbox_jobs.core.views import PodView


def pod(name: str, *, live: bool = True, node: str = "n0") -> PodView:
    return cast(PodView, SimpleNamespace(uid=PodUid(name), live=live, gated=False, node=node))


def created(of: Successions, name: str) -> None:
    of.pod(pod(name, node=""), "web")


def running(pods: int) -> Successions:
    of = Successions()
    of.declare("web", pods)
    for number in range(pods):
        of.pod(pod(f"p{number}"), "web")
    assert of.take() == (), "nothing is published while a workload starts"
    return of


def test_terminating_pod_is_missing_until_its_successor_exists() -> None:
    of = running(2)
    of.pod(pod("p0", live=False), "web")
    assert of.due
    assert of.take() == of.all() == (MissingPods("web", 1),)
    created(of, "p2")
    assert of.take() == (), "the scheduler does not know it yet"
    of.computed([PodUid("p2")])
    assert of.take() == (MissingPods("web", 0),)
    assert of.all() == ()
    assert not of.due


def test_pod_that_is_replaced_within_one_batch_was_missing() -> None:
    of = running(2)
    of.pod(pod("p0", live=False), "web")
    created(of, "p2")
    of.computed([PodUid("p2")])
    assert of.take() == (MissingPods("web", 1),)
    assert of.due
    assert of.take() == (MissingPods("web", 0),)


def test_surge_pod_is_missing_until_its_job_is_published() -> None:
    of = running(2)
    created(of, "p2")
    assert of.take() == (), "nothing is published before a pod ends"
    of.pod(pod("p0", live=False), "web")
    assert of.take() == (MissingPods("web", 1),)
    of.computed([PodUid("p2"), PodUid("of another job")])
    assert of.take() == (MissingPods("web", 0),)
    of.computed([PodUid("p2")])
    assert not of.due


def test_surge_pod_that_another_program_binds_is_not_missing() -> None:
    of = running(2)
    created(of, "p2")
    of.pod(pod("p0", live=False), "web")
    assert of.take() == (MissingPods("web", 1),)
    of.pod(pod("p2"), "web")
    assert of.take() == (MissingPods("web", 0),)


def test_surge_pod_that_gets_no_job_is_not_missing_once_it_ended() -> None:
    of = running(2)
    created(of, "p2")
    of.pod(pod("p0", live=False), "web")
    of.take()
    of.gone(PodUid("p2"))
    of.pod(pod("p3"), "web")
    assert of.take() == (), "as before"
    assert of.take() == (MissingPods("web", 0),)


def test_unpublished_pods_count_up_to_the_declared_number() -> None:
    of = running(2)
    for number in range(50):
        created(of, f"more-{number}")
    of.gone(PodUid("p0"))
    assert of.take() == (MissingPods("web", 2),)


def test_scaled_down_workload_misses_no_pod() -> None:
    of = running(3)
    of.declare("web", 1)
    of.gone(PodUid("p0"))
    of.gone(PodUid("p1"))
    assert of.take() == ()


def test_deleted_workload_misses_no_pod() -> None:
    of = running(2)
    of.pod(pod("p0", live=False), "web")
    of.take()
    of.declare("web", None)
    of.gone(PodUid("p1"))
    assert of.take() == (MissingPods("web", 0),)


def test_pod_whose_topmost_owner_becomes_known_later_is_not_missing() -> None:
    of = Successions()
    of.declare("replica-set", 1)
    of.declare("web", 1)
    of.pod(pod("p0"), "replica-set")
    of.pod(pod("p0"), "web")
    assert of.take() == ()
    of.gone(PodUid("p0"))
    assert of.take() == (MissingPods("web", 1),)


@pytest.mark.parametrize(
    ("group", "kind", "spec", "pods"),
    [
        ("apps", "Deployment", {"replicas": 3}, 3),
        ("apps", "StatefulSet", {}, 1),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": {"size": 4}}, 8),
        ("example.org", "Deployment", {"replicas": 3}, None),
        ("kubeflow.org", "PyTorchJob", {"replicas": 3}, None),
        ("argoproj.io", "Workflow", {"replicas": 3}, None),
        ("apps", "ReplicaSet", {"replicas": 0}, 0),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", {"replicas": 2}, 2),
        ("apps", "Deployment", {"replicas": "3"}, None),
        ("apps", "Deployment", {"replicas": -1}, None),
        ("apps", "Deployment", {"replicas": True}, None),
        ("apps", "Deployment", {"replicas": 2**63}, None),
        ("apps", "Deployment", [], None),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", {"leaderWorkerTemplate": 7}, None),
    ],
)
def test_pods_that_an_object_declares(group: str, kind: str, spec: Any, pods: int | None) -> None:
    assert declared_pods(Kinds.builtin().of(f"{group}/v1", kind), spec) == pods


TOP = {
    "Deployment": ([("apps/v1", "ReplicaSet"), ("apps/v1", "Deployment")], "Deployment"),
    "worker-of-leader-worker-set": ([("apps/v1", "StatefulSet"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")], "LeaderWorkerSet"),
    "Deployment-of-a-workflow": ([("apps/v1", "ReplicaSet"), ("apps/v1", "Deployment"), ("argoproj.io/v1alpha1", "Workflow")], "Deployment"),
    "step-of-a-workflow": ([("argoproj.io/v1alpha1", "Workflow")], ""),
    "task": ([("tekton.dev/v1", "TaskRun"), ("tekton.dev/v1", "PipelineRun")], ""),
    "Job": ([("batch/v1", "Job")], ""),
    "training-job": ([("kubeflow.org/v1", "PyTorchJob")], ""),
}  # fmt: skip


@pytest.mark.parametrize(("chain", "top"), TOP.values(), ids=TOP)
def test_pods_of_owners_that_replace_pods_are_a_succession(chain: list[tuple[str, str]], top: str) -> None:
    kinds = Kinds.builtin()
    refs = [OwnerRef(version, kind, kind.lower(), kind) for version, kind in chain]
    submitted = Submitted("p", "team", "p", controller=refs[0])
    below = cast(PodView, SimpleNamespace(uid=PodUid("p"), namespace="team", submitted=submitted, group=""))
    owners = Owners(kinds, lambda _: None)
    owners.place(below, 0.0)
    for ref, parent in zip(refs, [*refs[1:], None], strict=True):
        owners.put(Owner(ref, "team", parent=parent))
        owners.place(below, 0.0)
    assert owners.succession_of(below) == top
