"""Simulated gangs of pods without a PodGroup: their owners in the file decide."""

import json
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.simulate.cluster_file import SavedCluster, cluster_of
from hbox_cli.simulate.documents import documents_of

TRAIN = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "u-train", "controller": True}


def owner(**spec: Any) -> dict[str, Any]:
    replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team", "uid": "u-train", "annotations": {"scheduling.volcano.sh/queue-name": "research"}},
        "spec": {"pytorchReplicaSpecs": replicas, **spec},
    }  # fmt: skip


def pod(name: str, role: str, **meta: Any) -> dict[str, Any]:
    labels = {"training.kubeflow.org/replica-type": role}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "labels": labels, "ownerReferences": [TRAIN], **meta},
        "spec": {"schedulerName": "hbox", "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
    }


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "10"}}}
PODS = [pod("m", "master"), pod("w0", "worker"), pod("w1", "worker")]


def read(folder: Path, *objects: dict[str, Any]) -> SavedCluster:
    file = folder / "cluster.yaml"
    file.write_text("---\n".join(json.dumps(one) + "\n" for one in objects))
    return cluster_of(documents_of(file), schedulers={"hbox"}, now=0.0)


def test_pods_of_a_pytorchjob_are_one_gang_in_the_owners_queue(tmp_path: Path) -> None:
    (gang,) = read(tmp_path, NODE, *PODS, owner()).cluster.gangs
    assert (gang.name, gang.queue, gang.min_member) == ("pytorchjob/train", "research", 3)
    assert sorted(member.role for member in gang.members) == ["Master", "Worker", "Worker"]


def test_pods_without_their_owner_are_single_and_the_file_gets_a_warning(tmp_path: Path) -> None:
    saved = read(tmp_path, NODE, *PODS)
    assert sorted(gang.min_member for gang in saved.cluster.gangs) == [1, 1, 1]
    assert saved.warnings == (
        "PyTorchJob train is not in the file: pods that it owns are single pods: team/m, team/w0, team/w1",
    )


def test_a_podgroup_has_precedence_over_the_owner(tmp_path: Path) -> None:
    named = [pod(one["metadata"]["name"], "worker", annotations={"scheduling.k8s.io/group-name": "pg"}) for one in PODS]
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "pg", "namespace": "team"},
        "spec": {"minMember": 2},
    }
    (gang,) = read(tmp_path, NODE, *named, owner(), group).cluster.gangs
    assert (gang.name, gang.min_member) == ("pg", 2)


@pytest.mark.parametrize("where", ["other", "team"])
def test_an_owner_of_another_namespace_or_uid_makes_no_gang(tmp_path: Path, where: str) -> None:
    stranger = owner()
    stranger["metadata"] |= {"namespace": where, "uid": "u-train" if where == "other" else "another"}
    saved = read(tmp_path, NODE, *PODS, stranger)
    assert sorted(gang.min_member for gang in saved.cluster.gangs) == [1, 1, 1]


def test_pod_groups_without_a_uid_are_gangs_of_their_own(tmp_path: Path) -> None:
    groups: list[dict[str, Any]] = [
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"minMember": least},
        }
        for name, least in (("first", 1), ("second", 2))
    ]
    members = [
        pod(f"{name}-{number}", "worker", ownerReferences=[], labels={"scheduling.x-k8s.io/pod-group": name})
        for name in ("first", "second")
        for number in range(2)
    ]
    found = read(tmp_path, NODE, *members, *groups).cluster.gangs
    assert sorted((gang.name, gang.min_member, len(gang.members)) for gang in found) == [
        ("podgroup/first", 1, 2),
        ("podgroup/second", 2, 2),
    ]
