"""`hbox job lint` and `hbox kinds`: the gangs of manifests, and files of kinds, without a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.exits import Exit
from hbox_common.workloads import Kinds

from ... import forked

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "workloads"
REPLICAS = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}


def hbox(*arguments: str) -> tuple[int, str, str]:
    done = forked.run(*arguments, timeout_s=60, env=dict(os.environ))
    return done.returncode, done.stdout, done.stderr


def manifest(folder: Path, kind: str, version: str, spec: dict[str, Any], **meta: Any) -> str:
    file = folder / "job.json"
    file.write_text(json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "train", **meta}, "spec": spec}))
    return str(file)


def gangs(path: str) -> list[dict[str, Any]]:
    status, out, err = hbox("job", "lint", path, "-o", "json")
    assert (status, err) == (0, "")
    found: list[dict[str, Any]] = json.loads(out)["items"][0]["gangs"]
    return found


def test_the_gang_of_a_pytorchjob_is_printed_with_the_fields_that_decide_it(tmp_path: Path) -> None:
    policy = {"schedulingPolicy": {"minAvailable": 2, "queue": "research", "priorityClass": "high"}}
    path = manifest(tmp_path, "PyTorchJob", "kubeflow.org/v1", {"pytorchReplicaSpecs": REPLICAS, "runPolicy": policy})
    status, out, _ = hbox("job", "lint", path)
    assert status == 0
    for line in (
        "minimum     2 of 4 pods",
        "sub-group   Master: 1, at least 1",
        "queue       research",
        "class       high",
        "minimum 2: spec.runPolicy.schedulingPolicy.minAvailable of PyTorchJob train",
    ):
        assert line in out


def test_each_replica_of_a_leaderworkerset_is_a_gang(tmp_path: Path) -> None:
    path = manifest(
        tmp_path, "LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", {"replicas": 2, "leaderWorkerTemplate": {"size": 4}}
    )
    (gang,) = gangs(path)
    assert gang["min_member"] == 4
    assert [(one["name"], one["min"]) for one in gang["sub_groups"]] == [("leader", 1), ("worker", 3)]


def test_replicated_jobs_in_order_are_gangs_of_their_own(tmp_path: Path) -> None:
    jobs = [
        {"name": name, "replicas": n, "template": {"spec": {"parallelism": 2}}} for name, n in (("leader", 1), ("worker", 3))
    ]
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    path = manifest(tmp_path, "JobSet", "jobset.x-k8s.io/v1alpha2", spec)
    assert [(one["part"], one["min_member"]) for one in gangs(path)] == [("leader", 2), ("worker", 6)]


def test_a_deployment_without_a_minimum_makes_single_pods(tmp_path: Path) -> None:
    path = manifest(tmp_path, "Deployment", "apps/v1", {"replicas": 3})
    status, out, _ = hbox("job", "lint", path)
    assert (status, "single pods: Deployment makes no gang without" in out) == (0, True)


@pytest.mark.parametrize(
    ("kind", "version"),
    [("RayJob", "ray.io/v1"), ("TrainJob", "trainer.kubeflow.org/v1alpha1"), ("Workflow", "argoproj.io/v1alpha1")],
)
def test_the_kind_below_a_kind_without_pods_decides(tmp_path: Path, kind: str, version: str) -> None:
    status, out, _ = hbox("job", "lint", manifest(tmp_path, kind, version, {}))
    assert (status, f"gang        the kind below {kind} decides" in out, "single pods: " in out) == (0, True, False)


def test_the_gang_of_an_object_with_an_owner_is_printed(tmp_path: Path) -> None:
    """As `kubectl get -o yaml` writes a RayCluster that a RayJob created."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "u", "controller": True}
    groups = [{"groupName": "workers", "replicas": 3}]
    path = manifest(tmp_path, "RayCluster", "ray.io/v1", {"workerGroupSpecs": groups}, ownerReferences=[owner])
    status, out, _ = hbox("job", "lint", path)
    assert status == 0
    assert "minimum     4 of 4 pods" in out
    assert "its owner RayJob job is not read here" in out


@pytest.mark.parametrize("least", ["four", "-1", "", "9" * 13])
def test_a_minimum_that_is_no_number_is_wrong(tmp_path: Path, least: str) -> None:
    notes = {"scheduling.volcano.sh/group-min-member": least}
    status, out, _ = hbox("job", "lint", manifest(tmp_path, "Deployment", "apps/v1", {"replicas": 3}, annotations=notes))
    assert status == Exit.FAILED
    assert f"annotation scheduling.volcano.sh/group-min-member is {least!r}: write a whole number" in out
    assert "minimum     1" in out


def test_a_wrong_field_is_named_and_the_status_is_one(tmp_path: Path) -> None:
    wrong = {"pytorchReplicaSpecs": {"Worker": {"replicas": "three"}}}
    status, out, err = hbox("job", "lint", manifest(tmp_path, "PyTorchJob", "kubeflow.org/v1", wrong))
    assert status == Exit.FAILED
    assert "spec.pytorchReplicaSpecs.Worker.replicas is 'three': write a whole number" in out
    assert "Traceback" not in err


def test_a_file_without_workloads_is_refused(tmp_path: Path) -> None:
    status, _, err = hbox("job", "lint", manifest(tmp_path, "ConfigMap", "v1", {}))
    assert (status, "the files have no workload that makes pods" in err) == (Exit.INVALID, True)


