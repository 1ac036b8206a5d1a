"""What the verbs about jobs write to Kubernetes, and what they refuse."""

from typing import Any

import click
import pytest

from hbox_cli.access.cluster import JOB, POD, POD_GROUP, Kind
from hbox_cli.times import DURATION, utc
from hbox_cli.workloads.changes import Change
from hbox_cli.workloads.following import has_ended, has_failed, members_needed, reached, state_text
from hbox_cli.workloads.runs import Run, job_of, service_of
from hbox_cli.workloads.suspending import is_suspended, suspension
from hbox_cli.workloads.targets import Target
from hbox_common.errors import InvalidRequest


def pod(name: str, phase: str = "Pending", node: str = "") -> dict[str, Any]:
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"name": name, "namespace": "ml", "uid": name}, "spec": spec, "status": {"phase": phase}}


def job(pods: list[dict[str, Any]], *, least: int = 2, ended: str = "") -> Target:
    notes = {"scheduling.volcano.sh/group-min-member": str(least)}
    conditions = [{"type": ended, "status": "True"}] if ended else []
    root = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "u", "annotations": notes},
        "spec": {"parallelism": len(pods)},
        "status": {"conditions": conditions},
    }
    return Target(root, JOB, tuple(pods))


def test_a_run_of_several_pods_is_one_gang_of_an_indexed_job() -> None:
    made = job_of(
        Run("train", ["python", "train.py"], "image", "nvidia.com/gpu", pods=4, cards=8, queue="research", env={"A": "b"})
    )
    assert made["metadata"]["annotations"] == {
        "scheduling.volcano.sh/group-min-member": "4",
        "scheduling.volcano.sh/queue-name": "research",
    }
    assert (made["spec"]["completions"], made["spec"]["parallelism"], made["spec"]["suspend"]) == (4, 4, False)
    template = made["spec"]["template"]["spec"]
    assert template["schedulerName"] == "hbox"
    assert template["subdomain"] == "train"
    (container,) = template["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env == {"MASTER_ADDR": "train-0.train", "MASTER_PORT": "29500", "NNODES": "4", "A": "b"}


def test_an_eviction_does_not_fail_a_run() -> None:
    (rule,) = job_of(Run("train", ["true"], "image", "nvidia.com/gpu"))["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def test_a_run_of_one_pod_has_no_service() -> None:
    assert service_of(Run("train", ["true"], "image", "nvidia.com/gpu")) is None
    found = service_of(Run("train", ["true"], "image", "nvidia.com/gpu", pods=2), {"metadata": {"uid": "u"}})
    assert found is not None
    assert found["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert found["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("name", ["Train", "a_b", "-a", "a" * 53, ""])
def test_a_name_that_pods_cannot_have_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest, match="--name"):
        job_of(Run(name, ["true"], "image", "nvidia.com/gpu"))


def test_a_job_is_bound_with_its_minimum_of_pods() -> None:
    one = job([pod("a", node="n1"), pod("b"), pod("c")])
    assert not reached(one, "bound")
    two = job([pod("a", node="n1"), pod("b", node="n1"), pod("c")])
    assert reached(two, "bound")
    assert not reached(two, "running")
    assert state_text(two) == "2 of 2 pods on nodes, 0 run"


def test_an_ended_job_has_been_bound_and_has_run() -> None:
    done = job([pod("a", "Succeeded", "n1")], ended="Complete")
    assert all(reached(done, state) for state in ("bound", "running", "done"))
    assert not has_failed(done)
    assert has_failed(job([pod("a", "Failed", "n1")], ended="Failed"))
    assert state_text(done) == "1 pods succeeded"


def test_a_pod_group_ends_with_its_last_pod() -> None:
    root = {"metadata": {"name": "g", "namespace": "ml"}, "spec": {"minMember": 2}}
    assert members_needed(Target(root, POD_GROUP, (pod("a"), pod("b"), pod("c")))) == 2
    assert not has_ended(Target(root, POD_GROUP, (pod("a", "Succeeded"), pod("b", "Running"))))
    assert has_ended(Target(root, POD_GROUP, (pod("a", "Succeeded"), pod("b", "Failed"))))
    assert has_failed(Target(root, POD_GROUP, (pod("a", "Succeeded"), pod("b", "Failed"))))


def test_kinds_are_suspended_by_the_field_of_their_controllers() -> None:
    assert suspension(job([]), suspended=True) == {"spec": {"suspend": True}}
    torch = Kind("kubeflow.org/v1", "PyTorchJob", "pytorchjobs")
    root = {"metadata": {"name": "t", "namespace": "ml"}, "spec": {"runPolicy": {"suspend": True}}}
    assert is_suspended(Target(root, torch, ()))
    assert suspension(Target(root, torch, ()), suspended=False) == {"spec": {"runPolicy": {"suspend": False}}}


def test_a_kind_without_such_a_field_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidRequest, match="pod ml/a: a Pod cannot be suspended") as caught:
        suspension(Target(pod("a"), POD, ()), suspended=True)
    assert "hbox run" in caught.value.hint
    sets = Kind("apps/v1", "StatefulSet", "statefulsets")
    with pytest.raises(InvalidRequest) as caught:
        suspension(Target(pod("a"), sets, ()), suspended=True)
    assert caught.value.hint == "kubectl -n ml scale statefulsets a --replicas 0"


def test_a_dry_run_prints_the_command_of_kubectl() -> None:
    patch = Change("patch", POD_GROUP, "ml", "g", "", {"spec": {"queue": "a'b"}})
    shown = patch.kubectl()
    assert shown.startswith("kubectl -n ml patch podgroups.scheduling.volcano.sh g --type merge -p ")
    assert Change("delete", JOB, "ml", "t", "").kubectl() == "kubectl -n ml delete jobs t"


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("2h30m", 9000), ("7d", 604_800)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10x", "-5m", "5 m"])
def test_what_is_no_duration_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


def test_moments_are_utc_with_the_date() -> None:
    assert utc(0) == "1970-01-01 00:00:00Z"
