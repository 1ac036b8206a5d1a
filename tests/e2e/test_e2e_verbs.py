"""What a user does with jobs on a running platform: submit, look, wait, change, cancel."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .platform_world import Up, until, up

pytestmark = pytest.mark.e2e

GANG = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {{name: {name}}}
spec: {{minMember: {pods}, queue: default}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  annotations: {{{notes}}}
spec:
  schedulerName: hbox
  restartPolicy: Never
  containers:
  - {{name: main, image: busybox, resources: {{limits: {{nvidia.com/gpu: "{cards}"}}}}}}
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--nodes", "2x8") as running:
        yield running


def gang(tmp_path: Path, name: str, *, pods: int, cards: int, notes: str = "") -> str:
    """A file of a PodGroup and its pods."""
    group = f"scheduling.k8s.io/group-name: {name}"
    notes = f"{group}, {notes}" if notes else group
    members = [POD.format(name=f"{name}-{i}", notes=notes, cards=cards) for i in range(pods)]
    path = tmp_path / f"{name}.yaml"
    path.write_text("---".join([GANG.format(name=name, pods=pods), *members]))
    return str(path)


def single(tmp_path: Path, name: str, *, cards: int, notes: str = "") -> str:
    path = tmp_path / f"{name}.yaml"
    path.write_text(POD.format(name=name, notes=notes, cards=cards))
    return str(path)


def done(platform: Up, *arguments: str, status: int = 0) -> str:
    """Output of a command that ends with this status."""
    found = platform.hbox(*arguments)
    assert found.returncode == status, f"{found.stdout}{found.stderr}"
    return found.stdout + found.stderr


def test_a_gang_is_submitted_shown_waited_for_and_cancelled(platform: Up, tmp_path: Path) -> None:
    output = done(platform, "submit", gang(tmp_path, "train", pods=2, cards=8))
    assert "podgroup default/train created" in output
    assert "is running" in done(platform, "wait", "train", "--for", "running", "--timeout", "30s")
    shown = platform.json("show", "train")
    assert (shown["kind"], shown["state"], shown["needed"], shown["cards"]) == ("PodGroup", "RUNNING", 2, 16)
    assert {one["node"] for one in shown["pods"]} == {"node-0001", "node-0002"}
    assert any(event["reason"] == "Scheduled" for event in shown["events"])
    assert "kubectl -n default delete pods train-0" in done(platform, "cancel", "train", "--dry-run")
    assert "--yes" in done(platform, "cancel", "train", status=5)
    assert "pod default/train-1 deleted" in done(platform, "cancel", "--yes", "train")
    until(lambda: not platform.json("jobs")["items"], timeout_s=20, what="the end of the job")
    assert "train" in done(platform, "wait", "train", status=3)


def test_a_wait_ends_at_its_timeout_with_the_reason(platform: Up, tmp_path: Path) -> None:
    done(platform, "submit", gang(tmp_path, "big", pods=3, cards=8))
    output = done(platform, "wait", "big", "--for", "bound", "--timeout", "2s", status=124)
    assert "0 of 3 pods on nodes" in output
    assert "TimeoutError" not in output
    assert "podgroup default/big: min 2" in done(platform, "set", "job", "big", "min=2")
    done(platform, "wait", "big", "--for", "bound", "--timeout", "30s")
    assert "only a pending job" in done(platform, "set", "job", "big", "queue=other", status=5)
    done(platform, "cancel", "--yes", "big")


def test_a_held_pod_waits_until_it_is_released(platform: Up, tmp_path: Path) -> None:
    done(platform, "submit", "--hold", single(tmp_path, "held", cards=1))
    done(platform, "wait", "held", "--for", "bound", "--timeout", "1s", status=124)
    assert "pod default/held released" in done(platform, "release", "held")
    done(platform, "wait", "held", "--for", "running", "--timeout", "30s")
    assert "a Pod cannot be suspended" in done(platform, "suspend", "held", status=5)
    assert "only a pending job can be held" in done(platform, "hold", "held", status=5)
    done(platform, "cancel", "--yes", "held")


def test_history_has_the_jobs_that_ended(platform: Up, tmp_path: Path) -> None:
    done(platform, "submit", single(tmp_path, "short", cards=2, notes='hbox.io/run-seconds: "1"'))
    done(platform, "wait", "short", "--timeout", "30s")

    def row() -> dict[str, object]:
        rows = platform.json("history", "short")["items"]
        return rows[0] if rows and rows[0]["state"] == "succeeded" else {}

    found = until(row, timeout_s=20, what="its end")
    assert (found["name"], found["cards"], found["attempts"], found["nodes"]) == ("default/short", 2, 1, ["node-0001"])
    assert found["ranSeconds"] >= 0
    assert "Z" in done(platform, "history", "short", "-o", "csv")
    assert "7 days" in done(platform, "history", "--since", "8d", status=5)


def test_a_wrong_field_is_found_before_anything_is_created(platform: Up, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(POD.format(name="fine", notes="", cards=1) + "---\nkind: Pod\napiVersion: v1\nmetadata: {}\nspec: {}\n")
    output = done(platform, "submit", str(path), status=5)
    assert "wrong.yaml: document 2 (Pod): metadata.name: is missing" in output
    assert "fine" not in {one["name"] for one in platform.json("jobs")["items"]}


def test_versions_of_all_services_are_those_of_the_command(platform: Up) -> None:
    found = json.loads(platform.hbox("version", "-o", "json").stdout)
    services = {one["name"]: one for one in found["services"]}
    assert {"scheduler-core", "quota-ledger", "binder", "console"} <= set(services)
    assert all(one["version"] == found["client"]["version"] and one["skew"] == "none" for one in services.values())
    assert done(platform, "version", "--check").startswith("hbox ")


def test_a_run_is_printed_as_manifests(platform: Up) -> None:
    arguments = ("run", "-g", "8", "-n", "2", "--name", "t", "--dry-run", "-o", "yaml", "--", "python", "train.py")
    job, service = yaml.safe_load_all(done(platform, *arguments))
    assert (job["kind"], service["kind"]) == ("Job", "Service")
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["python", "train.py"]


def test_a_run_starts_as_a_gang_and_is_suspended_and_resumed(platform: Up) -> None:
    assert "2 pods with 8 cards each" in done(platform, "run", "-g", "8", "-n", "2", "--name", "steps", "--", "sleep", "600")
    done(platform, "wait", "steps", "--for", "running", "--timeout", "30s")
    assert "job default/steps suspended" in done(platform, "suspend", "--yes", "steps")
    until(lambda: not platform.json("jobs")["items"], timeout_s=20, what="no pod of a suspended job")
    assert platform.json("show", "steps")["state"] == "SUSPENDED"
    done(platform, "resume", "steps")
    done(platform, "wait", "steps", "--for", "running", "--timeout", "30s")
    done(platform, "cancel", "--yes", "steps")
    until(lambda: not platform.json("jobs")["items"], timeout_s=20, what="no pod of a cancelled job")


def test_logs_of_a_run_begin_with_its_container(platform: Up) -> None:
    done(platform, "run", "-g", "1", "--name", "short", "--", "true")
    done(platform, "wait", "short", "--for", "running", "--timeout", "30s")
    assert "main" in done(platform, "logs", "short")
    done(platform, "cancel", "--yes", "short")


def test_a_plan_distinguishes_now_wait_and_never_and_changes_nothing(platform: Up, tmp_path: Path) -> None:
    small, large = gang(tmp_path, "small", pods=2, cards=8), gang(tmp_path, "large", pods=3, cards=8)
    found = platform.json("plan", small)
    assert (found["verdict"], found["pods"], found["needed"]) == ("now", 2, 2)
    assert set(found["places"].values()) == {"node-0001", "node-0002"}
    assert "can never run here" in done(platform, "plan", large, status=8)
    done(platform, "submit", single(tmp_path, "busy", cards=8))
    done(platform, "wait", "busy", "--for", "running", "--timeout", "30s")
    waits = json.loads(platform.hbox("plan", small, "-o", "json").stdout)
    assert waits["verdict"] == "waits"
    assert "a minimum of 1 pods instead of 2: so many fit now" in waits["helps"]
    assert platform.hbox("plan", small).returncode == 7
    assert {one["name"] for one in platform.json("jobs")["items"]} == {"default/busy"}
    done(platform, "cancel", "--yes", "busy")


def test_a_drained_node_is_empty_and_has_a_reason(platform: Up, tmp_path: Path) -> None:
    done(platform, "submit", single(tmp_path, "moved", cards=8))
    done(platform, "wait", "moved", "--for", "running", "--timeout", "30s")
    node = platform.json("show", "moved")["pods"][0]["node"]
    assert "--yes" in done(platform, "node", "drain", node, "--reason", "NIC 3", status=5)
    assert f"node {node} closed: NIC 3" in done(platform, "node", "drain", node, "--reason", "NIC 3", "--yes")
    row = until(
        lambda: next(
            (one for one in platform.json("nodes")["items"] if one["name"] == node and one["state"] == "CORDONED"), None
        ),
        timeout_s=20,
        what="the closed node",
    )
    assert "NIC 3" in row["reason"]
    assert f"node {node} open" in done(platform, "node", "undrain", node)


def test_waiting_jobs_are_ordered_by_priority_and_age(platform: Up, tmp_path: Path) -> None:
    for name in ("first", "second"):
        done(platform, "submit", gang(tmp_path, name, pods=3, cards=8))
    rows = until(
        lambda: rows if len(rows := platform.json("prio", "-q", "default")["items"]) == 2 else None, timeout_s=20, what="both"
    )
    assert [(row["position"], row["name"]) for row in rows] == [(1, "default/first"), (2, "default/second")]
    assert rows[1]["decidedBy"].startswith(("age", "name"))
    assert done(platform, "prio", "second").startswith("default/second  position ")
    done(platform, "cancel", "--yes", "first", "second")


def test_a_picture_has_cluster_queues_and_jobs(platform: Up, tmp_path: Path) -> None:
    done(platform, "submit", gang(tmp_path, "drawn", pods=2, cards=8))
    done(platform, "wait", "drawn", "--for", "running", "--timeout", "30s")
    lines = until(
        lambda: found if "cards 16/16 in use" in (found := done(platform, "top", "--once")) else "",
        timeout_s=20,
        what="its cards",
    ).splitlines()
    assert "nodes 2, 0 out of use" in lines[0]
    assert any(line.startswith("default ") for line in lines)
    assert any(line.startswith("default/drawn ") for line in lines)
    assert "no form json" in done(platform, "top", "-o", "json", status=5)
    done(platform, "cancel", "--yes", "drawn")