def test_pods_that_name_another_scheduler_get_a_note(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "main"}], "schedulerName": "volcano"}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    _, out, _ = hbox("job", "lint", manifest(tmp_path, "PyTorchJob", "kubeflow.org/v1", spec))
    assert "schedulerName of its pods is volcano" in out


def test_kinds_are_listed_and_the_file_of_each_is_a_valid_example(tmp_path: Path) -> None:
    status, out, _ = hbox("kinds", "ls", "-o", "json")
    listed = json.loads(out)["items"]
    assert (status, len(listed)) == (0, len(list(Kinds.builtin())))
    for one in listed[::9]:
        shown = hbox("kinds", "show", f"{one['plural']}.{one['group']}")
        file = tmp_path / "kind.yaml"
        file.write_text(shown[1])
        status, out, _ = hbox("kinds", "check", str(file))
        assert (shown[0], status, "in place of the built-in one" in out) == (0, 0, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Training\n", "group: is missing"),
        ("[]", "holds no fields"),
        ("", "is empty"),
        ("group: a.b\nversions: [one]\nkind: Training\nplural: trainings\n", "versions[0]: 'one' is no version"),
        ("group: a.b\nversions: [v1]\nkind: Training\nplural: trainings\nrole: x\n", "role: is no field of a kind"),
    ],
)
def test_a_wrong_file_of_a_kind_is_refused_with_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "training.yaml"
    file.write_text(text)
    status, _, err = hbox("kinds", "check", str(file))
    assert status == Exit.INVALID
    assert "training.yaml" in err
    assert message in err


def test_an_unknown_kind_is_answered_with_the_nearest_one() -> None:
    status, _, err = hbox("kinds", "show", "PyTorchJub")
    assert (status, "did you mean PyTorchJob?" in err) == (Exit.NOT_FOUND, True)


def test_the_guides_examples_have_no_wrong_field() -> None:
    status, out, err = hbox("job", "lint", str(GUIDE), "-o", "json")
    assert (status, err) == (0, "")
    least = {
        one["workload"].partition(" ")[0]: [gang["min_member"] for gang in one["gangs"]] for one in json.loads(out)["items"]
    }
    assert {
        len(gangs)
        for name, gangs in least.items()
        if name.startswith(("pytorchjob/", "mpijob/", "raycluster/", "leaderworkerset/"))
    } == {1}
    assert (
        min(least[name][0] for name in least if least[name] and name.startswith(("pytorchjob/", "mpijob/", "raycluster/"))) > 1
    )


def test_the_guide_links_each_example() -> None:
    text = GUIDE.with_suffix(".md").read_text()
    assert [file.name for file in GUIDE.glob("*.yaml") if f"workloads/{file.name}" not in text] == []


def test_sub_groups_of_a_leaderworkerset_are_printed(tmp_path: Path) -> None:
    template = {"size": 5, "subGroupPolicy": {"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"}}
    path = manifest(tmp_path, "LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", {"leaderWorkerTemplate": template})
    _, out, _ = hbox("job", "lint", path)
    assert "divided     by label leaderworkerset.sigs.k8s.io/subgroup-index: 2 of 2 pods, soft" in out
    assert gangs(path)[0]["divided_by"][0]["min_sub_groups"] == 2


def test_the_gang_of_a_podgang_is_printed_with_its_topology(tmp_path: Path) -> None:
    pack = {"topologyConstraint": {"packConstraint": {"required": "example.org/rack"}}}
    spec = {"podgroups": [{"name": "prefill", "minReplicas": 2, **pack}, {"name": "decode", "minReplicas": 3}]}
    _, out, _ = hbox("job", "lint", manifest(tmp_path, "PodGang", "scheduler.grove.io/v1alpha1", spec))
    for line in (
        "minimum     5 of 5 pods",
        "sub-group   decode: 3, at least 3",
        "divided     prefill: 2 pods, hard, at most tier example.org/rack",
    ):
        assert line in out


def test_an_indexed_job_names_the_setting_that_makes_it_a_gang(tmp_path: Path) -> None:
    _, out, _ = hbox("job", "lint", manifest(tmp_path, "Job", "batch/v1", {"completionMode": "Indexed", "parallelism": 4}))
    assert "single pods: " in out
    assert (
        "with the setting indexedJobs: gang, or the label hbox.io/indexed-jobs=gang of its namespace, 4 pods are a gang" in out
    )


def test_defaults_of_a_file_are_checked_and_printed(tmp_path: Path) -> None:
    file = tmp_path / "defaults.yaml"
    file.write_text("defaultsFor: [pytorchjobs.kubeflow.org]\ndefaults: {queue: training, minimum: 2}\n")
    assert "defaults for pytorchjobs.kubeflow.org are valid" in hbox("kinds", "check", str(file))[1]
    assert "defaults:\n  queue: training\n  minimum: 2\n" in hbox("kinds", "show", "PyTorchJob", "--kinds", str(file))[1]
    assert "defaults:" not in hbox("kinds", "show", "TFJob", "--kinds", str(file))[1]
    path = manifest(tmp_path, "PyTorchJob", "kubeflow.org/v1", {"pytorchReplicaSpecs": REPLICAS})
    _, out, _ = hbox("job", "lint", path, "--kinds", str(file))
    assert "minimum     2 of 4 pods" in out
    assert "defaults    queue training, minimum 2" in out
