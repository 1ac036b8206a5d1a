"""The operator's Job of the validation gate: which manifests are taken, and what HBox sets of them."""

import json
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.health.gatejob import KEPT_S, MOST_BYTES, GateJob, deadline_of, manifest_of, rendered

YAML = """
apiVersion: batch/v1
kind: Job
metadata: {name: mine, namespace: elsewhere, labels: {team: infra}, ownerReferences: [{uid: x}], finalizers: [a/b]}
spec:
  backoffLimit: 6
  suspend: true
  template:
    spec:
      restartPolicy: OnFailure
      schedulerName: hbox
      containers:
      - {name: nccl, image: nccl-tests, command: [all_reduce_perf], env: [{name: HBOX_CARDS, value: all}]}
"""


def a_job(manifest: str = YAML, *cards: str) -> GateJob:
    return GateJob("n1-1f-2", 3, "gpu:GPU-a", cards or ("GPU-a",), manifest_of(manifest), 600)


def changed(**pod: Any) -> str:
    manifest = json.loads(manifest_of(YAML))
    manifest["spec"]["template"]["spec"] |= pod
    return json.dumps(manifest)


def env_of(job: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}


def test_the_job_runs_once_on_the_node_past_its_cordon_by_no_scheduler() -> None:
    job = rendered(a_job(), node="n1", namespace="gate")
    assert job["metadata"] == {
        "name": a_job().name,
        "namespace": "gate",
        "labels": {"team": "infra", "app.kubernetes.io/managed-by": "hbox"},
        "annotations": {"hbox.io/incident": "n1-1f-2", "hbox.io/entity": "gpu:GPU-a", "hbox.io/node": "n1"},
    }
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    fixed = {name: spec[name] for name in ("backoffLimit", "parallelism", "completions", "activeDeadlineSeconds", "suspend")}
    assert fixed == {"backoffLimit": 0, "parallelism": 1, "completions": 1, "activeDeadlineSeconds": 600, "suspend": False}
    assert spec["ttlSecondsAfterFinished"] == KEPT_S
    assert (pod["nodeName"], pod["restartPolicy"], pod["schedulerName"]) == ("n1", "Never", "default-scheduler")
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_the_program_receives_its_cards_by_uuid() -> None:
    env = env_of(rendered(a_job(YAML, "GPU-a", "GPU-b"), node="n1", namespace="gate"))
    assert env == {
        "HBOX_NODE": "n1",
        "HBOX_ENTITY": "gpu:GPU-a",
        "HBOX_CARDS": "GPU-a,GPU-b",
        "HBOX_INCIDENT": "n1-1f-2",
        "HBOX_ATTEMPT": "3",
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
    }


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_a_container_with_cards_of_the_device_plugin_keeps_these(resource: str) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {resource: 8}}}
    env = env_of(rendered(a_job(changed(containers=[container])), node="n1", namespace="gate"))
    assert "NVIDIA_VISIBLE_DEVICES" not in env


def test_the_name_follows_from_incident_and_attempt() -> None:
    first, second = GateJob("i/1.é", 1, "", (), "", 0), GateJob("i/1.é", 2, "", (), "", 0)
    assert first.name != second.name
    assert first.name == GateJob("i/1.é", 1, "node", ("x",), "y", 7).name
    assert first.name.replace("-", "").isalnum()
    assert first.name.isascii()


def test_the_deadline_is_the_manifests_or_the_default() -> None:
    assert deadline_of(manifest_of(YAML), 900.0) == 900
    assert deadline_of(json.dumps({"spec": {"activeDeadlineSeconds": 60}}), 900.0) == 60


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a Job of batch/v1 is expected"),
        ("{", "column 1"),
        ("apiVersion: v1\nkind: Pod\n", "a Job of batch/v1 is expected"),
        ("apiVersion: batch/v1\nkind: Job\n", "spec: a mapping is expected"),
        (changed(containers=[]), "a container is expected"),
        (changed(containers=[{"name": "c"}]), "containers[0]: an image is expected"),
        (changed(containers=[{"name": "c", "image": "i", "env": {"A": "b"}}]), "env is a list"),
        (changed(initContainers=["x"]), "containers are mappings"),
        (changed(initContainers=5), "initContainers: a list is expected"),
        (changed(initContainers=True), "initContainers: a list is expected"),
        (changed(initContainers={"name": "x"}), "initContainers: a list is expected"),
        (changed(nodeName="n2"), "spec.template.spec.nodeName: HBox sets the node"),
        (changed(affinity={"nodeAffinity": {}}), "spec.template.spec.affinity: HBox sets the node"),
        (changed().replace('"backoffLimit": 6', '"parallelism": 2'), "spec.parallelism: one pod on one node is expected"),
        (changed().replace('"backoffLimit": 6', '"activeDeadlineSeconds": 0'), "spec.activeDeadlineSeconds"),
        (changed().replace('"backoffLimit": 6', '"activeDeadlineSeconds": true'), "spec.activeDeadlineSeconds"),
        (changed(hostname="x" * MOST_BYTES), "bytes, at most"),
        (f"{YAML}---\n{YAML}", "2 documents"),
    ],
)
def test_a_manifest_that_cannot_run_on_one_node_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        manifest_of(text)
    assert why in refused.value.message


def test_a_manifest_of_a_message_is_checked_again() -> None:
    with pytest.raises(InvalidRequest):
        rendered(GateJob("i", 1, "node", (), '{"apiVersion": "v1", "kind": "Pod"}', 60), node="n1", namespace="gate")
